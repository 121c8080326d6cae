//! Keys of scripts: `[scripts]`, the levels' `scripts`, and a script itself.

use super::amounts::{GIB, HOUR, KIB, MIB};
use super::key::Fallback::{Absent, Value};
use super::key::{Key, Kind, Section, key};

/// The longest wait: beyond it no client is left.
/// Most entries, fibers or connections that a budget may give.
const COUNT_MAX: u64 = 10_000_000;
/// What one String of Ruby may hold is 10 MiB; a little of that is left for what is put around it.
const STRING_BYTES_MAX: u64 = 8 * MIB;

const SCRIPTS_IN_ORDER: Kind = Kind::Other("script, or list of scripts");
const ONE_SCRIPT: Kind = Kind::Other("script");

pub(super) const SCRIPTS_OF_PROCESS: Key = key(
    "scripts",
    Kind::Other("table"),
    Absent("no scripts, and its defaults"),
    "The scripts of the whole process, and what all scripts may use.",
    "scripts = { init = \"hooks/init.rb\", cpu = \"10ms\" }",
);

pub(super) const SCRIPTS_OF_LEVEL: Key = key(
    "scripts",
    Kind::Other("table"),
    Absent("none"),
    "Ruby scripts that the requests here run, by phase. Those of all levels run, outer first.",
    "scripts = { access = \"hooks/access_limiter.rb\", log = \"hooks/access_limiter_end.rb\" }",
);

pub(super) const SCRIPTS_VM: Key = key(
    "scripts_vm",
    Kind::Choice(&["own", "shared"]),
    Absent("`own` where two tenants or more have scripts"),
    "Where a tenant has scripts, on itself, its sites or their rules, its requests run all scripts in a VM of its own, in \
     each worker, or in the one that all share. A VM of its own is made when it is first needed, and closed when `vms` \
     of `[scripts]` are open and it was idle for longest. What scripts of a tenant do to Ruby's classes, or keep, is then \
     theirs alone; it is no wall.",
    "scripts_vm = \"shared\"",
);

pub(super) const SCRIPT_OF_HANDLER: Key = key(
    "script",
    ONE_SCRIPT,
    Absent("not chosen"),
    "A script that answers (the phase `content`).",
    "script = \"hooks/app.rb\"",
);

pub(super) const SCRIPT_OF_PROXY: Key = key(
    "script",
    ONE_SCRIPT,
    Absent("`upstream` is forwarded to"),
    "A script that names the upstream for each request (the phase `set`), in place of `upstream`. Its value is the \
     name of an upstream, or an address within `allow`. Where it raises or names nothing, the request is answered 503.",
    "script = \"hooks/route.rb\"",
);

pub(super) const ALLOW_OF_PROXY: Key = key(
    "allow",
    Kind::Other("list of addresses and networks, each with or without a port"),
    Absent("named upstreams alone"),
    "What scripts may forward to beside `[upstreams.NAME]`, be it the `script` here, or one of another phase by \
     `Nginx::Upstream#server=` or `Apache::Request#reverse_proxy`: `\"10.0.0.0/8\"` with any port, `\"10.0.0.0/8:8080\"`, \
     `\"127.0.0.1:9000\"`, `\"[fd00::/8]:8080\"`. The address that is connected to is what counts, whatever name the \
     script gave. The gateway's own listeners are refused even so.",
    "script = \"hooks/route.rb\", allow = [\"10.0.0.0/8\", \"127.0.0.1:9000\"]",
);

const SSL_HANDSHAKE: Key = key(
    "ssl_handshake",
    SCRIPTS_IN_ORDER,
    Value("[]"),
    "Run for handshakes of TLS to sites with `tls = { script = true }`, before anything is computed for them: may name \
     the certificate that is shown. Not on a rule, because there is no request yet.",
    "ssl_handshake = \"hooks/certificate.rb\"",
);
const REWRITE: Key = key(
    "rewrite",
    SCRIPTS_IN_ORDER,
    Value("[]"),
    "Run before the request is resolved to a file: may change its uri or file, or redirect inside. Not on a rule, \
     because rules are chosen after it.",
    "rewrite = \"hooks/rewrite.rb\"",
);
const ACCESS: Key = key(
    "access",
    SCRIPTS_IN_ORDER,
    Value("[]"),
    "Run when the request has its permits, before its handler: may refuse it.",
    "access = \"hooks/access.rb\"",
);
const HEADER_FILTER: Key = key(
    "header_filter",
    SCRIPTS_IN_ORDER,
    Value("[]"),
    "Run before the reply's head is sent: may change its fields.",
    "header_filter = { code = 'Nginx::Headers_out.new[\"X-Served-By\"] = \"nagaya\"' }",
);
const BODY_FILTER: Key = key(
    "body_filter",
    SCRIPTS_IN_ORDER,
    Value("[]"),
    "Run with the whole body of the reply: may change it. One of more than `body_filter_bytes` passes as it is.",
    "body_filter = \"hooks/footer.rb\"",
);
const LOG: Key = key(
    "log",
    SCRIPTS_IN_ORDER,
    Value("[]"),
    "Run once when the request has ended and its permits are freed, whether it was answered, refused, failed or \
     given up by its client.",
    "log = \"hooks/log.rb\"",
);

pub(crate) const SCRIPTS: Section = Section {
    title: "[scripts]",
    about: "Scripts of the process, and what all scripts may use. Every worker has a Ruby VM, in which `init` and then \
        `worker_init` run before the first request; a tenant may have one of its own (`scripts_vm`), in which they run, \
        too. A reload opens a new VM in each worker, and is refused where one of \
        these two raises: the old VMs then stay. Requests that began before a reload end in the old VM; then \
        `worker_exit` runs and it closes. Every key may change on a reload; `cache_bytes` and `cache_entries` then hold \
        for what `Cache` has already.",
    keys: &[
        key(
            "server",
            Kind::Choice(&["nginx", "apache"]),
            Value("nginx"),
            "What `get_server_class` answers. Both modules, `Nginx` and `Apache`, are there whatever it says.",
            "server = \"apache\"",
        ),
        key(
            "init",
            SCRIPTS_IN_ORDER,
            Value("[]"),
            "Run in every worker's VM when it opens, in order.",
            "init = \"hooks/init.rb\"",
        ),
        key(
            "worker_init",
            SCRIPTS_IN_ORDER,
            Value("[]"),
            "Run in every worker's VM after `init`: the place to connect to stores.",
            "worker_init = \"hooks/worker_init.rb\"",
        ),
        key(
            "worker_exit",
            SCRIPTS_IN_ORDER,
            Value("[]"),
            "Run in every worker's VM before it closes.",
            "worker_exit = \"hooks/worker_exit.rb\"",
        ),
        key(
            "lib",
            Kind::Other("directory, or list of directories"),
            Value("[]"),
            "Directories whose Ruby scripts may `require`, relative to the configuration file; the first that has a file \
             of that name gives it. All `*.rb` below them are read with the configuration and compiled in every VM \
             before `init`: at most 1,000 files and 8 MiB a directory. A change counts after a reload. They are never \
             served to anybody.",
            "lib = [\"lib\"]",
        ),
        SSL_HANDSHAKE,
        REWRITE,
        ACCESS,
        HEADER_FILTER,
        BODY_FILTER,
        LOG,
        key(
            "cpu",
            Kind::Duration(1, 1_000),
            Value("5ms"),
            "CPU time of a script between two waits. One that takes more is ended, and its request answered 500. \
             Nothing else on the worker moves meanwhile.",
            "cpu = \"20ms\"",
        ),
        key(
            "wall",
            Kind::Duration(1, HOUR),
            Value("30s"),
            "One call of a script from start to end, waits included. No less than `cpu`.",
            "wall = \"10s\"",
        ),
        key(
            "log_wall",
            Kind::Duration(1, HOUR),
            Value("5s"),
            "The same for a `log` script.",
            "log_wall = \"1s\"",
        ),
        key(
            "memory",
            Kind::Size(4 * MIB, 16 * GIB),
            Value("64MiB"),
            "Memory of the VMs of one worker together. A script that needs more ends with `NoMemoryError`. Where there are \
             several VMs, one that holds more than its equal share gets no more once all hold three quarters, so that \
             the last quarter is for those below theirs.",
            "memory = \"128MiB\"",
        ),
        key(
            "vms",
            Kind::Count(1, 4_096),
            Value("64"),
            "VMs of tenants that one worker has open at once, besides the one that all share. For another the longest idle \
             is closed; where none is idle a request waits for one, for as long as a script may take. `memory` may allow \
             fewer: an empty one takes about 0.4 MiB.",
            "vms = 256",
        ),
        key(
            "parked",
            Kind::Count(1, 100_000),
            Value("4096"),
            "Scripts of one worker that wait at once. Another that has to wait then raises.",
            "parked = 1024",
        ),
        key(
            "output",
            Kind::Size(KIB, GIB),
            Value("10MiB"),
            "What the scripts of one request may write as its reply, in all.",
            "output = \"1MiB\"",
        ),
        key(
            "body_filter_bytes",
            Kind::Size(KIB, STRING_BYTES_MAX),
            Value("1MiB"),
            "Largest body that `body_filter` is given. No more than `memory`.",
            "body_filter_bytes = \"256KiB\"",
        ),
        key(
            "connect_timeout",
            Kind::Duration(1, HOUR),
            Value("1s"),
            "Connecting to a server of a store: memcached, MySQL, Redis, HTTP.",
            "connect_timeout = \"200ms\"",
        ),
        key(
            "store_timeout",
            Kind::Duration(1, HOUR),
            Value("5s"),
            "One command to a store, from when it is given to when its answer is there.",
            "store_timeout = \"500ms\"",
        ),
        key(
            "store_connections",
            Kind::Count(1, 10_000),
            Value("32"),
            "Connections of one worker to one server of a store. Scripts that need another wait for one, within \
             `store_timeout`.",
            "store_connections = 8",
        ),
        key(
            "cache_bytes",
            Kind::Size(64 * KIB, 1_024 * GIB),
            Value("64MiB"),
            "Keys and values of `Cache`, which all workers share, in all its namespaces together. What was used longest \
             ago goes first.",
            "cache_bytes = \"256MiB\"",
        ),
        key(
            "cache_entries",
            Kind::Count(1, COUNT_MAX),
            Value("100000"),
            "Entries of `Cache`, likewise.",
            "cache_entries = 1000000",
        ),
        key(
            "cache_files",
            Kind::Other("directory, or list of directories"),
            Value("[]"),
            "Directories in which files keep namespaces of `Cache` (`Cache.new filename:`), a line a key, as an outside \
             tool may edit them; each is for these files alone, and the server's `user` writes there. Without one \
             `filename` is a name like another, and no file is made.",
            "cache_files = [\"/var/lib/nagaya/cache\"]",
        ),
        key(
            "read_bytes",
            Kind::Size(KIB, STRING_BYTES_MAX),
            Value("1MiB"),
            "Largest file that `File.read` gives. No more than `memory`.",
            "read_bytes = \"64KiB\"",
        ),
        key(
            "env",
            Kind::Other("list of names"),
            Value("[]"),
            "Variables of the gateway's environment that scripts may read (`ENV`); others are not there for them.",
            "env = [\"APP_STAGE\"]",
        ),
    ],
};

pub(crate) const LEVEL_SCRIPTS: Section = Section {
    title: "scripts = { … }",
    about: "Scripts of a tenant, a site or a rule, by phase. In one request those of `[scripts]` run first, then those of \
        the tenant, the site and each rule it matched, up to the one that answers. The phases `set` and `content` stand \
        in handlers: `handler = { proxy = { script = … } }` and `handler = { script = … }`.",
    keys: &[
        SSL_HANDSHAKE,
        REWRITE,
        ACCESS,
        HEADER_FILTER,
        BODY_FILTER,
        LOG,
    ],
};

pub(crate) const SCRIPT: Section = Section {
    title: "script = { … }",
    about: "A script, wherever one stands: the name of its file, or a table. A script's file is never served to anybody, \
        under whichever of its names, even where it lies below a site's `root`.",
    keys: &[
        key(
            "file",
            Kind::Text,
            Absent("`code` stands in its place"),
            "The script's file, relative to the configuration file, of at most 1 MiB. It is read when the configuration \
             is and must be there then, unless `cache` is `\"never\"`.",
            "file = \"hooks/limit.rb\"",
        ),
        key(
            "code",
            Kind::Text,
            Absent("`file` stands in its place"),
            "The script itself. In log lines it goes by the file and line of the configuration it begins on.",
            "code = 'Nginx.return 403 if Nginx::Request.new.method == \"TRACE\"'",
        ),
        key(
            "cache",
            Kind::Choice(&["mtime", "always", "never"]),
            Value("mtime"),
            "When `file` is compiled: `mtime` once, and again when the file has changed, which is looked at no more than \
             once a second and needs a file that the server's `user` may read; `always` once, and again only on a \
             reload; `never` for every request. Says nothing beside `code`, which is compiled once.",
            "cache = \"always\"",
        ),
        key(
            "on_error",
            Kind::Choice(&["deny", "allow"]),
            Value("deny"),
            "What becomes of the request when the script raises before the reply: it is answered 500, or goes on as if \
             there were no such script; of a handshake: it is refused, or goes on with the site's own certificate. Only in \
             `ssl_handshake`, `rewrite`, `access`, `header_filter` and `body_filter`.",
            "on_error = \"allow\"",
        ),
        key(
            "optional",
            Kind::Flag,
            Value("false"),
            "Whether requests can do without it when the machine has too much to do. Only in the phases of a `scripts` table.",
            "optional = true",
        ),
        key(
            "mode",
            Kind::Choice(&["enforce", "shadow"]),
            Value("enforce"),
            "`\"shadow\"` runs the script with the request as it is, and tells what it would have answered or changed, but \
             has nothing of it done. What the script does elsewhere (`Cache`, stores, locks, permits) is done all the \
             same. Only in `rewrite`, `access`, `header_filter` and `body_filter`.",
            "mode = \"shadow\"",
        ),
    ],
};
