//! A limit as it is written on a command line: `file concurrent=2 queue=10 wait=2s`.
//!
//! It becomes an entry of `limits` in a small configuration and is read by the same code, so that
//! both mean the same and complain in the same words.

use std::fmt::Write;
use std::ops::Range;

use config::model::{Limit, LimitKey, Model};
use config::{Diagnostics, Sources};
use limits::{Definition, Keyed, Shared};

use crate::outcome::{Outcome, complain};

/// Workers of the gateway that a log is replayed on: `auto` gives each at least one permit.
const WORKERS: usize = 1;

/// How the entry of a limit begins.
const ENTRY: &str = "limits = [";
/// Keys that every log can be counted by.
pub(super) const KEYS: &str = "`file`, `path`, `client`, `site`, or several of them: 'site,client'";

/// What a limit is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To be tried as it is.
    Trial,
    /// To have its number found, and to stand on a site then.
    Proposal,
}

impl Purpose {
    /// Limits written rightly.
    fn examples(self) -> &'static str {
        match self {
            Purpose::Trial => {
                "'file concurrent=2 queue=10 wait=2s', 'client rate=10/s burst=20', 'site,client concurrent=4'"
            }
            Purpose::Proposal => "'file queue=10 wait=2s', 'client queue=4', 'client,path'",
        }
    }
}

/// A limit to be tried.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// As it was written.
    pub(super) text: String,
    pub(super) limit: Limit,
}

impl Spec {
    /// Reads a limit; when it cannot be understood, that has been told.
    pub(super) fn read(text: &str) -> Result<Spec, Outcome> {
        Written::split(text)
            .and_then(|written| written.understand(Purpose::Trial))
            .map_err(|wrong| wrong.tell(text, Purpose::Trial))
    }

    /// Reads a limit whose number is yet to be found: one stands in for it.
    pub(super) fn sought(text: &str) -> Result<Spec, Outcome> {
        Written::split(text)
            .and_then(|written| {
                written.judge_sought()?;
                written.understand(Purpose::Proposal)
            })
            .map_err(|wrong| wrong.tell(text, Purpose::Proposal))
    }

    /// What the ledger is told of it.
    pub(super) fn definition(&self) -> Definition {
        let limit = &self.limit;
        let fixed = limit
            .key
            .iter()
            .all(|key| matches!(key, LimitKey::Process | LimitKey::Const(_)));
        let over_tenants = |key: &LimitKey| matches!(key, LimitKey::Process | LimitKey::Upstream);
        let plain = Definition {
            shared: match limit.key.iter().any(over_tenants) {
                true => Shared::Tenants,
                false => Shared::OneTenant,
            },
            keyed: match fixed {
                true => Keyed::Fixed,
                false => Keyed::Dynamic,
            },
            ..Definition::of(&limit.name)
        };
        engine::permits::changed(&plain, limit, WORKERS)
    }
}

/// A text taken apart: what is counted, then what holds for it.
struct Written<'a> {
    text: &'a str,
    keys: &'a str,
    keys_place: Range<usize>,
    words: Vec<Word<'a>>,
}

/// `queue=10`, and where it stands in the text.
struct Word<'a> {
    name: &'a str,
    value: &'a str,
    place: Range<usize>,
}

/// What is wrong with a text, and where in it.
struct Wrong {
    message: String,
    help: Option<String>,
    place: Range<usize>,
}

impl<'a> Written<'a> {
    fn split(text: &'a str) -> Result<Written<'a>, Wrong> {
        let mut end = 0;
        let mut pieces = text.split_whitespace().map(|piece| {
            let start = end
                + text
                    .get(end..)
                    .and_then(|rest| rest.find(piece))
                    .unwrap_or(0);
            end = start + piece.len();
            (start..end, piece)
        });
        let (keys_place, keys) = pieces.next().ok_or_else(|| Wrong {
            message: "nothing is written there".to_owned(),
            help: None,
            place: 0..text.len(),
        })?;
        if keys.split(':').next().is_some_and(|key| key.contains('=')) {
            return Err(Wrong {
                message: format!("what is counted has to stand before `{keys}`"),
                help: Some(format!("write 'file {text}' to count by file, for example")),
                place: keys_place,
            });
        }
        let words: Result<Vec<Word<'a>>, Wrong> = pieces.map(word).collect();
        let written = Written {
            text,
            keys,
            keys_place,
            words: words?,
        };
        written.judge_names()?;
        Ok(written)
    }

    /// What is said twice would only be told as a mistake in TOML.
    fn judge_names(&self) -> Result<(), Wrong> {
        let mut named = vec!["key"];
        for word in &self.words {
            if named.contains(&word.name) {
                return Err(Wrong {
                    message: format!("`{}` stands there twice", word.name),
                    help: (word.name == "key")
                        .then(|| "what is counted stands first, without `key=`".to_owned()),
                    place: word.place.clone(),
                });
            }
            named.push(word.name);
        }
        Ok(())
    }

    /// What is found, and what a proposal would not hold.
    fn judge_sought(&self) -> Result<(), Wrong> {
        let wrong = self.words.iter().find_map(|word| {
            let (message, help) = match word.name {
                "concurrent" => ("is what is looked for", "leave it out"),
                "rate" | "burst" => (
                    "is nothing that is looked for: that is `concurrent`",
                    "try a rate of your own: nagaya limits simulate --log FILE --limit 'client rate=10/s'",
                ),
                "name" | "on" | "mode" | "when" | "match" | "tunnels" | "status" | "page" => (
                    "is not looked at here, only `queue`, `wait` and `late` are",
                    "write it into the line that is proposed",
                ),
                _ => return None,
            };
            Some(Wrong {
                message: format!("`{}` {message}", word.name),
                help: Some(help.to_owned()),
                place: word.place.clone(),
            })
        });
        wrong.map_or(Ok(()), Err)
    }

    /// The limit, as the configuration's own code reads it.
    fn understand(&self, purpose: Purpose) -> Result<Spec, Wrong> {
        let (entry, columns) = self.entry(match purpose {
            Purpose::Trial => "",
            Purpose::Proposal => ", concurrent = 1",
        });
        let sources = Sources::from_text("the limit", &around(self.keys, &entry));
        let model = config::load(&sources).map_err(|problems| self.wrong(&problems, &columns))?;
        let all_of_it = || Wrong {
            message: "it could not be read".to_owned(),
            help: None,
            place: 0..self.text.len(),
        };
        let limit = only_limit(&model).ok_or_else(all_of_it)?;
        let unfit = limit.key.iter().find_map(|key| unfit(key, purpose));
        match unfit {
            Some((message, help)) => Err(Wrong {
                message,
                help: Some(help),
                place: self.keys_place.clone(),
            }),
            None => Ok(Spec {
                text: self.text.to_owned(),
                limit,
            }),
        }
    }

    /// The entry of `limits` it stands for, and at which of its columns each part of it begins.
    fn entry(&self, added: &str) -> (String, Vec<(usize, Range<usize>)>) {
        let keys: Vec<String> = self.keys.split(',').map(|key| format!("{key:?}")).collect();
        let mut entry = format!("{ENTRY}{{ key = [{}]", keys.join(", "));
        let mut columns = vec![(0, self.keys_place.clone())];
        for Word { name, value, place } in &self.words {
            columns.push((entry.chars().count(), place.clone()));
            // Writing to memory does not fail.
            let _ = match value.parse::<u64>() {
                Ok(number) => write!(entry, ", {name} = {number}"),
                Err(_) => write!(entry, ", {name} = {value:?}"),
            };
        }
        let _ = write!(entry, "{added} }}]");
        (entry, columns)
    }

    /// The first problem of the entry, at the part of the text that it is about.
    fn wrong(&self, problems: &Diagnostics, columns: &[(usize, Range<usize>)]) -> Wrong {
        let first = problems.problems().first();
        let column = first.and_then(|it| Some(it.place.as_ref()?.column));
        let part = column.and_then(|column| columns.iter().rfind(|(begin, _)| *begin < column));
        Wrong {
            message: first.map_or_else(|| problems.to_string(), |it| it.message.clone()),
            help: first.and_then(|it| it.help.clone()),
            place: part.map_or(0..self.text.len(), |(_, place)| place.clone()),
        }
    }
}

/// Why a key cannot be counted by, and what to do then.
fn unfit(key: &LimitKey, purpose: Purpose) -> Option<(String, String)> {
    let spelt = config::spell_key(key);
    let others = || format!("other keys are {KEYS}");
    let unlogged = match key {
        LimitKey::Header(_) => "fields",
        LimitKey::Cookie(_) => "cookies",
        LimitKey::Process | LimitKey::Upstream if purpose == Purpose::Proposal => {
            let message =
                format!("lines are proposed for sites, and none counts by `{spelt}` there");
            return Some((message, others()));
        }
        LimitKey::Tenant | LimitKey::Rule | LimitKey::Capture(_) => {
            let message =
                format!("from an access log it cannot be told what a `{spelt}` would count");
            return Some((message, others()));
        }
        _ => return None,
    };
    Some((
        format!("access logs hold no {unlogged}, so this cannot be tried on one"),
        "put it in the configuration with mode = \"shadow\"".to_owned(),
    ))
}

fn word((place, text): (Range<usize>, &str)) -> Result<Word<'_>, Wrong> {
    let is_name = |name: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        !name.is_empty() && name.bytes().all(fits)
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => {
            Ok(Word { name, value, place })
        }
        _ => Err(Wrong {
            message: format!("`{text}` is not of the form name=value"),
            help: Some("without spaces around the `=`, as in concurrent=2".to_owned()),
            place,
        }),
    }
}

impl Wrong {
    /// Says it, below the text it is about.
    fn tell(self, text: &str, purpose: Purpose) -> Outcome {
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = text.chars().map(printable).collect();
        let columns = |range: Range<usize>| text.get(range).map_or(0, |part| part.chars().count());
        let before = " ".repeat(columns(0..self.place.start));
        let marks = "^".repeat(columns(self.place).max(1));
        let help = self
            .help
            .map_or(String::new(), |help| format!("  {help}\n"));
        let (message, examples) = (self.message, purpose.examples());
        complain(&format!(
            "nagaya: --limit: {message}\n    {shown}\n    {before}{marks}\n{help}  \
             a limit is a key and what holds for it: {examples}\n"
        ));
        Outcome::Wrong
    }
}

/// The smallest configuration in which the entry may stand.
fn around(keys: &str, entry: &str) -> String {
    let has = |key: &str| keys.split(',').any(|word| word == key);
    let limits = format!("{entry}\n");
    let at = |level: bool| if level { limits.as_str() } else { "" };
    let (process, tenant, rule) = (has("process"), has("tenant"), has("rule"));
    let upstream = has("upstream");
    let site = !(process || tenant || rule || upstream);
    format!(
        "{}[[listen]]\naddress = \"127.0.0.1:1\"\n[tenants.t]\n{}[upstreams.u]\nservers = [\"127.0.0.1:1\"]\n{}\
         [[sites]]\nhosts = [\"*\"]\ntenant = \"t\"\n{}[[sites.rules]]\nhandler = {{ proxy = \"u\" }}\n{}",
        at(process),
        at(tenant && !process),
        at(upstream && !process && !tenant),
        at(site),
        at(rule && !process && !tenant && !upstream),
    )
}

/// The one limit of such a configuration.
fn only_limit(model: &Model) -> Option<Limit> {
    let tenants = model.tenants.iter().flat_map(|tenant| &*tenant.limits);
    let upstreams = model
        .upstreams
        .iter()
        .flat_map(|upstream| &*upstream.limits);
    let rules = model.sites.iter().flat_map(|site| &site.rules);
    let rules = rules.flat_map(|rule| &*rule.limits);
    let sites = model.sites.iter().flat_map(|site| &*site.limits);
    let all = model.limits.iter().chain(tenants).chain(upstreams);
    all.chain(sites).chain(rules).next().cloned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_limit_is_read_as_the_configuration_would() {
        for (text, keyed, shared) in [
            (
                "file concurrent=2 queue=10 wait=3s",
                Keyed::Dynamic,
                Shared::OneTenant,
            ),
            ("process concurrent=2", Keyed::Fixed, Shared::Tenants),
            ("upstream concurrent=2", Keyed::Dynamic, Shared::Tenants),
            (
                "site,client rate=10/s burst=20",
                Keyed::Dynamic,
                Shared::OneTenant,
            ),
        ] {
            let definition = Spec::read(text).expect(text).definition();
            assert_eq!(
                (definition.keyed, definition.shared),
                (keyed, shared),
                "{text}"
            );
        }
        let definition = Spec::read("file concurrent=2 queue=10 wait=3s")
            .expect("right")
            .definition();
        assert_eq!(definition.concurrent, Some(limits::Concurrent::Fixed(2)));
        assert_eq!(
            (definition.queue, definition.wait),
            (10, Duration::from_secs(3))
        );
    }

    #[test]
    fn what_is_no_limit_is_refused_and_says_where() {
        for (text, part, told) in [
            ("", "", "nothing is written"),
            ("file", "file", "limits nothing"),
            (
                "concurrent=2 queue=1",
                "concurrent=2",
                "has to stand before",
            ),
            ("file concurrent", "concurrent", "name=value"),
            ("file concurrent = 2", "concurrent", "name=value"),
            (
                "file concurrent=none",
                "concurrent=none",
                "must be a number",
            ),
            ("file CONCURRENT=2", "CONCURRENT=2", "name=value"),
            ("file queue=1 concurrent=2 queue=3", "queue=3", "twice"),
            ("client key=file concurrent=2", "key=file", "twice"),
            (
                "nothing concurrent=2",
                "nothing",
                "nothing a limit counts by",
            ),
            (
                "header:x concurrent=2",
                "header:x",
                "access logs hold no fields",
            ),
            (
                "cookie:id concurrent=2",
                "cookie:id",
                "access logs hold no cookies",
            ),
            ("tenant concurrent=2", "tenant", "what a `tenant` would"),
            (
                "client,rule concurrent=2",
                "client,rule",
                "what a `rule` would",
            ),
            ("file concurrent=2 colour=red", "colour=red", "colour"),
            ("file  rate=10/s  wait=1s", "wait=1s", "`concurrent`"),
        ] {
            let wrong = Written::split(text).and_then(|written| written.understand(Purpose::Trial));
            let wrong = wrong.expect_err(text);
            assert!(wrong.message.contains(told), "{text}: {}", wrong.message);
            assert_eq!(text.get(wrong.place), Some(part), "{text}");
            assert_eq!(Spec::read(text).err(), Some(Outcome::Wrong), "{text}");
        }
    }

    #[test]
    fn a_number_is_sought_for_limits_of_sites_alone() {
        for (text, part, told) in [
            ("file concurrent=4", "concurrent=4", "is what is looked for"),
            ("client rate=10/s", "rate=10/s", "that is `concurrent`"),
            ("client queue=2 burst=3", "burst=3", "that is `concurrent`"),
            ("client name=a", "name=a", "only `queue`, `wait` and `late`"),
            ("tenant", "tenant", "what a `tenant` would"),
            ("rule queue=2", "rule", "what a `rule` would"),
            (
                "upstream queue=2",
                "upstream",
                "lines are proposed for sites",
            ),
            ("process", "process", "lines are proposed for sites"),
            ("file colour=red", "colour=red", "colour"),
        ] {
            let wrong = Written::split(text).and_then(|written| {
                written.judge_sought()?;
                written.understand(Purpose::Proposal)
            });
            let wrong = wrong.expect_err(text);
            assert!(wrong.message.contains(told), "{text}: {}", wrong.message);
            assert_eq!(text.get(wrong.place), Some(part), "{text}");
            assert_eq!(Spec::sought(text).err(), Some(Outcome::Wrong), "{text}");
        }
        for text in ["file queue=4", "site", "path,client wait=3s queue=1"] {
            assert!(Spec::sought(text).is_ok(), "{text}");
        }
    }
}
