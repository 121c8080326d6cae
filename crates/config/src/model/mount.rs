//! `[[sites.mounts]]`.

use std::sync::Arc;

use super::handler::Handler;
use super::rewrite::Rewrite;
use super::site::{Root, Site, TryEntry};

/// A root of its own below a path of a site.
#[derive(Debug, Clone, PartialEq)]
pub struct Mount {
    /// What paths below it begin with: a slash before each of its names, none at its end.
    pub path: String,
    /// Its root.
    pub root: Root,
    /// Names tried in a directory, in order. Default the site's.
    pub index: Arc<Vec<String>>,
    /// What is asked for in the place of what was, before a file is looked for.
    pub rewrites: Vec<Rewrite>,
    /// What a path is resolved to, below the mount. Default `["$path", "$path/"]`.
    pub resolve: Arc<Vec<TryEntry>>,
    /// The user that CGI programs and PHP in pools run as; `None` is the site's.
    pub user: Option<String>,
    /// What answers below it in place of a rule's handler, by the rule's index: PHP of that user.
    pub handlers: Vec<(usize, Handler)>,
}

impl Site {
    /// Its roots whose programs run as this user, `None` being nobody's name: its own, and those of
    /// mounts with their place among these.
    pub fn roots_of<'a>(
        &'a self,
        user: Option<&'a String>,
    ) -> impl Iterator<Item = (Option<usize>, &'a Root)> {
        let named = self.has_own_user.then_some(&self.user);
        let own = self.root.iter().map(move |root| (named, None, root));
        let mounts = self.mounts.iter().enumerate();
        let mounts = mounts.map(move |(at, mount)| {
            let whose = mount.user.as_ref().or(named);
            (whose, Some(at), &mount.root)
        });
        let its = own.chain(mounts).filter(move |(whose, ..)| *whose == user);
        its.map(|(_, at, root)| (at, root))
    }
}
