//! What the configuration makes of a request: its generation, site, rules and handler.

use std::rc::Rc;

use config::model::{Handler, Settings};

use crate::access_log::TargetIndex;
use crate::exchange::Request;
use crate::maps::Answers;
use crate::resolve::Resolved;
use crate::site::{Rule, Site};
use crate::upstream::Destination;
use crate::worker::Serving;

/// The way of one request through the configuration.
#[derive(Debug, Default)]
pub struct Route {
    /// The generation it began with; it sees no other.
    pub serving: Option<Rc<Serving>>,
    /// Index of its site in the generation; `None` until the host was found.
    pub site_index: Option<u32>,
    /// Where its access record goes; `None` is nowhere.
    pub log: Option<TargetIndex>,
    /// The resolved file; `None` where none was looked for.
    pub file: Option<Rc<Resolved>>,
    /// Whether it does without scripts that are optional: there is too much to do.
    pub skips_optional: bool,
    /// Where it is looked for, if not at the request's path.
    lookup: Option<Box<[u8]>>,
    /// The upstream a script has named; `None` where the configuration says it, or nobody.
    pub upstream: Option<Destination>,
    /// Whether the request's fields were edited before, and a script has sent it elsewhere since.
    pub was_edited: bool,
    /// What maps have answered to the request.
    pub answers: Answers,
    /// Indexes of the rules that matched, in order; the last one may have the handler.
    matched: Vec<usize>,
}

impl Route {
    /// Forgets the last request.
    pub fn clear(&mut self) {
        self.serving = None;
        self.site_index = None;
        self.log = None;
        self.was_edited = false;
        self.skips_optional = false;
        self.answers.clear();
        self.start_over();
    }

    /// Forgets what the request was resolved to: its path has changed.
    pub fn start_over(&mut self) {
        self.file = None;
        self.lookup = None;
        self.upstream = None;
        self.matched.clear();
    }

    /// Has the file looked for at this canonical path instead of the request's.
    pub fn look_up(&mut self, path: Vec<u8>) {
        self.file = None;
        self.lookup = Some(path.into());
    }

    /// The canonical path at which the file is looked for.
    pub fn lookup_path<'a>(&'a self, request: &'a Request) -> &'a [u8] {
        self.lookup.as_deref().unwrap_or(request.head.path())
    }

    /// Notes that a rule matched.
    pub fn add_rule(&mut self, index: usize) {
        self.matched.push(index);
    }

    /// The site, once it was found.
    pub fn site(&self) -> Option<&Site> {
        self.serving.as_ref()?.site(self.site_index?)
    }

    /// The indexes of the rules that matched, in order.
    pub fn matched(&self) -> &[usize] {
        &self.matched
    }

    /// The rules that matched, in order.
    pub fn rules(&self) -> impl DoubleEndedIterator<Item = &Rule> {
        let rules = self.site().map_or(&[][..], |site| &site.rules);
        self.matched.iter().filter_map(|index| rules.get(*index))
    }

    /// Index in the site of the rule that matched last: the one whose handler answers, if any.
    pub fn deciding_index(&self) -> Option<u32> {
        u32::try_from(*self.matched.last()?).ok()
    }

    /// The rule whose handler answers; `None` when the site's files do.
    pub fn deciding_rule(&self) -> Option<&Rule> {
        let last = *self.matched.last()?;
        self.site()?
            .rules
            .get(last)
            .filter(|rule| rule.handler.is_some())
    }

    /// What answers, given the `serving` and `site_index` of this very route.
    ///
    /// Borrows from `serving`, so that the exchange stays free for the handler to change.
    pub fn handler_in<'a>(&self, serving: &'a Serving) -> &'a Handler {
        let site = self.site_index.and_then(|index| serving.site(index));
        let rule = self.matched.last().and_then(|last| site?.rules.get(*last));
        rule.and_then(|rule| rule.handler.as_ref())
            .unwrap_or(&Handler::Static)
    }

    /// Whether a program is started for it, given the `serving` of this very route.
    pub fn runs_program(&self, serving: &Serving) -> bool {
        matches!(self.handler_in(serving), Handler::Cgi(_))
    }

    /// Index of the upstream it goes to, where that is one of the configuration, given the
    /// `serving` of this very route.
    pub fn upstream_index(&self, serving: &Serving) -> Option<usize> {
        match (self.handler_in(serving), &self.upstream) {
            (Handler::Proxy(_), Some(Destination::Configured(index))) => Some(*index),
            (Handler::Proxy(_), Some(Destination::Dynamic(_))) => None,
            (Handler::Proxy(proxy), None) => proxy.upstream(),
            (Handler::FastCgi(fastcgi), _) => Some(fastcgi.upstream),
            _ => None,
        }
    }

    /// Name of the upstream it goes to: one of the configuration, or what a script has said.
    pub fn upstream_name(&self) -> Option<&str> {
        if let Some(Destination::Dynamic(pool)) = &self.upstream {
            return Some(pool.name());
        }
        let serving = self.serving.as_deref()?;
        let upstream = serving
            .generation
            .upstreams
            .get(self.upstream_index(serving)?);
        Some(&upstream?.name)
    }

    /// Settings of the site and of each matched rule, outer first.
    pub fn settings(&self) -> impl Iterator<Item = &Settings> {
        let site = self.site().and_then(|site| site.settings.as_deref());
        let rules = self.rules().filter_map(|rule| rule.settings.as_deref());
        site.into_iter().chain(rules)
    }
}
