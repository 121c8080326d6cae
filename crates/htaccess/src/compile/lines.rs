//! Lines by what they are about; those of rewriting, redirecting and PHP.

use super::{Block, Compiler, Wrong};
use crate::access::Methods;
use crate::directives::{KnownDirective, Meaning};
use crate::expression;
use crate::pattern::{Case, Pattern};
use crate::redirect::{From, Redirect, is_url};
use crate::rewrite;
use crate::settings::{Age, ErrorDocument, PhpEngine, Settings};
use crate::tree::Directive;
use crate::words::{all_words, next_word};

impl Compiler<'_> {
    pub(super) fn known(
        &mut self,
        known: &KnownDirective,
        directive: &Directive,
        methods: &Methods,
        block: &mut Block,
    ) -> Result<(), Wrong> {
        // Rules and conditions have words of their own.
        let words = match known.name {
            "RewriteRule" | "RewriteCond" => Vec::new(),
            _ => all_words(&directive.arguments),
        };
        let settings = &mut block.settings;
        match known.meaning {
            Meaning::Auth => return self.auth(known.name, directive, &words, methods, block),
            Meaning::Hosts => {
                let line = (known.name, directive.line);
                return self.hosts(line, &words, methods, settings);
            }
            Meaning::TlsOnly => settings.tls_only = true,
            Meaning::Options => {
                let allowed = self.overrides.options();
                let line = settings.options.line(&words, allowed);
                line.map_err(|(text, is_only_not_allowed)| match is_only_not_allowed {
                    true => Wrong::NotAllowed(text),
                    false => Wrong::Syntax(text),
                })?;
            }
            Meaning::Env => self.env(known.name, directive, &words, settings)?,
            Meaning::Rewrite => self.rewrite(known.name, directive, &words, block)?,
            Meaning::Redirect => {
                let redirect = redirect(known.name, directive.line, &words)?;
                settings.redirects.push(redirect.into());
            }
            Meaning::Fields => self.field(known.name, directive, &words, settings)?,
            Meaning::Types => super::files::types(known.name, &words, settings)?,
            Meaning::Directory => super::files::directory(known.name, &words, settings)?,
            Meaning::Expiry => expiry(known.name, &words, settings)?,
            Meaning::ErrorDocument => error_document(directive, settings)?,
            Meaning::Php => self.php(known.name, directive, settings)?,
            Meaning::PhpAdmin => {
                let is_engine = words
                    .first()
                    .is_some_and(|it| it.eq_ignore_ascii_case(b"engine"));
                if !self.is_section || !is_engine {
                    let why = "settings of PHP that a file may not have stand in the site's pool";
                    return Err(Wrong::Refused(why));
                }
                self.php(known.name, directive, settings)?;
            }
            Meaning::Body => {
                let bytes = text(&words, 0)?
                    .parse::<u64>()
                    .map_err(|_| "it is a number of bytes")?;
                settings.body_bytes_max = Some(bytes);
            }
            Meaning::Inert => {}
            Meaning::Refused(reason) => return Err(Wrong::Refused(reason)),
            Meaning::Unsupported(reason) => return Err(Wrong::Unsupported(reason.to_owned())),
        }
        Ok(())
    }

    fn rewrite(
        &mut self,
        name: &str,
        directive: &Directive,
        words: &[Vec<u8>],
        block: &mut Block,
    ) -> Result<(), Wrong> {
        let lines = &mut block.settings.rewrite;
        lines.is_said = true;
        match name {
            "RewriteEngine" => lines.engine = Some(switch(words)?),
            "RewriteBase" => {
                let base = words.first().filter(|base| base.starts_with(b"/"));
                lines.base = Some(
                    base.ok_or("it is a path of the site: begin it with /")?
                        .clone(),
                );
            }
            "RewriteOptions" => {
                let mut options = lines.options.unwrap_or_default();
                let unknown = rewrite::options(&directive.arguments, &mut options);
                lines.options = Some(options);
                for word in unknown {
                    let text = format!("RewriteOptions {word} changes nothing here");
                    self.problem(directive.line, "htaccess_unknown", text, false);
                }
            }
            "RewriteCond" => {
                let condition = rewrite::condition(directive.line, &directive.arguments)?;
                if self.conditions.len() < rewrite::CONDITIONS_MAX {
                    self.conditions.push(condition);
                } else {
                    return Err("there are too many conditions".into());
                }
            }
            _ => return self.rule(directive, block),
        }
        Ok(())
    }

    fn rule(&mut self, directive: &Directive, block: &mut Block) -> Result<(), Wrong> {
        let conditions = std::mem::take(&mut self.conditions);
        let mut rule = rewrite::rule(directive.line, &directive.arguments, conditions)?;
        let refuses = rule.flags.refuses();
        self.access_lines += usize::from(refuses);
        self.reliance.on_rules |= refuses;
        self.reliance.on_env |= refuses && rule.conditions.iter().any(|it| it.is_by_env);
        if let Some(line) = rule.unsupported() {
            let text = format!("line {line} looks up what is not had here");
            if refuses {
                return Err(Wrong::Unsupported(text));
            }
            rule.flags.never = true;
            // One that refuses may depend on what this one would have done.
            self.reliance.rules_missed.get_or_insert(line);
            if rule.sets_env() {
                self.reliance.env_missed.get_or_insert(line);
            }
            let text = format!("RewriteRule: {text}: the rule is left out");
            self.problem(directive.line, "htaccess_unsupported", text, false);
        }
        if rule.flags.proxy {
            let text =
                "RewriteRule: P is refused: a rule of the site with `proxy` does it".to_owned();
            self.problem(directive.line, "htaccess_refused", text, true);
        }
        block.settings.rewrite.rules.push(rule.into());
        Ok(())
    }

    fn php(
        &mut self,
        name: &str,
        directive: &Directive,
        settings: &mut Settings,
    ) -> Result<(), Wrong> {
        let mut rest = &directive.arguments[..];
        let key = next_word(&mut rest).ok_or("it has a name and a value")?;
        let value = next_word(&mut rest).ok_or("it has a name and a value")?;
        let key = String::from_utf8_lossy(&key).to_ascii_lowercase();
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_value = value.iter().all(|byte| *byte >= b' ' && *byte != 127);
        if !key.bytes().all(is_key) || !is_value {
            return Err("a name has letters, digits, . and _, and a value is one line".into());
        }
        if key == "engine" {
            // Whatever is not one of these turns it off, as PHP has it.
            let is_on = ["1", "on", "true", "yes"]
                .iter()
                .any(|on| value.eq_ignore_ascii_case(on.as_bytes()));
            let is_fixed = name.starts_with("php_admin");
            if is_fixed || !settings.php_engine.is_some_and(|it| it.is_fixed) {
                settings.php_engine = Some(PhpEngine { is_on, is_fixed });
            }
            self.access_lines += 1;
            return Ok(());
        }
        let value = match name {
            "php_flag" => {
                let is_on = ["1", "on", "true", "yes"];
                let is_on = is_on
                    .iter()
                    .any(|on| value.eq_ignore_ascii_case(on.as_bytes()));
                if is_on { b"1".to_vec() } else { b"0".to_vec() }
            }
            _ if value == b"none" => Vec::new(),
            _ => value,
        };
        if !crate::php::is_known(&key) {
            let text = format!("{key} is nothing that a directory sets");
            self.problem(directive.line, "htaccess_php", text, false);
            return Ok(());
        }
        settings.php.insert(key, value);
        Ok(())
    }
}

/// A word as text.
pub(super) fn text(words: &[Vec<u8>], at: usize) -> Result<&str, Wrong> {
    let word = words.get(at).ok_or("a word is missing")?;
    std::str::from_utf8(word).map_err(|_| "it is no text".into())
}

/// `On` or `Off`, alone.
pub(super) fn switch(words: &[Vec<u8>]) -> Result<bool, Wrong> {
    match words {
        [word] if word.eq_ignore_ascii_case(b"on") => Ok(true),
        [word] if word.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err("it is On or Off".into()),
    }
}

fn redirect(name: &str, line: u32, words: &[Vec<u8>]) -> Result<Redirect, Wrong> {
    let mut status = match name {
        "RedirectPermanent" => 301,
        _ => 302,
    };
    let mut words = words;
    let first = text(words, 0)?.to_ascii_lowercase();
    let said = match first.as_str() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        "gone" => Some(410),
        digits if digits.starts_with(|it: char| it.is_ascii_digit()) => digits.parse().ok(),
        _ => None,
    };
    if let Some(said) = said {
        if !(200..600).contains(&said) {
            return Err("a status has three digits".into());
        }
        status = said;
        words = words.get(1..).unwrap_or_default();
    }
    let redirects = (300..400).contains(&status);
    let (from, to) = match words {
        [] if !redirects => (From::All(None), None),
        [to] if redirects => (From::All(Some(expression::words(to)?)), None),
        [from] if !redirects => (path(name, from)?, None),
        [from, to] if redirects => (path(name, from)?, Some(to.clone())),
        [_, _] => return Err("a status that is no redirect has no URL".into()),
        _ => return Err("it has a path, and a URL to send to".into()),
    };
    let is_fine = |to: &Vec<u8>| {
        let is_pattern = matches!(from, From::Pattern(_));
        is_pattern || to.starts_with(b"/") || is_url(to)
    };
    if to.as_ref().is_some_and(|to| !is_fine(to)) {
        return Err("it sends to a URL, or a path that begins with /".into());
    }
    Ok(Redirect {
        line,
        status,
        from,
        to,
    })
}

fn path(name: &str, from: &[u8]) -> Result<From, Wrong> {
    match name {
        "RedirectMatch" => Ok(From::Pattern(Pattern::new(from, Case::Exact)?)),
        _ if from.starts_with(b"/") => Ok(From::Path(from.to_vec())),
        _ => Err("what is redirected is a path: begin it with /".into()),
    }
}

fn expiry(name: &str, words: &[Vec<u8>], settings: &mut Settings) -> Result<(), Wrong> {
    let expiry = &mut settings.expiry;
    match name {
        "ExpiresActive" => expiry.is_active = Some(switch(words)?),
        "ExpiresDefault" => expiry.default = Some(age(words)?),
        _ => {
            let (of, words) = words
                .split_first()
                .ok_or("it has a media type and an age")?;
            expiry.by_type.insert(of.to_ascii_lowercase(), age(words)?);
        }
    }
    Ok(())
}

/// `access plus 1 month`, in one word or several; `A3600`.
fn age(words: &[Vec<u8>]) -> Result<Age, Wrong> {
    let joined = words.join(&b' ');
    let text = std::str::from_utf8(&joined).map_err(|_| "an age is text")?;
    if let Some(seconds) = text.strip_prefix(['A', 'M']) {
        return Ok(Age {
            since_change: text.starts_with('M'),
            seconds: expression::number(seconds.as_bytes()),
        });
    }
    let mut words = text.split_whitespace().peekable();
    let base = words.next().unwrap_or_default().to_ascii_lowercase();
    let since_change = match base.as_bytes().first() {
        Some(b'n' | b'a') => false,
        Some(b'm') => true,
        _ => return Err("an age begins with access, now or modification".into()),
    };
    words.next_if(|word| word.to_ascii_lowercase().starts_with('p'));
    let mut seconds = 0i64;
    while let Some(count) = words.next() {
        if !count.starts_with(|it: char| it.is_ascii_digit()) {
            return Err("an age has numbers and units".into());
        }
        let unit = words.next().ok_or("an age has a unit after each number")?;
        let unit = unit.to_ascii_lowercase();
        let unit_s = match unit.as_bytes() {
            [b'y', ..] => 365 * 86_400,
            [b'm', b'o', ..] => 30 * 86_400,
            [b'w', ..] => 7 * 86_400,
            [b'd', ..] => 86_400,
            [b'h', ..] => 3_600,
            [b'm', b'i', ..] => 60,
            [b's', ..] => 1,
            _ => {
                return Err("units are years, months, weeks, days, hours, minutes, seconds".into());
            }
        };
        let count = expression::number(count.as_bytes());
        seconds = seconds.saturating_add(count.saturating_mul(unit_s));
    }
    Ok(Age {
        since_change,
        seconds,
    })
}

fn error_document(directive: &Directive, settings: &mut Settings) -> Result<(), Wrong> {
    let mut rest = &directive.arguments[..];
    let status = next_word(&mut rest).ok_or("it has a status and what answers it")?;
    let status: u16 = text(&[status], 0)?
        .parse()
        .map_err(|_| "a status is a number")?;
    if !(400..600).contains(&status) {
        return Err("a status of a failure is 400 to 599".into());
    }
    let is_quoted = matches!(rest.first(), Some(b'"' | b'\''));
    let raw = rest;
    let word = next_word(&mut rest).ok_or("it has a status and what answers it")?;
    let document = if word.eq_ignore_ascii_case(b"default") {
        ErrorDocument::Default
    } else if is_url(&word) && word.windows(3).any(|it| it == b"://") {
        if status == 401 {
            return Err("a 401 is answered here: name a path".into());
        }
        ErrorDocument::Url(word)
    } else if word.starts_with(b"/") {
        ErrorDocument::Path(word)
    } else if is_quoted {
        ErrorDocument::Text(word)
    } else {
        ErrorDocument::Text(raw.to_vec())
    };
    settings.errors.insert(status, document.into());
    Ok(())
}
