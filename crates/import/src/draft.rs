//! A site that is being put together, and how it is written.
//!
//! The idea: values are a tree that one function writes with the quoting of the configuration's own
//! crate, so that no text of the source can become anything but a text; and each key knows the lines
//! it was made of, which stand above it as comments.

use std::fmt::Write as _;

use config::quote;

use crate::ledger::{Ledger, shown};

/// A value of TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TomlItem {
    Text(String),
    /// A text of lines, written as such.
    Lines(String),
    Flag(bool),
    Count(u64),
    List(Vec<TomlItem>),
    Table(Vec<(String, TomlItem)>),
}

impl TomlItem {
    /// A list of texts.
    pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        let texts = texts.into_iter().map(|text| Self::Text(text.into()));
        Self::List(texts.collect())
    }

    /// One text, or a list of them.
    pub(crate) fn one_or_list(mut texts: Vec<String>) -> Self {
        match (texts.len(), texts.pop()) {
            (1, Some(only)) => Self::Text(only),
            (_, last) => Self::texts(texts.into_iter().chain(last)),
        }
    }

    /// A table of these members.
    pub(crate) fn table<const N: usize>(members: [(&str, TomlItem); N]) -> Self {
        Self::Table(members.map(|(name, it)| member(name, it)).into())
    }

    /// Whether it is a table that has this member.
    pub(crate) fn has(&self, name: &str) -> bool {
        matches!(self, Self::Table(members) if members.iter().any(|(known, _)| known == name))
    }

    fn spell(&self) -> String {
        match self {
            Self::Text(text) => quote(text),
            Self::Lines(text) => {
                let is_odd = |c: char| c.is_control() && c != '\n';
                if !text.contains("'''") && !text.contains(is_odd) && text.ends_with('\n') {
                    return format!("'''\n{text}'''");
                }
                let mut out = "\"\"\"\n".to_owned();
                for line in text.lines() {
                    let quoted = quote(line);
                    out.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
                    out.push('\n');
                }
                out + "\"\"\""
            }
            Self::Flag(flag) => flag.to_string(),
            Self::Count(count) => count.to_string(),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::spell).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Table(members) => {
                let spell =
                    |(name, it): &(String, TomlItem)| format!("{} = {}", key(name), it.spell());
                let members: Vec<String> = members.iter().map(spell).collect();
                format!("{{ {} }}", members.join(", "))
            }
        }
    }
}

impl From<&str> for TomlItem {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for TomlItem {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for TomlItem {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for TomlItem {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// A member of a table.
pub(crate) fn member(name: &str, item: impl Into<TomlItem>) -> (String, TomlItem) {
    (name.to_owned(), item.into())
}

/// A key of TOML, in quotes where it must be.
fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !name.is_empty() && name.bytes().all(is_bare) {
        true => name.to_owned(),
        false => quote(name),
    }
}

/// Keys of one level, each with the lines it was made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct DraftKeys {
    keys: Vec<(String, TomlItem)>,
    from: Vec<usize>,
    /// Lines of `from` that are told without a comment.
    within: Vec<usize>,
    /// The address of the pool whose PHP a rule of ours is to run, and the line that says so.
    pub(crate) pool_at: Option<(String, usize)>,
    remarks: Vec<String>,
}

impl DraftKeys {
    /// Says a key; a table adds its members to those it has, and a list its elements.
    pub(crate) fn put(&mut self, name: &str, item: impl Into<TomlItem>, from: &[usize]) {
        self.note(from);
        let item = item.into();
        match self.keys.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => add(known, item),
            None => self.keys.push((name.to_owned(), item)),
        }
    }

    /// A member of a table.
    pub(crate) fn put_in(
        &mut self,
        table: &str,
        name: &str,
        item: impl Into<TomlItem>,
        from: &[usize],
    ) {
        self.put(table, TomlItem::Table(vec![member(name, item)]), from);
    }

    /// Takes a key away.
    pub(crate) fn take(&mut self, name: &str) {
        self.keys.retain(|(known, _)| known != name);
    }

    /// Keeps these keys, and gives all others back with the same `match`.
    pub(crate) fn split(&mut self, kept: &[&str]) -> Self {
        let mut others = self.clone();
        self.keys
            .retain(|(name, _)| name == "match" || kept.contains(&name.as_str()));
        others
            .keys
            .retain(|(name, _)| !kept.contains(&name.as_str()));
        others
    }

    /// A key in place of what it was.
    pub(crate) fn replace(&mut self, name: &str, item: TomlItem) {
        self.take(name);
        self.keys.insert(0, (name.to_owned(), item));
    }

    /// Adds all that others say.
    pub(crate) fn merge(&mut self, others: DraftKeys) {
        for (name, item) in others.keys {
            self.put(&name, item, &[]);
        }
        self.note(&others.from);
        self.within.extend(others.within);
        self.remarks.extend(others.remarks);
    }

    /// A rule for these requests, made of these lines.
    pub(crate) fn rule(members: Vec<(String, TomlItem)>, from: &[usize]) -> Self {
        let mut rule = Self::default();
        rule.note(from);
        rule.matching(members);
        rule
    }

    /// A time, a size or a number, if it is one.
    pub(crate) fn bound(
        &mut self,
        (ledger, id): (&Ledger, usize),
        said: Option<impl Into<TomlItem>>,
        (table, name): (&str, &str),
    ) {
        match said {
            Some(said) => {
                ledger.carried(id);
                self.put_in(table, name, said, &[id]);
            }
            None => ledger.lost(id, "no time or size that can be said here"),
        }
    }

    /// Which requests it is for; all where nothing is asked.
    pub(crate) fn matching(&mut self, members: Vec<(String, TomlItem)>) {
        if !members.is_empty() {
            self.replace("match", TomlItem::Table(members));
        }
    }

    /// The lines it was made of, too.
    pub(crate) fn note(&mut self, from: &[usize]) {
        for id in from {
            if !self.from.contains(id) {
                self.from.push(*id);
            }
        }
    }

    /// The lines it was made of as well, which stand in it themselves.
    pub(crate) fn made_of(&mut self, lines: &[usize]) {
        self.within.extend(lines);
    }

    /// Whether CGI programs run by it.
    pub(crate) fn runs_cgi(&self) -> bool {
        self.get("handler").is_some_and(|it| it.has("cgi"))
    }

    /// A comment of its own.
    pub(crate) fn remark(&mut self, text: &str) {
        let text = format!("# {}", shown(text));
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    /// Nobody comes in, for this reason.
    pub(crate) fn close(&mut self, reason: &str) {
        self.keys
            .retain(|(name, _)| !["deny", "allow", "auth"].contains(&name.as_str()));
        self.put("deny", "all", &[]);
        self.remark(&format!("closed: {reason}"));
    }

    /// Whether there is such a key.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|(known, _)| known == name)
    }

    /// The value of a key.
    pub(crate) fn get(&self, name: &str) -> Option<&TomlItem> {
        let mut keys = self.keys.iter();
        keys.find(|(known, _)| known == name).map(|(_, item)| item)
    }

    /// Whether nothing is said but what it is for.
    pub(crate) fn is_idle(&self) -> bool {
        self.keys.iter().all(|(name, _)| name == "match")
    }

    fn write(&self, title: &str, ledger: &Ledger, out: &mut String) {
        let mut from = self.from.clone();
        from.sort_unstable();
        let comments = from.into_iter().map(|id| ledger.comment(id));
        for comment in comments.chain(self.remarks.iter().cloned()) {
            let _ = writeln!(out, "{comment}");
        }
        let _ = writeln!(out, "{title}");
        for (name, item) in &self.keys {
            let _ = writeln!(out, "{} = {}", key(name), item.spell());
        }
    }
}

fn add(known: &mut TomlItem, item: TomlItem) {
    match (known, item) {
        (TomlItem::Table(members), TomlItem::Table(more)) => {
            for (name, item) in more {
                match members.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, known)) => add(known, item),
                    None => members.push((name, item)),
                }
            }
        }
        (TomlItem::List(items), TomlItem::List(more)) => {
            for item in more {
                if !items.contains(&item) {
                    items.push(item);
                }
            }
        }
        // Nobody is nobody, whoever else is named.
        (TomlItem::Text(all), TomlItem::List(_)) if all == "all" => {}
        (known, item) => *known = item,
    }
}

/// A site that is being put together.
#[derive(Debug, Default)]
pub(crate) struct SiteDraft {
    /// What it answers for; the first one names its file.
    pub(crate) hosts: Vec<String>,
    /// Its own keys.
    pub(crate) keys: DraftKeys,
    /// Its mounts, by their paths.
    pub(crate) mounts: Vec<(String, DraftKeys)>,
    /// Its rules, in order.
    pub(crate) rules: Vec<DraftKeys>,
}

impl SiteDraft {
    /// The site as a file.
    pub(crate) fn write(&self, ledger: &Ledger) -> String {
        let mut out = String::new();
        let mut keys = DraftKeys::default();
        keys.put("hosts", TomlItem::texts(self.hosts.iter().cloned()), &[]);
        keys.keys.extend(self.keys.keys.iter().cloned());
        keys.from.clone_from(&self.keys.from);
        keys.remarks.clone_from(&self.keys.remarks);
        keys.write("[[sites]]", ledger, &mut out);
        for (_, mount) in &self.mounts {
            out.push('\n');
            mount.write("[[sites.mounts]]", ledger, &mut out);
        }
        for rule in self.rules.iter().filter(|rule| !rule.is_idle()) {
            out.push('\n');
            rule.write("[[sites.rules]]", ledger, &mut out);
        }
        out
    }

    /// Where there are no files, leaves out what could only be about them.
    pub(crate) fn forget_files(&mut self) {
        if self.keys.has("root") || !self.mounts.is_empty() {
            return;
        }
        let asks = |rule: &DraftKeys, key: &str, names: &[&str]| {
            let item = rule.get(key);
            item.is_some_and(|item| names.iter().any(|name| item.has(name)))
        };
        self.rules.retain(|rule| {
            let by_file = asks(rule, "match", &["file", "exists"]);
            !by_file && !asks(rule, "handler", &["static", "cgi", "php", "fastcgi"])
        });
    }

    /// All lines that it was made of.
    pub(crate) fn lines(&self) -> Vec<usize> {
        let mounts = self.mounts.iter().map(|(_, mount)| mount);
        let levels = [&self.keys].into_iter().chain(mounts).chain(&self.rules);
        let all = levels.flat_map(|keys| keys.from.iter().chain(&keys.within));
        let mut lines: Vec<usize> = all.copied().collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// The mount at a path, be it a new one.
    pub(crate) fn mount(
        &mut self,
        path: &str,
        root: &str,
        from: &[usize],
    ) -> Option<&mut DraftKeys> {
        let path = path.trim_end_matches('/');
        let at = self.mounts.iter().position(|(known, _)| known == path);
        let at = at.unwrap_or_else(|| {
            let mut keys = DraftKeys::default();
            keys.put("path", path, &[]);
            keys.put("root", root, &[]);
            self.mounts.push((path.to_owned(), keys));
            self.mounts.len() - 1
        });
        let (_, mount) = self.mounts.get_mut(at)?;
        mount.note(from);
        (mount.get("root") == Some(&root.into())).then_some(mount)
    }

    /// The name of its file, without ending.
    pub(crate) fn name(&self) -> String {
        let first = self.hosts.first().map_or("site", String::as_str);
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = first.replace('*', "any");
        name.chars()
            .map(|c| if fits(c) { c } else { '_' })
            .collect()
    }
}

/// What all sites share, as a file: keys of the top level, then named tables.
#[derive(Debug, Default)]
pub(crate) struct SharedDraft {
    /// Keys of the top level.
    pub(crate) keys: DraftKeys,
    /// Tables with their titles.
    pub(crate) tables: Vec<(String, DraftKeys)>,
}

impl SharedDraft {
    /// A table, be it a new one.
    pub(crate) fn table(&mut self, title: String) -> &mut DraftKeys {
        self.tables.push((title, DraftKeys::default()));
        let last = self.tables.len() - 1;
        &mut self.tables[last].1
    }

    /// The file; empty where there is nothing to be said.
    pub(crate) fn write(&self, ledger: &Ledger) -> String {
        let mut out = String::new();
        if !self.keys.keys.is_empty() {
            self.keys.write("", ledger, &mut out);
        }
        for (title, keys) in &self.tables {
            out.push('\n');
            keys.write(title, ledger, &mut out);
        }
        out
    }
}
