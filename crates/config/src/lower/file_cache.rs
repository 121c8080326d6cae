//! Files that keys name, each judged once however many sites name it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Files judged so far; `None` stands for one that was found wrong.
#[derive(Default)]
pub(crate) struct FileCache {
    pub(super) users: RefCell<BTreeMap<PathBuf, Option<Users>>>,
    pub(super) groups: RefCell<BTreeMap<PathBuf, Option<Arc<Groups>>>>,
    pub(super) pages: RefCell<BTreeMap<PathBuf, Option<Arc<[u8]>>>>,
    pub(super) scripts: RefCell<Judged>,
    /// Certificates of authorities.
    pub(super) authorities: RefCell<BTreeMap<PathBuf, Arc<[u8]>>>,
}

pub(super) type Users = Arc<BTreeMap<String, String>>;

/// The users of each group.
pub(super) type Groups = BTreeMap<String, BTreeSet<String>>;

/// Files of scripts judged so far: `Err` was found wrong.
pub(super) type Judged = BTreeMap<PathBuf, Result<Option<Arc<[u8]>>, ()>>;
