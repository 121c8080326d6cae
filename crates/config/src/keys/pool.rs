//! Keys of pools: what all share, PHPs, what a site's are like, and handlers that have one.

use super::amounts::{DAY, HOUR, MIB, SECOND};
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};
use super::program::{ABORT_ON_CLOSE, BUFFER_REPLY, BUFFER_REQUEST, PARAMS_OF_HANDLER};

pub(super) const POOLS_OF_PROCESS: Key = key(
    "pools",
    Kind::Other("table"),
    Absent("its defaults"),
    "What all pools share.",
    "pools = { idle = \"1h\" }",
);
pub(super) const PHP_OF_PROCESS: Key = key(
    "php",
    Kind::Other("table of tables"),
    Absent("those that are found"),
    "PHPs that pools run, by version, beside those that are found: Debian's and deb.sury.org's in `/usr/sbin`, and \
     those in `/opt/plesk/php`, `/opt/alt`, `/opt/cpanel` and `/opt/remi`.",
    "php = { \"8.2\" = { ini = { \"opcache.memory_consumption\" = 64 } } }",
);
pub(super) const POOL_OF_SITE: Key = key(
    "pool",
    Kind::Other("table"),
    Absent("its defaults"),
    "What the pools of the site's rules with `php` and `app` are like.",
    "pool = { processes = 4 }",
);
pub(super) const PHP_OF_HANDLER: Key = key(
    "php",
    Kind::Other("`true` or table"),
    Absent("not chosen"),
    "PHP, in a pool of php-fpm that the gateway starts with the first request, as the site's `user`, and ends when it has \
     nothing to do. Needs a `root` in the site. A php-fpm that runs already is `fastcgi`.",
    "php = true",
);
pub(super) const APP_OF_HANDLER: Key = key(
    "app",
    Kind::Other("table"),
    Absent("not chosen"),
    "An application that listens, likewise started with the first request: Puma, gunicorn, Node.",
    "app = { command = [\"bundle\", \"exec\", \"puma\", \"-b\", \"unix://$socket\"], directory = \"/srv/app\" }",
);

pub(crate) const POOLS: Section = Section {
    title: "[pools]",
    about: "What all pools share: processes that run sites' programs and stay between requests, of `handler = { php = true }` \
        and `handler = { app = … }`. Where there are pools, and the gateway is started as root, no program may run as the \
        server's `user`, who may connect to each.",
    keys: &[
        key(
            "directory",
            Kind::Text,
            Value("/var/lib/nagaya-pools"),
            "Where each pool has its socket, and a directory for sessions, uploads and compiled files. It is made where it is \
             missing. Short: the path of a socket has at most 107 bytes. Only the first file names it.",
            "directory = \"/srv/pools\"",
        ),
        key(
            "starting",
            Kind::Count(1, 1_024),
            Absent("half the cores, at least 2"),
            "Pools that start at once. Others wait; tenants take turns.",
            "starting = 4",
        ),
        key(
            "idle",
            Kind::Duration(SECOND, 30 * DAY),
            Value("10m"),
            "How long a pool is kept without a request. An application is kept as well while it takes more than a hundredth \
             of a core.",
            "idle = \"1h\"",
        ),
        key(
            "see",
            Kind::Other("list of paths"),
            Value("[]"),
            "Directories and files that every pool sees beside its user's home, its sites' roots and what programs need of \
             the machine.",
            "see = [\"/srv/shared\"]",
        ),
        key(
            "cache",
            Kind::Size(MIB, 1_024 * 1_024 * MIB),
            Value("512MiB"),
            "The disk that a pool's compiled files may keep (`opcache.file_cache`): where they take more, those written longest \
             ago are removed, after each start and every five minutes.",
            "cache = \"64MiB\"",
        ),
        key(
            "mail",
            Kind::Text,
            Value("127.0.0.1:25"),
            "`HOST:PORT` of the server that takes the mail which pools send by `nagaya sendmail`, PHP's `mail()` among it.",
            "mail = \"mail.internal:25\"",
        ),
    ],
};

pub(crate) const PHP: Section = Section {
    title: "[php.VERSION]",
    about: "A PHP that pools run. Sites name it: `pool = { php = \"VERSION\" }`. A version is letters, digits, `.`, `-` and `_`. \
        What is found where distributions and panels put it needs no entry.",
    keys: &[
        key(
            "program",
            Kind::Text,
            Absent("where it was found"),
            "Its `php-fpm`.",
            "program = \"/opt/php/sbin/php-fpm\"",
        ),
        key(
            "ini",
            Kind::Other("table of texts, numbers and flags"),
            Value("{}"),
            "Settings of `php.ini` for the whole process, after those of `php.ini` itself. No value may hold control \
             characters, `\"`, `\\` or `${`.",
            "ini = { realpath_cache_size = \"4M\" }",
        ),
    ],
};

pub(crate) const POOL: Section = Section {
    title: "pool = { … }",
    about: "What a site's pools are like. Sites of one tenant and `user` whose settings are the same share one, unless they \
        say otherwise.",
    keys: &[
        key(
            "php",
            Kind::Text,
            Absent("the only one there is"),
            "The version of PHP.",
            "php = \"8.3\"",
        ),
        key(
            "processes",
            Kind::Count(1, 1_024),
            Value("8"),
            "Pages that PHP runs at once, each in a process of its own.",
            "processes = 4",
        ),
        key(
            "requests",
            Kind::Count(1, 1_000_000),
            Value("4000"),
            "Pages that a process of PHP runs before another takes its place.",
            "requests = 500",
        ),
        key(
            "time",
            Kind::Duration(SECOND, DAY),
            Value("5m"),
            "How long a page may take in all, in whole seconds; its process is ended then, by php-fpm, which looks three times in \
             that time: so it is up to a third longer. The request is answered 504 (`pool_time`).",
            "time = \"30s\"",
        ),
        key(
            "admin",
            Kind::Other("table of texts, numbers and flags"),
            Value("{}"),
            "Settings of PHP that pages cannot change (`php_admin_value`), written as in `[php.VERSION]`. Constants are not \
             understood: write the number.",
            "admin = { memory_limit = \"256M\", display_errors = false }",
        ),
        key(
            "share",
            Kind::Choice(&["user", "site"]),
            Absent("`\"user\"`; `\"site\"` where the site has a `cgroup`"),
            "Who shares the pool: all sites of this tenant and `user` with the same settings, or nobody. The site's `cgroup` \
             binds a pool of its own alone.",
            "share = \"site\"",
        ),
        key(
            "isolate",
            Kind::Choice(&["home", "none"]),
            Value("home"),
            "What the pool sees of the machine's files: its user's home, its sites' roots and what programs need; or all that \
             its user may see. Walls that cannot be built are an error.",
            "isolate = \"none\"",
        ),
        key(
            "min",
            Kind::Count(0, 1),
            Value("0"),
            "1 starts the pool with the gateway, and keeps it however little it has to do.",
            "min = 1",
        ),
        key(
            "waiting_page",
            Kind::Flag,
            Value("false"),
            "Where a request would have to wait for the pool's start longer than it may, have browsers that open a page load \
             it again when the pool is expected to run (`Refresh`); that page is the site's for 503, where it has one. Others \
             get 503 as ever.",
            "waiting_page = true",
        ),
    ],
};

pub(crate) const PHP_HANDLER: Section = Section {
    title: "php = { … }",
    about: "PHP in a pool of the site's, where `true` does not say all. What the pool is like stands in the site's `pool`.",
    keys: &[
        PARAMS_OF_HANDLER,
        BUFFER_REQUEST,
        BUFFER_REPLY,
        ABORT_ON_CLOSE,
    ],
};

pub(crate) const APP: Section = Section {
    title: "app = { … }",
    about: "An application in a pool. It listens on descriptor 3 (`LISTEN_FDS`, as systemd hands sockets over), or makes the \
        Unix socket whose path stands for `$socket` in its command; a TCP port anybody could take. It runs as the site's \
        `user`, and what it says on standard output and standard error is in the error log.",
    keys: &[
        key(
            "command",
            Kind::Other("list of texts: a program and its arguments"),
            Required,
            "The program. One without a slash is looked for in `/usr/local/bin`, `/usr/bin` and `/bin`; any other is relative \
             to `directory`.",
            "command = [\"/srv/app/bin/server\", \"--socket\", \"$socket\"]",
        ),
        key(
            "directory",
            Kind::Text,
            Required,
            "Where it starts.",
            "directory = \"/srv/app\"",
        ),
        key(
            "env",
            Kind::Other("table of texts"),
            Value("{}"),
            "Its variables, beside the usual ones.",
            "env = { RAILS_ENV = \"production\" }",
        ),
        key(
            "instances",
            Kind::Count(1, 64),
            Value("1"),
            "Processes that listen on one socket.",
            "instances = 2",
        ),
        key(
            "start",
            Kind::Duration(SECOND, HOUR),
            Value("30s"),
            "How long it may take until it is ready.",
            "start = \"1m\"",
        ),
        key(
            "stop",
            Kind::Duration(SECOND, HOUR),
            Value("10s"),
            "How long it may take to end when it is told to (TERM); it is killed then.",
            "stop = \"1m\"",
        ),
        key(
            "protocol",
            Kind::Choice(&["http", "fastcgi"]),
            Value("http"),
            "What it speaks. FastCGI needs a `root` in the site.",
            "protocol = \"fastcgi\"",
        ),
        key(
            "ready",
            Kind::Text,
            Absent("it accepts a connection"),
            "A path that it answers, with any status below 500, once it is ready. For HTTP alone.",
            "ready = \"/health\"",
        ),
        BUFFER_REQUEST,
        BUFFER_REPLY,
    ],
};
