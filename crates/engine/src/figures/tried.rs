//! Scripts in shadow: what they would have done, as a table and for Prometheus.

use control::{ScriptInShadow, Status};

use super::exposition::Text;
use super::table::{count, grid};
use crate::scripts::plan::InShadow;
use crate::scripts::tried::Tried;

/// Collects those of a generation, in the order of its configuration.
pub(super) fn collect(scripts: &[InShadow], tried: &Tried) -> Vec<ScriptInShadow> {
    let of = |(script, phase): &InShadow| {
        let counts = tried.counts(script, *phase);
        ScriptInShadow {
            script: script.to_string(),
            phase: phase.name().into(),
            runs: counts.runs,
            answered: counts.answered,
            changed: counts.changed,
        }
    };
    scripts.iter().map(of).collect()
}

pub(super) fn table(figures: &Status, out: &mut String) {
    let rows = figures.scripts_in_shadow.iter().map(|it| {
        vec![
            it.script.clone(),
            it.phase.to_string(),
            count(it.runs),
            count(it.answered),
            count(it.changed),
        ]
    });
    let heads = [
        "script in shadow",
        "phase",
        "runs",
        "would answer",
        "would change",
    ];
    grid(&heads, rows.collect(), out);
}

pub(super) fn prometheus(figures: &Status, out: &mut Text) {
    let of = |of: fn(&ScriptInShadow) -> u64| {
        let scripts = figures.scripts_in_shadow.iter();
        scripts.map(move |it| {
            let labels = [("script", it.script.as_str()), ("phase", &*it.phase)];
            (labels, of(it))
        })
    };
    let help = "Requests for which a script in shadow ran.";
    out.each("script_shadow_runs_total", help, of(|it| it.runs));
    let help = "Requests a script would have answered, were it not in shadow.";
    out.each("script_shadow_answered_total", help, of(|it| it.answered));
    let help = "Requests a script would have changed and let go on, were it not in shadow.";
    out.each("script_shadow_changed_total", help, of(|it| it.changed));
}
