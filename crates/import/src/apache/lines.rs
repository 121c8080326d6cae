//! What single lines are: whom they keep from what, whose they are, the engine's or rules', and the
//! text by which the engine of `.htaccess` files obeys them.

use htaccess::is_php;

use super::rewriting::RewriteLine;
use super::{ApacheLine, ApacheMeaning, meaning};

/// Beginnings of lines that say who may come in.
pub(super) const WHO: [&str; 6] = ["require", "auth", "order", "allow", "deny", "satisfy"];
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
const OF_HOSTS: [&str; 19] = [
    "adddefaultcharset",
    "redirect",
    "redirectmatch",
    "redirectpermanent",
    "redirecttemp",
    "passenv",
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
    // What sets a variable may be unknown, and who may come in may depend on it.
    let is_unknown = meaning(&line.name) == ApacheMeaning::Unknown;
    let is_known = OF_HOSTS.contains(&line.name.as_str()) || is_engine || is_unknown;
    is_known || (is_handler && !is_left_to_rules(line))
}

impl ApacheLine {
    /// The line as it is obeyed.
    fn as_text(&self) -> String {
        let arguments = String::from_utf8_lossy(&self.text);
        match self.name.as_str() {
            "sethandler" if self.first().contains('/') && !is_php(self.first().as_bytes()) => {
                "SetHandler default-handler\n".to_owned()
            }
            _ => format!("{} {arguments}\n", self.spelled),
        }
    }

    /// What is wrong with its bytes.
    pub(super) fn odd(&self) -> Option<String> {
        let is_fine = std::str::from_utf8(&self.text).is_ok();
        (!is_fine).then(|| "it is no UTF-8: write it in that".to_owned())
    }

    /// A section with all that stands in it.
    pub(super) fn whole_text(&self) -> String {
        let Some(children) = &self.children else {
            return self.as_text();
        };
        let inner: String = children.iter().map(Self::whole_text).collect();
        self.around(&inner)
    }

    pub(super) fn around(&self, inner: &str) -> String {
        let (name, arguments) = (&self.spelled, String::from_utf8_lossy(&self.text));
        format!(
            "<{}>\n{inner}</{name}>\n",
            format!("{name} {arguments}").trim_end()
        )
    }

    pub(super) fn begins(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.name.starts_with(name))
    }

    /// Whether it, or a line in it, keeps something from somebody.
    pub(super) fn restricts(&self) -> bool {
        let is = |at: usize, word: &str| self.word(at).eq_ignore_ascii_case(word);
        let is_open = self.name == "require" && is(0, "all") && is(1, "granted");
        let says_who = self.begins(&WHO) && !self.begins(&["allowoverride"]) && !is_open;
        let gives = is_left_to_rules(self) || is(0, "cgi-script");
        let is_closing = matches!(meaning(&self.name), ApacheMeaning::Closing(_));
        says_who
            || is_closing
            || (self.begins(&WHAT) && !gives)
            || self.forbids()
            || self.children.iter().flatten().any(Self::restricts)
    }

    fn forbids(&self) -> bool {
        let rule = || RewriteLine::read(self);
        self.name == "rewriterule" && rule().is_some_and(|rule| rule.forbids())
    }

    /// All lines of it.
    pub(super) fn ids(&self, into: &mut Vec<usize>) {
        into.push(self.id);
        self.children
            .iter()
            .flatten()
            .for_each(|inner| inner.ids(into));
    }
}
