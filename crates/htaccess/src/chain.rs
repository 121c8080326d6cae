//! The programs of the directories above a file, merged in Apache's order.
//!
//! First the plain lines of all, from the outermost inwards; then what stands in `<Files>`, of all
//! in the same order; last what stands in `<If>`, and in such sections within those once all before
//! them are through. The plain lines are merged once.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::compile::{Block, Choice, MISSED, Program, Reliance};
use crate::expression;
use crate::request::Stop;
use crate::settings::Settings;
use crate::variable::Scope;
use crate::work::{LINE_STEPS, Work};

/// Directories of a chain.
pub const LEVELS_MAX: usize = 128;
/// Bytes of their files together.
const BYTES_MAX: usize = 1024 * 1024;

/// A directory and the program of its file.
#[derive(Debug, Clone)]
pub struct ChainLevel {
    /// The directory, absolute, with a slash at its end.
    pub directory: Arc<[u8]>,
    /// What its file says.
    pub program: Arc<Program>,
}

/// The programs that hold for the files of a directory, the outermost first.
#[derive(Debug)]
pub struct Chain {
    levels: Arc<[ChainLevel]>,
    plain: Arc<Settings>,
    has_sections: bool,
}

/// What access was decided by: files, and the sections in them that held. Where both are the same for
/// the path that comes of one it is not decided again, as in Apache, whatever the path changes.
#[derive(Debug, Clone)]
pub struct AccessGround {
    levels: Arc<[ChainLevel]>,
    /// Where their blocks lie, which are the programs' own.
    sections: Vec<usize>,
}

impl PartialEq for AccessGround {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&ChainLevel, &ChainLevel)| {
            one.directory == other.directory && Arc::ptr_eq(&one.program, &other.program)
        };
        self.sections == other.sections
            && self.levels.len() == other.levels.len()
            && self.levels.iter().zip(&*other.levels).all(is_same)
    }
}

impl Chain {
    /// Merges what can be merged beforehand.
    ///
    /// # Errors
    /// More than [`LEVELS_MAX`] directories, or too much in their files.
    pub fn new(levels: Vec<ChainLevel>) -> Result<Self, Stop> {
        let bytes: usize = levels.iter().map(|level| level.program.bytes).sum();
        if levels.len() > LEVELS_MAX || bytes > BYTES_MAX {
            return Err(Stop::new(500, "htaccess_too_large"));
        }
        let mut plain = Settings::default();
        let work = Work::default();
        for ChainLevel { directory, program } in &levels {
            let merged = plain.merge(&program.block.settings, directory, &work);
            merged.map_err(|_| Stop::new(500, "htaccess_too_large"))?;
        }
        let missed = missed(&levels).filter(|_| plain.fault.is_none());
        plain.fault = plain.fault.or(missed);
        let has_sections = levels
            .iter()
            .any(|level| level.program.block.has_sections());
        Ok(Self {
            levels: levels.into(),
            plain: Arc::new(plain),
            has_sections,
        })
    }

    /// About as many bytes as it takes, without its programs.
    pub fn memory_bytes(&self) -> usize {
        let directories = self.levels.iter().map(|level| level.directory.len());
        let levels = self.levels.len() * size_of::<ChainLevel>();
        levels + directories.sum::<usize>() + self.plain.memory_bytes()
    }

    /// The directories and their programs.
    pub fn levels(&self) -> &[ChainLevel] {
        &self.levels
    }

    /// What decides about access to whatever has these sections.
    pub(crate) fn ground(&self, sections: Vec<usize>) -> AccessGround {
        AccessGround {
            levels: Arc::clone(&self.levels),
            sections,
        }
    }

    /// Merges what a section says that is about the request.
    fn take_in(
        &self,
        settings: &mut Option<Settings>,
        (block, level): (&Block, &ChainLevel),
        scope: &Scope<'_>,
    ) -> Result<(), Stop> {
        if settings.is_none() {
            scope.asker.spend(self.plain.steps())?;
        }
        let settings = settings.get_or_insert_with(|| Settings::clone(&self.plain));
        let (inner, directory) = (&block.settings, &level.directory);
        scope
            .sections
            .borrow_mut()
            .push(std::ptr::from_ref(block).addr());
        settings.merge(inner, directory, scope.asker.work())
    }

    /// What holds for the file that is asked for.
    pub(crate) async fn settings(&self, scope: &Scope<'_>) -> Result<Arc<Settings>, Stop> {
        if !self.has_sections {
            return Ok(Arc::clone(&self.plain));
        }
        let filename = scope.request.filename;
        let name = filename
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or(filename);
        let mut settings = None;
        let mut files = VecDeque::new();
        let mut ifs = VecDeque::new();
        for level in &*self.levels {
            let block = &level.program.block;
            scope.asker.spend(block.files.len() + block.ifs.len())?;
            files.extend(block.files.iter().map(|section| (section, level)));
            ifs.extend(block.ifs.iter().map(|choices| (choices, level)));
        }
        loop {
            while let Some(((matcher, block), level)) = files.pop_front() {
                scope.asker.enter(Some(&level.directory));
                scope.asker.spend(LINE_STEPS)?;
                let is_hit = matcher.matches(name, scope)?;
                let told = || format!("<Files {}> {}", matcher.text, yes(is_hit));
                scope.asker.trace(matcher.line, told);
                if is_hit {
                    self.take_in(&mut settings, (block, level), scope)?;
                    files.extend(block.files.iter().map(|section| (section, level)));
                    ifs.extend(block.ifs.iter().map(|choices| (choices, level)));
                }
            }
            let Some((choices, level)) = ifs.pop_front() else {
                return Ok(settings.map_or_else(|| Arc::clone(&self.plain), Arc::new));
            };
            scope.asker.enter(Some(&level.directory));
            if let Some(block) = chosen(choices, scope).await? {
                self.take_in(&mut settings, (block, level), scope)?;
                files.extend(block.files.iter().map(|section| (section, level)));
                ifs.extend(block.ifs.iter().map(|choices| (choices, level)));
            }
        }
    }
}

/// Why nothing is answered where a line was left out on which one about access depends, above it or
/// below.
fn missed(levels: &[ChainLevel]) -> Option<Stop> {
    let all = levels.iter().map(|level| level.program.reliance);
    let all = all.fold(Reliance::default(), Reliance::with);
    levels.iter().find_map(|level| {
        let line = level.program.reliance.missed_by(all)?;
        let stop = Stop::new(500, "htaccess_unknown").at(line, MISSED);
        Some(stop.below(Some(&level.directory)))
    })
}

/// The first of `<If>`, `<ElseIf>` and `<Else>` that holds.
async fn chosen<'c>(choices: &'c [Choice], scope: &Scope<'_>) -> Result<Option<&'c Block>, Stop> {
    for choice in choices {
        scope.asker.spend(LINE_STEPS)?;
        let holds = match &choice.condition {
            Some(condition) => expression::holds(condition, scope).await,
            None => Ok(true),
        };
        let holds = holds.map_err(|stop| stop.at(choice.line, "<If>"))?;
        scope
            .asker
            .trace(choice.line, || format!("<If> {}", yes(holds)));
        if holds {
            return Ok(Some(&choice.block));
        }
    }
    Ok(None)
}

/// `matches` or `does not match`.
pub(crate) fn yes(is_so: bool) -> &'static str {
    if is_so { "matches" } else { "does not match" }
}
