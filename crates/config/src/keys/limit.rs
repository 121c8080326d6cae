//! Keys of limits: `limits = [{ … }]` on every level, and a tenant's weight.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};

/// What a change of a limit may name.
pub const KEYS: [&str; 7] = [
    "concurrent",
    "queue",
    "wait",
    "late",
    "rate",
    "burst",
    "mode",
];

/// Most requests that a limit, its queue or its rate may name.
pub(crate) const REQUESTS_MAX: u64 = 1_000_000;
/// Keys that one limit may count by together.
pub(crate) const KEYS_MAX: usize = 4;
/// The longest wait: beyond it no client is left.
const WAIT_MAX: u64 = 3_600_000;

pub(super) const LIMITS_OF_LEVEL: Key = key(
    "limits",
    Kind::Other("list of tables"),
    Value("[]"),
    "How many requests go on at once here, and how fast they come. The limits of all levels apply together. \
     A request can meet 16 at most.",
    "limits = [{ key = \"file\", concurrent = 20, queue = 10 }]",
);

pub(super) const LIMITS_OVERRIDES: Key = key(
    "limits_overrides",
    Kind::Text,
    Absent("the configuration's own name with `.overrides`, beside it"),
    "File of changes that `nagaya limits set … --keep` has kept, relative to the configuration file. It is read at \
     start and at each reload, and what it says of a limit holds in place of what the configuration says. `[limits]` in \
     it has a line for each limit, under the name `nagaya limits list` gives it:\n\n\
     `\"site example.jp/file\" = { concurrent = 4, queue = 10, changed = 2026-11-22T02:40:00Z }`\n\n\
     with any of `concurrent`, `queue`, `wait`, `late`, `rate`, `burst` and `mode`. `[suspended]` has a line for each tenant \
     that `nagaya tenant suspend` has suspended, and since when: `\"example\" = 2026-11-22T02:40:00Z`. A line for a limit that is \
     not configured, or a tenant that no site has, is a warning. The file may be missing; one that is broken refuses a reload, and a start goes on without it.",
    "limits_overrides = \"/var/lib/nagaya/limits.toml\"",
);

pub(super) const WEIGHT: Key = key(
    "weight",
    Kind::Count(1, 1_000),
    Value("1"),
    "The tenant's share where several tenants wait for the same limit, relative to theirs.",
    "weight = 2",
);

pub(super) const CLASSES: Key = key(
    "class",
    Kind::Other("list of tables"),
    Value("[]"),
    "Which of the tenant's requests come before which, where they wait for a limit: the tenant's turns are shared among its \
     classes by weight, and inside a class among clients. A request is of the first class that it matches; one that matches none \
     counts as weight 1. At most 16.",
    "class = [{ match = { method = \"POST\" }, weight = 8 }]",
);

/// An entry of `class`.
pub(crate) const CLASS: Section = Section {
    title: "class = [{ … }]",
    about: "A class of a tenant's requests. Nobody starves: a class of weight 1 beside one of 9 has every tenth turn, by what its \
        requests cost. In a full queue, whoever has most waiting for its weight makes room.",
    keys: &[
        key(
            "name",
            Kind::Text,
            Absent("its number: `class 1`"),
            "What records and figures call it.",
            "name = \"log-ins\"",
        ),
        key(
            "match",
            Kind::Other("table"),
            Required,
            "Which requests.",
            "match = { path = \"/wp-login.php\" }",
        ),
        key(
            "weight",
            Kind::Count(1, 1_000),
            Value("1"),
            "Its share of the tenant's turns, relative to the other classes'.",
            "weight = 8",
        ),
    ],
};

pub(super) const TIME_ZONE: Key = key(
    "time_zone",
    Kind::Text,
    Absent("the machine's own"),
    "The time zone of every `when` that names none, and of the recorder's days, as the tz database calls it.",
    "time_zone = \"Asia/Tokyo\"",
);

pub(super) const LIMIT_KEYS: Key = key(
    "limit_keys",
    Kind::Count(1, REQUESTS_MAX),
    Value("4096"),
    "Keys of limits (clients, files, values of fields) in use at once by the requests of one tenant. Further ones are \
     counted together, under `(other)`. A key takes up to 200 bytes.",
    "limit_keys = 65536",
);

const CONCURRENT: Key = key(
    "concurrent",
    Kind::Other("number, 1 to 1000000, or `\"auto\"`"),
    Absent("any number"),
    "Requests under way at once. `\"auto\"`, on the top level or an upstream, finds the number that serves most \
     from how long replies take; it takes the level as its key, and no `rate` beside it.",
    "concurrent = 50",
);

const QUEUE: Key = key(
    "queue",
    Kind::Count(0, REQUESTS_MAX),
    Value("0"),
    "Requests that may wait for a place, for each key. More are refused at once. Clients take turns, and each is \
     served in order, unless `late` says otherwise.",
    "queue = 100",
);

const WAIT: Key = key(
    "wait",
    Kind::Duration(1, WAIT_MAX),
    Value("2s"),
    "How long a request waits in all. As long as the queue has room nobody is refused earlier, but by `late`.",
    "wait = \"5s\"",
);

const LATE: Key = key(
    "late",
    Kind::Duration(0, WAIT_MAX),
    Value("0s"),
    "From which wait on a request is late; only beside `queue`. When for so long everybody who was served had waited \
     longer, the newest is served first, and while that lasts, who has waited longer is refused; so is at once who \
     would foreseeably wait longer than `wait`. For clients that leave before their turn comes. `\"0s\"`: nobody is late.",
    "late = \"2s\"",
);

const RESERVE: Key = key(
    "reserve",
    Kind::Other("table of numbers"),
    Absent("nothing"),
    "Places that are a tenant's before all others'; only beside `concurrent`, on the top level or an upstream, without `key`. None is kept \
     idle: others have it until the tenant comes, which then gets the next place that is given back, before all who wait. No \
     more are reserved than there are places.",
    "reserve = { shop = 2 }",
);

const RATE: Key = key(
    "rate",
    Kind::Other("rate: `\"10/s\"`, also `/m`, `/h` and `/d`"),
    Absent("any rate"),
    "Requests that may begin in a second, minute, hour or day, spread evenly. One above it is refused at once; it does not wait.",
    "rate = \"100/m\"",
);

const BURST: Key = key(
    "burst",
    Kind::Count(1, REQUESTS_MAX),
    Absent("the number in `rate`"),
    "Requests that may come at once, the first included, after a time without any.",
    "burst = 20",
);

const MODE: Key = key(
    "mode",
    Kind::Choice(&["enforce", "shadow"]),
    Value("enforce"),
    "`\"shadow\"` counts and decides but lets everybody pass: what it would have refused is shown.",
    "mode = \"shadow\"",
);

pub(crate) const LIMIT: Section = Section {
    title: "limits = [{ … }]",
    about: "A limit, on the top level, a tenant, a site, a rule or an upstream: `concurrent`, `rate`, or both. It counts \
        the requests that pass where it stands. A request takes a place in all its limits at once or in none; one that \
        waits holds nothing. A place is free again when the handler has finished, however slowly its client reads.",
    keys: &[
        key(
            "key",
            Kind::Other("text or list of texts"),
            Absent("the level it stands on"),
            "What is counted: each value has a count of its own, and of a list each combination.\n\n\
             - `\"file\"`: the file the request was resolved to, or else its path; `\"path\"`: its canonical path;\n\
             - `\"client\"`: the client's address, or /64 for IPv6;\n\
             - `\"header:NAME\"`, `\"cookie:NAME\"`: the value of that field or cookie, empty where there is none;\n\
             - `\"$1\"`, `\"${name}\"` (on a rule): what that group of the rule's `path_regex` holds;\n\
             - `\"const:TEXT\"`: this text, whatever the request. It names the limit's only key;\n\
             - `\"process\"` (top level only), `\"tenant\"` (not on a site or a rule), `\"site\"`, `\"rule\"` (on a rule), \
             `\"upstream\"` (on an upstream, or a rule that forwards): each of those.",
            "key = [\"client\", \"path\"]",
        ),
        key(
            "on",
            Kind::Choice(&["request", "handshake"]),
            Value("request"),
            "What it counts. `\"handshake\"`, on the top level, a tenant or a site: TLS handshakes, asked when the client \
             has said which name it wants and before anything costly is done for it. One too many ends with an alert; \
             there is nothing to wait in, and handshakes in a limit's range take turns in any case. Keys are `\"client\"`, \
             `\"site\"`, `\"tenant\"`, `\"process\"` and `\"const:TEXT\"`.",
            "on = \"handshake\"",
        ),
        CONCURRENT,
        QUEUE,
        WAIT,
        LATE,
        RESERVE,
        RATE,
        BURST,
        key(
            "name",
            Kind::Text,
            Absent(
                "the key: `file`; a second one of that key is `file 2`; `handshake client` for handshakes",
            ),
            "What the limit is called in logs and `nagaya limits`. No two of one level share a name. A limit keeps its \
             counts over a reload as long as it keeps its name.",
            "name = \"uploads\"",
        ),
        key(
            "match",
            Kind::Other("table"),
            Absent("every request"),
            "Conditions, all of which must hold for a request to be counted.",
            "match = { method = \"POST\" }",
        ),
        key(
            "when",
            Kind::Other("text or list of texts"),
            Absent("always"),
            "When it holds: days, times and a time zone, in this order and each if wanted: `\"mon-fri 20:00-02:00\"`, \
             `\"mon,wed\"`, `\"daily 09:00-12:00,13:00-18:00 Asia/Tokyo\"`. A time past midnight belongs to the day it begins on. \
             Several such texts add up. The zone, named once, holds for all of them.",
            "when = \"mon-fri 20:00-02:00\"",
        ),
        MODE,
        key(
            "scope",
            Kind::Choice(&["machine", "fleet"]),
            Value("machine"),
            "Who counts by it: this machine alone, or all machines of a `[fleet]` together. With `\"fleet\"` `concurrent` or \
             `rate` is that of all of them. Of limits of requests with one of both, a number for `concurrent`, and without `reserve`.",
            "scope = \"fleet\"",
        ),
        key(
            "on_loss",
            Kind::Choice(&["share", "open", "closed"]),
            Value("share"),
            "What holds of a limit with `scope = \"fleet\"` while the store is away. `\"share\"`: a machine goes on with what it held, no more than its part \
             of the limit, and once every lease is over with its part; one that alone cannot reach the store has that beside what the others hold. \
             `\"open\"`: each machine counts up to the limit. `\"closed\"`: nobody is let in. Of a `rate` the part of a machine is the rate and \
             its burst divided by the machines.",
            "on_loss = \"closed\"",
        ),
        key(
            "tunnels",
            Kind::Flag,
            Value("true"),
            "Whether a tunnel (WebSocket) keeps its place for as long as it lasts; otherwise it gives it back once it stands.",
            "tunnels = false",
        ),
        key(
            "status",
            Kind::Count(400, 599),
            Absent("503; 429 where `key` has `client`, `header:` or `cookie:`"),
            "Status of a refusal. `page`, or `error_pages` of the site, may replace its body.",
            "status = 429",
        ),
        key(
            "page",
            Kind::Text,
            Absent("the site's of `error_pages`, or ours"),
            "The page of a refusal by this limit: an `.html`, `.json`, `.svg` or `.txt` file of at most 256 KiB, relative to the \
             configuration file and read when that is. Unlike `error_pages` it is not shown for the same status from elsewhere, and it stands for \
             every site that meets the limit.",
            "page = \"pages/busy.html\"",
        ),
    ],
};

/// The overrides file.
pub(crate) const OVERRIDES: Section = Section {
    title: "the overrides file",
    about: "",
    keys: &[
        key(
            "limits",
            Kind::Other("table of tables"),
            Absent("no change"),
            "Changes, by the identities of limits.",
            "[limits]",
        ),
        key(
            "suspended",
            Kind::Other("table of dates"),
            Absent("nobody"),
            "Tenants whose requests are refused, and since when.",
            "[suspended]",
        ),
    ],
};

/// An entry of the overrides file.
pub(crate) const OVERRIDE: Section = Section {
    title: "\"LIMIT\" = { … }",
    about: "",
    keys: &[
        CONCURRENT,
        QUEUE,
        WAIT,
        LATE,
        RATE,
        BURST,
        MODE,
        key(
            "changed",
            Kind::Other("date and time"),
            Absent("not told"),
            "When it was kept.",
            "changed = 2026-11-22T02:40:00Z",
        ),
    ],
};
