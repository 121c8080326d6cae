//! `nagaya doctor`: what this machine lacks for all that Nagaya can do, and what would grant it.
//!
//! The idea: a list of findings, each a thing, whether it is there, and if not the command that
//! somebody with the right to can type. Nothing is changed by looking. What the configuration
//! needs is told from what would only be nice: the exit status is about the first.

mod htaccess;
mod pools;
mod tls;

use std::collections::BTreeSet;
use std::path::Path;

use config::model::Model;
use config::model::sensor::Gauge;
use config::reason;
use engine::sensors::advice::{Advice, CONNECTION_BYTES, advice_of_machine};
use engine::sensors::gauges::Missing;
use engine::sensors::sampling::Here;
use ipc::groups::Shape;
use os::cgroup::{Controller, Host, Version};

use crate::cli;
use crate::control::{Running, Where};
use crate::outcome::{Outcome, complain, print, wrong_config};
use supervisor::load::load;
use supervisor::surroundings;

/// Descriptors below which a busy gateway runs out.
const DESCRIPTORS_WANTED: u64 = 65_536;

/// Something looked at.
#[derive(Debug)]
struct Finding {
    what: String,
    state: CheckState,
    /// What was found, in words.
    detail: String,
    /// What would mend it.
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckState {
    Fine,
    /// Not here, and not needed by the configuration.
    Lacking,
    /// Not here, and needed.
    Needed,
}

/// Says what this machine lacks.
pub(crate) fn run(config: &Path) -> Outcome {
    let host = match Host::look() {
        Ok(host) => host,
        Err(error) => {
            complain(&format!("nagaya: read /proc: {}\n", reason(&error)));
            return Outcome::Failed;
        }
    };
    let model = if config.exists() || config != Path::new(cli::CONFIG) {
        match load(config) {
            Ok(loaded) => Some(loaded.model),
            Err(problems) => return wrong_config(&problems),
        }
    } else {
        None
    };
    let mut findings = groups(&host);
    findings.extend(kernel(&host));
    findings.extend(process(model.as_ref()));
    findings.extend(sensors());
    findings.extend(room(&advice_of_machine()));
    if let Some(model) = &model {
        findings.extend(tls::look(model));
        findings.extend(pools::look(model));
        findings.extend(htaccess::look(model));
        findings.extend(needs(&host, model));
        findings.extend(held(config));
    }
    let outcome = print(page(&findings, model.as_ref().map(|_| config)).as_bytes());
    let lacks = findings
        .iter()
        .any(|found| found.state == CheckState::Needed);
    match outcome {
        Outcome::Fine if lacks => Outcome::Failed,
        outcome => outcome,
    }
}

fn finding(what: &str, is_there: bool, detail: &str, remedy: &str) -> Finding {
    Finding {
        what: what.to_owned(),
        state: if is_there {
            CheckState::Fine
        } else {
            CheckState::Lacking
        },
        detail: detail.to_owned(),
        remedy: (!is_there).then(|| remedy.to_owned()),
    }
}

fn groups(host: &Host) -> Vec<Finding> {
    let wanted = [
        (Controller::Cpu, "processor time"),
        (Controller::CpuTime, "processor time used"),
        (Controller::Memory, "memory"),
        (Controller::Pids, "processes"),
        (Controller::Io, "disks"),
        (Controller::Cpuset, "which processors, for scripts"),
    ];
    let each = wanted.into_iter().map(|(controller, use_for)| {
        let what = format!("cgroup {} ({use_for})", controller.name());
        match host.place(controller) {
            Ok(place) => {
                let directory = place.directory.display();
                let version = match place.version {
                    Version::V1 => "version 1",
                    Version::V2 => "version 2",
                };
                finding(&what, true, &format!("{version}, below {directory}"), "")
            }
            Err(lack) => finding(&what, false, &lack.reason(), &lack.remedy(controller)),
        }
    });
    each.collect()
}

fn kernel(host: &Host) -> Vec<Finding> {
    let (major, minor) = os::kernel::version().unwrap_or((0, 0));
    let since = |wanted: (u32, u32)| (major, minor) >= wanted;
    let version = |host: &Host| host.place(Controller::Cpu).ok().map(|place| place.version);
    let newer = |wanted: &str| format!("run a kernel from {wanted} on (this is {major}.{minor})");
    vec![
        finding(
            "files from memory without a wait",
            os::kernel::opens_cached(),
            "openat2 with RESOLVE_CACHED, Linux 5.12",
            &newer("5.12"),
        ),
        finding(
            "pages from memory without a wait",
            os::kernel::reads_without_waiting(),
            "preadv2 with RWF_NOWAIT, Linux 4.14",
            &newer("4.14"),
        ),
        finding(
            "processes held by descriptors",
            os::kernel::holds_processes(),
            "pidfd_open, Linux 5.3",
            &newer("5.3"),
        ),
        finding(
            "programs born in their group",
            os::kernel::bears_into_groups() || version(host) == Some(Version::V1),
            "clone3 with CLONE_INTO_CGROUP, Linux 5.7; version 1 does without",
            &newer("5.7"),
        ),
        finding(
            "processes hidden from pools",
            since((5, 8)),
            "proc with subset=pid, Linux 5.8; without it walls are not built",
            &newer("5.8"),
        ),
        finding(
            "CPU bursts",
            since((5, 14)),
            "cgroup key burst, Linux 5.14",
            &newer("5.14"),
        ),
        finding(
            "memory peaks of groups",
            since((5, 19)) || version(host) == Some(Version::V1),
            "memory.peak, Linux 5.19; version 1 has always had them",
            &newer("5.19"),
        ),
    ]
}

fn process(model: Option<&Model>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted = model.map_or(DESCRIPTORS_WANTED, |model| {
        u64::try_from(model.caps.connections).unwrap_or(u64::MAX)
    });
    if let Ok(limit) = os::process::raise_nofile() {
        findings.push(finding(
            "descriptors",
            limit >= wanted,
            &format!("{limit} at most, {wanted} wanted"),
            &format!(
                "systemctl edit nagaya: [Service] LimitNOFILE={wanted}; in a shell, as root: ulimit -n {wanted} \
                 (nothing until they are used, then some {} KiB a connection)",
                CONNECTION_BYTES / 1_024
            ),
        ));
    }
    findings.push(finding(
        "programs as their sites' users",
        os::process::is_root(),
        &if os::process::is_root() {
            "started as root".to_owned()
        } else {
            format!("started as user {}", os::process::user_id())
        },
        "start as root (sudo nagaya serve): the part that serves gives its rights up at once",
    ));
    findings
}

/// Sensors by what they look at: whether this machine has them.
fn sensors() -> Vec<Finding> {
    let mut here = Here::look();
    // What is there may still refuse to be read.
    here.sample();
    sensed(&here.missing())
}

fn sensed(missing: &[Missing]) -> Vec<Finding> {
    let sensors = [
        (
            "pressure",
            Gauge::CpuPressure,
            "how long tasks wait for processors, memory and disks",
        ),
        (
            "connection tracking",
            Gauge::Conntrack,
            "fill and drops of the table of connections",
        ),
    ];
    let lack_of = |gauge: &Gauge| missing.iter().find(|lack| lack.gauges.contains(gauge));
    let each = sensors.iter().map(|(what, gauge, looks_at)| {
        let what = format!("sensors of {what}");
        match lack_of(gauge) {
            None => finding(&what, true, looks_at, ""),
            Some(lack) => finding(&what, false, &lack.why, lack.remedy),
        }
    });
    let is_told = |lack: &&Missing| {
        let mut told = sensors.iter().map(|(_, gauge, _)| gauge);
        told.any(|gauge| lack.gauges.contains(gauge))
    };
    let others = missing.iter().filter(|lack| !is_told(lack)).map(|lack| {
        let names: Vec<_> = lack.gauges.iter().map(|gauge| gauge.name()).collect();
        let what = format!("sensors {}", names.join(", "));
        finding(&what, false, &lack.why, lack.remedy)
    });
    each.chain(others).collect()
}

/// What fills up on this machine, with what raises it and what that costs.
fn room(advice: &[Advice]) -> Vec<Finding> {
    let with_number = advice.iter().filter(|advice| advice.fill.is_some());
    let each = with_number.map(|advice| {
        let what = format!("room in {}", advice.gauge.name());
        let remedy = format!(
            "{} ({})",
            advice.commands.join("; or for good: "),
            advice.cost
        );
        finding(&what, advice.has_room(), &advice.state, &remedy)
    });
    each.collect()
}

/// What the configuration needs and cannot have.
fn needs(host: &Host, model: &Model) -> Vec<Finding> {
    let verdict = Shape::of(model).judge(host, os::cgroup::device_of);
    let mut findings: Vec<Finding> = Vec::new();
    for lacking in verdict.problems {
        findings.push(needed(lacking.message));
    }
    findings.extend(surroundings::unbecomable(model).map(needed));
    findings
}

/// Limits that wait in the gateway that runs with this configuration, if one does.
fn held(config: &Path) -> Vec<Finding> {
    let running = Running::named(config, &Where::default());
    let answer = running.and_then(|running| running.try_ask("status json").ok());
    let status = answer.and_then(|it| serde_json::from_slice::<serde_json::Value>(&it).ok());
    let held = status
        .as_ref()
        .and_then(|status| status.get("held")?.as_array());
    let limits = held
        .into_iter()
        .flatten()
        .filter_map(|limit| limit.as_str());
    let remedy = "end what uses it, as by nagaya pools restart or nagaya tenant kill";
    let each = limits.map(|limit| finding("limit of memory", false, limit, remedy));
    each.collect()
}

fn needed(message: String) -> Finding {
    Finding {
        what: "configuration".to_owned(),
        state: CheckState::Needed,
        detail: message,
        remedy: None,
    }
}

fn page(findings: &[Finding], config: Option<&Path>) -> String {
    let width = findings.iter().map(|found| found.what.len()).max();
    let width = width.unwrap_or(0);
    let mut out = String::new();
    let mut told = BTreeSet::new();
    for found in findings {
        let state = match found.state {
            CheckState::Fine => "fine",
            CheckState::Lacking => "lacking",
            CheckState::Needed => "NEEDED",
        };
        let (what, detail) = (&found.what, &found.detail);
        out.push_str(&format!("{what:width$}  {state:7}  {detail}\n"));
        if let Some(remedy) = found.remedy.as_ref().filter(|remedy| told.insert(*remedy)) {
            out.push_str(&format!("{:width$}           to have it: {remedy}\n", ""));
        }
    }
    let lacking = count(findings, CheckState::Lacking);
    let needed = count(findings, CheckState::Needed);
    out.push('\n');
    out.push_str(&match (config, needed, lacking) {
        (Some(config), 0, _) => format!("{} has all it needs here.\n", config.display()),
        (Some(config), _, _) => format!("{} cannot be served from here.\n", config.display()),
        (None, _, 0) => {
            "Nothing is lacking. What a configuration needs: nagaya doctor -c FILE\n".to_owned()
        }
        (None, _, _) => "What a configuration needs of this: nagaya doctor -c FILE\n".to_owned(),
    });
    out
}

fn count(findings: &[Finding], state: CheckState) -> usize {
    findings.iter().filter(|found| found.state == state).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_comes_with_what_would_grant_it() {
        let findings = [
            finding("bread", true, "a loaf", ""),
            finding("butter", false, "none", "milk the cow"),
            finding("cream", false, "none", "milk the cow"),
            needed("jam: none".to_owned()),
        ];
        let text = page(&findings, Some(Path::new("a.toml")));
        assert_eq!(
            text,
            "bread          fine     a loaf\n\
             butter         lacking  none\n\
             \x20                       to have it: milk the cow\n\
             cream          lacking  none\n\
             configuration  NEEDED   jam: none\n\n\
             a.toml cannot be served from here.\n"
        );
        assert!(page(&findings[..3], Some(Path::new("a.toml"))).ends_with("all it needs here.\n"));
    }

    #[test]
    fn every_sensor_that_lacks_is_said_once() {
        let lack = |gauges| Missing {
            gauges,
            why: "not found".to_owned(),
            remedy: "look elsewhere",
        };
        let findings = sensed(&[
            lack(&[Gauge::CpuPressure]),
            lack(&[Gauge::Load1, Gauge::Load5]),
        ]);
        let found: Vec<_> = findings
            .iter()
            .map(|found| (found.what.as_str(), found.state))
            .collect();
        assert_eq!(
            found,
            [
                ("sensors of pressure", CheckState::Lacking),
                ("sensors of connection tracking", CheckState::Fine),
                ("sensors load1, load5", CheckState::Lacking),
            ]
        );
    }

    #[test]
    fn a_table_that_fills_up_comes_with_what_raises_it_and_what_that_costs() {
        let advice = |fill| Advice {
            gauge: Gauge::Conntrack,
            fill,
            state: "3 of 4 entries".to_owned(),
            commands: vec!["raise it".to_owned(), "keep it raised".to_owned()],
            cost: "memory".to_owned(),
        };
        let findings = room(&[advice(Some(0.75)), advice(Some(0.25)), advice(None)]);
        let remedies: Vec<_> = findings.iter().map(|found| &found.remedy).collect();
        let remedy = "raise it; or for good: keep it raised (memory)".to_owned();
        assert_eq!(remedies, [&Some(remedy), &None]);
    }
}
