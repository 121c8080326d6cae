//! Sections of directories and files, and a virtual host's rewriting, as text for the engine of
//! `.htaccess` files.
//!
//! The idea: what stands in `<Directory>`, `<Files>` and `<If>` stays as it is, line by line, once the
//! crate that obeys it has understood it; where one about access is not understood, nobody comes in
//! where its section is. Handlers that the engine does not have, back ends and locations are rules.

use htaccess::{Overrides, compile, is_php};

use super::rewriting::RewriteLine;
use super::sections::{Area, SectionPlace};
use super::site::HostWork;
use super::{Apache, ApacheLine, ApacheMeaning, meaning};
use crate::Fate;
use crate::draft::TomlItem;

/// Lets nobody in, whatever else is said of it.
const NOBODY: &str = "Order deny,allow\nDeny from all\nSatisfy All\nRequire all denied\n";
/// Beginnings of lines that say who may come in.
const WHO: [&str; 6] = ["require", "auth", "order", "allow", "deny", "satisfy"];
/// Beginnings of others that keep something from somebody.
const WHAT: [&str; 9] = [
    "ssl",
    "options",
    "sethandler",
    "addhandler",
    "removehandler",
    "addtype",
    "forcetype",
    "removetype",
    "php_",
];
/// Directives of a whole virtual host that the engine is given as they are.
const OF_HOSTS: [&str; 14] = [
    "adddefaultcharset",
    "options",
    "setenvif",
    "setenvifnocase",
    "setenvifexpr",
    "browsermatch",
    "browsermatchnocase",
    "removehandler",
    "removetype",
    "forcetype",
    "fallbackresource",
    "indexignore",
    "directoryslash",
    "acceptpathinfo",
];

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
}

impl Block {
    fn finish(mut self) -> String {
        let whole = |lines: &[(bool, String)]| -> String {
            lines.iter().map(|(_, text)| text.as_str()).collect()
        };
        // Together lines may mean less than each of them alone.
        let text = whole(&self.lines);
        if !self.is_closed && refusal(&text).is_none() {
            return text;
        }
        self.lines.retain(|(says_who, _)| !says_who);
        let text = whole(&self.lines) + NOBODY;
        match refusal(&text) {
            None => text,
            Some(_) => NOBODY.to_owned(),
        }
    }
}

/// Why a text refuses what it is for.
fn refusal(text: &str) -> Option<String> {
    let mut problems = compile(text.as_bytes(), &Overrides::all())
        .problems
        .into_iter();
    problems.find(|it| it.refuses).map(|it| it.text)
}

/// Whether a line is about a program, or about something else that rules and keys of a site say.
pub(super) fn is_left_to_rules(line: &ApacheLine) -> bool {
    let kind = line.first().to_ascii_lowercase();
    match line.name.as_str() {
        "allowoverride" | "allowoverridelist" => true,
        "php_value" | "php_flag" | "php_admin_value" | "php_admin_flag" => kind != "engine",
        "addtype" => is_php(kind.as_bytes()),
        "sethandler" | "addhandler" => {
            let is_plain = ["none", "default-handler", "cgi-script"].contains(&&*kind);
            !is_plain && !kind.starts_with("text/")
        }
        _ => false,
    }
}

/// Whether the engine is given a line of a whole virtual host.
pub(super) fn is_of_engine(line: &ApacheLine) -> bool {
    let is_engine = line.name.starts_with("php_") && line.first().eq_ignore_ascii_case("engine");
    let is_handler = ["sethandler", "addhandler"].contains(&line.name.as_str());
    OF_HOSTS.contains(&line.name.as_str()) || is_engine || (is_handler && !is_left_to_rules(line))
}

/// An `<If>` of what a text has.
fn condition(test: &str, regex: &str) -> Option<String> {
    let mut ends = ['#', ',', ';', '!'].into_iter();
    let end = ends.find(|end| !regex.contains(*end))?;
    let regex = regex.replace('\\', "\\\\").replace('"', "\\\"");
    let head = format!("<If \"%{{{test}}} =~ m{end}{regex}{end}\">\n");
    refusal(&format!("{head}</If>\n")).is_none().then_some(head)
}

impl ApacheLine {
    /// The line as it is obeyed.
    fn as_text(&self) -> String {
        let arguments = String::from_utf8_lossy(&self.text);
        match self.name.as_str() {
            name if name.starts_with("php_") => format!("php_flag {arguments}\n"),
            "sethandler" if self.first().contains('/') && !is_php(self.first().as_bytes()) => {
                "SetHandler default-handler\n".to_owned()
            }
            _ => format!("{} {arguments}\n", self.spelled),
        }
    }

    /// A section with all that stands in it.
    fn whole_text(&self) -> String {
        let Some(children) = &self.children else {
            return self.as_text();
        };
        let inner: String = children.iter().map(Self::whole_text).collect();
        self.around(&inner)
    }

    fn around(&self, inner: &str) -> String {
        let (name, arguments) = (&self.spelled, String::from_utf8_lossy(&self.text));
        format!(
            "<{}>\n{inner}</{name}>\n",
            format!("{name} {arguments}").trim_end()
        )
    }

    fn begins(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.name.starts_with(name))
    }

    /// All lines of it.
    fn ids(&self, into: &mut Vec<usize>) {
        into.push(self.id);
        self.children
            .iter()
            .flatten()
            .for_each(|inner| inner.ids(into));
    }
}

impl Apache<'_> {
    /// The lines of a section, as far as they are understood.
    fn block(&self, lines: &[&ApacheLine], weight: Weight) -> String {
        let mut block = Block::default();
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
        let head = compile(
            (before.to_owned() + &section.around("")).as_bytes(),
            &Overrides::all(),
        );
        if let Some(problem) = head.problems.first() {
            self.bury(section, Fate::NotCarried, &problem.text);
            block.is_closed |= Self::keeps_out(section);
            return;
        }
        let children: Vec<&ApacheLine> = section.children.iter().flatten().collect();
        let inner = self.block(&children, weight);
        self.ledger.say_last(section.id, Fate::Carried, "");
        let is_limit = section.name.starts_with("limit");
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
        let text: String = lines.iter().map(|line| line.whole_text()).collect();
        let says_who = last.begins(&WHO);
        let problems = compile(text.as_bytes(), &Overrides::all()).problems;
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
                    None => {
                        block.is_closed |= says_who || last.begins(&WHAT) || Self::forbids(last)
                    }
                }
            }
            (None, Some(problem)) if problem.reason == "htaccess_unknown" => {
                block.is_closed |= self.judge(last).is_some();
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

    fn forbids(line: &ApacheLine) -> bool {
        line.name == "rewriterule" && RewriteLine::read(line).is_some_and(|rule| rule.forbids())
    }
}

impl<'a> HostWork<'_, 'a> {
    /// Has the engine obey the virtual host's rewriting, and what its sections say of directories and
    /// files, which stand in Apache's order.
    pub(super) fn texts(&mut self, rewriting: &[&'a ApacheLine], sections: &[&'a ApacheLine]) {
        let apache = self.apache;
        let mut made_of = Vec::new();
        let mut texts = Vec::new();
        let is_of_files = |it: &&&ApacheLine| !it.begins(&["directory", "location", "proxy"]);
        let of_files = sections.iter().filter(is_of_files);
        let lines: Vec<&ApacheLine> = self.of_engine.iter().chain(of_files).copied().collect();
        let mut whole = apache.block(&lines, Weight::Own);
        if self
            .first
            .iter()
            .chain(&self.main)
            .any(|rule| rule.runs_cgi())
        {
            whole.insert_str(0, "Options FollowSymLinks\n");
        }
        // A page says its charset itself, where Apache says none.
        if !lines.iter().any(|line| line.name == "adddefaultcharset") {
            whole.push_str("AddDefaultCharset Off\n");
        }
        lines.iter().for_each(|line| line.ids(&mut made_of));
        for section in sections
            .iter()
            .filter(|it| it.name.starts_with("directory"))
        {
            let mut places: Vec<SectionPlace> = Vec::new();
            for (place, _) in self.roots.parts(section) {
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            if places.is_empty() {
                apache.bury(section, Fate::NotNeeded, "no site has files there");
                continue;
            }
            section.ids(&mut made_of);
            for place in places {
                self.directory_text(section, place, &mut whole, &mut texts);
            }
        }
        for (regex, lines) in std::mem::take(&mut self.of_locations) {
            lines.iter().for_each(|line| line.ids(&mut made_of));
            let text = apache.block(&lines, Weight::KeepsOut);
            match condition("REQUEST_URI", &regex) {
                _ if text.is_empty() => {}
                Some(head) => whole.push_str(&format!("{head}{text}</If>\n")),
                None => self.left_out(&lines, &Area::of_regex(regex)),
            }
        }
        let scripts = self.script_directories.iter();
        texts.extend(scripts.map(|path| (path.clone(), "Options +ExecCGI\n".to_owned())));
        whole.push_str(&self.no_fallback(&whole, &texts));
        texts.insert(0, ("/".to_owned(), whole));
        let server = self.server_text(rewriting, &texts);
        rewriting.iter().for_each(|line| line.ids(&mut made_of));
        self.put_texts(server, texts);
        self.draft.keys.made_of(&made_of);
    }

    fn directory_text(
        &self,
        section: &'a ApacheLine,
        place: SectionPlace,
        whole: &mut String,
        texts: &mut Vec<(String, String)>,
    ) {
        let apache = self.apache;
        apache.ledger.carried(section.id);
        let children: Vec<&ApacheLine> = section.children.iter().flatten().collect();
        let regex = match place {
            SectionPlace::Names(regex) => regex,
            SectionPlace::Directory(path) => {
                let text = apache.block(&children, Weight::Own);
                if !text.is_empty() {
                    let comment = apache.ledger.comment(section.id);
                    let comment = comment.trim_end_matches('\\');
                    texts.push((path, format!("{comment}\n{text}")));
                }
                return;
            }
        };
        let text = apache.block(&children, Weight::KeepsOut);
        match condition("REQUEST_FILENAME", &regex) {
            Some(head) if !text.is_empty() => whole.push_str(&format!("{head}{text}</If>\n")),
            Some(_) => {}
            None => {
                let why = "which directories it is for is not known here";
                apache.bury(section, Fate::NotCarried, why);
                if Apache::keeps_out(section) {
                    whole.push_str(NOBODY);
                }
            }
        }
    }

    /// What answers for what is missing does not answer for what rules forward and redirect.
    fn no_fallback(&self, whole: &str, texts: &[(String, String)]) -> String {
        let mut all = texts.iter().map(|(_, text)| text.as_str()).chain([whole]);
        let is_said = all.any(|text| text.to_ascii_lowercase().contains("fallbackresource"));
        if !is_said || self.shields.is_empty() {
            return String::new();
        }
        let regex = format!("(?:{})", self.shields.join(")|(?:"));
        let head = condition("REQUEST_URI", &regex);
        head.map_or_else(String::new, |head| {
            head + "FallbackResource disabled\n</If>\n"
        })
    }

    /// Rewriting of the virtual host; of what rules forward and redirect no directory's goes on.
    fn server_text(&self, rewriting: &[&'a ApacheLine], texts: &[(String, String)]) -> String {
        let mut server = self.apache.block(rewriting, Weight::Own);
        let rewrites =
            |(_, text): &(String, String)| text.to_ascii_lowercase().contains("rewriterule");
        let has_files = self.draft.keys.get("htaccess").is_some();
        let fits = |regex: &&String| !regex.contains('"');
        if has_files || texts.iter().any(rewrites) {
            for (at, regex) in self.shields.iter().filter(fits).enumerate() {
                if at == 0 {
                    server.push_str("RewriteEngine On\n");
                }
                server.push_str(&format!("RewriteRule \"{regex}\" - [END]\n"));
            }
        }
        server
    }

    fn put_texts(&mut self, server: String, texts: Vec<(String, String)>) {
        let mut merged: Vec<(String, String)> = Vec::new();
        for (path, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            match merged.iter_mut().find(|(known, _)| *known == path) {
                Some((_, known)) => known.push_str(&text),
                None => merged.push((path, text)),
            }
        }
        let item = |(path, text): (String, String)| {
            TomlItem::table([("path", path.into()), ("text", TomlItem::Lines(text))])
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
