//! Files that are set aside because they are wrong, while everything else is taken.
//!
//! The idea: a configuration is judged ([`crate::judge`]), and each problem has a file it stands in.
//! Those that may be set aside are read again as their last good version or as nothing, and the
//! whole is judged anew, until nothing is wrong or what is wrong is nobody's who may be set aside.
//! Who goes round is the supervisor; here is what it knows on its way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostics::{Colour, Diagnostics};
use crate::last_good::{LastGood, Version};

/// Why a configuration cannot be taken as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Every problem.
    pub all: Diagnostics,
    /// The files among those that are wrong that may be set aside.
    pub(crate) files: Vec<WrongFile>,
}

/// A file that is wrong and may be set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrongFile {
    pub(crate) path: PathBuf,
    /// As in messages.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) problems: Diagnostics,
}

/// The files that are set aside.
#[derive(Debug, Clone, Default)]
pub struct Aside {
    /// By absolute path.
    files: BTreeMap<PathBuf, SetAside>,
}

/// A file that is set aside.
#[derive(Debug, Clone)]
pub struct SetAside {
    /// Its name, as in messages.
    pub name: String,
    /// What is wrong with it.
    pub problems: Diagnostics,
    /// What is in force in its place.
    pub stays: Stays,
}

/// What is in force in place of a file that is set aside.
#[derive(Debug, Clone)]
pub enum Stays {
    /// Its last good version.
    LastGood(Version),
    /// Nothing.
    LeftOut {
        /// The version that there is, but that no longer goes with the rest, and why not.
        version: Option<(String, Diagnostics)>,
    },
}

impl Aside {
    /// Sets the files aside that are wrong; one that is so already is left out.
    ///
    /// # Errors
    /// All problems, where none of them is that of a file that may be set aside.
    pub fn add(&mut self, wrong: Wrong, last_good: &LastGood) -> Result<(), Diagnostics> {
        if wrong.files.is_empty() {
            return Err(self.with_problems_of(wrong.all));
        }
        for file in wrong.files {
            match self.files.get_mut(&file.path) {
                Some(known) => {
                    if let Stays::LastGood(version) = &known.stays {
                        let version = Some((version.accepted.clone(), file.problems));
                        known.stays = Stays::LeftOut { version };
                    }
                }
                None => {
                    let version = last_good.version(&file.path).cloned();
                    let stays = match version {
                        // What is there has been in force: something else has changed.
                        Some(version) if *version.text == *file.text => Stays::LeftOut {
                            version: Some((version.accepted, file.problems.clone())),
                        },
                        Some(version) => Stays::LastGood(version),
                        None => Stays::LeftOut { version: None },
                    };
                    let aside = SetAside {
                        name: file.name,
                        problems: file.problems,
                        stays,
                    };
                    self.files.insert(file.path, aside);
                }
            }
        }
        Ok(())
    }

    /// The problems of the files set aside before `others`.
    #[must_use]
    pub fn with_problems_of(&self, others: Diagnostics) -> Diagnostics {
        let aside = self.files.values().map(|aside| aside.problems.clone());
        Diagnostics::joined(aside.chain([others]))
    }

    /// The text for people: of each file what is wrong and what became of it.
    #[must_use]
    pub fn render(&self, colour: Colour) -> String {
        let told = self.files.values().map(|aside| {
            let (problems, verdict) = (aside.problems.render(colour), aside.verdict());
            format!("{problems}{}: {verdict}\n\n", aside.name)
        });
        told.collect()
    }

    /// What is said of a file, if it is set aside.
    #[must_use]
    pub fn of(&self, path: &Path) -> Option<&SetAside> {
        self.files.get(path)
    }

    /// The files, each with its absolute path.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&Path, &SetAside)> {
        let files = self.files.iter();
        files.map(|(path, aside)| (path.as_path(), aside))
    }

    /// What stands in place of a file's text.
    pub(crate) fn text_of(&self, path: &Path) -> Option<Arc<str>> {
        Some(match &self.files.get(path)?.stays {
            Stays::LastGood(version) => Arc::clone(&version.text),
            Stays::LeftOut { .. } => Arc::default(),
        })
    }
}

impl SetAside {
    /// What became of it, after its name: `the version of … stays in force`.
    #[must_use]
    pub fn verdict(&self) -> String {
        match &self.stays {
            Stays::LastGood(version) => {
                format!(
                    "set aside: its version of {} stays in force",
                    version.accepted
                )
            }
            Stays::LeftOut { version: None } => {
                "set aside: it is left out, for there is no good version of it".to_owned()
            }
            Stays::LeftOut {
                version: Some((accepted, problems)),
            } => {
                let first = problems.problems().first();
                let why = first.map_or(String::new(), |first| format!(": {first}"));
                format!(
                    "set aside: it is left out, for its version of {accepted} does not go with the rest{why}"
                )
            }
        }
    }
}
