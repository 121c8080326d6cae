//! What `.htaccess` files say of a request that nobody has sent: each file, each line that was looked
//! at and what came of it.
//!
//! Nothing is served and nothing waits for a password: who is asked for one is nobody. What cannot be
//! read is told as the user of the thread finds it, which should be the server's.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use config::model::{HostPattern, Model, Root as NamedRoot, Site};
use config::reason;
use htaccess::{
    Decision, Ending, Explain, Problem, Question, REDIRECTS_MAX, Stop, Told, Traced, UserTold,
    decide,
};
use os::file::Wait;
use wire::{HeadCaps, RequestHead};

use super::answers::{trouble_with, unreadable};
use super::applied::failure;
use super::cache::{KnownChain, Programs};
use super::facts::{Carried, Facts, ToldRequest, ToldSite, root_name};
use super::walk::{self, Landing, LandingKind, Walk, Walked};
use super::{PATHS_MAX, has_cgi, looks, looped};
use crate::resolve::resolved::relative_of;
use crate::resolve::search::Root;
use crate::site::path_rules;

/// What one path has come to.
#[derive(Debug)]
pub struct Round {
    /// The path.
    pub uri: Vec<u8>,
    /// What it means: the file, the directory, or the first part that is missing.
    pub filename: Vec<u8>,
    /// The files and sections that hold, and what is wrong with these.
    pub files: Vec<(String, Vec<Problem>)>,
    /// What was looked at, each with the file or section where it stands.
    pub lines: Vec<(Option<String>, Traced)>,
    /// What comes next, or of it all.
    pub ending: String,
}

/// Explains a request: its head as it would be sent, and the client.
///
/// # Errors
/// Why there is nothing to be explained, for whoever asked.
pub fn explain(
    model: &Model,
    head: &[u8],
    (is_tls, client): (bool, IpAddr),
) -> Result<Vec<Round>, String> {
    let mut asked = RequestHead::default();
    let caps = HeadCaps {
        head_bytes: model.caps.head_bytes,
        target_bytes: model.caps.target_bytes,
        fields: model.caps.fields,
    };
    let read = asked.parse(head, &caps);
    if !matches!(read, Ok(Some(_))) {
        return Err("that is nothing a client may ask for".to_owned());
    }
    let site = site_of(model, asked.host());
    let site = site.ok_or_else(|| no_site(model, asked.host()))?;
    let canonical = asked.canonicalize(path_rules(site));
    canonical.map_err(|refusal| format!("no client may ask for that path: {}", refusal.reason))?;
    let (path, query) = (asked.path().to_vec(), asked.query().map(<[u8]>::to_vec));
    let mut explainer = Explainer {
        model,
        site,
        asked,
        is_tls,
        client,
        programs: Arc::default(),
        path,
        query,
        carried: Carried::default(),
        redirects: 0,
    };
    let mut rounds = Vec::new();
    for _ in 0..PATHS_MAX {
        let (round, goes_on) = explainer.round()?;
        rounds.push(round);
        if !goes_on {
            break;
        }
    }
    Ok(rounds)
}

/// The site that a host leads to.
fn site_of<'m>(model: &'m Model, host: &str) -> Option<&'m Site> {
    let has = |wanted: &dyn Fn(&HostPattern) -> bool| {
        model
            .sites
            .iter()
            .find(|site| site.hosts.iter().any(wanted))
    };
    let exact = has(&|pattern| matches!(pattern, HostPattern::Exact(name) if name == host));
    let mut above = host;
    let mut below = None;
    while let (None, Some((_, rest))) = (below, above.split_once('.')) {
        below = has(&|pattern| matches!(pattern, HostPattern::Below(name) if name == rest));
        above = rest;
    }
    // A row comes before it, and is not asked for here.
    let may_be_row = model.sites.iter().any(|site| site.rows.is_some());
    let any = || has(&|pattern| *pattern == HostPattern::Any && !may_be_row);
    exact.or(below).or_else(any)
}

fn no_site(model: &Model, host: &str) -> String {
    let rows = model.sites.iter().filter_map(|site| site.rows.as_ref());
    let names: Vec<&str> = rows.map(|rows| &*rows.name).collect();
    match names.is_empty() {
        true => format!("no site has the host {host}"),
        false => format!(
            "no site of the configuration has the host {host}: {} would be asked for its row, which is not done here; \
             `nagaya directory show {host}` tells what is known of it",
            names.join(", ")
        ),
    }
}

struct Explainer<'a> {
    model: &'a Model,
    site: &'a Site,
    asked: RequestHead,
    is_tls: bool,
    client: IpAddr,
    programs: Arc<Programs>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    carried: Carried,
    /// Times that rules have sent it elsewhere.
    redirects: usize,
}

impl<'a> Explainer<'a> {
    /// Explains one path; says as well whether another is next.
    fn round(&mut self) -> Result<(Round, bool), String> {
        let tree = self.tree();
        let (root, filename, walked) = self.look(tree)?;
        let mut round = Round {
            uri: self.path.clone(),
            filename,
            files: Vec::new(),
            lines: Vec::new(),
            ending: String::new(),
        };
        let (landing, known) = match walked {
            Walked::Known(landing, known) => (landing, known),
            Walked::Refused(file, why) => {
                let file = String::from_utf8_lossy(&file);
                let status = walk::status_of(why);
                round.ending = format!("{status}: {file} cannot be obeyed ({why})");
                return Ok((round, false));
            }
        };
        let levels = known.chain.levels().iter();
        let levels = levels.map(|level| {
            let name = known.name_of(&level.directory);
            (name, level.program.problems.clone())
        });
        round.files = levels.collect();
        let facts = self.facts(tree, &landing);
        round.filename.clone_from(&facts.filename);
        let (fields, hosts) = (facts.pairs(), [&*facts.host]);
        let told = facts.told(&fields, &hosts);
        let progress = decide(&known.chain, &told, Explain::Yes);
        let mut decision = progress.finish(|question| match question {
            Question::File(name) => {
                let tree = root.as_ref().zip(tree);
                let seen = tree
                    .map(|(root, (_, named))| looks::seen(root, named, name, Wait::Allowed).ok());
                let seen = seen.flatten();
                Told::File(seen.unwrap_or(htaccess::FileFacts::MISSING))
            }
            Question::User {
                user_file,
                group_file,
                ..
            } => {
                let mut files = [user_file].into_iter().chain(group_file);
                let trouble = files.find_map(|file| {
                    let why = trouble_with(self.site, file)?;
                    Some(unreadable(file, &why))
                });
                Told::User(trouble.unwrap_or(UserTold::Nobody))
            }
        });
        let lines = std::mem::take(&mut decision.trace).into_iter();
        let placed = lines.map(|line| (line.directory.as_ref().map(|it| known.name_of(it)), line));
        round.lines = placed.collect();
        let page = root.as_ref().zip(tree);
        let page =
            page.and_then(|(root, (prefix, _))| self.page((root, prefix), &landing, &decision));
        let goes_on = self.end(&mut round, (&facts, &known), &decision, page);
        Ok((round, goes_on))
    }

    /// What holds for the path, the root it leads into, and the full name of what it leads to.
    fn look(
        &self,
        tree: Option<(&str, &NamedRoot)>,
    ) -> Result<(Option<Root>, Vec<u8>, Walked), String> {
        let files = self.site.htaccess.as_ref();
        let files =
            files.ok_or("its site does not let .htaccess files count: it has no `htaccess`")?;
        let below = tree.map_or(0, |(prefix, _)| prefix.len());
        let below = self.path.get(below..).unwrap_or_default();
        let walk = Walk {
            programs: Arc::clone(&self.programs),
            most_bytes: self.model.htaccess_cached_bytes,
            tenant: self.site.name().into(),
            site: self.site.name().into(),
            files: Arc::clone(files),
            root_name: tree.map_or_else(Vec::new, |(_, named)| root_name(named)),
            relative: relative_of(below).to_vec(),
        };
        let filename = [&*walk.root_name, &*walk.relative].concat();
        let Some((_, named)) = tree else {
            return Ok((None, filename, walk.outside()));
        };
        let shown = named.path.display();
        let trouble = |error| format!("read below {shown}: {}", reason(&error));
        let root = Root::open(named).map_err(trouble)?;
        let walked = walk.look(&root, Wait::Allowed).map_err(trouble)?;
        Ok((Some(root), filename, walked))
    }

    /// The root that the path leads into, and what of the path leads there.
    fn tree(&self) -> Option<(&'a str, &'a NamedRoot)> {
        let site = self.site;
        let is_below = |prefix: &str| {
            let below = self.path.strip_prefix(prefix.as_bytes());
            below.is_some_and(|below| below.is_empty() || below.starts_with(b"/"))
        };
        let mut mounts = site.mounts.iter();
        let mount = mounts.find(|mount| is_below(&mount.path));
        let mount = mount.map(|mount| (&*mount.path, &mount.root));
        mount.or_else(|| Some(("", site.root.as_ref()?)))
    }

    /// The page of a directory, or of what is missing.
    fn page(
        &self,
        (root, prefix): (&Root, &str),
        landing: &Landing,
        decision: &Decision,
    ) -> Option<Vec<u8>> {
        let settings = &decision.settings;
        if landing.kind == LandingKind::Directory && self.path.ends_with(b"/") {
            let own = self.site.index.iter().map(|name| name.as_bytes().to_vec());
            let names = settings
                .index()
                .map_or_else(|| own.collect(), <[_]>::to_vec);
            let paths = names.into_iter().map(|name| match name.starts_with(b"/") {
                true => name,
                false => [&*self.path, &*name].concat(),
            });
            let is_file = |path: &Vec<u8>| {
                let below = path.get(prefix.len()..).unwrap_or_default();
                let facts = walk::facts(root, relative_of(below), Wait::Allowed);
                let kind = facts.ok().flatten().map(|facts| facts.kind);
                kind == Some(os::file::FileKind::Regular)
            };
            // A page that is none has nothing to answer for it.
            let mut paths = paths.peekable();
            paths.peek()?;
            let first = if settings.fallback().is_some() {
                1
            } else {
                usize::MAX
            };
            if let Some(page) = paths.take(first).find(is_file) {
                return Some(page);
            }
        }
        let fallback = settings.fallback().filter(|path| *path != self.path);
        let is_there = landing.kind == LandingKind::File;
        fallback.filter(|_| !is_there).map(<[u8]>::to_vec)
    }

    /// Says what came of a path; whether another is next.
    fn end(
        &mut self,
        round: &mut Round,
        (facts, known): (&Facts, &KnownChain),
        decision: &Decision,
        page: Option<Vec<u8>>,
    ) -> bool {
        let text = String::from_utf8_lossy;
        let (path, carried) = match &decision.ending {
            Ending::Status(stop) => {
                round.ending = stopped(stop, known);
                return false;
            }
            Ending::Redirect { status, location } => {
                round.ending = format!("{status}, to {}", text(location));
                return false;
            }
            Ending::Rewritten(path) => (path.clone(), Carried::redirected(decision, facts)),
            Ending::GoOn => match page {
                Some(path) => {
                    let page_of = Some(facts.uri.clone());
                    let carried = Carried::with(decision, facts);
                    (path, Ok(Carried { page_of, ..carried }))
                }
                None => {
                    "it stands: the site's rules are next".clone_into(&mut round.ending);
                    for (name, value) in decision.settings.php() {
                        round.ending += &format!(", with {name} = {} in a pool", text(value));
                    }
                    return false;
                }
            },
        };
        if self.redirects == REDIRECTS_MAX {
            round.ending = format!("500: {}", looped());
            return false;
        }
        self.redirects += usize::from(matches!(decision.ending, Ending::Rewritten(_)));
        let Ok(carried) = carried else {
            round.ending = "500: its variables are too long".to_owned();
            return false;
        };
        round.ending = match &decision.query {
            Some(query) => format!("goes on at {}?{}", text(&path), text(query)),
            None => format!("goes on at {}", text(&path)),
        };
        (self.path, self.carried) = (path, carried);
        self.query.clone_from(&decision.query);
        true
    }

    fn facts(&mut self, tree: Option<(&str, &NamedRoot)>, landing: &Landing) -> Facts {
        let (site, carried) = (self.site, std::mem::take(&mut self.carried));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let asked = ToldRequest {
            head: &self.asked,
            uri: &self.path,
            query: self.query.as_deref(),
            is_tls: self.is_tls,
            port: if self.is_tls { 443 } else { 80 },
            listener_port: if self.is_tls { 443 } else { 80 },
            client: self.client,
            client_port: 0,
            peer: self.client,
            server: IpAddr::V4(Ipv4Addr::LOCALHOST),
            now: super::now(now.map_or(0, |now| now.as_secs())),
        };
        let told = ToldSite {
            name: &site.name(),
            files: &site.files,
            tree,
            root: site.root.as_ref(),
            has_cgi: has_cgi(site.rules.iter().map(|rule| rule.handler.as_ref())),
        };
        Facts::new(&asked, &told, landing, carried)
    }
}

fn stopped(stop: &Stop, known: &KnownChain) -> String {
    let failure = failure(stop, Some(known));
    let (status, reason) = (stop.status, stop.reason);
    match &*failure.detail {
        "" => format!("{status} ({reason})"),
        detail => format!("{status} ({reason}): {detail}"),
    }
}
