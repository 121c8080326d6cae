//! What `.htaccess` files have said of a request, for those who go on with it.

use config::model::{Handler, SiteHtaccess};
use htaccess::settings::{Described, PathInfo};
use htaccess::{Decision, Stop, is_php};

use super::cache::KnownChain;
use super::facts::{Carried, Facts};
use crate::error::{Error, Kind};

/// What files have said.
#[derive(Debug)]
pub(crate) struct Applied {
    /// All of it.
    pub(crate) decision: Decision,
    /// What they were told of the request.
    pub(crate) facts: Facts,
    /// What the file is by its name, as they say.
    pub(crate) described: Described,
    /// Whether the reply is an error of our own.
    pub(crate) is_own_error: bool,
    /// Whether CGI programs may run.
    executes: bool,
    answers: Answers,
}

/// Whose answer it is, as far as files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// As the site's rules say.
    AsRules,
    /// No program's: the file is sent as what they say it is.
    File,
    /// No program's.
    NoProgram,
    /// A program's that must not run.
    Nobody,
    /// A CGI program's: the file itself.
    Cgi,
    /// That of PHP: of the version that the site has for the handler of this index, or the usual one.
    Php(Option<usize>),
}

impl Applied {
    /// Takes in a decision.
    pub(crate) fn new(decision: Decision, facts: Facts, site: &SiteHtaccess) -> Self {
        let mut described = decision.settings.describe(&facts.filename);
        if let Some(media_type) = &decision.media_type {
            described.media_type = Some(Some(media_type.clone()));
        }
        if let Some(handler) = &decision.handler {
            described.handler = Some(Some(handler.clone()));
        }
        Self {
            answers: Answers::of(&decision, &described, site),
            executes: decision.settings.options(facts.options).executes(),
            decision,
            facts,
            described,
            is_own_error: false,
        }
    }

    /// What answers, in place of what the site's rules chose; `is_chosen` says whether one did. Nobody
    /// does for the file of a program that is not had or must not run: it is not shown, either.
    pub(crate) fn handler<'a>(
        &self,
        site: &'a SiteHtaccess,
        usual_php: Option<&'a Handler>,
        (by_rules, is_chosen): (&'a Handler, bool),
    ) -> Option<&'a Handler> {
        let is_program = matches!(by_rules, Handler::FastCgi(_) | Handler::Cgi(_));
        let is_file = matches!(by_rules, Handler::Static);
        if matches!(by_rules, Handler::Cgi(_)) && !self.executes {
            return None;
        }
        match self.answers {
            Answers::File if is_program => Some(&Handler::Static),
            Answers::NoProgram | Answers::Nobody if is_program => None,
            Answers::Cgi | Answers::Nobody if is_file => None,
            Answers::Php(named) if !is_chosen || is_program => {
                let named = named.and_then(|at| site.handlers.get(at));
                let named = named.map(|(_, _, handler)| handler);
                named.or(usual_php)
            }
            _ => Some(by_rules),
        }
    }

    /// What is left of it where the request goes on at another path that a rule of the site has led to.
    pub(crate) fn left(&self) -> Carried {
        Carried {
            cookies: self.decision.cookies.clone(),
            vary: self.decision.vary.clone(),
            ..Carried::default()
        }
    }

    /// Whether directories without a page are listed.
    pub(crate) fn lists(&self) -> bool {
        self.decision.settings.options(self.facts.options).lists()
    }

    /// Whether lists of directories leave out this name.
    pub(crate) fn unlists(&self, name: &[u8]) -> bool {
        self.decision.settings.is_unlisted(name)
    }

    /// Whether files, too, take what follows them in the path.
    pub(crate) fn takes_path_info(&self) -> bool {
        self.decision.settings.path_info() == PathInfo::Taken
    }

    /// Whether what follows a file in the path is refused.
    pub(crate) fn refuses_path_info(&self) -> bool {
        self.decision.settings.path_info() == PathInfo::Refused
    }
}

impl Answers {
    fn of(decision: &Decision, described: &Described, site: &SiteHtaccess) -> Self {
        let php = |name: &[u8]| {
            let mut names = site.handlers.iter();
            Self::Php(names.position(|(have, ..)| have.as_bytes().eq_ignore_ascii_case(name)))
        };
        let answers = match (&described.handler, &described.media_type) {
            (Some(Some(name)), _) if is_php(name) => php(name),
            (Some(Some(name)), _) if name.eq_ignore_ascii_case(b"cgi-script") => Self::Cgi,
            (Some(_), _) => Self::NoProgram,
            (None, Some(Some(name))) if is_php(name) => php(name),
            (None, Some(Some(_))) => Self::File,
            (None, Some(None)) => Self::NoProgram,
            (None, None) => Self::AsRules,
        };
        match (decision.settings.php_engine(), answers) {
            (Some(false), Self::Php(_) | Self::Cgi) => Self::Nobody,
            (Some(false), Self::AsRules) => Self::NoProgram,
            (_, answers) => answers,
        }
    }
}

/// The failure that a stop is, where nobody is asked to log in; of files and sections that are known
/// it names the one it comes of.
pub(crate) fn failure(stop: &Stop, known: Option<&KnownChain>) -> Error {
    let (line, text) = (stop.line, &stop.text);
    let detail = match (known, &stop.directory) {
        _ if line == 0 => text.clone(),
        (Some(known), Some(directory)) => {
            format!("{}:{line}: {text}", known.name_of(directory))
        }
        _ => format!("line {line}: {text}"),
    };
    Error::new(Kind::Refused(stop.status), stop.reason, detail)
}
