//! What operators have done to a tenant: suspended, resumed, or all that runs of it killed.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use control::Suspended;
use ipc::pools::{PoolAnswer, PoolQuestion};

use crate::generation::Generation;
use crate::worker::Shared;

/// Tenants that are named where one is not known.
const NAMED_MAX: usize = 10;

/// What is done to a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenantOrder {
    /// Refuse its requests, end what runs and start nothing.
    Suspend,
    /// Take that back.
    Resume,
    /// Kill what runs.
    Kill,
}

/// Carries out `tenant-suspend NAME` and the like.
pub(crate) fn act(shared: &Shared, name: &str, order: TenantOrder) -> String {
    let name = name.trim();
    let suspension = &shared.suspension;
    // One that no site has any more may still be resumed.
    let is_leftover = order == TenantOrder::Resume && suspension.check(name).is_err();
    let known = shared.generation();
    match known.as_deref().map(|generation| find(generation, name)) {
        None => return "error: nothing is served yet\n".to_owned(),
        Some(Err(why)) if !is_leftover => return format!("error: {why}\n"),
        Some(_) => {}
    }
    let question = match order {
        TenantOrder::Suspend => PoolQuestion::Suspend(name.to_owned()),
        TenantOrder::Resume => PoolQuestion::Resume(name.to_owned()),
        TenantOrder::Kill => PoolQuestion::Kill(name.to_owned()),
    };
    if order == TenantOrder::Suspend {
        suspension.set(name, true);
    }
    let pools = shared.program_pools.each();
    let pools = pools.iter().filter(|pool| *pool.tenant == *name);
    pools.for_each(|pool| pool.wake());
    let answer = shared.pool_inquiries.ask(question);
    // Only now: a spawner that does not know of it yet would refuse what it is asked for.
    if order == TenantOrder::Resume {
        suspension.set(name, false);
    }
    told(name, order, answer)
}

/// What is said of it.
fn told(name: &str, order: TenantOrder, answer: Result<PoolAnswer, String>) -> String {
    tracing::info!(tenant = name, ?order, ?answer, "an operator's order");
    let done = match order {
        TenantOrder::Suspend => format!("{name} is suspended: its requests are refused"),
        TenantOrder::Resume => format!("{name} is resumed"),
        TenantOrder::Kill => format!("what runs of {name} is killed"),
    };
    match answer {
        Ok(PoolAnswer::Tenant { pools, programs }) => {
            let ends = match order {
                TenantOrder::Resume => String::new(),
                _ => format!(
                    "; {} and {} end",
                    counted(pools, "pool"),
                    counted(programs, "program")
                ),
            };
            format!("{done}{ends}\n")
        }
        // The next spawner is told.
        Err(why) | Ok(PoolAnswer::Refused(why)) if order != TenantOrder::Kill => {
            format!("{done}; of its pools and programs nothing is known: {why}\n")
        }
        Err(why) | Ok(PoolAnswer::Refused(why)) => format!("error: {why}\n"),
        Ok(_) => "error: the spawner answered something else\n".to_owned(),
    }
}

/// Who is suspended, in a line; none where nobody is or was.
pub(super) fn line(of: &Suspended, out: &mut String) {
    if of.is_nothing() {
        return;
    }
    let named = match (
        of.tenants.as_slice(),
        of.count.saturating_sub(of.tenants.len()),
    ) {
        ([], _) => "nobody".to_owned(),
        (named, 0) => named.join(", "),
        (named, more) => format!("{} and {more} more", named.join(", ")),
    };
    let refused = of.refused;
    // Writing to memory does not fail.
    let _ = writeln!(
        out,
        "{:<13}{named} · {refused} requests refused",
        "suspended"
    );
}

fn counted(number: u32, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// Whether a site has a tenant, or a row may have it; if not, what to say.
fn find(generation: &Generation, name: &str) -> Result<(), String> {
    // Whom rows name nobody knows here.
    if !generation.row_sites.is_empty() && ipc::rows::tenant(name).is_ok() {
        return Ok(());
    }
    let tenants = || generation.sites.iter().map(|site| &*site.tenant_name);
    if tenants().any(|tenant| tenant == name) {
        return Ok(());
    }
    if let Some(meant) = config::nearest(name, tenants()) {
        return Err(format!("there is no tenant `{name}`; is `{meant}` meant?"));
    }
    let of_host = generation.destination_of(&name.to_ascii_lowercase());
    let site = of_host.and_then(|it| generation.sites.get(it.site as usize));
    if let Some(site) = site {
        let tenant = &site.tenant_name;
        return Err(format!(
            "there is no tenant `{name}`; the tenant of site {} is `{tenant}`",
            site.name
        ));
    }
    let all: BTreeSet<&str> = tenants().collect();
    let named: Vec<&str> = all.iter().take(NAMED_MAX).copied().collect();
    let more = match all.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    Err(format!(
        "there is no tenant `{name}`: there are {named}{more}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const SITES: &str = r#"
[tenants.shop]
[[sites]]
hosts = ["shop.test", "www.shop.test"]
tenant = "shop"
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

    #[test]
    fn an_unknown_tenant_is_told_what_may_be_meant() {
        let fixture = Fixture::new(SITES);
        let serving = fixture.worker.serving();
        let generation = &serving.generation;
        assert_eq!(find(generation, "shop"), Ok(()));
        for (name, told) in [
            ("shpo", "is `shop` meant?"),
            ("WWW.shop.test", "the tenant of site shop.test is `shop`"),
            ("someone-else", "there are shop"),
        ] {
            let why = find(generation, name).unwrap_err();
            assert!(why.contains(told), "{why}");
        }
    }

    #[test]
    fn what_is_done_is_told_and_so_is_a_spawner_that_is_silent() {
        let answer = |pools, programs| Ok(PoolAnswer::Tenant { pools, programs });
        for (order, answer, said) in [
            (
                TenantOrder::Suspend,
                answer(1, 2),
                "a is suspended: its requests are refused; 1 pool and 2 programs end\n",
            ),
            (TenantOrder::Resume, answer(0, 0), "a is resumed\n"),
            (
                TenantOrder::Kill,
                answer(0, 1),
                "what runs of a is killed; 0 pools and 1 program end\n",
            ),
            (TenantOrder::Kill, Err("silent".into()), "error: silent\n"),
        ] {
            assert_eq!(told("a", order, answer), said);
        }
        let said = told("a", TenantOrder::Suspend, Err("silent".into()));
        assert!(
            said.starts_with("a is suspended") && said.ends_with("silent\n"),
            "{said}"
        );
    }
}
