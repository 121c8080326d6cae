//! A site and its rules, compiled.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use config::model::{
    self, Acceptor, Compress, Condition, Files, Handler, LevelCaps, LevelTimeouts, Settings,
    SiteHtaccess, SiteRows,
};
use ipc::certificates::Source;
use os::file::FileFacts;
use wire::{EncodedSlash, OddNames, PathRules, Slashes};

use crate::access_log::targets::TargetIndex;
use crate::backups::{original, without_package};
use crate::conditions::{self, Conditions};
use crate::copies::Copies;
use crate::directory::site_row::SiteRow;
use crate::error::{Error, Kind, Result};
use crate::glob::Matcher;
use crate::guarded::Guarded;
use crate::maps::texts;
use crate::permits::classes::TenantClasses;
use crate::permits::compiled;
use crate::permits::level::Level;
use crate::rewrite::compiled::{self as rewrites, CompiledRewrite};
use crate::scripts::plan;
use crate::scripts::plan::{Use, VmIndex};
use crate::stats::SiteStats;
use crate::tls::table;
use crate::tree::Tree;

/// A site, ready to serve.
#[derive(Debug)]
pub struct Site {
    /// Its first host: the name it has in logs and metrics.
    pub name: Arc<str>,
    /// How its paths are made canonical.
    pub path_rules: PathRules,
    /// What happens to field names that CGI would fold.
    pub odd_names: OddNames,
    /// Whether the recorder is told of its requests.
    pub(crate) is_recorded: bool,
    /// Where its files are; `None` for a site without a root of its own.
    own_tree: Option<Tree>,
    /// Where those below some of its paths are, the longest paths first.
    mounts: Arc<[Tree]>,
    /// How files are served.
    pub files: Arc<Files>,
    /// Which replies are compressed, where no rule says otherwise.
    pub compress: Arc<Compress>,
    /// The shortest reply that is compressed by whatever rule.
    pub compress_min_bytes: usize,
    /// Whether browsers that open a page while its pool starts get one that loads itself again.
    pub(crate) has_waiting_page: bool,
    /// Replaced error pages.
    pub error_pages: Arc<BTreeMap<u16, model::ErrorPage>>,
    /// What every request of the site gets; `None` is nothing.
    pub settings: Option<Arc<Settings>>,
    /// When each variable of these holds; nothing where all always do.
    pub(crate) variables_hold: Arc<[Option<Conditions>]>,
    /// What is asked for in the place of what was.
    pub(crate) rewrites: Arc<[CompiledRewrite]>,
    /// What its requests may have in place of the process's caps and timeouts; `None` is nothing.
    pub(crate) bounds: Option<Bounds>,
    /// What is counted of it.
    pub stats: Arc<SiteStats>,
    /// Its rules in order.
    pub rules: Arc<[Rule]>,
    /// Whether a rule or a limit looks at the resolved file: then a request is resolved before.
    pub needs_file: bool,
    /// What rows say of it, where it stands for all of theirs.
    pub(crate) rows: Option<Arc<SiteRows>>,
    /// What of it is a row's; `None` where none makes it.
    pub(crate) row: Option<Arc<SiteRow>>,
    /// Index of its tenant among those with limits; where a row makes it, of the site it is stamped of.
    pub tenant: u32,
    /// Whether one of its rules asks a map: then the request may have to wait for its rules.
    pub(crate) rules_ask_maps: bool,
    /// Whether one of its rules rewrites paths: then rules may have to be tried again.
    pub(crate) rules_rewrite: bool,
    /// What the limits its requests meet, whatever their rules, want to know of maps.
    pub(crate) asking_limits: Arc<[Conditions]>,
    /// Whether its limits or those of its rules want to know anything of maps.
    pub(crate) limits_ask_maps: bool,
    /// The limits its requests meet.
    pub limits: Level,
    /// Those that requests for its programs meet besides, and follow the throttling of its groups.
    pub(crate) throttled: Level,
    /// Its tenant's name.
    pub tenant_name: Arc<str>,
    /// Its tenant's weight.
    pub(crate) weight: u32,
    /// Its tenant's classes of requests.
    pub(crate) classes: TenantClasses,
    /// The scripts of its tenant; `None` is none, as the next.
    pub(crate) tenant_scripts: Option<Arc<plan::Level>>,
    /// Its scripts.
    pub(crate) scripts: Option<Arc<plan::Level>>,
    /// Whether it or one of its rules says how long replies may be kept.
    pub(crate) says_expiry: bool,
    /// Whether it or one of its rules changes fields of requests.
    pub(crate) edits_requests: bool,
    /// Whether it or one of its rules changes fields of replies.
    pub(crate) edits_replies: bool,
    /// Whether a request to it may run a script.
    pub(crate) has_scripts: bool,
    /// The VM in which its requests run scripts.
    pub(crate) vm: VmIndex,
    /// Where its own certificate may come from, the first that is there.
    pub(crate) certificates: Arc<[Source]>,
    /// Who accepts names whose certificates are ordered on demand; `None`: none are.
    pub(crate) acceptor: Option<Acceptor>,
    /// Whether scripts may say what certificate is shown.
    pub(crate) is_shown_by_scripts: bool,
    /// Whether what comes without TLS is sent to the same address with it.
    pub(crate) redirects_to_tls: bool,
    /// How long browsers are told to come with TLS alone, in seconds.
    pub(crate) strict_transport_s: Option<u64>,
    /// What its `.htaccess` files may say; `None`: they count for nothing.
    pub(crate) htaccess: Option<Arc<SiteHtaccess>>,
    sources: Arc<Vec<Matcher>>,
    guarded: Guarded,
}

/// Caps and timeouts of a site and its rules stand in their settings; this is known beforehand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The largest body that a rule admits by a number of its own; 0 where none has one.
    pub(crate) rules_body_bytes: u64,
}

/// A rule, ready to match.
#[derive(Debug)]
pub struct Rule {
    /// Its name in logs.
    pub name: Box<str>,
    /// What answers; `None` adds settings and goes on.
    pub handler: Option<Handler>,
    /// Where the records of requests go that it matches; `None` is as the site says.
    pub(crate) log: Option<TargetIndex>,
    /// What it adds; `None` is nothing.
    pub settings: Option<Box<Settings>>,
    /// When each variable of these holds; nothing where all always do.
    pub(crate) variables_hold: Box<[Option<Conditions>]>,
    /// What is asked for in the place of what was.
    pub(crate) rewrites: Box<[CompiledRewrite]>,
    /// Whether groups of its `path_regex` stand in its texts.
    pub(crate) captures: bool,
    /// Its place among the rules of its site.
    pub(crate) index: usize,
    /// Which of its replies are compressed; `None` is as the site says.
    pub compress: Option<Box<Compress>>,
    /// The limits that the requests it matches meet.
    pub limits: Level,
    /// Its scripts; `None` is none.
    pub(crate) scripts: Option<Arc<plan::Level>>,
    /// The script of its handler.
    pub(crate) script: Option<Use>,
    /// Whether it is there for whoever watches over this machine: it shows figures, or answers
    /// plain paths with a fixed text. Such requests are never shed.
    pub(crate) is_health_check: bool,
    /// Whether it looks at the resolved file.
    pub(crate) needs_file: bool,
    pub(crate) conditions: Conditions,
    /// What its limits want to know of maps.
    pub(crate) asking_limits: Arc<[Conditions]>,
}

impl Site {
    /// Compiles a site into copies; what it shares with the one before is not compiled again.
    ///
    /// # Errors
    /// When a pattern's compiled form is too large.
    pub(crate) fn compile<'a>(
        site: &'a model::Site,
        stats: Arc<SiteStats>,
        before: Option<&Site>,
        copies: &mut Copies,
        limits: &mut compiled::Builder<'a>,
    ) -> Result<Self> {
        let name = site.name();
        limits.keep_rows_apart(site.rows.is_some());
        let files = copies.files.of(&site.files);
        let sources = match before {
            Some(before) if Arc::ptr_eq(&before.files, &files) => Arc::clone(&before.sources),
            _ => Arc::new(compile_sources(&files, &name)?),
        };
        let vm = copies.scripts.vm_of(&site.tenant);
        let rules = site.rules.iter().enumerate();
        let rules = rules.map(|rule| Rule::compile(rule, &name, limits, copies, vm));
        let rules = rules.collect::<Result<Vec<Rule>>>()?;
        let asking_limits = limits.asking(site)?;
        let tenant_scripts = copies.tenant_scripts(site.tenant_index);
        let scripts = copies.scripts.level(vm, &site.scripts);
        let has_scripts = copies.has_process_scripts
            || tenant_scripts.is_some()
            || scripts.is_some()
            || rules.iter().any(Rule::has_scripts);
        let (own_tree, mounts) = trees(site, &name, copies)?;
        let name: Arc<str> = name.into();
        let tenant_name = like(&name, &site.tenant);
        Ok(Self {
            rules_ask_maps: rules_ask_maps(site),
            rules_rewrite: site.rules.iter().any(|rule| !rule.rewrites.is_empty()),
            variables_hold: variables_hold(&site.settings, &name, copies)?.into(),
            rewrites: rewrites::compile(&site.rewrites, &copies.expressions)
                .map_err(|error| too_large(&name, &error))?
                .into(),
            says_expiry: any_level(site, |level| level.expires.is_some()),
            edits_requests: any_level(site, |level| !level.request_headers.is_empty()),
            edits_replies: any_level(site, |level| !level.reply_headers.is_empty()),
            limits_ask_maps: !asking_limits.is_empty() || rules.iter().any(Rule::limits_ask_maps),
            asking_limits,
            tenant: limits.tenant(site)?,
            limits: limits.level(model::LimitPlace::Site(&name), &site.limits)?,
            throttled: limits.throttled(site)?,
            name,
            tenant_name,
            weight: copies.weight(site.tenant_index),
            classes: copies.classes(site.tenant_index),
            tenant_scripts,
            scripts,
            has_scripts,
            vm,
            path_rules: path_rules(site),
            odd_names: odd_names(site),
            own_tree,
            mounts: mounts.into(),
            files,
            compress: copies.compress.of(&site.compress),
            compress_min_bytes: compress_min_bytes(site),
            is_recorded: site.record,
            has_waiting_page: site.pool.waiting_page,
            error_pages: Arc::new(site.error_pages.clone()),
            settings: unless_empty(&site.settings).map(Arc::from),
            bounds: Bounds::of(site),
            stats,
            rules: rules.into(),
            needs_file: limits.need_file(site) || any_need_file(site),
            rows: site.rows.as_deref().cloned().map(Arc::new),
            row: None,
            certificates: table::sources(site).into(),
            acceptor: None,
            is_shown_by_scripts: site.tls.script,
            redirects_to_tls: site.tls.redirect,
            strict_transport_s: site.tls.hsts_s,
            htaccess: site.htaccess.as_ref().map(|it| copies.htaccess.of(it)),
            sources,
            guarded: copies.guarded.clone(),
        })
    }

    /// A copy for a host, with what its row says: the tenant and its weight, and the root, of its user, under
    /// a number of its own.
    pub(crate) fn stamped(
        &self,
        host: &str,
        (tenant, weight): (&str, u32),
        root: Option<(u32, model::Root, u32)>,
        row: SiteRow,
    ) -> Self {
        let own_tree = match (&self.own_tree, root) {
            (Some(tree), Some((number, root, owner))) => Some(tree.stamped(number, root, owner)),
            _ => None,
        };
        Self {
            name: host.into(),
            own_tree,
            mounts: Arc::clone(&self.mounts),
            files: Arc::clone(&self.files),
            compress: Arc::clone(&self.compress),
            error_pages: Arc::clone(&self.error_pages),
            settings: self.settings.clone(),
            variables_hold: Arc::clone(&self.variables_hold),
            rewrites: Arc::clone(&self.rewrites),
            stats: Arc::clone(&self.stats),
            rules: Arc::clone(&self.rules),
            rows: self.rows.clone(),
            row: Some(Arc::new(row)),
            asking_limits: Arc::clone(&self.asking_limits),
            limits: self.limits.again(),
            throttled: Level::default(),
            tenant_name: tenant.into(),
            weight,
            classes: TenantClasses::default(),
            tenant_scripts: self.tenant_scripts.clone(),
            scripts: self.scripts.clone(),
            certificates: Arc::clone(&self.certificates),
            htaccess: self.htaccess.clone(),
            sources: Arc::clone(&self.sources),
            guarded: self.guarded.clone(),
            ..*self
        }
    }

    /// What runs PHP where no rule says so for a file: the first that does for any.
    pub(crate) fn usual_php(&self) -> Option<&Handler> {
        let mut handlers = self.rules.iter().filter_map(|rule| rule.handler.as_ref());
        handlers.find(|handler| matches!(handler, Handler::FastCgi(_)))
    }

    /// What answers where `.htaccess` files name a handler.
    pub(crate) fn named_handlers(&self) -> impl Iterator<Item = &Handler> {
        let files = self.htaccess.iter().flat_map(|files| &files.handlers);
        files.map(|(_, _, handler)| handler)
    }

    /// Where its files are, mounts before its own root.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.mounts.iter().chain(&self.own_tree)
    }

    /// The tree that a canonical path leads into.
    pub fn tree_of(&self, path: &[u8]) -> Option<&Tree> {
        self.trees().find(|tree| tree.below(path).is_some())
    }

    /// The tree of this number.
    pub fn tree(&self, number: u32) -> Option<&Tree> {
        self.trees().find(|tree| tree.number == number)
    }

    /// Whether a file of this name is a program's source, or a copy of one as compressors and
    /// editors leave them, or what a package has set aside: never served.
    pub fn is_source(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        let mut copy_of = Some(name.as_slice()).filter(|_| !self.sources.is_empty());
        while let Some(name) = copy_of {
            let is_named = self.sources.iter().any(|glob| glob.matches(name));
            if is_named || without_package(name).is_some() {
                return true;
            }
            copy_of = original(name);
        }
        false
    }

    /// Whether a file of this full name is a script, holds passwords, or is a copy of one that
    /// does: never served.
    pub fn is_guarded(&self, name: &[u8]) -> bool {
        self.guarded.holds(name)
    }

    /// Whether an open file is such a one, whatever its name.
    pub(crate) fn is_guarded_file(&self, file: BorrowedFd<'_>, facts: &FileFacts) -> bool {
        self.guarded.holds_file(file, facts)
    }
}

/// Whether a rule or a variable of the site looks at the resolved file.
fn any_need_file(site: &model::Site) -> bool {
    let mut rules = site.rules.iter();
    let mut variables = rules.clone().map(|rule| &rule.settings);
    let of_variables = |settings: &Settings| {
        let mut variables = settings.env.iter();
        variables.any(|variable| conditions::need_file(&variable.conditions))
    };
    of_variables(&site.settings)
        || variables.any(|settings| of_variables(settings))
        || rules.any(|rule| conditions::need_file(&rule.conditions))
}

/// When each variable of a level holds.
fn variables_hold(
    settings: &Settings,
    whose: &str,
    copies: &Copies,
) -> Result<Box<[Option<Conditions>]>> {
    let variables = &settings.env;
    if variables.iter().all(|it| it.conditions.is_empty()) {
        return Ok(Box::default());
    }
    let compiled = variables.iter().map(|variable| {
        if variable.conditions.is_empty() {
            return Ok(None);
        }
        let compiled = Conditions::compile(&variable.conditions, whose, copies.of_conditions());
        compiled.map(Some).map_err(|error| too_large(whose, &error))
    });
    compiled.collect()
}

fn trees(
    site: &model::Site,
    name: &str,
    copies: &mut Copies,
) -> Result<(Option<Tree>, Box<[Tree]>)> {
    Tree::of_site(site, copies).map_err(|error| too_large(name, &error))
}

/// Whether a rule asks a map before it is known to match.
fn rules_ask_maps(site: &model::Site) -> bool {
    let mut rules = site.rules.iter();
    rules.any(|rule| conditions::ask_maps(&rule.conditions))
}

/// How paths of a site are made canonical.
pub(crate) fn path_rules(site: &model::Site) -> PathRules {
    PathRules {
        slashes: match site.slashes {
            model::Slashes::Merge => Slashes::Merge,
            model::Slashes::Keep => Slashes::Keep,
        },
        encoded_slash: match site.encoded_slash {
            model::EncodedSlash::Refuse => EncodedSlash::Refuse,
            model::EncodedSlash::Keep => EncodedSlash::Keep,
        },
    }
}

fn odd_names(site: &model::Site) -> OddNames {
    match site.underscore_fields {
        model::UnderscoreFields::Drop => OddNames::Drop,
        model::UnderscoreFields::Refuse => OddNames::Refuse,
        model::UnderscoreFields::Keep => OddNames::Keep,
    }
}

fn compress_min_bytes(site: &model::Site) -> usize {
    let of_rules = site.rules.iter().filter_map(|rule| rule.compress.as_ref());
    let all = of_rules.chain([&site.compress]).map(|it| it.min_bytes);
    all.fold(site.files.compress_min_bytes, usize::min)
}

/// Whether the site's settings are such, or those of one of its rules.
fn any_level(site: &model::Site, is_such: impl FnMut(&Arc<Settings>) -> bool) -> bool {
    let rules = site.rules.iter().map(|rule| &rule.settings);
    rules.chain([&site.settings]).any(is_such)
}

/// Most levels set nothing: requests need not look at them.
fn unless_empty(settings: &Settings) -> Option<Box<Settings>> {
    (*settings != Settings::default()).then(|| Box::new(settings.clone()))
}

impl Bounds {
    /// Those of a site; `None` where neither it nor a rule of it has any.
    fn of(site: &model::Site) -> Option<Self> {
        let of_rules = || site.rules.iter().map(|rule| &rule.settings);
        let has_own = |settings: &Arc<Settings>| {
            settings.caps != LevelCaps::default() || settings.timeouts != LevelTimeouts::default()
        };
        let mut all = of_rules().chain([&site.settings]);
        let body_bytes = of_rules().filter_map(|settings| settings.caps.body_bytes);
        all.any(has_own).then(|| Self {
            rules_body_bytes: body_bytes.max().unwrap_or_default(),
        })
    }
}

impl Rule {
    fn has_scripts(&self) -> bool {
        self.scripts.is_some() || self.script.is_some()
    }

    fn limits_ask_maps(&self) -> bool {
        !self.asking_limits.is_empty()
    }

    fn compile(
        (index, rule): (usize, &model::Rule),
        site: &str,
        limits: &mut compiled::Builder<'_>,
        copies: &mut Copies,
        vm: VmIndex,
    ) -> Result<Self> {
        let whose = format!("{} of site {site}", rule.name);
        let conditions = Conditions::compile(&rule.conditions, &whose, copies.of_conditions());
        let variables_hold = variables_hold(&rule.settings, &whose, copies)?;
        let rewrites = rewrites::compile(&rule.rewrites, &copies.expressions);
        let scripts = &mut copies.scripts;
        let place = rule.limit_place(site);
        Ok(Self {
            limits: limits.level(place, &rule.limits)?,
            asking_limits: compiled::asking(rule.limits.iter(), &copies.costs)?,
            conditions: conditions.map_err(|error| too_large(&rule.name, &error))?,
            name: rule.name.as_str().into(),
            handler: rule.handler.clone(),
            log: None,
            settings: unless_empty(&rule.settings),
            variables_hold,
            rewrites: rewrites.map_err(|error| too_large(&rule.name, &error))?,
            captures: captures(rule),
            index,
            compress: rule.compress.as_deref().cloned().map(Box::new),
            scripts: scripts.level(vm, &rule.scripts),
            script: scripts.of_handler(vm, rule.handler.as_ref()),
            is_health_check: is_health_check(rule),
            needs_file: conditions::need_file(&rule.conditions),
        })
    }
}

/// Whether groups of a rule's `path_regex` stand in its texts.
fn captures(rule: &model::Rule) -> bool {
    let handler = rule.handler.iter().flat_map(Handler::texts);
    let mut keys = rule.limits.iter().flat_map(|limit| &limit.key);
    texts::of_settings(&rule.settings)
        .chain(handler)
        .any(model::Template::has_captures)
        || keys.any(|key| matches!(key, model::LimitKey::Capture(_)))
}

fn is_health_check(rule: &model::Rule) -> bool {
    let is_plain =
        |glob: &model::Glob| glob.0.starts_with('/') && !glob.0.contains(['*', '?', '[']);
    match rule.handler {
        Some(Handler::Metrics(_)) => true,
        Some(Handler::Respond(_)) => rule.conditions.iter().any(
            |condition| matches!(condition, Condition::Path(globs) if globs.iter().all(is_plain)),
        ),
        _ => false,
    }
}

/// A text, sharing what `known` has where it is the same.
fn like(known: &Arc<str>, text: &str) -> Arc<str> {
    match **known == *text {
        true => Arc::clone(known),
        false => Arc::from(text),
    }
}

fn compile_sources(files: &Files, site: &str) -> Result<Vec<Matcher>> {
    let sources = files.sources.iter();
    let sources = sources.map(|glob| Matcher::new(&glob.to_ascii_lowercase()));
    let sources = sources.collect::<std::result::Result<_, _>>();
    sources.map_err(|error| too_large(site, &error))
}

fn too_large(place: &str, error: &impl std::fmt::Display) -> Error {
    Error::new(
        Kind::Internal,
        "pattern_too_large",
        format!("{place}: {error}"),
    )
}
