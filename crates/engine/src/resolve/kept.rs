//! What is kept with a file that was found, for as long as the file is: what clients are sent of it.
//!
//! The static handler makes these; here they only lie. A hit copies prepared fields and bytes.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use wire::Fields;

use super::file::{File, Handle, Share};
use crate::helper::Lane;

/// Bytes and fields.
#[derive(Debug)]
pub(crate) struct Representation {
    /// Prepared fields of a 200.
    pub(crate) fields: Fields,
    /// The strong entity tag, quotes included.
    pub(crate) etag: Vec<u8>,
    /// When the content changed last, in seconds since 1970.
    pub(crate) modified_s: u64,
    /// Its size.
    pub(crate) size: u64,
    /// Where the bytes are.
    pub(crate) content: Content,
}

/// Where bytes are.
#[derive(Debug)]
pub(crate) enum Content {
    /// In memory, paid for by a share of the budget.
    Memory(
        Box<[u8]>,
        #[allow(dead_code, reason = "held for its drop")] Share,
    ),
    /// In an open file.
    Open(OpenFile),
}

/// Content that is read when it is sent.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) handle: Arc<Handle>,
    pub(crate) lane: Lane,
    pub(crate) size: u64,
    /// When all of it was seen to be in the page cache, on the worker's clock.
    pub(crate) warm_ms: Cell<Option<u64>>,
}

/// What the static handler keeps with a file.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) whole: OnceCell<Representation>,
    /// Compressed here, by coding; `None` where that was not worth it.
    pub(crate) coded: [OnceCell<Option<Rc<Representation>>>; 3],
    /// Siblings and when they were looked for.
    pub(crate) siblings: RefCell<Siblings>,
}

/// Files that hold the same content in another coding.
#[derive(Debug, Default, Clone)]
pub(crate) struct Siblings {
    /// In the order of [`super::SIBLINGS`].
    pub(crate) files: [Option<Rc<File>>; 3],
    /// When they were looked for; `None` if never.
    pub(crate) seen_ms: Option<u64>,
}
