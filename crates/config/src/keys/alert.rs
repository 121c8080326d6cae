//! Keys of `[[alerts]]`.

use super::amounts::DAY;
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};

pub(crate) const ALERT: Section = Section {
    title: "[[alerts]]",
    about: "Something that somebody wants to be told of: a figure that is above or below a bound for a while. It is looked at \
        once a second by the [recorder](../guide/capacity.md), which there has to be, and told once when it begins and once when it is over: in the error log, \
        and by the program of `run`. The console shows how each stands. At most 256. A figure that says nothing changes nothing.",
    keys: &[
        key(
            "figure",
            Kind::Text,
            Required,
            "What is watched: a sensor, as `nagaya sensors` lists them (`upstream.NAME.SENSOR` is one that an agent tells); \
             `tenant.NAME.` and `requests` (a second), `cpu` (processors that its programs and pools keep at work), `memory` (bytes they hold), `throttled` (processors that they were kept from, since a quota had run out), `handshakes` (of TLS, a second) or `killed` (processes a second, for want of memory), told every 10 s; \
             `site.NAME.` and `requests` (a second), `errors` (the share of replies that are 5xx) or `p99` (in seconds), of each whole minute, or `throttled`, of its own programs and pool; \
             `upstream.NAME.up`, the servers of it that are up; `certificates.days_left`, of the certificate in use that runs out first; `handshakes.full`, `.short` and `.failed`, a second; or, with `[fleet]`, `fleet.up`, 1 while its store answers and gives out permits, else 0, and `fleet.machines`, those that it has told of.",
            "figure = \"tenant.example.cpu\"",
        ),
        key(
            "above",
            Kind::Other("number, or bytes as `\"2GiB\"`"),
            Absent("`below` stands there"),
            "Beyond it is too much. Shares are numbers from 0 to 1, times seconds.",
            "above = 0.9",
        ),
        key(
            "below",
            Kind::Other("number, or bytes as `\"2GiB\"`"),
            Absent("`above` stands there"),
            "Beyond it is too little.",
            "below = 14",
        ),
        key(
            "leave",
            Kind::Other("number, or bytes as `\"2GiB\"`"),
            Absent("the bound itself"),
            "Back at it all is well: so that a figure about the bound is not told again and again.",
            "leave = 0.7",
        ),
        key(
            "for",
            Kind::Duration(0, DAY),
            Value("1m"),
            "How long the figure has to be beyond its bound before it is told; in whole seconds.",
            "for = \"5m\"",
        ),
        key(
            "run",
            Kind::Other("list of texts: a program and its arguments"),
            Absent("nothing is run"),
            "What is run each time it is told. Its facts are one line of JSON on standard input, never arguments: `alert`, `figure`, `state` (`\"raised\"` or `\"over\"`), \
             `value`, `worst`, `bound`, `since` and `at` (RFC 3339), `machine`, and `text`, a sentence of all that. It has a minute, runs once at a time, and is not run \
             again where it fails: the error log says so. `/usr/lib/nagaya/alert-webhook` posts them to an address that a file names.",
            "run = [\"./page-me.sh\"]",
        ),
        key(
            "user",
            Kind::Text,
            Absent("`nagaya-alerts`"),
            "Who that program runs as, where the gateway was started as root. Uid 0 is refused.",
            "user = \"operator\"",
        ),
        key(
            "name",
            Kind::Text,
            Absent("the figure; a second one of that figure is `load1 2`"),
            "What it is called. It keeps its state over a reload as long as it keeps its name.",
            "name = \"disk of example\"",
        ),
    ],
};
