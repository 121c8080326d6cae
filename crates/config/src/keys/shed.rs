//! Keys of `[[shed]]`.

use super::amounts::HOUR;
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};

pub(crate) const SHED: Section = Section {
    title: "[[shed]]",
    about: "A rule that sends requests away while a sensor says that there is too much to do. The site is known then, and \
        nothing was done for the request: no script has run, no file was looked for. \
        At most 16; of those that match a request the strictest decides and answers. Requests for `metrics`, and those that a rule with a \
        plain `path` answers with `respond` (health checks; not where `rewrite` takes their path before), are never shed. \
        [Overload](../guide/overload.md) tells which sensor to choose.",
    keys: &[
        key(
            "sensor",
            Kind::Text,
            Required,
            "What is looked at, ten times a second. `nagaya sensors` shows all, with their values here and now; \
             `upstream.NAME.SENSOR` is one that an agent beside that upstream's servers tells.",
            "sensor = \"cpu_pressure\"",
        ),
        key(
            "enter",
            Kind::Other("number"),
            Absent(
                "what makes sense for the sensor; required for those where that depends on the machine",
            ),
            "Above it there is too much to do; below it, for `memory_available`. Shares are numbers from 0 to 1, times \
             seconds. Defaults: `cpu_pressure` 0.4, `memory_pressure` 0.1, `memory_pressure_full` 0.05, `io_pressure` 0.2, \
             `io_pressure_full` 0.1, `memory_available` 0.1, `conntrack`, `descriptors` and `ports` 0.8, `conntrack_drops` and \
             `listen_overflows` 0.5, `loop_lag` 0.1, `queue_age` 1. \
             Far too much is twice as much, or half the way to 1 where that is nearer; far too little is half.",
            "enter = 3.0",
        ),
        key(
            "leave",
            Kind::Other("number"),
            Absent(
                "0.6 of `enter`; 0.875 of it for `conntrack`, `descriptors` and `ports`, 1.5 of it for `memory_available`",
            ),
            "Back at it there is not too much to do any more. It may be `enter`.",
            "leave = 2.0",
        ),
        key(
            "dwell",
            Kind::Duration(0, HOUR),
            Absent("`\"2s\"`; `\"0s\"` where `scope` is `\"all\"`"),
            "How long a state lasts at least before it is left for a better one.",
            "dwell = \"10s\"",
        ),
        key(
            "scope",
            Kind::Choice(&["over_share", "all"]),
            Value("over_share"),
            "`\"over_share\"`: tenants that use more than their share (by their `weight`) pay first, and no more is sent \
             away than it takes. `\"all\"`: every request is, as long as the sensor is beyond `enter`.",
            "scope = \"all\"",
        ),
        key(
            "mode",
            Kind::Choice(&["enforce", "shadow"]),
            Value("enforce"),
            "`\"shadow\"` follows its sensor and decides, but sends nobody away and leaves no script out: whom it would have \
             sent away is counted and shown. Each rule in shadow is judged by itself, whatever the others say. \
             Nothing eases by it, so what it says it admits falls further than it would in force. \
             One that is put in force begins in green.",
            "mode = \"shadow\"",
        ),
        key(
            "respond",
            Kind::Other("table"),
            Absent("our page, with 503 and `Retry-After`"),
            "What those get that are sent away.",
            "respond = { redirect = \"http://sorry.example.jp/redirect.html\" }",
        ),
        key(
            "match",
            Kind::Other("table"),
            Absent("every request"),
            "Conditions, all of which must hold for a request to be sent away. No file has been looked for then: `path` \
             can be matched, `file` and `exists` not. A `map` that is a file can be asked, a program not.",
            "match = { not = { path = \"/admin/*\" } }",
        ),
        key(
            "degrade",
            Kind::Other("list of words"),
            Value("[]"),
            "What requests do without while the rule is not green, whether they are sent away or not: \
             `\"optional_scripts\"`, scripts that are `optional`.",
            "degrade = [\"optional_scripts\"]",
        ),
        key(
            "name",
            Kind::Text,
            Absent("the sensor; a second one of that sensor is `load1 2`"),
            "What the rule is called in logs, figures and `nagaya status`. It keeps its state over a reload as long as \
             it keeps its name and what it looks at.",
            "name = \"whale\"",
        ),
    ],
};

pub(crate) const SHED_RESPOND: Section = Section {
    title: "respond = { … } of [[shed]]",
    about: "One of the two.",
    keys: &[
        key(
            "redirect",
            Kind::Other("template"),
            Absent("no redirect"),
            "Where to, with 302: a path, or a URL. Requests for the target itself (its host and path, if a site here has \
             them) are not sent away by the rule, nor elsewhere by another.",
            "redirect = \"http://sorry.example.jp/\"",
        ),
        key(
            "page",
            Kind::Text,
            Absent("ours"),
            "The page, with 503 and `Retry-After`: an `.html`, `.json`, `.svg` or `.txt` file of at most 256 KiB, \
             relative to the configuration file and read when that is.",
            "page = \"pages/busy.html\"",
        ),
    ],
};
