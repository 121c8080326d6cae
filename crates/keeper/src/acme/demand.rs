//! Certificates that clients ask for: how many are ordered, and until when they are renewed.
//!
//! The idea: a name that no site has among its hosts is ordered because a client asked and a map accepted it. How many
//! such names may be new is counted here and not where clients are heard, for whoever hears them may have been taken
//! over: by tenant, by registered domain and in all, from what lies in the store on. A renewal counts for nothing, and
//! is due only while the name is asked for; a failed order is tried again when it is asked for again.

use std::collections::{HashMap, HashSet};

use ipc::acme::{Account, Budgets, Demand, FromAcme, Held, Plan, Wanted};

use super::brake::{Brake, Pace, registered};
use super::schedule::Course;
use super::{Orders, OrdersState, now_s};

/// How far back a tenant's names and all names are counted.
const HOURS_S: i64 = 3 * 3_600;
/// How far back names below a registered domain are counted.
const WEEK_S: i64 = 7 * 24 * 3_600;
/// Orders of new names that are under way at once: the other half is for names that sites have.
pub(super) const ORDERS_MAX: usize = super::ORDERS_MAX / 2;

/// Places for orders that only names on demand get, whose clients wait.
const KEPT_PLACES: usize = 2;
/// For how long a client waits for its certificate.
const WAITED_S: i64 = 10;

/// What was ordered of new names.
#[derive(Debug, Default)]
pub(super) struct Spending {
    orders: Brake,
}

impl Spending {
    /// Whether one more new name may be ordered.
    ///
    /// # Errors
    /// Why not, in words.
    pub(super) fn check(
        &self,
        account: &Account,
        wanted: &Wanted,
        now_s: i64,
    ) -> Result<(), String> {
        for (key, pace, whose) in keys(account, wanted) {
            if let Some(until_s) = self.orders.full_until(&key, pace, now_s) {
                let (count, hours) = (pace.orders_max, pace.span_s / 3_600);
                let minutes = (until_s - now_s + 59) / 60;
                return Err(format!(
                    "{count} new names {whose} were ordered within {hours} hours; the next may be in {minutes} min"
                ));
            }
        }
        Ok(())
    }

    /// Counts what was ordered before this process began: the store knows when.
    pub(super) fn learn(&mut self, plan: &Plan, known: &HashMap<String, Course>) {
        let wanted = plan.certificates.iter();
        let wanted = wanted.filter(|it| !known.contains_key(&it.certificate));
        let first = wanted.filter_map(|it| Some((it.demand.as_ref()?.first_s?, it)));
        let mut first: Vec<_> = first.collect();
        first.sort_unstable_by_key(|(at_s, _)| *at_s);
        for (at_s, wanted) in first {
            if let Some(account) = first_account(&plan.accounts, wanted) {
                self.note(account, wanted, at_s);
            }
        }
    }

    /// Counts a new name.
    pub(super) fn note(&mut self, account: &Account, wanted: &Wanted, at_s: i64) {
        for (key, pace, _) in keys(account, wanted) {
            self.orders.note(key, pace, at_s);
        }
    }
}

/// Whose budgets a new name is taken from.
fn keys(account: &Account, wanted: &Wanted) -> Vec<(String, Pace, String)> {
    let (Some(budgets), Some(demand)) = (&account.budgets, &wanted.demand) else {
        return Vec::new();
    };
    let pace = |orders_max: u32, span_s| Pace {
        orders_max: orders_max as usize,
        span_s,
    };
    let (of, tenant) = (&account.name, &demand.tenant);
    let domain = wanted.names.first().map_or("", |name| registered(name));
    vec![
        (
            format!("{of} tenant {tenant}"),
            pace(budgets.per_tenant, HOURS_S),
            format!("of tenant {tenant}"),
        ),
        (
            format!("{of} domain {domain}"),
            pace(budgets.per_domain, WEEK_S),
            format!("below {domain}"),
        ),
        (
            format!("{of} all"),
            pace(budgets.in_all, HOURS_S),
            format!("of account {of}"),
        ),
    ]
}

/// Whether it would be a new name's certificate.
pub(super) fn is_new(wanted: &Wanted, now_s: i64) -> bool {
    let lasts = |held: &Held| held.not_after_s > now_s;
    wanted.demand.is_some() && !wanted.held.as_ref().is_some_and(lasts)
}

/// When a certificate is ordered next; never while nobody asks for one that is on demand.
pub(super) fn next_s(
    wanted: &Wanted,
    course: &Course,
    budgets: Option<&Budgets>,
    now_s: i64,
) -> i64 {
    let next_s = course.next_s(&wanted.certificate, &wanted.names, wanted.held.as_ref());
    let Some(Demand { asked_s, .. }) = wanted.demand else {
        return next_s;
    };
    let unused_s = budgets.map_or(0, |it| it.unused_s);
    let is_asked = match is_new(wanted, now_s) {
        true => asked_s > course.last_try_s(),
        false => asked_s > now_s.saturating_sub(unused_s),
    };
    match is_asked || course.is_wanted_now() {
        true => next_s,
        false => i64::MAX,
    }
}

/// What is wanted: first what clients wait for now.
pub(super) fn in_turn(plan: &Plan, now_s: i64) -> impl Iterator<Item = &Wanted> {
    let is_waited_for = move |it: &&Wanted| {
        let demand = it.demand.as_ref();
        demand.is_some_and(|it| it.asked_s > now_s.saturating_sub(WAITED_S))
    };
    let others = plan.certificates.iter();
    let others = others.filter(move |it| !is_waited_for(it));
    plan.certificates.iter().filter(is_waited_for).chain(others)
}

/// How many orders may be under way when one more is begun for this certificate.
pub(super) fn places(plan: &Plan, wanted: &Wanted) -> usize {
    let mut accounts = plan.accounts.iter();
    match wanted.demand.is_none() && accounts.any(|it| it.budgets.is_some()) {
        true => super::ORDERS_MAX - KEPT_PLACES,
        false => super::ORDERS_MAX,
    }
}

impl Orders {
    /// Takes a certificate that a client asks for, or what has become of one that was asked for.
    pub(super) fn take_demand(&self, wanted: Wanted) {
        let state = &mut *self.state.borrow_mut();
        let course = state.courses.entry(wanted.certificate.clone()).or_default();
        let name = wanted.names.first().map_or("", String::as_str);
        let now_s = now_s();
        if let Some((until_s, why)) = course.rest(name, now_s) {
            let rest_s = until_s - now_s;
            let why = format!("{why}; it may be tried again in {rest_s} s");
            self.tell_refused(&wanted.certificate, why, false);
        }
        let mut known = state.plan.certificates.iter_mut();
        match known.find(|it| it.certificate == wanted.certificate) {
            Some(known) => known.demand = wanted.demand,
            None => state.plan.certificates.push(wanted),
        }
    }

    pub(super) fn tell_refused(&self, certificate: &str, why: String, is_forgotten: bool) {
        self.link.tell(FromAcme::Refused {
            certificate: certificate.to_owned(),
            why,
            is_forgotten,
        });
    }

    /// Forgets certificates that were demanded and cannot be ordered now, and says so.
    pub(super) fn refuse(&self, state: &mut OrdersState, refused: Vec<(String, String)>) {
        for (certificate, why) in refused {
            state.courses.remove(&certificate);
            let plan = &mut state.plan.certificates;
            plan.retain(|it| it.certificate != certificate);
            self.tell_refused(&certificate, why, true);
        }
    }
}

/// The account in whose store a certificate lies.
pub(super) fn first_account<'a>(accounts: &'a [Account], wanted: &Wanted) -> Option<&'a Account> {
    accounts.get(usize::from(*wanted.accounts.first()?))
}

/// What may be ordered with a certificate's account on demand.
pub(super) fn budgets<'a>(accounts: &'a [Account], wanted: &Wanted) -> Option<&'a Budgets> {
    first_account(accounts, wanted)?.budgets.as_ref()
}

/// Orders of new names that are under way.
pub(super) fn under_way(plan: &Plan, under_way: &HashSet<String>, now_s: i64) -> usize {
    let new = plan.certificates.iter().filter(|it| is_new(it, now_s));
    new.filter(|it| under_way.contains(&it.certificate)).count()
}

/// The names of all certificates that are under way.
pub(super) fn names_under_way(plan: &Plan, under_way: &HashSet<String>) -> usize {
    let known = plan.certificates.iter();
    let known = known.filter(|it| under_way.contains(&it.certificate));
    known.map(|it| it.names.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const NOW_S: i64 = 1_000 * DAY;

    fn budgets() -> Budgets {
        Budgets {
            per_tenant: 3,
            per_domain: 4,
            in_all: 5,
            unused_s: 30 * DAY,
        }
    }

    fn account() -> Account {
        Account {
            name: "le".into(),
            directory: String::new(),
            contact: Vec::new(),
            binding: None,
            challenges: Vec::new(),
            profile: None,
            authorities: String::new(),
            credentials: None,
            is_writer: true,
            budgets: Some(budgets()),
        }
    }

    fn wanted(name: &str, tenant: &str, asked_s: i64) -> Wanted {
        Wanted {
            certificate: name.into(),
            accounts: vec![0],
            names: vec![name.into()],
            held: None,
            order: None,
            demand: Some(Demand {
                tenant: tenant.into(),
                asked_s,
                first_s: None,
            }),
        }
    }

    fn held(name: &str, not_after_s: i64) -> Held {
        Held {
            names: vec![name.into()],
            not_before_s: not_after_s - 90 * DAY,
            not_after_s,
            leaf: ipc::certificates::Blob::default(),
        }
    }

    #[test]
    fn each_budget_holds_for_whoever_spends_it_and_comes_back_with_time() {
        let (mut spending, account) = (Spending::default(), account());
        let mut try_one = |name: &str, tenant: &str, at_s: i64| {
            let wanted = wanted(name, tenant, at_s);
            let allowed = spending.check(&account, &wanted, at_s);
            if allowed.is_ok() {
                spending.note(&account, &wanted, at_s);
            }
            allowed.map_err(|why| why.split(" were").next().unwrap_or_default().to_owned())
        };
        for name in ["a.one.example", "b.one.example", "c.one.example"] {
            assert_eq!(try_one(name, "x", NOW_S), Ok(()));
        }
        let of_tenant = Err("3 new names of tenant x".to_owned());
        assert_eq!(try_one("a.two.example", "x", NOW_S), of_tenant);
        assert_eq!(try_one("d.one.example", "y", NOW_S), Ok(()));
        let below = Err("4 new names below one.example".to_owned());
        assert_eq!(try_one("e.one.example", "y", NOW_S), below);
        assert_eq!(try_one("a.two.example", "y", NOW_S), Ok(()));
        let in_all = Err("5 new names of account le".to_owned());
        assert_eq!(try_one("a.three.example", "z", NOW_S), in_all);
        let later_s = NOW_S + HOURS_S;
        assert_eq!(try_one("a.three.example", "z", later_s), Ok(()));
        assert_eq!(try_one("e.one.example", "y", later_s), below);
        assert_eq!(try_one("e.one.example", "y", NOW_S + WEEK_S), Ok(()));
    }

    #[test]
    fn a_hundred_thousand_names_that_are_all_accepted_spend_no_more_than_the_budget() {
        let (mut spending, account) = (Spending::default(), account());
        let mut ordered = 0;
        for index in 0..100_000 {
            let name = format!("n{index}.d{}.example", index % 1_000);
            let wanted = wanted(&name, &format!("t{}", index % 10), NOW_S);
            if spending.check(&account, &wanted, NOW_S).is_ok() {
                spending.note(&account, &wanted, NOW_S);
                ordered += 1;
            }
        }
        assert_eq!(ordered, 5);
    }

    #[test]
    fn after_a_start_first_certificates_count_and_renewals_do_not() {
        let of = |name: &str, first_s| {
            let mut wanted = Wanted {
                held: Some(held(name, NOW_S + 89 * DAY)),
                ..wanted(name, "x", 0)
            };
            let demand = wanted.demand.iter_mut();
            demand.for_each(|demand| demand.first_s = first_s);
            wanted
        };
        let names = ["a.one.example", "b.two.example", "c.three.example"];
        let check = |first_s| {
            let mut spending = Spending::default();
            let plan = Plan {
                accounts: vec![account()],
                certificates: names.iter().map(|name| of(name, first_s)).collect(),
            };
            spending.learn(&plan, &HashMap::new());
            spending.check(&account(), &wanted("d.four.example", "x", NOW_S), NOW_S)
        };
        assert_eq!(check(None), Ok(()));
        assert!(check(Some(NOW_S - 60)).is_err());
        assert_eq!(check(Some(NOW_S - HOURS_S)), Ok(()));
    }

    #[test]
    fn a_new_name_is_tried_once_each_time_that_it_is_asked_for() {
        let mut course = Course::default();
        let next = |course: &Course, asked_s| {
            next_s(
                &wanted("a.example", "x", asked_s),
                course,
                Some(&budgets()),
                NOW_S,
            )
        };
        assert_eq!(next(&course, 0), i64::MAX);
        assert_eq!(next(&course, NOW_S), 0);
        course.begin(NOW_S);
        course.fail(NOW_S, 0, "no".into());
        assert_eq!(next(&course, NOW_S), i64::MAX);
        assert_eq!(next(&course, NOW_S + 1), NOW_S + 60);
        course.want_now();
        assert_eq!(next(&course, NOW_S), 0);
    }

    #[test]
    fn what_clients_wait_for_comes_before_what_sites_have_and_finds_a_place() {
        let own = Wanted {
            demand: None,
            ..wanted("own.example", "x", 0)
        };
        let plan = Plan {
            accounts: vec![account()],
            certificates: vec![
                own,
                wanted("earlier.example", "x", NOW_S - WAITED_S),
                wanted("now.example", "x", NOW_S),
            ],
        };
        let turns: Vec<_> = in_turn(&plan, NOW_S).collect();
        let names = turns.iter().map(|it| it.certificate.as_str());
        let names: Vec<_> = names.collect();
        assert_eq!(names, ["now.example", "own.example", "earlier.example"]);
        let kept = places(&plan, turns[0]) - places(&plan, turns[1]);
        assert_eq!(kept, KEPT_PLACES);
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_not_renewed() {
        let course = Course::default();
        let next = |asked_s, not_after_s| {
            let wanted = Wanted {
                held: Some(held("a.example", not_after_s)),
                ..wanted("a.example", "x", asked_s)
            };
            let is_new = is_new(&wanted, NOW_S);
            (next_s(&wanted, &course, Some(&budgets()), NOW_S), is_new)
        };
        let due_soon = NOW_S + 20 * DAY;
        assert!(next(NOW_S - DAY, due_soon).0 < NOW_S);
        assert_eq!(next(NOW_S - 31 * DAY, due_soon), (i64::MAX, false));
        assert_eq!(next(0, due_soon), (i64::MAX, false));
        // One that has ended is as none.
        assert!(next(NOW_S - DAY, NOW_S - DAY).1);
    }
}
