//! Keys of the process: everything outside `[[sites]]`.

use super::amounts::{DAY, GIB, KIB, MIB, TIB};
use super::directory::DIRECTORIES_OF_PROCESS;
use super::fleet::FLEET_OF_PROCESS;
use super::htaccess::HTACCESS_OF_PROCESS;
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};
use super::limit::{LIMIT_KEYS, LIMITS_OF_LEVEL, LIMITS_OVERRIDES, TIME_ZONE};
use super::plan::PLANS;
use super::pool::{PHP_OF_PROCESS, POOLS_OF_PROCESS};
use super::recorder::RECORDER_OF_PROCESS;
use super::script::SCRIPTS_OF_PROCESS;
use super::tls::TLS_OF_PROCESS;

pub(crate) const TOP: Section = Section {
    title: "top level",
    about: "Keys before the first table of a file. In an included file `[[listen]]`, \
        `[upstreams.NAME]`, `[tenants.NAME]`, `[maps.NAME]`, `[php.VERSION]`, `[acme.NAME]`, `[[shed]]`, `[[alerts]]` and `[[sites]]` add to what is there; any other key may be set in one file only.",
    keys: &[
        key(
            "workers",
            Kind::Count(1, 1024),
            Absent("one per core"),
            "Worker threads. Fixed for the supervisor's life: a reload that changes it is refused.",
            "workers = 2",
        ),
        key(
            "user",
            Kind::Text,
            Value("nobody"),
            "The user the server becomes when it is started as root. Uid 0 is refused.",
            "user = \"www-data\"",
        ),
        key(
            "include",
            Kind::Other("list of file globs and tables"),
            Value("[]"),
            "Further files, relative to the file that names them, sorted by name. `*` stays within one \
             directory. A name without wildcards must exist, and so must the directory of a pattern. A glob may stand in a table, beside what becomes of \
             the others if such a file is broken.",
            "include = [\"sites.d/*.toml\"]",
        ),
        key(
            "last_good",
            Kind::Text,
            Absent("the configuration's own name with `.last-good`, beside it"),
            "File in which the supervisor keeps the last good versions of files that are included with \
             `broken = \"keep\"`, relative to the configuration file; nothing is written where there are none. Only the first file names it. \
             Its directory must exist, belong to root (or to whoever starts the gateway) and be nobody else's to write.",
            "last_good = \"/var/lib/nagaya/last-good.toml\"",
        ),
        key(
            "trusted_proxies",
            Kind::Other("list of addresses and networks"),
            Value("[]"),
            "Peers whose `X-Forwarded-For` and `X-Request-Id` are believed. Everybody else's are replaced.",
            "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]",
        ),
        key(
            "request_headers",
            Kind::Other("header changes"),
            Absent("no change"),
            "Changes to the fields of every request before its handler sees it.",
            "request_headers = { set = { X-Gateway = \"nagaya\" } }",
        ),
        key(
            "reply_headers",
            Kind::Other("header changes"),
            Absent("no change"),
            "Changes to the fields of every reply.",
            "reply_headers = { set = { X-Content-Type-Options = \"nosniff\" } }",
        ),
        key(
            "control",
            Kind::Other("table"),
            Absent("no control socket"),
            "Where the running gateway answers `nagaya status`.",
            "control = { socket = \"/run/nagaya.sock\" }",
        ),
        key(
            "listen",
            Kind::Other("list of tables"),
            Required,
            "The addresses that are served, at least one.",
            "listen = [{ address = \"127.0.0.1:8080\" }, { address = \"[::1]:8080\" }]",
        ),
        TLS_OF_PROCESS,
        key(
            "log",
            Kind::Other("table"),
            Absent("its defaults"),
            "Logging.",
            "log = { format = \"json\" }",
        ),
        key(
            "timeouts",
            Kind::Other("table"),
            Absent("its defaults"),
            "Every wait.",
            "timeouts = { idle = \"30s\" }",
        ),
        key(
            "caps",
            Kind::Other("table"),
            Absent("its defaults"),
            "Every size and count.",
            "caps = { fields = 50 }",
        ),
        key(
            "upstreams",
            Kind::Other("table of tables"),
            Value("{}"),
            "Groups of servers that rules forward to, by name.",
            "upstreams = { app = { servers = [\"127.0.0.1:9000\"] } }",
        ),
        key(
            "tenants",
            Kind::Other("table of tables"),
            Value("{}"),
            "Tenants, by name: what all sites of one share.",
            "tenants = { example = { cgroup = { cpu = \"50%\" } } }",
        ),
        PLANS,
        key(
            "maps",
            Kind::Other("table of tables"),
            Value("{}"),
            "Maps, by name: programs and files that answer a key with a text.",
            "maps = { load = { program = [\"./loadaverage.pl\"] } }",
        ),
        POOLS_OF_PROCESS,
        PHP_OF_PROCESS,
        HTACCESS_OF_PROCESS,
        key(
            "acme",
            Kind::Other("table of tables"),
            Value("{}"),
            "Accounts with authorities that issue certificates, by name.",
            "acme = { le = { directory = \"https://acme-v02.api.letsencrypt.org/directory\" } }",
        ),
        DIRECTORIES_OF_PROCESS,
        key(
            "shed",
            Kind::Other("list of tables"),
            Value("[]"),
            "Rules that send requests away when there is too much to do, in order.",
            "shed = [{ sensor = \"cpu_pressure\" }]",
        ),
        key(
            "alerts",
            Kind::Other("list of tables"),
            Value("[]"),
            "What somebody wants to be told of, in order.",
            "alerts = [{ figure = \"cpu_pressure\", above = 0.9 }]",
        ),
        key(
            "cgroup_required",
            Kind::Flag,
            Value("true"),
            "Whether a limit of a `cgroup` that this host cannot enforce is an error. `false` does without it, \
             and says so at start. A tenant, a site or a rule may say otherwise; the nearest counts.",
            "cgroup_required = false",
        ),
        LIMITS_OF_LEVEL,
        LIMITS_OVERRIDES,
        TIME_ZONE,
        SCRIPTS_OF_PROCESS,
        RECORDER_OF_PROCESS,
        FLEET_OF_PROCESS,
        key(
            "sites",
            Kind::Other("list of tables"),
            Required,
            "The sites, at least one.",
            "sites = [{ hosts = [\"example.jp\"], root = \"/var/www/html\" }]",
        ),
    ],
};

pub(crate) const CONTROL: Section = Section {
    title: "[control]",
    about: "A Unix socket, mode 0600, on which the gateway answers its own user and root.",
    keys: &[key(
        "socket",
        Kind::Text,
        Required,
        "Path of the socket, relative to the configuration file.",
        "socket = \"/run/nagaya.sock\"",
    )],
};

pub(crate) const LOG: Section = Section {
    title: "[log]",
    about: "The access log, one record for each request, and the error log on standard error.",
    keys: &[
        key(
            "access",
            Kind::Text,
            Value("-"),
            "Where access records go: `\"-\"` is standard output, `\"\"` nowhere, anything else a file. `$host` in \
             a file's name is the request's host, `$site` the first host of its site.",
            "access = \"/var/log/nagaya/$site.log\"",
        ),
        key(
            "format",
            Kind::Choice(&["combined", "vhost_combined", "json", "ltsv"]),
            Value("combined"),
            "Format of access records. The first two are Apache's, byte for byte; the others hold everything.",
            "format = \"json\"",
        ),
        key(
            "reason",
            Kind::Flag,
            Value("false"),
            "Whether records in Apache's formats end in one more field in quotes: the reason why a request was \
             refused or failed, `-` where there is none. The other formats always have it.",
            "reason = true",
        ),
        key(
            "level",
            Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
            Value("info"),
            "Least severe level written to standard error.",
            "level = \"warn\"",
        ),
        key(
            "files_max",
            Kind::Count(1, 100_000),
            Value("256"),
            "Access-log files open at once; the one unused longest is closed first.",
            "files_max = 64",
        ),
    ],
};

pub(crate) const TIMEOUTS: Section = Section {
    title: "[timeouts]",
    about: "Every wait of the process. Durations are `\"500ms\"`, `\"2s\"`, `\"1m\"`, `\"1h\"` or `\"1d\"`.",
    keys: &[
        key(
            "handshake",
            Kind::Duration(1, DAY),
            Value("10s"),
            "A TLS handshake, from the connection's first byte to its end: what the client takes for its part, and how long \
             the gateway's has to wait for its turn.",
            "handshake = \"5s\"",
        ),
        key(
            "header",
            Kind::Duration(1, DAY),
            Value("10s"),
            "A request's head, from its first byte to its last.",
            "header = \"5s\"",
        ),
        key(
            "body",
            Kind::Duration(1, DAY),
            Value("30s"),
            "Longest silence while a request's body is awaited, and how far its client may fall behind `caps.body_rate_min`.",
            "body = \"1m\"",
        ),
        key(
            "write",
            Kind::Duration(1, DAY),
            Value("30s"),
            "Longest time a client may take no byte of a reply, and how far it may fall behind `caps.write_rate_min`.",
            "write = \"1m\"",
        ),
        key(
            "idle",
            Kind::Duration(1, DAY),
            Value("1m"),
            "How long a connection is kept between two requests.",
            "idle = \"15s\"",
        ),
        key(
            "idle_h2",
            Kind::Duration(1, DAY),
            Absent("`idle`, but 30 s at most while `memory_available` is short"),
            "How long a connection of HTTP/2 is kept that has no stream open. What it sends meanwhile makes that no longer.",
            "idle_h2 = \"2m\"",
        ),
        key(
            "upstream_connect",
            Kind::Duration(1, DAY),
            Value("5s"),
            "Connecting to an upstream's server.",
            "upstream_connect = \"500ms\"",
        ),
        key(
            "upstream_read",
            Kind::Duration(1, DAY),
            Value("1m"),
            "Longest silence of an upstream's server or of a program, once it has the whole request or has begun to answer. While it waits for a request's body, the client's time runs: `body` and `caps.body_rate_min`.",
            "upstream_read = \"5m\"",
        ),
        key(
            "upstream_write",
            Kind::Duration(1, DAY),
            Value("1m"),
            "Longest time an upstream's server may take no byte of a request.",
            "upstream_write = \"30s\"",
        ),
        key(
            "upstream_idle",
            Kind::Duration(1, DAY),
            Value("1m"),
            "How long an unused connection to an upstream's server is kept; one to a FastCGI server no longer than 5 s. Less than the server's own is best.",
            "upstream_idle = \"4s\"",
        ),
        key(
            "tunnel",
            Kind::Duration(1, DAY),
            Value("1h"),
            "Longest silence of both ends of a tunnel (WebSocket).",
            "tunnel = \"10m\"",
        ),
        key(
            "drain",
            Kind::Duration(1, DAY),
            Value("30s"),
            "How long exchanges may go on once the gateway was told to stop.",
            "drain = \"10s\"",
        ),
        key(
            "resolve",
            Kind::Duration(1, DAY),
            Value("30s"),
            "How long the addresses of an upstream's host name are used before the name is looked up again.",
            "resolve = \"5s\"",
        ),
    ],
};

/// A head must fit twice into the block it is read into.
pub(super) const HEAD_MAX: u64 = 64 * KIB;
/// The most of them that may be asked for on one connection.
pub(super) const REQUESTS_MAX: u64 = 1_000_000_000;
/// An environment must fit into one message to the spawner.
const ENV_MAX: u64 = 112 * KIB;

pub(crate) const CAPS: Section = Section {
    title: "[caps]",
    about: "Every size and count of the process. Sizes are `512`, `\"64KiB\"`, `\"8MiB\"` or `\"1GiB\"`.",
    keys: &[
        key(
            "head_bytes",
            Kind::Size(KIB, HEAD_MAX),
            Value("16KiB"),
            "A request's head; more is answered 431.",
            "head_bytes = \"32KiB\"",
        ),
        key(
            "target_bytes",
            Kind::Size(256, HEAD_MAX),
            Value("8KiB"),
            "A request's target; more is answered 414. No more than `head_bytes`.",
            "target_bytes = \"4KiB\"",
        ),
        key(
            "fields",
            Kind::Count(1, 1_000),
            Value("100"),
            "Fields of a head; more is answered 431.",
            "fields = 64",
        ),
        key(
            "body_bytes",
            Kind::Size(0, 1_024 * TIB),
            Value("1GiB"),
            "A request's body; more is answered 413.",
            "body_bytes = \"16MiB\"",
        ),
        key(
            "chunk_extension_bytes",
            Kind::Size(0, MIB),
            Value("4KiB"),
            "Chunk extensions of one body in total; more is answered 400.",
            "chunk_extension_bytes = 512",
        ),
        key(
            "trailer_bytes",
            Kind::Size(0, MIB),
            Value("8KiB"),
            "Trailers of one body; more is answered 431. They are dropped in any case.",
            "trailer_bytes = \"1KiB\"",
        ),
        key(
            "drain_bytes",
            Kind::Size(0, GIB),
            Value("64KiB"),
            "How much of a body nobody wanted is read so that its connection can be kept.",
            "drain_bytes = \"1MiB\"",
        ),
        key(
            "upstream_head_bytes",
            Kind::Size(KIB, HEAD_MAX),
            Value("32KiB"),
            "Head of an upstream's reply; more is answered 502.",
            "upstream_head_bytes = \"64KiB\"",
        ),
        key(
            "connections",
            Kind::Count(1, 10_000_000),
            Value("65536"),
            "Clients' connections of the process; further ones wait. Where there are descriptors for fewer, the start says for how many, and so many it is.",
            "connections = 10000",
        ),
        key(
            "connections_per_client",
            Kind::Count(0, 10_000_000),
            Value("1024"),
            "Connections of one client: an address, or a /64 for IPv6. 0 is no cap.",
            "connections_per_client = 100",
        ),
        key(
            "refusals_per_client",
            Kind::Count(0, 1_000_000),
            Value("50"),
            "Refusals of one client (an address, or a /64 for IPv6) in a second, by limits or because there is too much to do, that are dealt with like other requests. Beyond, its connection closes after the reply, and of the records one in 100 is written, with `sampled` 100 in it; counters count all. 0 is no cap.",
            "refusals_per_client = 500",
        ),
        key(
            "requests_per_connection",
            Kind::Count(0, REQUESTS_MAX),
            Value("1000"),
            "Requests on one connection before it is closed. 0 is no cap.",
            "requests_per_connection = 0",
        ),
        key(
            "body_rate_min",
            Kind::Size(0, GIB),
            Value("128"),
            "Slowest request body that is put up with, in bytes a second; its client may fall behind by `timeouts.body`. Only time in which the client is waited for counts, and bytes buy none in advance. 0 asks for no rate: then a byte now and then keeps an upload alive.",
            "body_rate_min = \"1KiB\"",
        ),
        key(
            "write_rate_min",
            Kind::Size(0, GIB),
            Value("128"),
            "Slowest reader of a reply that is put up with, in bytes a second; it may fall behind by `timeouts.write`, counted as for `body_rate_min`.",
            "write_rate_min = \"1KiB\"",
        ),
        key(
            "spool_memory_bytes",
            Kind::Size(0, GIB),
            Value("64KiB"),
            "Memory of one buffered body; what exceeds it goes to a temporary file.",
            "spool_memory_bytes = \"256KiB\"",
        ),
        key(
            "spool_disk_bytes",
            Kind::Size(0, 1_024 * TIB),
            Value("2GiB"),
            "All temporary files together. Those for one client's network (/24, /56) take at most three times as much as they leave to others, alone 21/32 of all; the last eighth is for networks whose files take at most 1/512.",
            "spool_disk_bytes = \"8GiB\"",
        ),
        key(
            "cached_file_bytes",
            Kind::Size(0, 16 * MIB),
            Value("16KiB"),
            "Largest file that a worker keeps in memory. A larger one is sent from the kernel's cache, which costs less from about this size on.",
            "cached_file_bytes = \"64KiB\"",
        ),
        key(
            "file_cache_bytes",
            Kind::Size(0, TIB),
            Value("16MiB"),
            "Files that a worker keeps in memory, in total.",
            "file_cache_bytes = \"64MiB\"",
        ),
        key(
            "auth_waiting",
            Kind::Count(1, 100_000),
            Value("64"),
            "Passwords waiting to be checked at once, besides two a worker that are; tenants, and inside a tenant networks, are served in turn. More is answered 503.",
            "auth_waiting = 16",
        ),
        key(
            "programs",
            Kind::Count(1, 100_000),
            Value("256"),
            "CGI programs running at once. As many requests wait for a place, at most 5 s; more is answered 503. A tenant has at most 7/8 of the places (where it is the only one, all), and inside it a network at most 3/4 of those; over all tenants a network has at most 3/4 of the places.",
            "programs = 32",
        ),
        key(
            "env_bytes",
            Kind::Size(4 * KIB, ENV_MAX),
            Value("64KiB"),
            "The environment of one run, FastCGI or CGI; more is answered 431.",
            "env_bytes = \"32KiB\"",
        ),
        LIMIT_KEYS,
    ],
};
