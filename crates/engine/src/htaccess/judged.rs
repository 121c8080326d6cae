//! A path, once files have decided about it: whether it stands, and where its page is.
//!
//! A directory's page, what answers for what is missing, and whatever the site's `try` comes to are
//! paths that files are asked about, too.

use std::io;
use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;

use config::model::{SiteHtaccess, Symlinks};
use htaccess::{Decision, Ending, Stop};
use wire::FieldId;

use super::applied::failure;
use super::cache::KnownChain;
use super::facts::{Carried, Facts};
use super::of_missing_page;
use super::walk::{self, Landing, LandingKind};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::resolve::resolved::{Found, Resolved, relative_of};
use crate::resolve::{self, search};
use crate::rules;
use crate::stage::Routed;
use crate::tree::Tree;

/// Why files are not asked on: as much was computed as may be for one request.
const GIVEN_UP: [&str; 2] = ["htaccess_work", "htaccess_regex"];

/// The path of the file that the site's `try` has come to, where that is not the one that was
/// decided about. What was known of the path itself is looked for anew where files were found for
/// something else.
pub(super) async fn other_file(
    (routed, tree): (Routed<'_>, &Tree),
    exchange: &mut Exchange,
    landing: &Landing,
) -> Result<Option<(Vec<u8>, Rc<Resolved>)>> {
    let Some(mut resolved) = resolve::file(routed, exchange).await? else {
        return Ok(None);
    };
    let asked = exchange.route.lookup_path(&exchange.request);
    let is_outdated = match resolved.found() {
        Found::File(file) if resolved.relative() == landing.relative => {
            landing.facts != Some(file.facts)
        }
        Found::File(_) | Found::Unreadable => {
            resolved.relative() != landing.relative && path_of(tree, &resolved) == asked
        }
        _ => false,
    };
    if is_outdated {
        resolved = resolve::file_anew((routed, tree), exchange).await?;
    }
    let is_file = matches!(resolved.found(), Found::File(_) | Found::Unreadable);
    if !is_file || resolved.relative() == landing.relative {
        return Ok(None);
    }
    Ok(Some((path_of(tree, &resolved), resolved)))
}

/// The path that leads to what was found in a tree.
fn path_of(tree: &Tree, resolved: &Resolved) -> Vec<u8> {
    let parts = [tree.path.as_bytes(), b"/", resolved.relative()];
    [&*parts.concat(), resolved.path_info()].concat()
}

/// A path, and what files have decided about it.
pub(super) struct Judged<'a> {
    pub(super) routed: Routed<'a>,
    pub(super) files: &'a Arc<SiteHtaccess>,
    /// Where its files are; nothing where it has none.
    pub(super) tree: Option<&'a Tree>,
    pub(super) landing: &'a Landing,
    pub(super) decision: &'a mut Decision,
    pub(super) facts: &'a Facts,
}

/// What is next for a path.
pub(super) enum Onward {
    /// Another path is next, perhaps with the file that it is known to mean, and this goes with the
    /// request there.
    Elsewhere(Vec<u8>, Option<Rc<Resolved>>, Box<Carried>),
    /// The client is sent elsewhere, with this status; or has its answer, where that says nowhere
    /// to go.
    Answer(u16, Vec<u8>),
    /// It stands.
    Settled,
}

/// Where the page of a path is.
enum Page {
    /// Where the path leads.
    There,
    /// At another path of the site.
    At(Vec<u8>),
    /// Where the client is sent, with this status.
    Sent(u16, Vec<u8>),
}

impl Judged<'_> {
    /// Says what is next.
    ///
    /// # Errors
    /// What files refuse.
    pub(super) async fn step(
        &mut self,
        exchange: &mut Exchange,
        known: &KnownChain,
    ) -> Result<Onward> {
        match &self.decision.ending {
            Ending::GoOn if rules::is_forwarded(self.routed, exchange).await? => {
                return Ok(Onward::Settled);
            }
            Ending::GoOn => {}
            Ending::Rewritten(path) => {
                let carried = Carried::redirected(self.decision, self.facts)?;
                return Ok(Onward::Elsewhere(path.clone(), None, Box::new(carried)));
            }
            Ending::Redirect { status, location } => {
                return Ok(Onward::Answer(*status, location.clone()));
            }
            Ending::Status(stop) if stop.status < 300 => {
                return Ok(Onward::Answer(stop.status, Vec::new()));
            }
            Ending::Status(stop) => return Err(refusal(exchange, self.decision, stop, known)),
        }
        let Some(tree) = self.tree else {
            return Ok(Onward::Settled);
        };
        let page = self.look_for_page(tree, (exchange, known)).await?;
        let carried = Carried::with(self.decision, self.facts);
        match page {
            Page::At(path) => {
                let page_of = Some(self.facts.uri.clone());
                let carried = Carried { page_of, ..carried };
                return Ok(Onward::Elsewhere(path, None, Box::new(carried)));
            }
            Page::Sent(status, location) => return Ok(Onward::Answer(status, location)),
            Page::There => {}
        }
        let place = (self.routed, tree);
        let other = other_file(place, exchange, self.landing).await?;
        if let Some((path, file)) = other {
            return Ok(Onward::Elsewhere(path, Some(file), Box::new(carried)));
        }
        self.check_links(tree).await?;
        Ok(Onward::Settled)
    }

    /// Refuses a way over links, where files say that none is followed. Those that are followed to
    /// what belongs to their owner the site itself looks at, unless it follows all.
    async fn check_links(&self, tree: &Tree) -> Result<()> {
        let options = self.decision.settings.options(self.facts.options);
        let follows_all = tree.root.symlinks == Symlinks::Allow;
        let is_fine = options.follows() && !(options.follows_owner_only() && follows_all);
        if is_fine || self.landing.kind == LandingKind::Missing {
            return Ok(());
        }
        let relative = self.landing.relative.clone();
        let look = move |root: &search::Root, wait| -> io::Result<bool> {
            let slashes = relative.iter().enumerate();
            let slashes = slashes.filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            for end in slashes.chain([relative.len()]) {
                if root.is_link(relative.get(..end).unwrap_or_default(), wait)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match resolve::ask(self.routed, tree, look).await? {
            true => Err(Error::refused(403, "symlink_refused")),
            false => Ok(()),
        }
    }

    /// Finds a directory's page, or that of what is not there.
    async fn look_for_page(
        &mut self,
        tree: &Tree,
        (exchange, known): (&mut Exchange, &KnownChain),
    ) -> Result<Page> {
        let settings = Arc::clone(&self.decision.settings);
        let uri = &*self.facts.uri;
        match self.landing.kind {
            LandingKind::File => return Ok(Page::There),
            LandingKind::Directory if !tree.has_directories() => return Ok(Page::There),
            LandingKind::Missing => {
                // The first part that is missing is what it is called.
                let missing = uri.strip_suffix(&*self.landing.path_info);
                return Ok(self.fallback(exchange, missing.unwrap_or(uri)));
            }
            // No page is looked for: it is listed as it is, or refused.
            LandingKind::Directory
                if !uri.ends_with(b"/") && settings.directory_slash() == Some(false) =>
            {
                resolve::directory(self.routed, exchange).await?;
                return Ok(Page::There);
            }
            LandingKind::Directory if !uri.ends_with(b"/") => {
                return Ok(Page::Sent(301, self.slashed(exchange)?));
            }
            LandingKind::Directory => {}
        }
        let mut refused = None;
        for name in self.index(tree) {
            let path = match name.starts_with(b"/") {
                true => name.clone(),
                false => [uri, &*name].concat(),
            };
            if self.is_file(tree, &path).await? {
                return Ok(Page::At(path));
            }
            let mut decision = self.of_missing(exchange, &path).await?;
            self.decision.spent = decision.spent;
            // What is missing sets cookies all the same.
            let cookies = take(&mut self.decision.cookies);
            Carried::hand_on([cookies, Vec::new()], &mut decision);
            self.decision.cookies.clone_from(&decision.cookies);
            match &decision.ending {
                Ending::Redirect { status, location } => {
                    return Ok(Page::Sent(*status, location.clone()));
                }
                Ending::Status(stop) if GIVEN_UP.contains(&stop.reason) => {
                    return Err(refusal(exchange, &decision, stop, known));
                }
                Ending::Status(stop) if stop.status > 300 && stop.status != 404 => {
                    refused = Some((stop.clone(), decision));
                }
                // What is missing is answered for at once, before further names.
                Ending::GoOn => match self.fallback(exchange, &path) {
                    Page::At(path) => return Ok(Page::At(path)),
                    Page::There | Page::Sent(..) => {}
                },
                Ending::Rewritten(_) | Ending::Status(_) => {}
            }
        }
        if let Some((stop, decision)) = refused {
            return Err(refusal(exchange, &decision, &stop, known));
        }
        self.list(exchange).await.map(|()| Page::There)
    }

    /// What files say of a page that is not there.
    async fn of_missing(&self, exchange: &mut Exchange, path: &[u8]) -> Result<Decision> {
        let carried = Carried {
            page_of: Some(self.facts.uri.clone()),
            ..Carried::with(self.decision, self.facts)
        };
        let place = (self.routed, self.files);
        Box::pin(of_missing_page(place, exchange, path, carried)).await
    }

    fn index(&self, tree: &Tree) -> Vec<Vec<u8>> {
        match self.decision.settings.index() {
            Some(names) => names.to_vec(),
            None => {
                let names = tree.index.iter();
                names.map(|name| name.as_bytes().to_vec()).collect()
            }
        }
    }

    /// What answers for a path that is missing; nothing where a program would.
    fn fallback(&self, exchange: &Exchange, missing: &[u8]) -> Page {
        let is_programs = || rules::runs_program(self.routed, &exchange.request, missing);
        match self.decision.settings.fallback() {
            Some(path) if path != self.facts.uri && !is_programs() => Page::At(path.to_vec()),
            _ => Page::There,
        }
    }

    async fn is_file(&self, tree: &Tree, path: &[u8]) -> Result<bool> {
        let Some(below) = tree.below(path) else {
            return Ok(false);
        };
        // A mount within this one that is a file.
        let inner = self.routed.site.tree_of(path);
        if inner.is_some_and(|it| it.number != tree.number && !it.has_directories()) {
            return Ok(true);
        }
        let relative = relative_of(below).to_vec();
        let look = move |root: &search::Root, wait| walk::facts(root, &relative, wait);
        let facts = resolve::ask(self.routed, tree, look).await?;
        Ok(facts.is_some_and(|facts| facts.kind == os::file::FileKind::Regular))
    }

    /// A directory without a page: its list, where files let it be seen and the site has none, and
    /// where they name its pages the site's are not looked for. Where neither has one, whoever serves
    /// files refuses it: a rule may answer something else.
    async fn list(&self, exchange: &mut Exchange) -> Result<()> {
        let settings = &self.decision.settings;
        let lists = settings.options(self.facts.options).lists();
        if settings.index().is_some() || (lists && !self.routed.site.files.listing) {
            resolve::directory(self.routed, exchange).await?;
        }
        Ok(())
    }

    /// The path with a slash at its end, as clients ask for it.
    fn slashed(&self, exchange: &Exchange) -> Result<Vec<u8>> {
        let mut head = exchange.request.head.clone();
        let path = [&*self.facts.uri, b"/"].concat();
        head.rewrite_path(&path, self.routed.site.path_rules)?;
        let path = head.path_wire();
        let slashes = path.iter().take_while(|byte| **byte == b'/').count();
        // With two slashes in front it would name another host.
        let mut location = b"/".to_vec();
        location.extend_from_slice(path.get(slashes..).unwrap_or_default());
        if let Some(query) = &self.decision.query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        Ok(location)
    }
}

/// What a client is told whom files keep out.
fn refusal(exchange: &mut Exchange, decision: &Decision, stop: &Stop, known: &KnownChain) -> Error {
    if stop.status == 401 {
        let realm = decision.settings.realm().unwrap_or(b"restricted");
        let mut value = b"Basic realm=\"".to_vec();
        let fits = |byte: &&u8| **byte >= b' ' && **byte != 127 && !b"\"\\".contains(byte);
        value.extend(realm.iter().filter(fits));
        value.extend_from_slice(b"\", charset=\"UTF-8\"");
        let fields = &mut exchange.outgoing.fields;
        fields.push_known(FieldId::WwwAuthenticate, &value);
    }
    let mut error = failure(stop, Some(known));
    if stop.directory.is_none()
        && let Some(level) = known.chain.levels().last()
    {
        let directory = String::from_utf8_lossy(&level.directory).into_owned();
        error.detail = match &*error.detail {
            "" => format!("below {directory}"),
            why => format!("below {directory}: {why}"),
        };
    }
    error
}
