//! Lines about access.

use super::{Block, Compiler, Wrong};
use crate::access::{
    HostLines, LastWord, Methods, Origin, Provider, Requirement, network, networks_of_name,
};
use crate::expression;
use crate::settings::{Merging, Settings};
use crate::tree::Directive;
use crate::words::next_word;

impl Compiler<'_> {
    pub(super) fn auth(
        &mut self,
        name: &str,
        directive: &Directive,
        words: &[Vec<u8>],
        methods: &Methods,
        block: &mut Block,
    ) -> Result<(), Wrong> {
        let auth = &mut block.settings.auth;
        let Some(first) = words.first() else {
            return Err("it lacks what it says".into());
        };
        let is = |word: &str| first.eq_ignore_ascii_case(word.as_bytes());
        match name {
            "AuthType" if is("basic") => auth.kind = Some(true),
            "AuthType" if is("none") => auth.kind = Some(false),
            "AuthType" => return Err(Wrong::Unsupported("only Basic is had".to_owned())),
            "AuthName" => auth.realm = Some(first.clone()),
            "AuthUserFile" => auth.user_file = Some(first.clone()),
            "AuthGroupFile" => auth.group_file = Some(first.clone()),
            "AuthBasicProvider" if words.len() == 1 && is("file") => {}
            "AuthBasicProvider" => {
                return Err(Wrong::Unsupported("only `file` knows users".to_owned()));
            }
            "AuthBasicAuthoritative" => {}
            "AuthzSendForbiddenOnFailure" => {
                auth.forbids_on_failure = Some(super::lines::switch(words)?);
            }
            "AuthMerging" => {
                block.settings.merges_require = Some(match () {
                    () if is("off") => Merging::Off,
                    () if is("and") => Merging::And,
                    () if is("or") => Merging::Or,
                    () => return Err("it is Off, And or Or".into()),
                });
            }
            _ => return self.require(directive, methods, block),
        }
        Ok(())
    }

    fn require(
        &mut self,
        directive: &Directive,
        methods: &Methods,
        block: &mut Block,
    ) -> Result<(), Wrong> {
        let mut rest = &directive.arguments[..];
        let mut word = next_word(&mut rest).unwrap_or_default();
        let negated = word.eq_ignore_ascii_case(b"not");
        if negated {
            word = next_word(&mut rest).unwrap_or_default();
        }
        let raw = rest;
        let words = crate::words::all_words(rest);
        let known = words.first().filter(|_| words.len() == 1);
        let known = known.and_then(|name| networks_of_name(name));
        let provider = String::from_utf8_lossy(&word).to_ascii_lowercase();
        let provider = match provider.as_str() {
            "all" => match words
                .first()
                .map(|word| word.to_ascii_lowercase())
                .as_deref()
            {
                Some(b"granted") => Provider::All(true),
                Some(b"denied") => Provider::All(false),
                _ => return Err("all is granted or denied".into()),
            },
            "env" => {
                self.reliance.on_env = true;
                Provider::Env(some(words)?)
            }
            "method" => {
                let names = some(words)?.into_iter();
                Provider::Method(names.map(|name| name.to_ascii_uppercase()).collect())
            }
            "expr" => {
                self.reliance.on_env |= expression::is_by_env(raw);
                // In quotes or without them, the rest of the line is the expression.
                let quoted = matches!(raw.first(), Some(b'"' | b'\'')) && words.len() == 1;
                let text = if quoted {
                    words.first().map(Vec::as_slice)
                } else {
                    Some(raw)
                };
                Provider::Expression(expression::condition(text.unwrap_or_default())?)
            }
            "valid-user" => Provider::ValidUser,
            "user" => Provider::User(some(words)?),
            "group" => Provider::Group(some(words)?),
            "local" => Provider::Local,
            "ip" => {
                let networks = some(words)?;
                let networks = networks
                    .iter()
                    .map(|word| network(word))
                    .collect::<Option<_>>();
                Provider::Network(networks.ok_or("an address or network is expected")?)
            }
            "host" | "forward-dns" if known.is_some() => {
                Provider::Network(known.into_iter().flatten().collect())
            }
            "host" | "forward-dns" if negated || self.groups.iter().any(|it| it.negated) => {
                let text = "names of hosts are not looked up: say `Require not ip`".to_owned();
                return Err(Wrong::Unsupported(text));
            }
            "host" | "forward-dns" => {
                let text = "Require: names of hosts are not looked up: it never holds".to_owned();
                self.problem(directive.line, "htaccess_unsupported", text, true);
                Provider::Host
            }
            other => {
                return Err(Wrong::Unsupported(format!("`{other}` is not had here")));
            }
        };
        let requirement = Requirement::Line(methods.clone(), negated, provider);
        self.add_requirement((requirement, directive.line), block)
    }

    pub(super) fn hosts(
        &mut self,
        (name, line): (&str, u32),
        words: &[Vec<u8>],
        methods: &Methods,
        settings: &mut Settings,
    ) -> Result<(), Wrong> {
        let first = || HostLines {
            line,
            ..HostLines::default()
        };
        let hosts = settings.hosts.get_or_insert_with(|| first().into());
        let hosts = hosts.line_mut();
        let methods = methods.clone();
        let only = super::lines::text(words, 0)?.to_ascii_lowercase();
        match name {
            "Order" => {
                // Blanks around the comma are an argument too many.
                let order = match only.as_str() {
                    "allow,deny" if words.len() == 1 => LastWord::Deny,
                    "deny,allow" if words.len() == 1 => LastWord::Allow,
                    "mutual-failure" if words.len() == 1 => LastWord::Mutual,
                    _ => return Err("it is `allow,deny` or `deny,allow`, without a blank".into()),
                };
                hosts.orders.push((methods, order));
            }
            "Satisfy" => {
                let any = match only.as_str() {
                    "any" => true,
                    "all" => false,
                    _ => return Err("it is Any or All".into()),
                };
                hosts.satisfies_any.push((methods, any));
            }
            _ if only != "from" || words.len() < 2 => {
                return Err("it is followed by `from` and where from".into());
            }
            _ => {
                let denies = name == "Deny";
                let list = if denies {
                    &mut hosts.denies
                } else {
                    &mut hosts.allows
                };
                for word in words.iter().skip(1) {
                    if let Some(networks) = networks_of_name(word) {
                        let origins = networks.map(Origin::Network);
                        list.extend(origins.map(|origin| (methods.clone(), origin)));
                        continue;
                    }
                    let origin = origin(word, denies)?;
                    let is_env = matches!(origin, Origin::Env(_) | Origin::NoEnv(_));
                    self.reliance.on_env |= is_env;
                    list.push((methods.clone(), origin));
                }
            }
        }
        Ok(())
    }
}

fn some(words: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Wrong> {
    match words.is_empty() {
        true => Err("it names none".into()),
        false => Ok(words),
    }
}

fn origin(word: &[u8], denies: bool) -> Result<Origin, Wrong> {
    let lower = word.to_ascii_lowercase();
    if let Some(name) = lower.strip_prefix(b"env=") {
        let name = word.get(word.len() - name.len()..).unwrap_or_default();
        return Ok(match name.strip_prefix(b"!") {
            Some(name) => Origin::NoEnv(name.to_vec()),
            None => Origin::Env(name.to_vec()),
        });
    }
    if lower == b"all" {
        return Ok(Origin::All);
    }
    if let Some(network) = network(word) {
        return Ok(Origin::Network(network));
    }
    let shown = String::from_utf8_lossy(word);
    if word.contains(&b'#') || word.contains(&b'/') {
        return Err(format!("{shown} is no address").into());
    }
    match denies {
        true => {
            let text = format!("{shown}: names of hosts are not looked up: deny addresses");
            Err(Wrong::Unsupported(text))
        }
        false => Ok(Origin::Host),
    }
}
