//! `scope = "fleet"` and `on_loss`: limits that several machines share.

use crate::lower::context::problem;
use crate::lower::table::Table;
use crate::model::{Concurrent, LimitOn, LimitScope, OnLoss};

/// What holds while the store is away, of a limit that is counted there.
pub(super) fn fleet(
    table: &Table<'_>,
    on: LimitOn,
    concurrent: Option<Concurrent>,
) -> Option<OnLoss> {
    let scope: LimitScope = table.choice("scope");
    let on_loss: OnLoss = table.choice("on_loss");
    let Some(value) = table.get("scope").filter(|_| scope == LimitScope::Fleet) else {
        if let Some(value) = table.get("on_loss") {
            let message = "`on_loss` says nothing of a limit that this machine counts by itself";
            let help = "add `scope = \"fleet\"`, or leave it out";
            table
                .context
                .warn(problem(value.spot(), message).help(help));
        }
        return None;
    };
    let wrong = match concurrent {
        _ if on == LimitOn::Handshake => Some((
            "handshakes are counted on each machine",
            "leave `scope` out: a handshake does not wait for a store",
        )),
        Some(Concurrent::Auto) => Some((
            "what `concurrent = \"auto\"` measures is what this machine meets",
            "give a number, or leave `scope` out: each machine then finds its own",
        )),
        Some(_) if table.get("rate").is_some() => Some((
            "over several machines a limit counts `concurrent` or `rate`",
            "make two limits of it, each with `scope = \"fleet\"`",
        )),
        _ if table.get("reserve").is_some() => Some((
            "a reserve is kept on each machine",
            "leave `reserve` or `scope` out",
        )),
        _ => None,
    };
    if let Some((message, help)) = wrong {
        value.report_help(message, help);
        return None;
    }
    let context = table.context;
    // Once in each file: of further limits the same is to be said.
    if !context.has_fleet.get()
        && context.fleet_missed.replace(Some(value.file)) != Some(value.file)
    {
        let finding = problem(
            value.spot(),
            "there is no `[fleet]`: nobody counts for several machines what limits of this file say",
        );
        let help =
            "add `[fleet]` and `store = \"redis://…\"` to the first file, or leave `scope` out";
        context.report(finding.help(help).absence());
    }
    Some(on_loss)
}
