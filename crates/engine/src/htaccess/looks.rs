//! What stands at the names that files ask about, as far as their site may see.

use std::io;

use config::model;
use htaccess::{FileFacts, Progress, Question, Told, UserTold};
use os::file;

use super::walk;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::resolve::{self, search::Root};
use crate::stage::Routed;
use crate::tree::Tree;

/// Goes on to its end with an evaluation in which nobody is asked who he is.
///
/// # Errors
/// When the machine is in trouble.
pub(super) async fn finish<T>(
    routed: Routed<'_>,
    exchange: &Exchange,
    mut progress: Progress<'_, T>,
) -> Result<T> {
    loop {
        progress = match progress {
            Progress::Done(result) => return Ok(result),
            Progress::Asks(Question::File(name), waiting) => {
                waiting.answer(Told::File(look(routed, exchange, name).await?))
            }
            Progress::Asks(Question::User { .. }, waiting) => {
                waiting.answer(Told::User(UserTold::Nobody))
            }
        };
    }
}

/// What is at a full name.
pub(super) async fn look(
    routed: Routed<'_>,
    exchange: &Exchange,
    name: Vec<u8>,
) -> Result<FileFacts> {
    let Some(tree) = tree_of(routed, exchange, &name) else {
        return Ok(FileFacts::MISSING);
    };
    let named = tree.root.clone();
    let look = move |root: &Root, wait| seen(root, &named, &name, wait);
    resolve::ask(routed, tree, look).await
}

/// What is seen of a full name.
pub(super) fn seen(
    root: &Root,
    named: &model::Root,
    name: &[u8],
    wait: file::Wait,
) -> io::Result<FileFacts> {
    let Some(relative) = root.relative_of_full(named, name) else {
        return Ok(FileFacts::MISSING);
    };
    match walk::found(root.facts_and_link(&relative, wait), wait)? {
        Some((facts, is_link)) => Ok(walk::told(&facts, is_link)),
        None => Ok(FileFacts {
            is_link: root.is_link(&relative, wait)?,
            ..FileFacts::MISSING
        }),
    }
}

/// Whether a full name lies in what a root may read.
pub(super) fn holds(root: &model::Root, name: &[u8]) -> bool {
    let within = root.within.as_os_str().as_encoded_bytes();
    let within = within.strip_suffix(b"/").unwrap_or(within);
    let below = name.strip_prefix(within);
    below.is_some_and(|below| below.starts_with(b"/"))
}

/// The tree that a full name lies in: the one at hand first.
pub(super) fn tree_of<'a>(
    routed: Routed<'a>,
    exchange: &Exchange,
    name: &[u8],
) -> Option<&'a Tree> {
    let holds = |tree: &&Tree| holds(&tree.root, name);
    let own = routed.tree(&exchange.route).filter(holds);
    own.or_else(|| routed.site.trees().find(holds))
}
