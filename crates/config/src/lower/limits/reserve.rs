//! `reserve` of a limit: permits that are a tenant's before all others'.

use super::Level;
use crate::keys::{self, limit};
use crate::lower::context::{problem, title_of};
use crate::lower::table::Table;
use crate::lower::tops::Tops;
use crate::lower::value::Value;
use crate::model::{Concurrent, LimitKey, LimitOn, Model, Reserve};

/// Tenants that one limit may have reserves for.
const RESERVES_MAX: usize = 64;

/// The reserves of a limit.
pub(super) fn reserves(
    table: &Table<'_>,
    (level, on, keys): (Level, LimitOn, &[LimitKey]),
    concurrent: Option<Concurrent>,
) -> Vec<Reserve> {
    let Some(value) = table.get("reserve") else {
        return Vec::new();
    };
    let is_shared = matches!(level, Level::Process | Level::Upstream);
    if !is_shared || on == LimitOn::Handshake || keys != [level.own_key()] {
        value.report_help(
            "`reserve` is of a limit that several tenants share as a whole",
            "put it on the top level or an upstream, without `key`",
        );
        return Vec::new();
    }
    let Some(Concurrent::Fixed(most)) = concurrent else {
        value.report_help(
            "`reserve` needs a number of requests to be part of",
            "give one: `concurrent = 50`",
        );
        return Vec::new();
    };
    if table.get("queue").is_none() && !table.has_misspelt("queue") {
        let message =
            "`reserve` says nothing without `queue`: who comes to a full limit is refused";
        let finding = problem(value.spot(), message);
        let help = "add `queue = 10`: how many may wait";
        table.context.warn(finding.help(help));
    }
    let members = value.members();
    let count = members.len();
    if count > RESERVES_MAX {
        value.report(format!(
            "{count} tenants have reserves here, and {RESERVES_MAX} are the most"
        ));
    }
    let reserve = |member: &Value<'_>| {
        let permits = member.count(1, limit::REQUESTS_MAX)?;
        let tenant = member.name.to_owned();
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        Some(Reserve { tenant, permits })
    };
    let reserves: Vec<Reserve> = members.iter().filter_map(reserve).collect();
    let all: u64 = reserves.iter().map(|it| u64::from(it.permits)).sum();
    if all > u64::from(most) {
        value.report_help(
            format!("{all} requests are reserved, of the {most} that `concurrent` allows"),
            "reserve less, or allow more",
        );
    }
    reserves
}

/// Reports reserves for tenants that are not there.
pub(crate) fn judge(tops: &Tops<'_>, model: &Model) {
    let of_upstreams = tops.members("upstreams");
    let of_upstreams = of_upstreams.iter().filter_map(|it| it.member("limits"));
    // Those that are no lists have been reported.
    let of_upstreams = of_upstreams
        .filter(Value::is_list)
        .filter_map(|it| it.list());
    let of_process = tops.elements_again("limits");
    for value in of_upstreams.flatten().chain(of_process) {
        let reserve = value.member("reserve").filter(Value::is_table);
        for tenant in reserve.iter().flat_map(|it| it.entries()) {
            let described = || model.tenants.iter().map(|tenant| tenant.name.as_str());
            let mut of_sites = model.sites.iter().map(|site| site.tenant.as_str());
            let name = tenant.name;
            if described().any(|it| it == name) || of_sites.any(|it| it == name) {
                continue;
            }
            let finding = problem(tenant.name_spot, format!("there is no tenant `{name}`"));
            let context = tops.context;
            match keys::nearest(name, described()) {
                Some(meant) => context.report(finding.meant(Some(meant)).absence()),
                None if model.tenants.is_empty() => {
                    context.warn(
                        finding.help("its requests would be those of sites with it as `tenant`"),
                    );
                }
                None => {
                    let help = format!("describe it: `{}`", title_of("tenants", name));
                    context.report(finding.help(help).absence());
                }
            }
        }
    }
}
