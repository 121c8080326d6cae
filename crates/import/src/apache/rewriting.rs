//! Rewriting of a virtual host, as far as the engine of `.htaccess` files does not do it: forwarding.
//!
//! The idea: all of it stays text, in its order and with its conditions; in the place of a rule that
//! forwards stands one that sets a variable, by which a rule of the site does it.

use htaccess::words::rewrite_arguments;

use super::ApacheLine;
use super::programs::proxy_to;
use super::site::HostWork;
use crate::draft::{DraftKeys, member};
use crate::words;

/// The flag of a rule that goes on behind all others, until it is known how many these are.
const PASSES: &str = "S=65535";

/// Rules in which each that goes on behind all others says how many these are.
pub(super) fn passing(rules: &str) -> String {
    let is_rule = |line: &&str| {
        line.trim_start()
            .to_ascii_lowercase()
            .starts_with("rewriterule")
    };
    let mut left = rules.lines().filter(is_rule).count();
    let mut text = String::new();
    for line in rules.lines() {
        left -= usize::from(is_rule(&line));
        text.push_str(&line.replace(PASSES, &format!("S={left}")));
        text.push('\n');
    }
    text
}

/// A text with our variables; groups are those of an expression.
pub(super) fn template(text: &str, regex: &str) -> Option<String> {
    const VARIABLES: [(&str, &str); 8] = [
        ("%{HTTP_HOST}", "${host}"),
        ("%{SERVER_NAME}", "${host}"),
        ("%{HTTP:Host}", "${host}"),
        ("%{REQUEST_URI}", "${path}"),
        ("%{QUERY_STRING}", "${query}"),
        ("%{REMOTE_ADDR}", "${client}"),
        ("%{REQUEST_METHOD}", "${method}"),
        ("%{REQUEST_SCHEME}", "${scheme}"),
    ];
    let groups = words::groups(regex);
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let known = VARIABLES.iter().find(|(name, _)| rest.starts_with(name));
        if let Some((name, ours)) = known {
            out.push_str(ours);
            rest = rest.get(name.len()..)?;
            continue;
        }
        let behind = rest.get(c.len_utf8()..)?;
        let digit = behind.chars().next().and_then(|it| it.to_digit(10));
        match (c, digit) {
            ('$', Some(digit)) if digit as usize <= groups => {
                out.push_str(&format!("${{{digit}}}"));
                rest = behind.get(1..)?;
                continue;
            }
            ('$', Some(_)) | ('%', Some(_)) => return None,
            ('%', None) if behind.starts_with('{') => return None,
            ('$', None) => out.push_str("$$"),
            ('\\', None) => {}
            (c, _) if c.is_control() || !c.is_ascii_graphic() => return None,
            (c, _) => out.push(c),
        }
        rest = behind;
    }
    Some(out)
}

/// Whether all that a virtual host does is to redirect to TLS.
pub(super) fn goes_to_tls(body: &[&ApacheLine], hosts: &[String]) -> bool {
    let mut redirects = false;
    for line in body {
        let last = line
            .words
            .iter()
            .rev()
            .find(|word| word.starts_with("https://"));
        let rest = last
            .and_then(|it| it.strip_prefix("https://"))
            .unwrap_or_default();
        let host = rest.split('/').next().unwrap_or_default();
        match line.name.as_str() {
            "redirect" | "redirectpermanent" => {
                let is_all = line.words.iter().any(|word| word == "/");
                redirects |= is_all && hosts.iter().any(|it| it == host);
                if !is_all || !redirects {
                    return false;
                }
            }
            "rewriterule" => {
                let is_it = ["%{HTTP_HOST}", "%{SERVER_NAME}"]
                    .iter()
                    .any(|it| rest.starts_with(it));
                if !is_it {
                    return false;
                }
                redirects = true;
            }
            "proxypass" | "proxypassmatch" | "alias" | "scriptalias" | "sethandler"
            | "redirectmatch" => return false,
            _ => {}
        }
    }
    redirects
}

impl<'a> HostWork<'_, 'a> {
    /// The lines as they are obeyed; makes rules of those that forward. Where `ProxyPass` does as well
    /// those that lead to files say so.
    pub(super) fn rewriting(
        &mut self,
        lines: &[&'a ApacheLine],
        all: &[&'a ApacheLine],
    ) -> Vec<ApacheLine> {
        let within = all.iter().flat_map(|line| line.children.iter().flatten());
        let mut said = all.iter().copied().chain(within);
        let has_proxies = said.any(|line| line.name.starts_with("proxypass"));
        let ledger = self.apache.ledger;
        let last = lines.iter().rev().find(|it| it.name == "rewriteengine");
        let is_on = last.is_some_and(|line| line.is_on());
        let has_rules = lines.iter().any(|line| line.name == "rewriterule");
        if !is_on || !has_rules {
            for line in lines {
                ledger.idle(line.id, "`RewriteEngine` is not on, or there is no rule");
            }
            return Vec::new();
        }
        let mut out = Vec::new();
        for line in lines {
            let rule = (line.name == "rewriterule").then(|| RewriteLine::read(line));
            let text = match rule.flatten() {
                _ if line.odd().is_some() => None,
                Some(rule) if rule.forwards() => Some(self.forwarding(line, &rule, all)),
                Some(rule) if has_proxies && rule.leads_to_files() => {
                    self.translates = true;
                    Some(rule.marked(&line.text))
                }
                _ if line.name == "rewritebase" => {
                    ledger.idle(line.id, "a virtual host has no base");
                    continue;
                }
                _ => None,
            };
            out.push(ApacheLine {
                text: text.map_or_else(|| line.text.clone(), String::into_bytes),
                ..(*line).clone()
            });
        }
        out
    }

    /// What stands in the place of a rule that forwards; where that is not known it refuses.
    fn forwarding(
        &mut self,
        line: &'a ApacheLine,
        rule: &RewriteLine,
        all: &[&'a ApacheLine],
    ) -> String {
        let name = format!("forward_{}", self.early.len() + 1);
        let target = self.known_upstream(&rule.target);
        let made = target.and_then(|to| rule.forwarded(&name, to, self.keeps_host(all)));
        let Some(mut made) = made else {
            let note = "where it forwards to is not known: nobody comes in where it did, write a rule with `proxy`";
            self.apache.ledger.lost(line.id, note);
            return rule.replaced("F").unwrap_or_else(|| "^ - [F]".to_owned());
        };
        made.note(&[line.id]);
        self.early.push(made);
        self.apache.ledger.carried(line.id);
        rule.replaced(&format!("E={name}:1,END"))
            .unwrap_or_default()
    }
}

/// A `RewriteRule`.
pub(super) struct RewriteLine {
    pattern: String,
    target: String,
    flags: Vec<String>,
}

impl RewriteLine {
    pub(super) fn read(line: &ApacheLine) -> Option<Self> {
        let (pattern, target, flags) = rewrite_arguments(&line.text)?;
        let [pattern, target, flags] = [pattern, target, flags.unwrap_or_default()]
            .map(|it| String::from_utf8_lossy(&it).into_owned());
        let flags = flags.trim_matches(['[', ']']).split(',');
        Some(Self {
            pattern,
            target,
            flags: flags.map(|flag| flag.trim().to_owned()).collect(),
        })
    }

    fn has(&self, names: &[&str]) -> bool {
        let is_one = |flag: &String| names.iter().any(|it| flag.eq_ignore_ascii_case(it));
        self.flags.iter().any(is_one)
    }

    /// Whether it refuses what it finds.
    pub(super) fn forbids(&self) -> bool {
        let is_refusal = |status: u16| (400..=599).contains(&status);
        self.has(&["F", "forbidden", "G", "gone"]) || self.redirect().is_some_and(is_refusal)
    }

    fn forwards(&self) -> bool {
        self.has(&["P", "proxy"])
    }

    /// Whether it may lead to files of the root.
    pub(super) fn leads_to_files(&self) -> bool {
        !self.forwards() && !self.forbids() && self.redirect().is_none() && self.target != "-"
    }

    /// A rule for the same paths that changes none.
    fn replaced(&self, flags: &str) -> Option<String> {
        let folds = self.has(&["NC", "nocase"]);
        let folds = if folds { ",NC" } else { "" };
        let is_fine = !self.pattern.contains('"') && !self.pattern.contains("\\\\");
        is_fine.then(|| format!("\"{}\" - [{flags}{folds}]", self.pattern))
    }

    /// The same rule, which says as well that it was met; one that hands its path on to `ProxyPass`
    /// goes on there.
    fn marked(&self, text: &[u8]) -> String {
        let flags = rewrite_arguments(text).and_then(|(_, _, flags)| flags);
        let flags = flags.map(|it| String::from_utf8_lossy(&it).into_owned());
        let text = String::from_utf8_lossy(text);
        let text = text.trim_end();
        let place = flags.and_then(|it| Some((text.rfind(&it)?, it.len())));
        let Some((before, after)) =
            place.and_then(|(at, len)| Some((text.get(..at)?, text.get(at + len..)?)))
        else {
            return format!("{text} [E=translated:1]");
        };
        let passes = self.has(&["PT", "passthrough"]);
        let ends = ["PT", "passthrough", "L", "last"];
        let is_kept =
            |flag: &&String| !passes || !ends.iter().any(|it| flag.eq_ignore_ascii_case(it));
        let kept = self.flags.iter().filter(is_kept).map(String::as_str);
        let more = if passes { PASSES } else { "E=translated:1" };
        let flags: Vec<&str> = kept.chain([more]).collect();
        format!("{before}[{}]{after}", flags.join(","))
    }

    /// A line that refuses all that this one may refuse.
    pub(super) fn closing(&self) -> Option<String> {
        let text = self.replaced("F").filter(|_| self.forbids());
        text.map(|text| format!("RewriteRule {text}\n"))
    }

    /// The rule of a site that forwards what was met.
    fn forwarded(&self, name: &str, to: (String, String), keeps_host: bool) -> Option<DraftKeys> {
        let mut members = vec![member("server_env", name)];
        let mut regex = String::new();
        if self.target.contains('$') {
            let is_plain = !self.pattern.starts_with('!');
            let found = words::expression(&self.pattern, self.has(&["NC", "nocase"]));
            regex = found.filter(|_| is_plain)?;
            members.push(member("path_regex", regex.as_str()));
        }
        let (upstream, path) = to;
        let path = template(&path, &regex)?;
        let path = Some(path).filter(|it| !it.is_empty());
        let path = path.unwrap_or_else(|| "/".to_owned());
        self.replaced("")?;
        let mut rule = DraftKeys::rule(members, &[]);
        let proxy = vec![member("upstream", upstream), member("path", path)];
        rule.put_in("handler", "proxy", proxy_to(proxy, keeps_host), &[]);
        Some(rule)
    }

    /// The status it redirects with, if it does.
    fn redirect(&self) -> Option<u16> {
        let said = self
            .flags
            .iter()
            .find_map(|flag| match flag.split_once('=') {
                Some((name, code)) if ["r", "redirect"].contains(&&*name.to_ascii_lowercase()) => {
                    code.parse().ok().or(Some(302))
                }
                _ => None,
            });
        let is_redirect = self.has(&["R", "redirect"]);
        let leads_away = self.target.contains("://") && !self.forwards();
        said.or((is_redirect || leads_away).then_some(302))
    }
}
