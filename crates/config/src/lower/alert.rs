//! `[[alerts]]`.
//!
//! The idea: what could never be told, or never be over, is refused here, and so is a figure of
//! somebody that nobody knows.

use super::command::command;
use super::context::{Spot, problem, title_of};
use super::shed::{measured_number, rule_name, sensor_of};
use super::table::Table;
use super::tops::Tops;
use super::upstream::Upstreams;
use super::user::{Role, wrong_user};
use super::value::Value;
use crate::keys;
use crate::model::sensor::{Gauge, Sensor, Worse};
use crate::model::{ALERTS_MAX, Alert, Chore, Model, ServerFigure, Site, WatchedFigure, Whose};

/// Who programs run as where nothing is said.
const USER: &str = "nagaya-alerts";

/// Every `[[alerts]]`, in the order of the files.
pub(crate) fn lower_all(tops: &Tops<'_>, upstreams: &Upstreams) -> Vec<Alert> {
    let mut alerts: Vec<Alert> = Vec::new();
    let mut spots: Vec<(String, Spot)> = Vec::new();
    for value in tops.optional_elements("alerts") {
        if alerts.len() == ALERTS_MAX {
            value.report(format!("there are more than {ALERTS_MAX} `[[alerts]]`"));
            break;
        }
        let Some(table) = value.table(&keys::ALERT) else {
            continue;
        };
        let figure = table.required("figure");
        let figure = figure.and_then(|value| figure_of(&value, upstreams));
        let base = figure.as_ref().map(WatchedFigure::to_string);
        let name = rule_name(&table, "[[alerts]]", base.unwrap_or_default(), &spots);
        spots.push((name.clone(), table.spot()));
        let (run, for_ms) = (run(&table), table.duration("for"));
        if for_ms % 1_000 != 0 {
            table.report_at(&["for"], "`for` must be in whole seconds");
        }
        let bounds = figure.as_ref().and_then(|figure| bounds(&table, figure));
        let (Some(figure), Some((worse, bound, leave))) = (figure, bounds) else {
            continue;
        };
        alerts.push(Alert {
            name,
            figure,
            worse,
            bound,
            leave,
            // A day at most.
            for_s: u32::try_from(for_ms / 1_000).unwrap_or(u32::MAX),
            run,
        });
    }
    alerts
}

/// Reports alerts that nobody looks at, and figures of sites and tenants that nobody knows.
pub(crate) fn judge(tops: &Tops<'_>, model: &Model) {
    let alerts = tops.elements_again("alerts");
    if let Some(first) = alerts.first().filter(|_| !tops.is_meant("recorder")) {
        first.report_help(
            "`[[alerts]]` without `[recorder]`: nobody would look at the figures",
            "describe one: `[recorder]` with `directory = \"/var/lib/nagaya/recorder\"`",
        );
    }
    for value in alerts {
        let Some(value) = value.member("figure") else {
            continue;
        };
        let figure = value.typed().as_deref().and_then(WatchedFigure::from_name);
        if let Some(WatchedFigure::Server(ServerFigure::FleetUp | ServerFigure::FleetMachines)) =
            figure
            && model.fleet.is_none()
        {
            let help = "describe the store that machines share: `[fleet]`, or watch another figure";
            value.report_help("there is no fleet: nobody would know the figure", help);
        }
        let Some(WatchedFigure::Of(whose, name, _)) = figure else {
            continue;
        };
        match whose {
            Whose::Tenant => {
                let tenants = model.tenants.iter().map(|tenant| &*tenant.name);
                require(&value, whose, &name, tenants);
            }
            Whose::Site => {
                let sites: Vec<String> = model.sites.iter().map(Site::name).collect();
                require(&value, whose, &name, sites.iter().map(String::as_str));
            }
            // These were looked for.
            Whose::Upstream => {}
        }
        let is_it = |site: &&Site| match whose {
            Whose::Tenant => *site.tenant == *name,
            Whose::Site => *site.name() == *name,
            Whose::Upstream => false,
        };
        let mut sites = model.sites.iter().filter(is_it).peekable();
        if sites.peek().is_some() && sites.all(|site| !site.record) {
            let word = whose.word();
            value.report_help(
                format!("nothing is recorded of the {word} `{name}`: nobody would know the figure"),
                "leave `record = false` out, or watch another figure",
            );
        }
    }
}

/// Reports a name that is none of these.
fn require<'a>(
    value: &Value<'_>,
    whose: Whose,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) {
    if known.clone().all(|it| it != name) {
        let message = format!("there is no {} `{name}`", whose.word());
        let finding = problem(value.spot(), message);
        value
            .context
            .report(finding.meant(keys::nearest(name, known)));
    }
}

fn figure_of(value: &Value<'_>, upstreams: &Upstreams) -> Option<WatchedFigure> {
    let name = value.text()?;
    match WatchedFigure::from_name(name) {
        Some(WatchedFigure::Sensor(Sensor::Upstream(..))) => {
            Some(WatchedFigure::Sensor(sensor_of(value, upstreams)?))
        }
        Some(WatchedFigure::Of(Whose::Upstream, of, _)) if !upstreams.is_named(&of) => {
            let finding = problem(value.spot(), format!("there is no upstream `{of}`"));
            let help = format!("describe it: `{}`", title_of("upstreams", &of));
            value.context.report(finding.help(help).absence());
            None
        }
        Some(figure) => Some(figure),
        None => {
            let finding = problem(value.spot(), format!("there is no figure `{name}`"));
            let meant = keys::nearest(name, Gauge::ALL.iter().map(|gauge| gauge.name()));
            value.context.report(match (measures_of(name), meant) {
                (Some(help), _) => finding.help(help),
                (None, Some(meant)) => finding.meant(Some(meant)),
                (None, None) => finding.help(
                    "`nagaya sensors` lists some; others are `tenant.NAME.cpu`, `site.NAME.p99`, `upstream.NAME.up`, `certificates.days_left`, `handshakes.failed` and `fleet.up`",
                ),
            });
            None
        }
    }
}

/// What is measured of whom a name begins with.
fn measures_of(name: &str) -> Option<String> {
    let (word, _) = name.split_once('.')?;
    let (whose, _) = Whose::ALL.into_iter().find(|(_, it)| *it == word)?;
    let words: Vec<_> = whose.measures().iter().map(|it| it.word()).collect();
    Some(format!("`{word}.NAME.` and one of {}", words.join(", ")))
}

/// Side, bound and `leave`.
fn bounds(table: &Table<'_>, figure: &WatchedFigure) -> Option<(Worse, f64, f64)> {
    let [above, below] = ["above", "below"].map(|name| table.get(name));
    let (worse, value) = match (above, below) {
        (Some(value), None) => (Worse::Above, value),
        (None, Some(value)) => (Worse::Below, value),
        (Some(_), Some(value)) => {
            value.report_help(
                "`above` and `below` stand here together",
                "an alert has one bound: write a second one",
            );
            return None;
        }
        (None, None) if ["above", "below"].iter().any(|it| table.has_misspelt(it)) => return None,
        (None, None) => {
            let message = "`above` or `below` is missing: nothing would be told";
            table.report_at(&["figure"], message);
            return None;
        }
    };
    let number = |value: &Value<'_>| {
        let number = measured_number(value, figure.unit(), figure)?;
        if number < 0.0 {
            value.report(format!("`{}` must not be below 0", value.name));
        }
        (number >= 0.0).then_some(number)
    };
    let bound = number(&value)?;
    let Some(value) = table.get("leave") else {
        return Some((worse, bound, bound));
    };
    let leave = number(&value)?;
    let (is_worse, which) = match worse {
        Worse::Above => (leave > bound, "above"),
        Worse::Below => (leave < bound, "below"),
    };
    if is_worse {
        value.report_help(
            format!("`leave` ({leave}) is {which} the bound ({bound}): it would never be over"),
            "it may be the bound itself, or any value that is better",
        );
    }
    Some((worse, bound, leave))
}

fn run(table: &Table<'_>) -> Option<Chore> {
    let own = table.get("user").and_then(|value| {
        let name = value.text()?;
        if let Some((message, help)) = wrong_user(value.context.sources, Role::Programs, name) {
            value.report_help(message, help);
        }
        Some(name.to_owned())
    });
    let Some(value) = table.get("run") else {
        if own.is_some() && !table.has_misspelt("run") {
            table.report_at(&["user"], "`user` says nothing without `run`");
        }
        return None;
    };
    Some(Chore {
        command: command(value),
        directory: table.context.sources.resolve(table.file, ""),
        has_own_user: own.is_some(),
        user: own.unwrap_or_else(|| USER.to_owned()),
    })
}
