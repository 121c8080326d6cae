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

/// Figures by name: title, unit, which way is better.
const KNOWN: [(&str, &str, Unit, Better); 39] = [
    (
        "per_cpu_second",
        "requests per CPU second",
        Unit::Count,
        Better::Higher,
    ),
    (
        "per_second",
        "requests per second",
        Unit::Count,
        Better::Higher,
    ),
    (
        "goodput",
        "good replies per second",
        Unit::Count,
        Better::Higher,
    ),
    ("refused", "refused per second", Unit::Count, Better::Lower),
    (
        "admitted_p50_us",
        "p50 of the admitted",
        Unit::Micros,
        Better::Lower,
    ),
    (
        "admitted_p99_us",
        "p99 of the admitted",
        Unit::Micros,
        Better::Lower,
    ),
    (
        "refused_p99_us",
        "p99 of the refused",
        Unit::Micros,
        Better::Lower,
    ),
    (
        "others_refused",
        "others refused per second",
        Unit::Count,
        Better::Lower,
    ),
    (
        "others_p99_us",
        "p99 of the others",
        Unit::Micros,
        Better::Lower,
    ),
    (
        "cpu_us",
        "CPU time per request",
        Unit::Micros,
        Better::Lower,
    ),
    ("p50_us", "p50", Unit::Micros, Better::Lower),
    ("p90_us", "p90", Unit::Micros, Better::Lower),
    ("p99_us", "p99", Unit::Micros, Better::Lower),
    ("p999_us", "p99.9", Unit::Micros, Better::Lower),
    ("mean_us", "mean time", Unit::Micros, Better::Lower),
    ("max_us", "longest time", Unit::Micros, Better::Lower),
    (
        "first_byte_p50_us",
        "first byte p50",
        Unit::Micros,
        Better::Lower,
    ),
    (
        "first_byte_p99_us",
        "first byte p99",
        Unit::Micros,
        Better::Lower,
    ),
    ("completed", "replies", Unit::Count, Better::Higher),
    ("failed", "failed", Unit::Count, Better::Lower),
    (
        "replies",
        "replies, warm-up included",
        Unit::Count,
        Better::Higher,
    ),
    ("logged", "logged", Unit::Count, Better::Higher),
    ("unlogged", "not logged", Unit::Count, Better::Lower),
    ("late_share", "sent late", Unit::Share, Better::Lower),
    (
        "generator_busy",
        "generator's core busy",
        Unit::Share,
        Better::Lower,
    ),
    ("server_busy", "cores used", Unit::Cores, Better::Lower),
    ("pss_bytes", "memory", Unit::Bytes, Better::Lower),
    ("peak_bytes", "peak memory", Unit::Bytes, Better::Lower),
    ("processes", "processes", Unit::Count, Better::Lower),
    ("threads", "threads", Unit::Count, Better::Lower),
    (
        "switches",
        "context switches per request",
        Unit::Count,
        Better::Lower,
    ),
    (
        "run_queue_share",
        "waiting for a core",
        Unit::Share,
        Better::Lower,
    ),
    ("throttled_share", "throttled", Unit::Share, Better::Lower),
    (
        "time_wait",
        "sockets in TIME_WAIT",
        Unit::Count,
        Better::Lower,
    ),
    ("load1", "load average", Unit::Count, Better::Lower),
    ("jain", "Jain's index", Unit::Count, Better::Higher),
    (
        "bytes_each",
        "memory per connection",
        Unit::Bytes,
        Better::Lower,
    ),
    (
        "bytes_alone",
        "memory without them",
        Unit::Bytes,
        Better::Lower,
    ),
    (
        "largest_share",
        "busiest worker's share",
        Unit::Share,
        Better::Lower,
    ),
];

/// How a figure of this name is shown; unknown ones by the end of their names.
pub(crate) fn figure(name: &str) -> Figure {
    if let Some((_, title, unit, better)) = KNOWN.iter().find(|(known, ..)| *known == name) {
        return Figure {
            title: (*title).to_owned(),
            unit: *unit,
            better: *better,
        };
    }
    let (title, unit, better) = if let Some(tenant) = name.strip_prefix("goodput.") {
        (
            format!("good replies per second of {tenant}"),
            Unit::Count,
            Better::Higher,
        )
    } else if let Some(window) = name.strip_prefix("goodput_in.") {
        (
            format!("good replies per second, {window}"),
            Unit::Count,
            Better::Higher,
        )
    } else if let Some(tenant) = name.strip_prefix("refused.") {
        (
            format!("refused per second of {tenant}"),
            Unit::Count,
            Better::Lower,
        )
    } else if let Some(tenant) = name.strip_prefix("p99_us.") {
        (format!("p99 of {tenant}"), Unit::Micros, Better::Lower)
    } else if let Some(rest) = name.strip_suffix("_us") {
        (rest.replace('_', " "), Unit::Micros, Better::Lower)
    } else if let Some(rest) = name.strip_suffix("_seconds") {
        (rest.replace('_', " "), Unit::Seconds, Better::Lower)
    } else if let Some(rest) = name.strip_suffix("_bytes") {
        (rest.replace('_', " "), Unit::Bytes, Better::Lower)
    } else if let Some(rest) = name.strip_suffix("_share") {
        (rest.replace('_', " "), Unit::Share, Better::Lower)
    } else if let Some(rest) = name.strip_suffix("_per_second") {
        (
            format!("{} per second", rest.replace('_', " ")),
            Unit::Count,
            Better::Higher,
        )
    } else {
        (name.replace('_', " "), Unit::Count, Better::Lower)
    };
    Figure {
        title,
        unit,
        better,
    }
}

/// Whether a name is one of ours, not of a command or tenant.
pub(crate) fn is_known(name: &str) -> bool {
    name == "established" || KNOWN.iter().any(|(known, ..)| *known == name)
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
