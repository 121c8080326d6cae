//! What figures are called in reports, how they are written, and which way is better.

use load::stats::Better;
use report::units::{self, Unit};

/// How a figure is shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
}

/// Names and titles that have a unit and a better way in common.
type Group = (Unit, Better, &'static [(&'static str, &'static str)]);

/// Figures that are known.
#[rustfmt::skip]
const KNOWN: [Group; 6] = [
    (Unit::Count, Better::Higher, &[
        ("per_cpu_second", "requests per CPU second"), ("per_second", "requests per second"),
        ("goodput", "good replies per second"), ("completed", "replies"),
        ("replies", "replies, warm-up included"), ("logged", "logged"), ("jain", "Jain's index"),
    ]),
    (Unit::Count, Better::Lower, &[
        ("refused", "refused per second"), ("others_refused", "others refused per second"),
        ("failed", "failed"), ("unlogged", "not logged"), ("processes", "processes"),
        ("threads", "threads"), ("switches", "context switches per request"),
        ("time_wait", "sockets in TIME_WAIT"), ("load1", "load average"),
    ]),
    (Unit::Micros, Better::Lower, &[
        ("admitted_p50_us", "p50 of the admitted"), ("admitted_p99_us", "p99 of the admitted"),
        ("refused_p99_us", "p99 of the refused"), ("others_p99_us", "p99 of the others"),
        ("cpu_us", "CPU time per request"), ("p50_us", "p50"), ("p90_us", "p90"), ("p99_us", "p99"),
        ("p999_us", "p99.9"), ("mean_us", "mean time"), ("max_us", "longest time"),
        ("first_byte_p50_us", "first byte p50"), ("first_byte_p99_us", "first byte p99"),
    ]),
    (Unit::Share, Better::Lower, &[
        ("late_share", "sent late"), ("generator_busy", "generator's core busy"),
        ("run_queue_share", "waiting for a core"), ("throttled_share", "throttled"),
        ("largest_share", "busiest worker's share"),
    ]),
    (Unit::Cores, Better::Lower, &[
        ("server_busy", "cores used"),
    ]),
    (Unit::Bytes, Better::Lower, &[
        ("pss_bytes", "memory"), ("peak_bytes", "peak memory"),
        ("bytes_each", "memory per connection"), ("bytes_alone", "memory without them"),
    ]),
];

/// How names begin that have a tenant or a window in them, and what is said of that.
#[rustfmt::skip]
const PARTS: [(&str, &str, Unit, Better); 4] = [
    ("goodput.", "good replies per second of ", Unit::Count, Better::Higher),
    ("goodput_in.", "good replies per second, ", Unit::Count, Better::Higher),
    ("refused.", "refused per second of ", Unit::Count, Better::Lower),
    ("p99_us.", "p99 of ", Unit::Micros, Better::Lower),
];

/// How names of others' figures end, and what is said in place of that.
const ENDS: [(&str, &str, Unit, Better); 6] = [
    ("_us", "", Unit::Micros, Better::Lower),
    ("_seconds", "", Unit::Seconds, Better::Lower),
    ("_bytes", "", Unit::Bytes, Better::Lower),
    ("_share", "", Unit::Share, Better::Lower),
    ("_per_second", " per second", Unit::Count, Better::Higher),
    ("", "", Unit::Count, Better::Lower),
];

fn known(name: &str) -> Option<(&'static str, Unit, Better)> {
    KNOWN.iter().find_map(|(unit, better, names)| {
        let (_, title) = names.iter().find(|(known, _)| *known == name)?;
        Some((*title, *unit, *better))
    })
}

/// How a figure of this name is shown; unknown ones by the end of their names.
pub(crate) fn figure(name: &str) -> Figure {
    let of_part = |(start, title, unit, better): (&str, &str, Unit, Better)| {
        let part = name.strip_prefix(start)?;
        Some((format!("{title}{part}"), unit, better))
    };
    let of_end = |(end, title, unit, better): (&str, &str, Unit, Better)| {
        let start = name.strip_suffix(end)?;
        Some((start.replace('_', " ") + title, unit, better))
    };
    let found = known(name).map(|(title, unit, better)| (title.to_owned(), unit, better));
    let found = found.or_else(|| PARTS.into_iter().find_map(of_part));
    let found = found.or_else(|| ENDS.into_iter().find_map(of_end));
    let (title, unit, better) = found.unwrap_or((name.to_owned(), Unit::Count, Better::Lower));
    Figure {
        title,
        unit,
        better,
    }
}

/// Whether a name is one of ours, not of a command or tenant.
pub(crate) fn is_known(name: &str) -> bool {
    name == "established" || known(name).is_some()
}

impl Figure {
    /// Writes a value.
    pub(crate) fn write(&self, value: f64) -> String {
        if value.is_finite() {
            self.unit.write(value)
        } else {
            units::NONE.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_a_figure_is_read() {
        for (name, title, unit, better) in [
            ("p99_us", "p99", Unit::Micros, Better::Lower),
            (
                "goodput.small",
                "good replies per second of small",
                Unit::Count,
                Better::Higher,
            ),
            ("p99_us.small", "p99 of small", Unit::Micros, Better::Lower),
            ("check_seconds", "check", Unit::Seconds, Better::Lower),
            (
                "queries_per_second",
                "queries per second",
                Unit::Count,
                Better::Higher,
            ),
            ("sockets", "sockets", Unit::Count, Better::Lower),
        ] {
            let seen = figure(name);
            assert_eq!(
                (seen.title.as_str(), seen.unit, seen.better),
                (title, unit, better)
            );
        }
    }
}
