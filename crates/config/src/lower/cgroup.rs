//! `cgroup = { … }`, on a tenant, a site or a rule.
//!
//! The idea: what the kernel would refuse is refused here, where it can be shown; what this
//! host lacks is for whoever makes the groups to say, and `cgroup_required` decides whether that
//! is an error.

use super::context::problem;
use super::table::Table;
use super::value::Value;
use super::values;
use crate::model::{CPU_PERIOD_US, Cgroup, IoLimit};
use crate::{keys, units};

/// Least share of a core: a group that gets less than 1 ms of a period is refused by the kernel.
const MILLICORES_MIN: u32 = 10;
/// 1024 cores.
const MILLICORES_MAX: u32 = 1_024_000;

/// Whether a limit that this host cannot enforce is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enforcement {
    /// It is.
    Required,
    /// It is done without.
    Wished,
}

impl Enforcement {
    /// What a level's `cgroup_required` says, or the level above.
    pub(crate) fn of(table: &Table<'_>, above: Enforcement) -> Enforcement {
        match table.get("cgroup_required").and_then(|value| value.flag()) {
            Some(true) => Enforcement::Required,
            Some(false) => Enforcement::Wished,
            None => above,
        }
    }
}

/// The `cgroup` of a level.
pub(crate) fn cgroup(level: &Table<'_>, enforcement: Enforcement) -> Option<Box<Cgroup>> {
    let value = level.get("cgroup")?;
    let table = value.table(&keys::CGROUP)?;
    if !table.has_anything() {
        value.report_help(
            "`cgroup` limits nothing",
            "as in `cgroup = { cpu = \"10%\" }`",
        );
    }
    let cpu = table.get("cpu").and_then(|value| cpu(&value));
    let cgroup = Cgroup {
        cpu_millicores: cpu,
        cpu_burst_us: table.some_number("burst").map(|ms| ms * 1_000),
        cpu_weight: table.some_number("cpu_weight").map(|weight| weight as u32),
        memory_bytes: table.some_number("memory"),
        memory_high_bytes: table.some_number("memory_high"),
        pids: table.some_number("pids").map(|pids| pids as u32),
        io: io(&table),
        required: enforcement == Enforcement::Required,
    };
    judge(&table, &cgroup);
    Some(Box::new(cgroup))
}

/// How `millicores` is written.
pub(crate) fn spell_cpu(millicores: u32) -> String {
    match (millicores / 10, millicores % 10) {
        (percent, 0) => format!("{percent}%"),
        (percent, tenths) => format!("{percent}.{tenths}%"),
    }
}

/// Reports limits that contradict each other.
fn judge(table: &Table<'_>, cgroup: &Cgroup) {
    if let (Some(high), Some(most)) = (cgroup.memory_high_bytes, cgroup.memory_bytes)
        && high >= most
    {
        let message = format!(
            "`memory_high` ({}) must be less than `memory` ({})",
            units::size(high),
            units::size(most)
        );
        table.report_at(&["memory_high"], message);
    }
    let Some(burst_us) = cgroup.cpu_burst_us else {
        return;
    };
    let Some(millicores) = cgroup.cpu_millicores else {
        if table.get("cpu").is_none() {
            table.report_at(&["burst"], "`burst` says nothing without `cpu`");
        }
        return;
    };
    let share_us = u64::from(millicores) * CPU_PERIOD_US / 1_000;
    if burst_us > share_us {
        let message = format!(
            "`burst` ({}) is more than `cpu` ({}) gives in {}: {}",
            units::duration(burst_us / 1_000),
            spell_cpu(millicores),
            units::duration(CPU_PERIOD_US / 1_000),
            units::duration(share_us / 1_000)
        );
        table.report_at(&["burst"], message);
    }
}

fn cpu(value: &Value<'_>) -> Option<u32> {
    const HELP: &str = "a tenth of one core is `\"10%\"`, one and a half cores are `\"1.5\"`";
    if !value.is_text() {
        value.report_help("`cpu` must be a text: per cent of one core, or cores", HELP);
        return None;
    }
    let text = value.text()?;
    let Some(millicores) = parse_cpu(text) else {
        value.report_help(
            format!("`{text}` is neither per cent of one core nor a number of cores"),
            HELP,
        );
        return None;
    };
    if !(MILLICORES_MIN..=MILLICORES_MAX).contains(&millicores) {
        let help = match millicores {
            0..MILLICORES_MIN => "the least that the kernel enforces is `\"1%\"`",
            _ => HELP,
        };
        value.report_help("`cpu` must be from 1% of a core to 1024 cores", help);
        return None;
    }
    warn_of_cores(value, text, millicores);
    Some(millicores)
}

/// A share that is more than there is limits nothing.
fn warn_of_cores(value: &Value<'_>, text: &str, millicores: u32) {
    let cores = value.context.sources.cores;
    if u64::from(millicores) <= cores as u64 * 1_000 {
        return;
    }
    let there = match cores {
        1 => "the one core".to_owned(),
        cores => format!("the {cores} cores"),
    };
    let message = format!("`cpu` is more than {there} of this machine: it limits nothing");
    let finding = problem(value.spot(), message);
    value.context.warn(match text.ends_with('%') {
        true => finding,
        false => finding.help(format!(
            "`\"{text}\"` means {text} cores; did you mean `\"{text}%\"`?"
        )),
    });
}

/// Thousandths of a core. Digits that a thousandth cannot hold are refused.
fn parse_cpu(text: &str) -> Option<u32> {
    let (number, places) = match text.strip_suffix('%') {
        Some(number) => (number, 1),
        None => (text, 3),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > places {
        return None;
    }
    // Too long a number is out of range like any other large one.
    let digits = format!("{whole}{fraction:0<places$}");
    Some(digits.parse().unwrap_or(u32::MAX))
}

fn io(table: &Table<'_>) -> Vec<IoLimit> {
    let mut limits: Vec<IoLimit> = Vec::new();
    let values = table.get("io").map(|value| value.one_or_list());
    for value in values.unwrap_or_default() {
        let Some(limit) = io_limit(&value) else {
            continue;
        };
        if limits.iter().any(|other| other.device == limit.device) {
            value.report(format!(
                "device `{}` is limited twice",
                limit.device.display()
            ));
        }
        limits.push(limit);
    }
    if let Some(value) = table.get("io")
        && value.is_list()
        && value.list().is_some_and(|list| list.is_empty())
    {
        value.report("`io` names no device");
    }
    limits
}

fn io_limit(value: &Value<'_>) -> Option<IoLimit> {
    let table = value.table(&keys::IO)?;
    let device = table.required("device");
    let limit = IoLimit {
        device: values::path(&device?)?,
        read_bytes: table.some_number("read"),
        write_bytes: table.some_number("write"),
        read_ops: table.some_number("read_ops"),
        write_ops: table.some_number("write_ops"),
    };
    let limits = ["read", "write", "read_ops", "write_ops"];
    if !limits.iter().any(|name| table.get(name).is_some()) && !table.has_strangers() {
        let finding = problem(value.spot(), "`io` limits nothing");
        let help = "add `read`, `write`, `read_ops` or `write_ops`";
        value.context.report(finding.help(help).absence());
    }
    Some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_core_are_read_exactly() {
        for (text, expected) in [
            ("10%", Some(100)),
            ("12.5%", Some(125)),
            ("150%", Some(1_500)),
            ("1.5", Some(1_500)),
            ("0.001", Some(1)),
            ("2", Some(2_000)),
            ("99999999999", Some(u32::MAX)),
            ("12.55%", None),
            ("0.0001", None),
            ("", None),
            ("%", None),
            (".5", None),
            ("1.", None),
            ("-1", None),
            ("1e3", None),
            ("10 %", None),
            ("1,5", None),
        ] {
            assert_eq!(parse_cpu(text), expected, "{text:?}");
        }
    }

    #[test]
    fn shares_of_a_core_are_written_as_they_are_read() {
        for millicores in [10, 100, 125, 1_500, 1_024_000] {
            assert_eq!(parse_cpu(&spell_cpu(millicores)), Some(millicores));
        }
    }
}
