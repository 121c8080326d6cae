//! Sections of directories and files, and a virtual host's rewriting, as text for the engine of
//! `.htaccess` files.
//!
//! The idea: what stands in `<Directory>`, `<Files>` and `<If>`, and what a virtual host says of all
//! its paths, stays as it is, line by line, once the crate that obeys it has understood it; where one
//! about access is not understood, nobody comes in where its section is. Handlers that the engine does
//! not have, back ends and who comes into locations are rules.

use htaccess::{Problem, SectionContext, compile_section};

use super::lines::{WHO, is_left_to_rules};
use super::rewriting::{RewriteLine, passing};
use super::sections::{Area, SectionPlace, WILD, names_of};
use super::site::HostWork;
use super::{Apache, ApacheLine, ApacheMeaning, meaning};
use crate::Fate;
use crate::draft::{TomlItem, member};

/// Lets nobody in, whatever else is said of it.
const NOBODY: &str = "Order deny,allow\nDeny from all\nSatisfy All\nRequire all denied\n";
/// Why nobody comes in where a line is not understood.
const CLOSED: &str = "a line about who may have what is not understood";
/// Comes before a rule for paths that rules of the virtual host have left as they are.
const NOT_TRANSLATED: &str = "RewriteCond %{ENV:translated} !1\n";
/// How a section's lines about access go with those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// They stand for what other sections say, as in Apache.
    Own,
    /// The section comes later here than in Apache: they let nobody in whom others keep out.
    KeepsOut,
}

/// Lines while they are written.
#[derive(Default)]
struct Block {
    /// Each with whether it says who may come in.
    lines: Vec<(bool, String)>,
    is_closed: bool,
    /// Whether it is for some methods alone.
    is_of_methods: bool,
}

impl Block {
    /// The text, and whether nobody comes in by it.
    fn finish(mut self) -> (String, bool) {
        let whole = |lines: &[(bool, String)]| -> String {
            lines.iter().map(|(_, text)| text.as_str()).collect()
        };
        // Together lines may mean less than each of them alone.
        let text = whole(&self.lines);
        if !self.is_closed && refusal(&text).is_none() {
            return (text, false);
        }
        // In an `<If>` it comes after what directories and files within say.
        let nobody = match self.is_of_methods {
            true => NOBODY.to_owned(),
            false => format!("<If \"true\">\n{NOBODY}</If>\n"),
        };
        self.lines.retain(|(says_who, _)| !says_who);
        let text = whole(&self.lines) + &nobody;
        match refusal(&text) {
            None => (text, true),
            Some(_) => (nobody, true),
        }
    }
}

/// What is not understood of a text.
fn problems(text: &str) -> Vec<Problem> {
    compile_section(text.as_bytes(), SectionContext::Directory).problems
}

/// Why a text refuses what it is for.
fn refusal(text: &str) -> Option<String> {
    let found = problems(text).into_iter().find(|it| it.refuses);
    found.map(|it| it.text)
}

/// An `<If>` of what a text has.
fn condition(test: &str, regex: &str) -> Option<String> {
    let mut ends = ['#', ',', ';', '!'].into_iter();
    let end = ends.find(|end| !regex.contains(*end))?;
    let regex = regex.replace('\\', "\\\\").replace('"', "\\\"");
    let head = format!("<If \"%{{{test}}} =~ m{end}{regex}{end}\">\n");
    refusal(&format!("{head}</If>\n")).is_none().then_some(head)
}

impl Apache<'_> {
    /// The lines of a section, as far as they are understood, and whether nobody comes in by it.
    fn block(&self, lines: &[&ApacheLine], weight: Weight) -> (String, bool) {
        self.block_of(lines, weight, Block::default())
    }

    fn block_of(&self, lines: &[&ApacheLine], weight: Weight, mut block: Block) -> (String, bool) {
        let only = match weight {
            Weight::Own => None,
            Weight::KeepsOut => Some(self.keeping_out(lines, &mut block)),
        };
        let mut asked: Vec<&ApacheLine> = Vec::new();
        for line in lines {
            if is_left_to_rules(line) {
                continue;
            }
            let says_who = line.begins(&WHO);
            if says_who && only == Some(false) {
                self.ledger.say_last(line.id, Fate::Carried, "");
                continue;
            }
            match (line.name.as_str(), &line.children) {
                ("rewritecond", _) => asked.push(line),
                ("rewriterule", _) => {
                    asked.push(line);
                    self.understood(&std::mem::take(&mut asked), &mut block);
                }
                (_, Some(_)) if !says_who => self.inner(line, weight, &mut block),
                _ => self.understood(&[*line], &mut block),
            }
        }
        for line in asked {
            self.ledger.idle(line.id, "no rule follows it");
        }
        block.finish()
    }

    /// What becomes of lines about access in a section that only keeps out: whether they are said.
    fn keeping_out(&self, lines: &[&ApacheLine], block: &mut Block) -> bool {
        let has = |name: &str| lines.iter().any(|line| line.name == name);
        let is =
            |line: &ApacheLine, at: usize, word: &str| line.word(at).eq_ignore_ascii_case(word);
        let mut hosts = lines
            .iter()
            .filter(|line| line.begins(&["order", "allow", "deny", "satisfy"]))
            .filter(|line| !line.name.starts_with("allowoverride"));
        let lets_all = |line: &&&ApacheLine| {
            line.name == "order" || (line.name == "allow" && is(line, 1, "all"))
        };
        let is_open = has("allow") && hosts.clone().all(|line| lets_all(&line));
        if hosts.next().is_some() && !is_open {
            block.is_closed = true;
        }
        let grants = |line: &&ApacheLine| {
            line.name == "require" && is(line, 0, "all") && is(line, 1, "granted")
        };
        let asks = lines.iter().any(|line| line.name.starts_with("require"));
        if !asks || lines.iter().any(grants) {
            return false;
        }
        block.lines.push((true, "AuthMerging And\n".to_owned()));
        true
    }

    /// A section that stands in another.
    fn inner(&self, section: &ApacheLine, weight: Weight, block: &mut Block) {
        // These follow one that is there already.
        let before = match section.name.as_str() {
            "elseif" | "else" => "<If \"true\">\n</If>\n",
            _ => "",
        };
        let head = problems(&(before.to_owned() + &section.around("")));
        let problem = head.into_iter().next().map(|it| it.text);
        if let Some(problem) = problem.or_else(|| section.odd()) {
            self.bury(section, Fate::NotCarried, &problem);
            block.is_closed |= section.restricts();
            return;
        }
        let children: Vec<&ApacheLine> = section.children.iter().flatten().collect();
        let is_limit = section.name.starts_with("limit");
        let inner = Block {
            is_of_methods: is_limit || block.is_of_methods,
            ..Block::default()
        };
        let (inner, _) = self.block_of(&children, weight, inner);
        self.ledger.say_last(section.id, Fate::Carried, "");
        // An empty one may be what an `<Else>` follows.
        if !inner.is_empty() || section.name.contains("if") {
            block.lines.push((is_limit, section.around(&inner)));
        }
    }

    /// Writes a line, or a rule with its conditions, if it is understood.
    fn understood(&self, lines: &[&ApacheLine], block: &mut Block) {
        let Some(last) = lines.last() else { return };
        if let ApacheMeaning::Idle(note) = meaning(&last.name) {
            return self.bury(last, Fate::NotNeeded, note);
        }
        if let Some(problem) = lines.iter().find_map(|line| line.odd()) {
            for line in lines {
                self.bury(line, Fate::NotCarried, &problem);
            }
            block.is_closed |= last.restricts();
            return;
        }
        let text: String = lines.iter().map(|line| line.whole_text()).collect();
        let says_who = last.begins(&WHO);
        let problems = problems(&text);
        let refusal = problems.iter().find(|it| it.refuses);
        match (refusal, problems.first()) {
            (None, None) => {
                for line in lines {
                    self.bury(line, Fate::Carried, "");
                }
                self.trap(last);
                block.lines.push((says_who, text));
            }
            (Some(problem), _) => {
                for line in lines {
                    self.bury(line, Fate::NotCarried, &problem.text);
                }
                let closing = RewriteLine::read(last).and_then(|rule| rule.closing());
                match closing
                    .filter(|text| last.name == "rewriterule" && self::refusal(text).is_none())
                {
                    Some(text) => block.lines.push((false, text)),
                    None => block.is_closed |= last.restricts(),
                }
            }
            (None, Some(problem)) if problem.reason == "htaccess_unknown" => {
                block.is_closed |= self.judge(last).is_some();
                // It may set a variable on which who may come in depends.
                if meaning(&last.name) == ApacheMeaning::Unknown {
                    block.lines.push((false, text));
                }
            }
            (None, Some(problem)) => {
                for line in lines {
                    self.bury(line, Fate::NotCarried, &problem.text);
                }
                // One that refuses may depend on it, which shows when all is read.
                if last.name == "rewriterule" {
                    block.lines.push((false, text));
                }
            }
        }
    }

    /// What of a line that is obeyed is not had.
    fn trap(&self, line: &ApacheLine) {
        let words = line
            .words
            .iter()
            .map(|word| word.trim_start_matches('+').to_ascii_lowercase());
        for word in words.filter(|_| line.name == "options") {
            let note = match word.as_str() {
                "includes" | "includesnoexec" => {
                    "pages are sent as they are: there are no server-side includes"
                }
                "multiviews" => "a name without its ending is found by `try`, as `$path.html`",
                _ => continue,
            };
            self.ledger.differs(line.id, note);
        }
    }
}

impl<'a> HostWork<'_, 'a> {
    /// Has the engine obey what the virtual host says of all its paths, its rewriting first, and what
    /// its sections say of directories and files, which stand in Apache's order.
    pub(super) fn texts(&mut self, rewriting: &[ApacheLine], sections: &[&'a ApacheLine]) {
        let apache = self.apache;
        let mut made_of = Vec::new();
        let mut texts = Vec::new();
        let (mut server, is_closed) =
            apache.block(&rewriting.iter().collect::<Vec<_>>(), Weight::Own);
        if is_closed {
            let ids = rewriting.iter().map(|line| line.id);
            ids.for_each(|id| self.close_at(&Area::default(), CLOSED, id));
        }
        server = passing(&server);
        rewriting.iter().for_each(|line| line.ids(&mut made_of));
        let is_of_files = |it: &&&ApacheLine| !it.begins(&["directory", "location", "proxy"]);
        let of_files = sections.iter().filter(is_of_files);
        let lines: Vec<&ApacheLine> = self.of_engine.iter().chain(of_files).copied().collect();
        let mut ours = self.first.iter().chain(&self.main);
        if ours.any(|rule| rule.runs_cgi()) {
            server.push_str("Options FollowSymLinks\n");
        }
        let (whole, is_closed) = apache.block(&lines, Weight::Own);
        server.push_str(&whole);
        if let Some(line) = lines.first().filter(|_| is_closed) {
            self.close(&Area::default(), CLOSED, line);
        }
        // A page says its charset itself, where Apache says none.
        let says_charset = lines.iter().any(|line| line.name == "adddefaultcharset");
        if self.roots.has_files() && !says_charset {
            server.push_str("AddDefaultCharset Off\n");
        }
        lines.iter().for_each(|line| line.ids(&mut made_of));
        for section in sections
            .iter()
            .filter(|it| it.name.starts_with("directory"))
        {
            let parts = self.roots.parts(section);
            if parts.is_empty() {
                apache.bury(section, Fate::NotNeeded, "no site has files there");
                continue;
            }
            section.ids(&mut made_of);
            for (place, area) in parts {
                self.directory_text(section, (place, area), &mut server, &mut texts);
            }
        }
        for (regex, lines) in std::mem::take(&mut self.of_locations) {
            lines.iter().for_each(|line| line.ids(&mut made_of));
            let (text, is_closed) = apache.block(&lines, Weight::KeepsOut);
            if let Some(line) = lines.first().filter(|_| is_closed) {
                self.close(&Area::of_regex(regex.clone()), CLOSED, line);
            }
            match condition("REQUEST_URI", &regex) {
                _ if text.is_empty() => {}
                Some(head) => server.push_str(&format!("{head}{text}</If>\n")),
                None => self.left_out(&lines, &Area::of_regex(regex)),
            }
        }
        let scripts = self.script_directories.iter();
        texts.extend(scripts.map(|path| (path.clone(), "Options +ExecCGI\n".to_owned())));
        server.push_str(&self.no_fallback(&server, &texts));
        server.push_str(&self.shielded(&texts));
        self.tell_of_forwarded(sections);
        self.put_texts(server, texts);
        self.draft.keys.made_of(&made_of);
    }

    fn directory_text(
        &mut self,
        section: &'a ApacheLine,
        (place, area): (SectionPlace, Option<Area>),
        server: &mut String,
        texts: &mut Vec<(String, String)>,
    ) {
        let apache = self.apache;
        apache.ledger.carried(section.id);
        let children: Vec<&ApacheLine> = section.children.iter().flatten().collect();
        let regex = match place {
            SectionPlace::Names(regex) => regex,
            SectionPlace::Directory(path) => {
                let (text, is_closed) = apache.block(&children, Weight::Own);
                if let Some(area) = area.filter(|_| is_closed) {
                    self.close(&area, CLOSED, section);
                }
                let comment = apache.ledger.comment(section.id);
                let text = match text.is_empty() {
                    true => text,
                    false => format!("{}\n{text}", comment.trim_end_matches('\\')),
                };
                let text = (path, text);
                if texts.last() != Some(&text) {
                    texts.push(text);
                }
                return;
            }
        };
        let (text, _) = apache.block(&children, Weight::KeepsOut);
        match condition("REQUEST_FILENAME", &regex) {
            Some(head) if !text.is_empty() => server.push_str(&format!("{head}{text}</If>\n")),
            Some(_) => {}
            None => {
                let why = "which directories it is for is not known here";
                apache.bury(section, Fate::NotCarried, why);
                if section.restricts() {
                    self.close(&Area::default(), why, section);
                }
            }
        }
    }

    /// What answers for what is missing does not answer for what rules forward.
    fn no_fallback(&self, server: &str, texts: &[(String, String)]) -> String {
        let mut all = texts.iter().map(|(_, text)| text.as_str()).chain([server]);
        let is_said = all.any(|text| text.to_ascii_lowercase().contains("fallbackresource"));
        let shields = self
            .shields
            .iter()
            .filter(|shield| shield.forwards.is_some());
        let shields: Vec<&str> = shields.map(|shield| shield.regex.as_str()).collect();
        if !is_said || shields.is_empty() {
            return String::new();
        }
        let head = condition("REQUEST_URI", &format!("(?:{})", shields.join(")|(?:")));
        head.map_or_else(String::new, |head| {
            head + "FallbackResource disabled\n</If>\n"
        })
    }

    /// Where there is rewriting, it says what is forwarded: the path that it has come to, which no
    /// directory rewrites any more.
    fn shielded(&mut self, texts: &[(String, String)]) -> String {
        let rewrites =
            |(_, text): &(String, String)| text.to_ascii_lowercase().contains("rewriterule");
        let obeys_files = self.draft.keys.get("htaccess").is_some();
        let is_rewritten = self.translates || obeys_files || texts.iter().any(rewrites);
        let mut text = String::new();
        if !is_rewritten || !self.shields.iter().any(|it| it.forwards.is_some()) {
            return text;
        }
        text.push_str("RewriteEngine On\n");
        for shield in self.shields.iter().filter(|it| !it.regex.contains('"')) {
            if self.translates {
                text.push_str(NOT_TRANSLATED);
            }
            let rule = shield.forwards.and_then(|at| self.first.get_mut(at));
            let flag = match (rule, shield.forwards) {
                (Some(rule), Some(at)) => {
                    let name = format!("proxied_{}", at + 1);
                    let mut members = vec![member("server_env", name.as_str())];
                    if let Some(TomlItem::Table(paths)) = rule.get("match") {
                        members.extend(paths.iter().cloned());
                    }
                    rule.matching(members);
                    format!("E={name}:1,END")
                }
                _ => "L".to_owned(),
            };
            text.push_str(&format!("RewriteRule \"{}\" - [{flag}]\n", shield.regex));
        }
        text
    }

    /// Says where directories keep out here, and did not: what is forwarded is in none there.
    fn tell_of_forwarded(&self, sections: &[&'a ApacheLine]) {
        let is_one = |it: &&&ApacheLine| {
            it.name.starts_with("directory") && it.restricts() && !self.roots.parts(it).is_empty()
        };
        if self.roots.root.is_some() && sections.iter().any(|it| is_one(&it)) {
            for shield in self.shields.iter().filter(|it| it.forwards.is_some()) {
                let note = "whom a `<Directory>` keeps out of such a path does not come to what is forwarded either";
                self.apache.ledger.differs(shield.id, note);
            }
        }
    }

    fn put_texts(&mut self, server: String, texts: Vec<(String, String)>) {
        // Sections of patterns keep their place among the others.
        let has_patterns = texts.iter().any(|(path, _)| path.contains(WILD));
        let mut merged: Vec<(String, Option<Vec<String>>, String)> = Vec::new();
        for (path, text) in texts {
            let known = match has_patterns {
                true => merged.last_mut().filter(|(known, ..)| *known == path),
                false => merged.iter_mut().find(|(known, ..)| *known == path),
            };
            match known {
                Some((.., known)) => known.push_str(&text),
                None => merged.push((path, None, text)),
            }
        }
        for (path, words) in std::mem::take(&mut self.allowed) {
            let mut is_known = false;
            for (_, said, _) in merged.iter_mut().filter(|(known, ..)| *known == path) {
                *said = Some(words.clone());
                is_known = true;
            }
            if !is_known {
                merged.push((path, Some(words), String::new()));
            }
        }
        merged.retain(|(_, words, text)| words.is_some() || !text.is_empty());
        merged.sort_by_key(|(path, ..)| names_of(path).count());
        let item = |(path, words, text): (String, Option<Vec<String>>, String)| {
            let mut members = vec![member("path", path)];
            members.extend(words.map(|words| member("override", TomlItem::texts(words))));
            if !text.is_empty() {
                members.push(member("text", TomlItem::Lines(text)));
            }
            TomlItem::Table(members)
        };
        let mut items: Vec<TomlItem> = merged.into_iter().map(item).collect();
        if !server.is_empty() {
            let server = TomlItem::table([
                ("path", "/".into()),
                ("text", TomlItem::Lines(server)),
                ("context", "server".into()),
            ]);
            items.insert(0, server);
        }
        let keys = &mut self.draft.keys;
        if items.is_empty() {
            return;
        }
        if keys.get("htaccess").is_none() {
            keys.put_in("htaccess", "override", TomlItem::List(Vec::new()), &[]);
        }
        keys.put_in("htaccess", "directories", TomlItem::List(items), &[]);
    }
}
