//! Keys of programs and of whom they run for: `fastcgi`, `cgi`, cgroups and tenants.

use super::amounts::{DAY, KIB, MIB, TIB};
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};
use super::limit::{CLASSES, LIMITS_OF_LEVEL, WEIGHT};
use super::plan::{CONSOLE_OF_TENANT, PLAN_OF_TENANT};
use super::script::{SCRIPTS_OF_LEVEL, SCRIPTS_VM};

pub(super) const CGROUP_OF_LEVEL: Key = key(
    "cgroup",
    Kind::Other("table"),
    Absent("no limit"),
    "Limits of the programs that the gateway starts here and at the levels below, all together.",
    "cgroup = { cpu = \"10%\", memory = \"256MiB\", pids = 32 }",
);
pub(super) const CGROUP_REQUIRED: Key = key(
    "cgroup_required",
    Kind::Flag,
    Absent("as the level above says"),
    "Whether a limit of a `cgroup`, here or below, that this host cannot enforce is an error.",
    "cgroup_required = false",
);

pub(crate) const TENANT: Section = Section {
    title: "[tenants.NAME]",
    about: "A tenant: what its sites share. Sites name it: `tenant = \"NAME\"`; a site that names none belongs to the \
        tenant called like its first host. A name is letters, digits, `-`, `_`, `.` and `*`.",
    keys: &[
        WEIGHT,
        PLAN_OF_TENANT,
        CONSOLE_OF_TENANT,
        CLASSES,
        LIMITS_OF_LEVEL,
        SCRIPTS_OF_LEVEL,
        SCRIPTS_VM,
        CGROUP_OF_LEVEL,
        CGROUP_REQUIRED,
    ],
};

pub(crate) const CGROUP: Section = Section {
    title: "cgroup = { … }",
    about: "Limits enforced by the kernel, on a tenant, a site or a rule. They bind the programs that the gateway starts \
        (CGI, and pools), whatever the number of requests, and never the gateway itself. The levels lie within each other: a \
        tenant's limits hold for its sites together, a site's for its rules. Beside `fastcgi` and `proxy`, whose \
        processes others start, and beside `php` and `app`, whose pools are the site's, a rule's `cgroup` is an error.",
    keys: &[
        key(
            "cpu",
            Kind::Other("`\"10%\"` of one core, or cores: `\"1.5\"`; 1% to 1024 cores"),
            Absent("no limit"),
            "CPU time. `\"10%\"` is a tenth of one core, however many there are.",
            "cpu = \"150%\"",
        ),
        key(
            "burst",
            Kind::Duration(1, 1_000),
            Absent("nothing is saved up"),
            "CPU time that may be saved up while there is nothing to do and used at once later. No more than `cpu` gives in 100 ms.",
            "burst = \"20ms\"",
        ),
        key(
            "cpu_weight",
            Kind::Count(1, 10_000),
            Absent("100, as the kernel has it"),
            "Share of a busy CPU, relative to the neighbours on the same level.",
            "cpu_weight = 50",
        ),
        key(
            "memory",
            Kind::Size(MIB, 1_024 * TIB),
            Absent("no limit"),
            "Memory, with the files' pages kept in it. Beyond it the kernel ends a program, and its client is answered 503.",
            "memory = \"256MiB\"",
        ),
        key(
            "memory_high",
            Kind::Size(MIB, 1_024 * TIB),
            Absent("no such limit"),
            "Memory from which on programs are slowed down and made to give some back. Less than `memory`.",
            "memory_high = \"200MiB\"",
        ),
        key(
            "pids",
            Kind::Count(1, 4_194_304),
            Absent("no limit"),
            "Processes and threads. A program that cannot start another fails; where the gateway cannot start it, the client is answered 503.",
            "pids = 32",
        ),
        key(
            "io",
            Kind::Other("table, or list of tables"),
            Absent("no limit"),
            "Disk bandwidth, for each device.",
            "io = { device = \"/dev/vda\", read = \"10MiB\", write = \"10MiB\" }",
        ),
    ],
};

pub(crate) const IO: Section = Section {
    title: "io = { … }",
    about: "Limits of one block device, each for a second. One of them at least.",
    keys: &[
        key(
            "device",
            Kind::Text,
            Required,
            "The device, or any path on a file system that lies on it.",
            "device = \"/dev/vda\"",
        ),
        key(
            "read",
            Kind::Size(4 * KIB, TIB),
            Absent("no limit"),
            "Bytes read a second.",
            "read = \"10MiB\"",
        ),
        key(
            "write",
            Kind::Size(4 * KIB, TIB),
            Absent("no limit"),
            "Bytes written a second.",
            "write = \"10MiB\"",
        ),
        key(
            "read_ops",
            Kind::Count(1, 1_000_000_000),
            Absent("no limit"),
            "Reads a second.",
            "read_ops = 1000",
        ),
        key(
            "write_ops",
            Kind::Count(1, 1_000_000_000),
            Absent("no limit"),
            "Writes a second.",
            "write_ops = 1000",
        ),
    ],
};

pub(super) const PARAMS_OF_HANDLER: Key = key(
    "params",
    Kind::Other("table"),
    Absent("those of RFC 3875 and the usual ones beside them"),
    "Variables changed or left out.",
    "params = { set = { APP_STAGE = \"test\" }, remove = [\"SERVER_SOFTWARE\"] }",
);

pub(super) const ABORT_ON_CLOSE: Key = key(
    "abort_on_close",
    Kind::Flag,
    Value("false"),
    "Take a client that ends its side of the connection for one that has gone, before its reply is whole. Else it is \
     answered: who has really gone is found out all the same, by a byte of the reply sent ahead.",
    "abort_on_close = true",
);

pub(super) const BUFFER_REQUEST: Key = key(
    "buffer_request",
    Kind::Flag,
    Value("true"),
    "Take the whole body before a connection is taken, in memory and then in a temporary file \
     (`caps.spool_memory_bytes`, `caps.spool_disk_bytes`). Slow clients then keep no process of the server's busy.",
    "buffer_request = false",
);

pub(super) const BUFFER_REPLY: Key = key(
    "buffer_reply",
    Kind::Other("`false` or size, 1 to 1TiB"),
    Value("\"64MiB\""),
    "Take up to this much of a reply off the server's hands, in the same places, so that slow clients keep it from nothing.",
    "buffer_reply = \"8MiB\"",
);

pub(crate) const FASTCGI: Section = Section {
    title: "fastcgi = { … }",
    about: "A FastCGI server, where its address alone does not say all.",
    keys: &[
        key(
            "address",
            Kind::Text,
            Required,
            "`\"unix:/PATH\"`, `\"HOST:PORT\"`, or the name of an upstream whose `protocol` is `\"fastcgi\"`.",
            "address = \"127.0.0.1:9001\"",
        ),
        key(
            "root",
            Kind::Text,
            Absent("the site's `root`"),
            "The site's root as the server sees it, where that is another: in a container, behind a `chroot`. Absolute. \
             Below mounts it says nothing.",
            "root = \"/app/public\"",
        ),
        PARAMS_OF_HANDLER,
        BUFFER_REQUEST,
        BUFFER_REPLY,
        ABORT_ON_CLOSE,
    ],
};

pub(crate) const CGI: Section = Section {
    title: "cgi = { … }",
    about: "A program for each request, where `true` does not say all. The limits hold for each of its processes; those of \
        a `cgroup` hold for all of them together.",
    keys: &[
        key(
            "timeout",
            Kind::Duration(1, DAY),
            Value("10m"),
            "How long the program may run in all; it is ended then, and its client answered 503. Its silence is \
             `timeouts.upstream_read`.",
            "timeout = \"30s\"",
        ),
        PARAMS_OF_HANDLER,
        key(
            "buffer_request",
            Kind::Flag,
            Value("true"),
            "Take the whole body before a program is started, in memory and then in a temporary file \
             (`caps.spool_memory_bytes`, `caps.spool_disk_bytes`). Slow clients then keep no place for a program \
             (`caps.programs`). A body without a length is always taken first.",
            "buffer_request = false",
        ),
        key(
            "buffer_reply",
            Kind::Other("`false` or size, 1 to 1TiB"),
            Value("\"64MiB\""),
            "Take up to this much of a reply off the program's hands, in memory and then in a temporary file, so that it \
             ends before a slow client has everything.",
            "buffer_reply = false",
        ),
        ABORT_ON_CLOSE,
        key(
            "cpu_time",
            Kind::Duration(1_000, DAY),
            Absent("no limit"),
            "CPU time of a process, in whole seconds; more ends it, and the client is answered 503.",
            "cpu_time = \"60s\"",
        ),
        key(
            "memory",
            Kind::Size(MIB, 1_024 * TIB),
            Absent("no limit"),
            "Address space of a process. What it reserves counts, not what it uses.",
            "memory = \"512MiB\"",
        ),
        key(
            "files",
            Kind::Count(8, 1_048_576),
            Absent("that of the gateway"),
            "Files a process may have open.",
            "files = 256",
        ),
        key(
            "processes",
            Kind::Count(1, 4_194_304),
            Absent("no limit"),
            "Processes of the site's `user`, whoever started them. For the program's own alone take `cgroup = { pids = … }`.",
            "processes = 100",
        ),
        key(
            "file_size",
            Kind::Size(0, 1_024 * TIB),
            Absent("no limit"),
            "Largest file a process may write.",
            "file_size = \"100MiB\"",
        ),
    ],
};

pub(crate) const PARAMS: Section = Section {
    title: "params = { … }",
    about: "Changes to the variables that a program gets, after `env`. `CONTENT_LENGTH` is the gateway's own; `HTTP_PROXY` \
        and names that begin with `LD_` are never passed.",
    keys: &[
        key(
            "set",
            Kind::Other("table of templates"),
            Value("{}"),
            "Variables given this value, whatever they had.",
            "set = { APP_STAGE = \"test\" }",
        ),
        key(
            "remove",
            Kind::Other("list of names"),
            Value("[]"),
            "Variables left out.",
            "remove = [\"SERVER_SOFTWARE\"]",
        ),
    ],
};
