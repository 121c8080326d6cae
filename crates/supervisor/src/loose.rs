//! Files of a generation that may be set aside: which are, what is said of them, and what of them is
//! stored for the next start.

use std::path::PathBuf;

use config::{Aside, Colour, LastGood, Problem, Sources, reason};
use ipc::server::{SetAsideFile, Tally};
use jiff::Timestamp;

use crate::last_good;
use crate::load::Loaded;
use crate::reload::log_problems;

/// What a generation has of files that may be set aside.
#[derive(Debug)]
pub(super) struct LooseFiles {
    /// Their last good versions, once the generation is in force.
    pub(super) last_good: LastGood,
    /// Those that were known before it.
    known_before: LastGood,
    /// How many are set aside.
    pub(super) files_set_aside: u64,
    /// The first of them.
    pub(super) set_aside: Vec<SetAsideFile>,
    /// What is to be said of them to whoever has the configuration reloaded.
    pub(super) told: String,
    /// Where the versions are stored; `None` where no file may be set aside.
    store: Option<PathBuf>,
}

/// Which last good versions are stored, and where; nothing where that is not known.
#[derive(Debug, Default)]
pub(super) struct Stored(Option<(PathBuf, LastGood)>);

impl LooseFiles {
    /// Those of a configuration; says in the log which are broken.
    pub(super) fn of(loaded: &Loaded) -> LooseFiles {
        log(loaded);
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (sources, aside, known) = (&loaded.sources, &loaded.aside, &loaded.last_good);
        let last_good = sources.last_good_after(aside, known, &now);
        LooseFiles {
            files_set_aside: aside.files().len() as u64,
            set_aside: set_aside_files(aside, &last_good),
            told: aside.render(Colour::Never),
            store: sources.last_good(),
            known_before: known.clone(),
            last_good,
        }
    }

    /// As another supervisor knew them.
    pub(super) fn taken_over(sources: &Sources, last_good: LastGood, tally: &Tally) -> LooseFiles {
        LooseFiles {
            last_good,
            known_before: LastGood::default(),
            files_set_aside: tally.files_set_aside,
            set_aside: tally.set_aside.clone(),
            told: String::new(),
            store: sources.last_good(),
        }
    }

    /// What was stored when they were read.
    pub(super) fn stored_before(&self) -> Stored {
        let path = self.store.clone();
        Stored(path.map(|path| (path, self.known_before.clone())))
    }

    /// Stores what came into force of files that may be set aside, for the next start, unless it
    /// is what is stored there.
    pub(super) fn store(&self, stored: &mut Stored) {
        let Some(path) = &self.store else {
            return;
        };
        let is_it =
            |(at, versions): &(PathBuf, LastGood)| at == path && *versions == self.last_good;
        if stored.0.as_ref().is_some_and(is_it) {
            return;
        }
        match last_good::write(path, &self.last_good) {
            Ok(()) => stored.0 = Some((path.clone(), self.last_good.clone())),
            Err(error) => {
                let (file, error) = (path.display().to_string(), reason(&error));
                tracing::error!(
                    file,
                    error,
                    "the last good versions of files cannot be stored: a restart would leave out those that are broken; `last_good` says where they go"
                );
            }
        }
    }
}

/// Says which files are broken and what became of each.
fn log(loaded: &Loaded) {
    if let Some(why) = &loaded.last_good_unread {
        tracing::error!("the last good versions of files cannot be read: {why}");
    }
    for (_, aside) in loaded.aside.files() {
        log_problems(&aside.problems);
        tracing::error!(file = aside.name, "{}", aside.verdict());
    }
}

/// The first files that are set aside, for `status`.
fn set_aside_files(aside: &Aside, last_good: &LastGood) -> Vec<SetAsideFile> {
    let files = aside.files().map(|(path, aside)| {
        let first = aside.problems.problems().first();
        let since = last_good.set_aside_since(path).unwrap_or_default();
        let file = SetAsideFile {
            file: aside.name.clone(),
            since: since.to_owned(),
            verdict: aside.verdict(),
            problem: first.map(told_with_place).unwrap_or_default(),
        };
        file.bounded()
    });
    files.take(SetAsideFile::TOLD_MAX).collect()
}

/// A problem in a line, behind its place.
fn told_with_place(problem: &Problem) -> String {
    match &problem.place {
        Some(at) => format!("line {}: {problem}", at.line),
        None => problem.to_string(),
    }
}
