//! The programs of the directories above a file, merged in Apache's order.
//!
//! First the plain lines of all, from the outermost inwards; then what stands in `<Files>`, of all
//! in the same order; last what stands in `<If>`. The plain lines are merged once.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::compile::{Block, Choice, Program};
use crate::expression;
use crate::request::Stop;
use crate::settings::Settings;
use crate::variable::Scope;

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
    levels: Vec<ChainLevel>,
    plain: Arc<Settings>,
    has_sections: bool,
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
        for level in &levels {
            plain.merge(&level.program.block.settings, &level.directory);
        }
        let has_sections = levels
            .iter()
            .any(|level| level.program.block.has_sections());
        Ok(Self {
            levels,
            plain: Arc::new(plain),
            has_sections,
        })
    }

    /// The directories and their programs.
    pub fn levels(&self) -> &[ChainLevel] {
        &self.levels
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
        let mut settings = Arc::clone(&self.plain);
        let mut files = VecDeque::new();
        let mut ifs = VecDeque::new();
        for level in &self.levels {
            let block = &level.program.block;
            files.extend(block.files.iter().map(|section| (section, level)));
            ifs.extend(block.ifs.iter().map(|choices| (choices, level)));
        }
        loop {
            while let Some(((matcher, block), level)) = files.pop_front() {
                scope.asker.enter(Some(&level.directory));
                scope.asker.spend(1)?;
                let is_hit = matcher.matches(name, scope)?;
                let told = || format!("<Files {}> {}", matcher.text, yes(is_hit));
                scope.asker.trace(matcher.line, told);
                if is_hit {
                    Arc::make_mut(&mut settings).merge(&block.settings, &level.directory);
                    files.extend(block.files.iter().map(|section| (section, level)));
                    ifs.extend(block.ifs.iter().map(|choices| (choices, level)));
                }
            }
            let Some((choices, level)) = ifs.pop_front() else {
                return Ok(settings);
            };
            scope.asker.enter(Some(&level.directory));
            if let Some(block) = chosen(choices, scope).await? {
                Arc::make_mut(&mut settings).merge(&block.settings, &level.directory);
                files.extend(block.files.iter().map(|section| (section, level)));
                for inner in block.ifs.iter().rev() {
                    ifs.push_front((inner, level));
                }
            }
        }
    }
}

/// The first of `<If>`, `<ElseIf>` and `<Else>` that holds.
async fn chosen<'c>(choices: &'c [Choice], scope: &Scope<'_>) -> Result<Option<&'c Block>, Stop> {
    for choice in choices {
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
