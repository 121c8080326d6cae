//! The reference manual of the configuration, as Markdown, and that of the sensors.
//!
//! The idea: they are the tables of keys and of sensors, printed; there is no second description to
//! keep in step.

use crate::keys::{Fallback, Key, SECTIONS, Section};
use crate::model::sensor::{Gauge, Sensor};

const HEAD: &str = "\
# Configuration

This file is generated from the table of keys that the gateway itself reads its configuration by.

A configuration is TOML. Unknown keys are errors; `nagaya check` reports all problems, each with its line (where one is no
TOML, what seems to be missing waits until it can be read), and `nagaya check --dump` prints the effective configuration with every default.

- Durations are `\"500ms\"`, `\"2s\"`, `\"1m\"`, `\"1h\"` or `\"1d\"`; sizes are `512`, `\"64KiB\"`, `\"8MiB\"` or `\"1GiB\"`.
- Paths are relative to the directory of the file they stand in.
- A template is text with variables: `$host`, `$path`, `$query`, `$uri` (path and query), `$request_uri` (both as the client
  sent them, whatever was put in their place), `$scheme`, `$client`,
  `$request_id`, `$method`, and of a client's certificate `$tls_client_subject`, `$tls_client_issuer`, `$tls_client_serial`,
  `$tls_client_fingerprint` (SHA-256), `$tls_client_verify` (`SUCCESS`, or `NONE` without one), `$tls_client_not_before`,
  `$tls_client_not_after`, `$tls_client_cert` (PEM, escaped as in a URL). `${host}` sets a name apart from what follows
  it; `$$` is a dollar; `$1`, `$2`, … and `${name}` are groups of the rule's own `path_regex` (`$0` is all that it found); `${NAME:KEY|DEFAULT}` is what the map NAME answers to KEY, or DEFAULT.
";

/// The reference manual: `docs/reference/config.md`.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    for section in SECTIONS {
        out.push_str(&format!("\n## {}\n\n{}\n", heading(section), section.about));
        for key in section.keys {
            describe(key, &mut out);
        }
    }
    out
}

const SENSORS_HEAD: &str = "\
# Sensors

This page is generated from the table of sensors that the gateway itself reads.

One thread of the server measures ten times a second and publishes one number a sensor; no request reads a file for it.
`nagaya sensors` shows all of them, with what this machine does not have and, for what can fill up, the command that raises it and what that costs; `--watch` asks again every second, `--json` is for programs.
Where no gateway answers, it reads this machine by itself.
They are in `nagaya status --json` and in the metrics (`nagaya_sensor`, `nagaya_loop_lag_seconds`), and scripts ask `Nagaya.sensor(\"load1\")`, which is `nil` for what is not there.

| name | number | too much | is | from |
|---|---|---|---|---|
";

const SENSORS_FOOT: &str = "
*Too much* is where a rule that sheds begins if it names no `enter`; where there is none, that depends on the machine.

## How they are measured

- Pressure is the kernel's count of time lost (PSI), read ten times a second: the share of the last second, and beside it the mean of the last ten. Full use of a processor alone is no pressure: somebody must wait for it. The load average answers a minute late, and counts who waits for a disk as well.
- What is counted by the second (`swap_in`, `conntrack_drops`, `listen_overflows`) is read once a second and told over the last one.
- All that comes from `/proc` is about the machine. In a container it is about the machine below, not about the container's share of it: `memory_available` knows nothing of a limit a control group sets, and `load1` counts everybody's tasks.
- `conntrack` and `conntrack_drops` are those of the network namespace the gateway runs in, but the most there may be is one number for the whole machine. Without a firewall that follows connections there is no table, and nothing to fill up. Where the most is 0, any number will do.
- `descriptors` is about the server process. Up to Linux 6.1 they are counted one by one: seldom enough to cost no more than half a hundredth of a processor.
- `ports` looks at the table of all connections, a little at each sample and then, the longer the table, the longer not: with 30,000 connections every 10 s or so, with some hundred thousand every minute and a half. A connection that has ended keeps its port for a minute, and counts.
- `loop_lag` is about 1 ms at rest: that is how exact the workers' clocks are. `nagaya sensors` shows it for each worker.
- `in_flight` counts a request from its head to its record. One whose client reads slowly is under way until it has read all: many slow readers of large files make many requests under way, and no work.
- `queue_age` looks at the queues of [limits](../guide/limits.md). Requests that wait elsewhere it does not see: in a back end's own queue, for a process of php-fpm. A limit on that upstream with as many permits as there are processes brings them into ours.
- Of the machines an upstream's servers run on, agents tell those up to `listen_overflows`, as `upstream.NAME.load1`: the worst of them, asked once a second. What one said last holds until it has not answered for 5 s. See [proxy](../guide/proxy.md#as-its-machine-is-up-to-it).
- A file that is not there is looked for again every second: the table of connections comes with the first rule of a firewall that needs it.
";

/// The page of sensors: `docs/reference/sensors.md`.
pub fn sensor_reference() -> String {
    let mut out = SENSORS_HEAD.to_owned();
    for gauge in Gauge::ALL {
        let too_much = gauge.too_much();
        let too_much = too_much.map(|value| Sensor::Here(gauge).beyond(value));
        out.push_str(&format!(
            "| `{}` | {} | {} | {} | {} |\n",
            gauge.name(),
            gauge.unit().about(),
            too_much.as_deref().unwrap_or("–"),
            gauge.meaning(),
            gauge.source()
        ));
    }
    out.push_str(SENSORS_FOOT);
    out
}

fn heading(section: &Section) -> String {
    if section.title.contains(['[', '=']) {
        format!("`{}`", section.title)
    } else {
        section.title.to_owned()
    }
}

fn describe(key: &Key, out: &mut String) {
    let default = match key.default {
        Fallback::Required => "required".to_owned(),
        Fallback::Value(value) => format!("default `{}`", key.kind.quoted(value)),
        Fallback::Absent(meaning) => format!("default: {meaning}"),
    };
    out.push_str(&format!(
        "\n### `{}`\n\n{} · {default}\n\n{}\n",
        key.name, key.kind, key.about
    ));
    out.push_str(&format!("\n```toml\n{}\n```\n", key.example));
}
