//! Where files are looked for: the root of a site, or that of a mount below one of its paths.
//!
//! The idea: all that resolves, serves or runs files is told of one of these, and need not know
//! which it is.

use std::path::PathBuf;
use std::sync::Arc;

use config::model::{self, Handler, Root, TryEntry};
use pattern::Syntax;

use crate::copies::Copies;
use crate::rewrite::compiled::{self, CompiledRewrite};

/// A root, and how paths are looked for below it.
#[derive(Debug)]
pub struct Tree {
    /// Its number: its site's where it is the site's own, beyond those of all sites where it is a
    /// mount's.
    pub number: u32,
    /// What paths begin with that lead into it, without a slash at the end; empty where all do.
    pub path: Box<str>,
    /// Its directory.
    pub root: Root,
    /// The uid whose that must be; `None`: anybody's.
    pub owner: Option<u32>,
    /// Names tried in a directory.
    pub index: Arc<Vec<String>>,
    /// What is asked for in the place of what was, below a mount.
    pub(crate) rewrites: Box<[CompiledRewrite]>,
    /// What a path is resolved to.
    pub resolve: Arc<Vec<TryEntry>>,
    /// What answers in it in place of rules' handlers, by their index.
    handlers: Box<[(usize, Handler)]>,
}

impl Tree {
    /// Makes those of a site: its own, if it has a root, and those of its mounts, longest paths first.
    ///
    /// # Errors
    /// When a pattern's compiled form is too large.
    pub(crate) fn of_site(
        site: &model::Site,
        copies: &mut Copies,
    ) -> Result<(Option<Self>, Box<[Self]>), Syntax> {
        let number = copies.sites;
        copies.sites += 1;
        // Rows say it: until then there is no such directory.
        let of_rows = site.rows.as_ref().and_then(|rows| rows.root.as_ref());
        let of_rows = of_rows.map(|root| Root {
            path: PathBuf::new(),
            within: PathBuf::new(),
            symlinks: root.symlinks,
        });
        let own = site.root.as_ref().or(of_rows.as_ref()).map(|root| Self {
            number,
            path: Box::default(),
            root: root.clone(),
            owner: None,
            rewrites: Box::default(),
            index: copies.index.of(&site.index),
            resolve: copies.resolve.of(&site.resolve),
            handlers: Box::default(),
        });
        let mounts = site.mounts.iter().map(|mount| -> Result<Self, Syntax> {
            copies.mounts += 1;
            Ok(Self {
                number: copies.mounts - 1,
                path: mount.path.as_str().into(),
                root: mount.root.clone(),
                owner: None,
                rewrites: compiled::compile(&mount.rewrites, &copies.expressions)?,
                index: copies.index.of(&mount.index),
                resolve: copies.resolve.of(&mount.resolve),
                handlers: mount.handlers.as_slice().into(),
            })
        });
        Ok((own, mounts.collect::<Result<_, _>>()?))
    }

    /// A copy with another root, of this owner, under a number of its own.
    pub(crate) fn stamped(&self, number: u32, root: Root, owner: u32) -> Self {
        Self {
            number,
            path: self.path.clone(),
            root,
            owner: Some(owner),
            index: Arc::clone(&self.index),
            rewrites: Box::default(),
            resolve: Arc::clone(&self.resolve),
            handlers: Box::default(),
        }
    }

    /// What of a canonical path is below it: for a mount nothing, or what begins with a slash; `None`
    /// where the path leads elsewhere.
    pub fn below<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let below = path.strip_prefix(self.path.as_bytes())?;
        let is_below = self.path.is_empty() || below.is_empty() || below.starts_with(b"/");
        is_below.then_some(below)
    }

    /// Whether a path may come to a directory. Where `try` names none the mount is one file, and its
    /// path needs no slash.
    pub(crate) fn has_directories(&self) -> bool {
        let mut entries = self.resolve.iter();
        entries.any(|it| matches!(it, TryEntry::Path | TryEntry::Directory))
    }

    /// All that answers in it in place of a rule's handler.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &Handler> {
        self.handlers.iter().map(|(_, handler)| handler)
    }

    /// What answers in it in place of the handler of the rule of this index.
    pub(crate) fn handler(&self, rule: usize) -> Option<&Handler> {
        let mut handlers = self.handlers.iter();
        let found = handlers.find(|(of, _)| *of == rule);
        found.map(|(_, handler)| handler)
    }
}
