//! How far a request has come. Each stage is a type: the one before it, and what was found since.
//!
//! [`Arrived`] has the generation its request began with and sees no other; [`Routed`] has the site
//! that its host leads to; [`Chosen`] the handler that answers. Whoever is handed one asks for none
//! of that again. A stage is a copy of references: what changes on the way is the exchange, and
//! its [`Route`] says which rules of the site matched.

use std::cell::OnceCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use config::model::{Compress, Handler, Settings, Variable};

use crate::conditions::Conditions;
use crate::directory::tenants::{RowTenant, RowWaits};
use crate::exchange::Exchange;
use crate::exchange::route::{OF_ROW, Refusing, Route};
use crate::site::{Rule, Site};
use crate::stats::{Replies, Waits};
use crate::template::{Captured, Values};
use crate::tree::Tree;
use crate::upstream::{Destination, Pool};
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// A request has come: its worker, and the generation that is fixed for it.
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    /// The worker that serves it.
    pub worker: &'a Rc<Worker>,
    /// Its generation, as this worker serves it.
    pub serving: &'a Rc<Serving>,
    /// Where the site stands that a row makes for its host; `None` where none can.
    pub(crate) row: Option<&'a OnceCell<Arc<Site>>>,
}

/// The site is found. Everything an [`Arrived`] has, too.
#[derive(Debug, Clone, Copy)]
pub struct Routed<'a> {
    arrived: Arrived<'a>,
    /// Its site.
    pub site: &'a Site,
    /// The site's index in the generation: where a row makes it, that of the one it is stamped of.
    pub site_index: u32,
}

/// The handler is chosen. Everything a [`Routed`] has, too.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    routed: Routed<'a>,
    /// What answers.
    pub handler: &'a Handler,
    /// The rule whose handler that is; `None` where the site's files answer.
    pub rule: Option<&'a Rule>,
    /// Whether files are not shown: programs that are not had, or must not run.
    pub(crate) withholds: bool,
}

impl<'a> Arrived<'a> {
    /// The site that was found for the request; `None` where none was.
    pub fn site(self, route: &Route) -> Option<&'a Site> {
        match self.serving.site(route.site_index?) {
            Some(site) => Some(site),
            None => self.row_site(),
        }
    }

    #[cold]
    fn row_site(self) -> Option<&'a Site> {
        let site = self.row?.get()?;
        Some(site)
    }

    /// That site's name, as logs say it.
    pub fn site_name(self, route: &Route) -> Option<&'a str> {
        self.site(route).map(|site| &*site.name)
    }

    /// What its worker counts of that site, or of requests without one.
    pub(crate) fn replies(self, route: &Route) -> Option<&'a Replies> {
        let worker: &'a Worker = self.worker;
        match self.site(route) {
            Some(site) => site.stats.of_worker(worker.index, worker.workers),
            None => Some(&worker.stats.without_site),
        }
    }

    /// What is counted of the tenant that the row of its host names.
    pub(crate) fn row_tenant(self, route: &Route) -> Option<&'a RowTenant> {
        let row = self.site(route)?.row.as_ref();
        row.map(|row| &*row.tenant)
    }

    /// Counts a request that waits until this is dropped.
    pub(crate) fn waits(self, route: &Route) -> (Option<Waits<'a>>, Option<RowWaits<'a>>) {
        let of_site = self.replies(route).map(Replies::wait);
        (of_site, self.row_tenant(route).map(RowTenant::wait))
    }

    /// Its worker's pool of an upstream, by its index.
    pub(crate) fn pool(self, upstream: usize) -> Option<&'a Rc<Pool>> {
        let worker: &'a Worker = self.worker;
        self.serving.pool(upstream, &worker.stats, &worker.shared)
    }

    /// The next stage, where a site was found.
    pub fn routed(self, route: &Route) -> Option<Routed<'a>> {
        let site_index = route.site_index? & !OF_ROW;
        Some(Routed {
            arrived: self,
            site: self.site(route)?,
            site_index,
        })
    }

    /// What scripts of this request may stand on, by number, outermost first: the order of
    /// [`Chosen::levels`] backwards, without a walk over those before it.
    pub(crate) fn level(self, route: &Route, number: usize) -> Option<Level<'a>> {
        let Some(number) = number.checked_sub(1) else {
            return Some(Level::Process);
        };
        let site = self.site(route)?;
        match number {
            0 => Some(Level::Tenant(site)),
            1 => Some(Level::Site(site)),
            number => {
                let matched = route.matched().get(number - 2)?;
                site.rules.get(*matched).map(Level::Rule)
            }
        }
    }

    /// Which replies are compressed: as the last rule that matched and says so, or the site.
    pub(crate) fn compress(self, route: &Route) -> Option<&'a Compress> {
        let routed = self.routed(route)?;
        let of_rule = routed
            .rules(route)
            .rev()
            .find_map(|rule| rule.compress.as_deref());
        Some(of_rule.unwrap_or(&routed.site.compress))
    }

    /// Settings of the site and of each matched rule, outer first.
    pub fn settings<'r>(
        self,
        route: &'r Route,
    ) -> impl DoubleEndedIterator<Item = &'a Settings> + Clone + use<'a, 'r> {
        self.layers(route).map(|layer| layer.settings)
    }

    /// The same, each with what belongs to it.
    pub(crate) fn layers<'r>(
        self,
        route: &'r Route,
    ) -> impl DoubleEndedIterator<Item = Layer<'a, 'r>> + Clone + use<'a, 'r> {
        let routed = self.routed(route);
        let of_site = routed.and_then(|routed| {
            Some(Layer {
                settings: routed.site.settings.as_deref()?,
                variables_hold: &routed.site.variables_hold,
                captured: None,
            })
        });
        let of_rules = routed.into_iter().flat_map(move |routed| {
            let rules: &'a [Rule] = &routed.site.rules;
            let matched = route.matched().iter();
            matched.filter_map(move |index| {
                let rule = rules.get(*index)?;
                Some(Layer {
                    settings: rule.settings.as_deref()?,
                    variables_hold: &rule.variables_hold,
                    captured: route.captured(*index),
                })
            })
        });
        of_site.into_iter().chain(of_rules)
    }
}

/// What a level says, and what its texts are filled in from beside the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer<'a, 'r> {
    pub(crate) settings: &'a Settings,
    /// When each of its variables holds; `None`, or nothing at all: always.
    variables_hold: &'a [Option<Conditions>],
    /// What its rule has found in the path.
    pub(crate) captured: Option<&'r Captured>,
}

impl<'a, 'r> Layer<'a, 'r> {
    /// Its variables that hold for a request, in order. Where an expression was given up none holds
    /// that depends on the request.
    pub(crate) fn variables(
        self,
        exchange: &'r Exchange,
    ) -> impl Iterator<Item = (&'a Variable, Values<'r>)> + use<'a, 'r> {
        let (request, route) = (&exchange.request, &exchange.route);
        let values = Values {
            request,
            answers: &route.answers,
            captured: self.captured,
        };
        let variables = self.settings.env.iter().enumerate();
        let holding = variables.filter(move |(at, _)| {
            let conditions = self.variables_hold.get(*at).and_then(Option::as_ref);
            conditions.is_none_or(|it| {
                let holds = it.hold(request, route.file.as_deref());
                holds && request.gave_up.borrow().is_none()
            })
        });
        holding.map(move |(_, variable)| (variable, values))
    }
}

impl<'a> Deref for Routed<'a> {
    type Target = Arrived<'a>;

    fn deref(&self) -> &Arrived<'a> {
        &self.arrived
    }
}

/// What limits and scripts stand on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Level<'a> {
    /// A rule that matched.
    Rule(&'a Rule),
    /// The site.
    Site(&'a Site),
    /// The tenant whose site this is.
    Tenant(&'a Site),
    /// The upstream of the configuration that the handler goes to, by its index.
    Upstream(usize),
    /// The groups of the site's programs, where one of these answers.
    Groups(&'a Site),
    /// The places for programs, where one is started.
    Programs,
    /// The process.
    Process,
}

impl<'a> Routed<'a> {
    /// The rules that matched, in order.
    pub fn rules<'r>(
        self,
        route: &'r Route,
    ) -> impl DoubleEndedIterator<Item = &'a Rule> + Clone + use<'a, 'r> {
        let rules = &self.site.rules;
        route.matched().iter().filter_map(|index| rules.get(*index))
    }

    /// Rules whose limits count beside those of the rules that matched.
    pub(crate) fn counting<'r>(
        self,
        route: &'r Route,
    ) -> impl Iterator<Item = &'a Rule> + use<'a, 'r> {
        let rules = &self.site.rules;
        route
            .counting()
            .iter()
            .filter_map(|index| rules.get(*index))
    }

    /// The rule that keeps the client out, where one does.
    pub(crate) fn refusing(self, route: &Route) -> Option<&'a Rule> {
        match route.refused_by? {
            Refusing::Rule(index) => self.site.rules.get(index),
            Refusing::Site => None,
        }
    }

    /// The number of the innermost level that has one in place of the process's, by the rules that
    /// have matched so far.
    pub(crate) fn own_number(
        self,
        route: &Route,
        number: impl Fn(&Settings) -> Option<u64>,
    ) -> Option<u64> {
        self.site.bounds?;
        self.settings(route).rev().find_map(number)
    }

    /// The tree its path leads into.
    pub(crate) fn tree(self, route: &Route) -> Option<&'a Tree> {
        self.site.tree(route.tree?)
    }

    /// The rule whose handler answers, by the rules that have matched so far.
    pub(crate) fn answering(self, route: &Route) -> Option<&'a Rule> {
        let rule = self.site.rules.get(route.last_matched()?);
        rule.filter(|rule| rule.handler.is_some())
    }

    /// The handler that answers, by the rules that have matched so far.
    pub fn chosen(self, route: &Route) -> Chosen<'a> {
        let last = route.last_matched();
        let rule = self.answering(route);
        let handler = rule.and_then(|rule| rule.handler.as_ref());
        let below = self.tree(route).and_then(|tree| tree.handler(last?));
        let mut chosen = below.or(handler).unwrap_or(&Handler::Static);
        let mut withholds = false;
        if let (Some(applied), Some(files)) = (&route.htaccess, &self.site.htaccess) {
            let by_rules = (chosen, rule.is_some());
            let answering = applied.handler(files, self.site.usual_php(), by_rules);
            withholds = answering.is_none();
            chosen = answering.unwrap_or(&Handler::Static);
        }
        Chosen {
            routed: self,
            handler: chosen,
            rule,
            withholds,
        }
    }
}

impl<'a> Deref for Chosen<'a> {
    type Target = Routed<'a>;

    fn deref(&self) -> &Routed<'a> {
        &self.routed
    }
}

impl<'a> Chosen<'a> {
    /// All that limits of this request may stand on, innermost first: what [`Arrived::level`] counts
    /// from the other end, and what its handler adds.
    pub(crate) fn levels(self, route: &Route) -> impl DoubleEndedIterator<Item = Level<'a>> {
        let upstream = self.upstream_index(route).map(Level::Upstream);
        let groups = self.is_throttled().then_some(Level::Groups(self.site));
        let programs = self.runs_program().then_some(Level::Programs);
        self.rules(route)
            .rev()
            .map(Level::Rule)
            .chain([Level::Site(self.site), Level::Tenant(self.site)])
            .chain(groups)
            .chain(upstream)
            .chain(programs)
            .chain([Level::Process])
    }

    /// Whether a program is started for it.
    pub fn runs_program(self) -> bool {
        matches!(self.handler, Handler::Cgi(_))
    }

    /// Whether a program of a group with a quota of processors answers.
    pub(crate) fn is_throttled(self) -> bool {
        !self.site.throttled.is_empty() && self.handler.starts_programs()
    }

    /// Index of the upstream it goes to, where that is one of the configuration.
    pub fn upstream_index(self, route: &Route) -> Option<usize> {
        match (self.handler, &route.upstream) {
            (Handler::Proxy(_), Some(Destination::Configured(index))) => Some(*index),
            (Handler::Proxy(_), Some(Destination::Dynamic(_))) => None,
            (handler, _) => handler.upstream(),
        }
    }

    /// Name of the upstream it goes to: one of the configuration, or what a script has said.
    pub fn upstream_name<'r>(self, route: &'r Route) -> Option<&'r str>
    where
        'a: 'r,
    {
        if let Some(Destination::Dynamic(pool)) = &route.upstream {
            return Some(pool.name());
        }
        let upstreams = &self.serving.generation.upstreams;
        let upstream = upstreams.get(self.upstream_index(route)?)?;
        Some(&upstream.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, exchange, peer};

    #[test]
    fn limits_and_scripts_see_the_same_order_from_its_two_ends() {
        let fixture = Fixture::new(
            "[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"a\"]\n\
             [[sites.rules]]\nname = \"first\"\ndeny = [\"192.0.2.1\"]\n[[sites.rules]]\nname = \"second\"\n\
             handler = { respond = { body = \"ok\" } }\n",
        );
        let serving = fixture.worker.serving();
        let arrived = Arrived {
            worker: &fixture.worker,
            serving: &serving,
            row: None,
        };
        let route = &mut exchange(peer("192.0.2.7:1"), "GET / HTTP/1.1\r\nHost: a\r\n\r\n").route;
        route.site_index = Some(0);
        route.add_rule(0);
        route.add_rule(1);
        let chosen = arrived.routed(route).expect("a site").chosen(route);
        let inward: Vec<_> = chosen.levels(route).map(words).collect();
        let outward = (0..).map_while(|number| arrived.level(route, number).map(words));
        let mut outward: Vec<_> = outward.collect();
        outward.reverse();
        assert_eq!(inward, outward);
        assert_eq!(inward, ["second", "first", "site", "tenant", "process"]);
    }

    fn words(level: Level<'_>) -> String {
        match level {
            Level::Rule(rule) => rule.name.to_string(),
            Level::Site(_) => "site".to_owned(),
            Level::Tenant(_) => "tenant".to_owned(),
            Level::Groups(_) | Level::Upstream(_) | Level::Programs => "a handler's".to_owned(),
            Level::Process => "process".to_owned(),
        }
    }
}
