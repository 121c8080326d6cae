//! The plans of the last generations, as the spawner looks things up in them.
//!
//! The idea: requests that are under way belong to the generation they began in, so a few plans
//! are kept. A plan for a number that is known replaces it: the first was never in force.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use config::reason;
use engine::programs::message::{Failure, Run};
use engine::programs::plan::{Plan, PlannedRule, PlannedSite};
use os::user::User;

use super::Refusal;

/// Plans kept.
const PLANS_MAX: usize = 4;

/// The plans of the last generations.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// The latest last.
    kept: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    plan: Plan,
    /// Users by name, looked up when they are first wanted.
    users: RefCell<BTreeMap<String, Rc<User>>>,
}

/// What a plan says of an order.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    pub(super) site: &'a PlannedSite,
    pub(super) rule: &'a PlannedRule,
    users: &'a RefCell<BTreeMap<String, Rc<User>>>,
}

impl Plans {
    /// Takes a plan; the oldest ones are forgotten.
    pub(super) fn take(&mut self, plan: Plan) {
        self.kept
            .retain(|known| known.plan.generation != plan.generation);
        self.kept.push(Known {
            plan,
            users: RefCell::default(),
        });
        let surplus = self.kept.len().saturating_sub(PLANS_MAX);
        self.kept.drain(..surplus);
    }

    /// How many programs may run at once.
    pub(super) fn programs_max(&self) -> usize {
        let latest = self.kept.last();
        latest.map_or(0, |known| {
            usize::try_from(known.plan.programs_max).unwrap_or(usize::MAX)
        })
    }

    /// What the plan that an order names says of it.
    pub(super) fn find(&self, run: &Run) -> Result<Planned<'_>, Refusal> {
        let generation = run.generation;
        let known = self.kept.iter().rev();
        let known = known
            .into_iter()
            .find(|known| known.plan.generation == generation);
        let found = known.and_then(|known| {
            let sites = &known.plan.sites;
            let at = sites
                .binary_search_by_key(&run.site, |site| site.index)
                .ok()?;
            let site = sites.get(at)?;
            let at = site
                .rules
                .binary_search_by_key(&run.rule, |rule| rule.index);
            Some(Planned {
                site,
                rule: site.rules.get(at.ok()?)?,
                users: &known.users,
            })
        });
        found.ok_or_else(|| {
            let (site, rule) = (run.site, run.rule);
            let what = format!("no plan for generation {generation}, site {site}, rule {rule}");
            Refusal::new(Failure::UnknownRule, what)
        })
    }
}

impl Planned<'_> {
    /// Who the program runs as: looked up once a plan.
    pub(super) fn user(&self) -> Result<Rc<User>, Refusal> {
        let name = self.site.user.as_deref().unwrap_or_default();
        if let Some(user) = self.users.borrow().get(name) {
            return Ok(Rc::clone(user));
        }
        let user = match name {
            "" => User::this_process(),
            name => User::look_up(name),
        };
        let user = Rc::new(user.map_err(|error| {
            let site = &self.site.name;
            let what = format!("user {name} of site {site}: {}", reason(&error));
            Refusal::new(Failure::UserUnknown, what)
        })?);
        let mut users = self.users.borrow_mut();
        users.insert(name.to_owned(), Rc::clone(&user));
        Ok(user)
    }
}
