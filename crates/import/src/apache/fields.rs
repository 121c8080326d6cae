//! What a level says of fields, ages, variables, sizes, times and records, as keys.

use super::ApacheLine;
use super::site::HostWork;
use crate::draft::{DraftKeys, TomlItem};
use crate::ledger::ONE_FILE;
use crate::words;

/// What is said of a line that depends on more than a key tells.
pub(super) const LOST: &str = "it depends on more than can be said here: write `reply_headers`, `error_pages`, `env` with a \
    `match`, or a script";

/// What is said of a log beside another.
pub(super) const ONE_RECORD: &str = "one file a site has its records, and no program: write `log`";

/// The field of requests that a line sets.
pub(super) fn request_field(line: &ApacheLine) -> Option<&str> {
    let words = line.words.iter().map(String::as_str);
    let mut words = words.filter(|it| !["early", "always", "onsuccess"].contains(it));
    let name = words.nth(1)?.trim_end_matches(':');
    let is_one = line.name == "requestheader" && config::is_changeable_field(name);
    is_one.then_some(name)
}

impl<'a> HostWork<'_, 'a> {
    /// Fields, ages and variables; lines that no key says.
    pub(super) fn fields(
        &self,
        lines: &[&'a ApacheLine],
        keys: &mut DraftKeys,
    ) -> Vec<&'a ApacheLine> {
        let ledger = self.apache.ledger;
        let mut left = Vec::new();
        let is_active = lines
            .iter()
            .rev()
            .find(|line| line.name == "expiresactive")
            .is_some_and(|line| line.is_on());
        for line in lines {
            match line.name.as_str() {
                "header" | "requestheader" if self.field(line, keys) => {}
                "header" | "requestheader" => left.push(*line),
                "expiresactive" => ledger.carried(line.id),
                "expiresdefault" | "expiresbytype" => {
                    let (kind, age) = match line.name == "expiresbytype" {
                        true => (
                            line.first(),
                            line.words.get(1..).unwrap_or_default().join(" "),
                        ),
                        false => ("default", line.words.join(" ")),
                    };
                    let fits = kind == "default" || words::is_media_type(kind);
                    match age_of(&age).filter(|_| fits) {
                        Some(age) if is_active => {
                            ledger.carried(line.id);
                            keys.put_in("expires", &kind.to_ascii_lowercase(), age, &[line.id]);
                        }
                        Some(_) => ledger.idle(line.id, "`ExpiresActive` is not on"),
                        None => {
                            ledger.lost(line.id, "no age that can be said here: write `expires`")
                        }
                    }
                }
                "setenv" | "unsetenv" => {
                    let value = match line.name == "setenv" {
                        true => TomlItem::from(line.word(1).replace('$', "$$")),
                        false => TomlItem::Flag(false),
                    };
                    match config::is_variable_name(line.first())
                        && !line.word(1).contains(char::is_control)
                    {
                        true => {
                            ledger.carried(line.id);
                            keys.put_in("env", line.first(), value, &[line.id]);
                        }
                        false => ledger.lost(line.id, "it cannot be a variable of a program here"),
                    }
                }
                name if name.starts_with("setenvif") || name.starts_with("browsermatch") => {
                    left.push(*line);
                }
                _ => {}
            }
        }
        left
    }

    /// Whether a line about a field is a key.
    fn field(&self, line: &ApacheLine, keys: &mut DraftKeys) -> bool {
        let ledger = self.apache.ledger;
        let mut words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        if words
            .first()
            .is_some_and(|word| ["always", "onsuccess"].contains(&&*word.to_ascii_lowercase()))
        {
            words.remove(0);
        }
        let table = match line.name.as_str() {
            "header" => "reply_headers",
            _ => "request_headers",
        };
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let (action, value, more) = (word(0).to_ascii_lowercase(), word(2), words.get(3));
        let name = word(1).trim_end_matches(':');
        let action = match action.as_str() {
            "set" => "set",
            "setifempty" => "default",
            "add" | "append" | "merge" => "add",
            "unset" => "remove",
            _ => return false,
        };
        let is_plain =
            !value.contains(['%']) && !value.contains(char::is_control) && more.is_none();
        if !config::is_changeable_field(name)
            || (action != "remove" && !is_plain)
            || (action == "remove" && !value.is_empty())
        {
            return false;
        }
        ledger.carried(line.id);
        match action {
            "remove" => keys.put_in(table, "remove", TomlItem::texts([name]), &[line.id]),
            action => {
                let item = match action {
                    "add" => TomlItem::texts([value.replace('$', "$$")]),
                    _ => TomlItem::from(value.replace('$', "$$")),
                };
                keys.put_in(table, action, TomlItem::table([(name, item)]), &[line.id]);
            }
        }
        true
    }

    /// Sizes and times.
    pub(super) fn bounds(&self, lines: &[&ApacheLine], keys: &mut DraftKeys) {
        for line in lines {
            let (first, from) = (line.first(), (self.apache.ledger, line.id));
            match line.name.as_str() {
                "limitrequestbody" => keys.bound(from, words::body(first), ("caps", "body_bytes")),
                "proxytimeout" => {
                    keys.bound(from, words::wait(first), ("timeouts", "upstream_read"));
                }
                "timeout" => keys.bound(from, words::wait(first), ("timeouts", "write")),
                "maxkeepaliverequests" => {
                    let count = first.parse::<u64>().ok().map(|it| it.min(1_000_000_000));
                    keys.bound(from, count, ("caps", "requests_per_connection"));
                }
                "addtype" if !first.contains("httpd-php") => self.types(line),
                _ => {}
            }
        }
    }

    fn types(&self, line: &ApacheLine) {
        self.apache.ledger.idle(
            line.id,
            "the usual types are known; others stand in `files.types`",
        );
    }

    /// Whether an error page is a file that is known.
    pub(super) fn error_page(&self, line: &ApacheLine, keys: &mut DraftKeys) -> bool {
        let (status, page) = (line.first(), line.word(1));
        let is_status = words::is_error_status(status);
        let file = words::error_page(page).filter(|_| is_status);
        let at = file.and_then(|file| self.roots.directory_of(file));
        if let Some(file) = &at {
            self.apache.ledger.carried(line.id);
            keys.put_in("error_pages", status, file.as_str(), &[line.id]);
        }
        at.is_some()
    }

    pub(super) fn record(&self, line: &ApacheLine, keys: &mut DraftKeys) {
        let ledger = self.apache.ledger;
        let path = words::file_path(line.first()).filter(|path| !path.starts_with("/dev/"));
        let is_first = self.is_global(line) || keys.get("log").is_none_or(|it| !it.has("access"));
        let Some(path) = path.filter(|_| is_first) else {
            return ledger.lost(line.id, ONE_RECORD);
        };
        let format = line.word(1);
        let mut formats = self.apache.global.iter();
        let known = formats.find(|it| it.name == "logformat" && it.word(1) == format);
        if let Some(known) = known {
            ledger.carried(known.id);
        }
        let text = known.map_or(format, |it| it.first());
        let wanted = text.split('%').skip(1).filter(|it| {
            let plain = it.trim_start_matches(['>', '<']);
            let names = ["{Referer}i", "{User-agent}i", "{User-Agent}i"];
            !plain.starts_with(|c| "halutrsbOBv".contains(c))
                && !names.iter().any(|name| plain.starts_with(name))
        });
        let lost: Vec<String> = wanted
            .map(|it| format!("%{}", it.trim_end_matches([' ', '"'])))
            .collect();
        if format != "combined" && !lost.is_empty() {
            let note = format!(
                "records are in the format `combined`, without {}: `json` has everything",
                lost.join(", ")
            );
            ledger.differs(line.id, &note);
        }
        if line.word(2).starts_with("env=") || line.word(2).starts_with("expr=") {
            ledger.differs(
                line.id,
                "all requests are recorded: write a rule with `log` for the others",
            );
        }
        ledger.differs(line.id, ONE_FILE);
        keys.put_in("log", "access", path, &[line.id]);
    }
}

/// `access plus 1 month`, `A3600`.
fn age_of(text: &str) -> Option<String> {
    const MOST: u64 = 3_650 * 86_400;
    if let Some(seconds) = text.strip_prefix('A')
        && let Ok(seconds) = seconds.parse::<u64>()
    {
        return Some(config::duration(seconds.min(MOST) * 1_000));
    }
    let mut words = text.split_ascii_whitespace().map(str::to_ascii_lowercase);
    if !["access", "now"].contains(&words.next()?.as_str()) {
        return None;
    }
    let mut rest: Vec<String> = words.collect();
    if rest.first().is_some_and(|it| it == "plus") {
        rest.remove(0);
    }
    let mut seconds = 0_u64;
    for pair in rest.chunks(2) {
        let [count, unit] = pair else { return None };
        let unit = match unit.trim_end_matches('s') {
            "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            "week" => 7 * 86_400,
            "month" => 30 * 86_400,
            "year" => 365 * 86_400,
            _ => return None,
        };
        seconds = seconds.checked_add(count.parse::<u64>().ok()?.checked_mul(unit)?)?;
    }
    (!rest.is_empty()).then(|| config::duration(seconds.min(MOST) * 1_000))
}
