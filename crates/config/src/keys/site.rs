//! Keys of `[[sites]]`, of their rules and of what stands within them, but for handlers.

use super::htaccess::HTACCESS_OF_SITE;
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};
use super::level::{CAPS_OF_LEVEL, TIMEOUTS_OF_LEVEL};
use super::limit::LIMITS_OF_LEVEL;
use super::plan::PLAN_OF_SITE;
use super::pool::POOL_OF_SITE;
use super::program::{CGROUP_OF_LEVEL, CGROUP_REQUIRED};
use super::recorder::RECORD_OF_SITE;
use super::rewrite::REWRITE_OF_LEVEL;
use super::script::SCRIPTS_OF_LEVEL;
use super::tls::TLS_OF_SITE;

const REQUEST_HEADERS: Key = key(
    "request_headers",
    Kind::Other("header changes"),
    Absent("no change"),
    "Changes to a request's fields before its handler sees it, after those of the levels above.",
    "request_headers = { set = { X-Site = \"shop\" } }",
);
const REPLY_HEADERS: Key = key(
    "reply_headers",
    Kind::Other("header changes"),
    Absent("no change"),
    "Changes to a reply's fields, after those of the levels above.",
    "reply_headers = { set = { X-Frame-Options = \"DENY\" }, remove = [\"X-Powered-By\"] }",
);
const EXPIRES: Key = key(
    "expires",
    Kind::Other("duration, `\"off\"`, `\"epoch\"`, `\"max\"`, or a table of these by media type"),
    Absent("nothing is said"),
    "How long clients and caches may keep replies: `Cache-Control: max-age=…` and `Expires`, counted from the \
     reply, on those with status 200, 201, 204, 206, 301 to 304, 307 or 308 to which whoever answered has given \
     neither. `\"epoch\"` says out of date (`no-cache`), `\"max\"` ten years, `\"off\"` nothing. A table holds media \
     types (`\"text/css\"`, `\"image/*\"`, the more exact one counts) and `default` for the others, `\"off\"` where it is \
     left out. A rule's takes the place of its site's. Done before the changes of `reply_headers`.",
    "expires = { \"text/css\" = \"1h\", \"image/*\" = \"30d\", default = \"off\" }",
);
const ALLOW: Key = key(
    "allow",
    Kind::Other("list of addresses and networks, or `\"all\"`"),
    Absent("everybody not denied"),
    "Clients let in; everybody else is answered 403. Not empty. The lists of all levels count: whom one of \
     them keeps out, an inner `allow` does not let in.",
    "allow = [\"192.168.0.0/16\", \"::1\"]",
);
const DENY: Key = key(
    "deny",
    Kind::Other("list of addresses, networks and files, or `\"all\"`"),
    Value("[]"),
    "Clients answered 403, even if allowed, here or further in; `\"all\"` is everybody. `{ file = \"…\" }`, alone or in \
     the list, names others.",
    "deny = [\"203.0.113.7\"]",
);
const AUTHENTICATION: Key = key(
    "auth",
    Kind::Other("table"),
    Absent("no password is asked for"),
    "Basic authentication.",
    "auth = { realm = \"Staff\", file = \"/etc/nagaya/htpasswd\" }",
);
const ENV: Key = key(
    "env",
    Kind::Other("table of templates, `false`, tables, or lists of these"),
    Absent("none"),
    "Variables of the request, given to programs (FastCGI and CGI) and shown in json and ltsv access records. `false` \
     takes one away, also such as programs are given anyhow; a table says for which requests; of a list, and of all \
     levels, the last one counts that holds.",
    "env = { APP_STAGE = \"test\" }",
);

const COMPRESS_OF_LEVEL: Key = key(
    "compress",
    Kind::Other("table"),
    Absent("its defaults, or what the site says"),
    "Which replies are compressed on the fly, with gzip or zstd, whichever the client wants more. What a rule's table \
     leaves out is as its site says; of the rules that match, the last one's counts.",
    "compress = { programs = false }",
);

pub(crate) const SITE: Section = Section {
    title: "[[sites]]",
    about: "A site: the hosts it answers for, its files and its rules. With no rule, or none with a handler, \
        it serves static files.",
    keys: &[
        key(
            "hosts",
            Kind::Other("list of hosts, or table"),
            Required,
            "Exact hosts, `\"*.example.jp\"` for every name below, and `\"*\"` for the default site. Without port; \
             names beyond ASCII in their `xn--` form. No host may stand in two sites. \
             `{ directory = \"NAME\" }` makes a site for every host that has a row there: hosts that other sites name come \
             first, `\"*\"` after it.",
            "hosts = [\"example.jp\", \"*.example.jp\"]",
        ),
        key(
            "root",
            Kind::Text,
            Absent("the site has no files"),
            "Directory of the site's files, relative to the configuration file. It must exist. Of a directory's sites it is \
             absolute, with columns of the row, each of which is one name: `\"/var/www/$row.user\"`; it must be the row's user's.",
            "root = \"/srv/example\"",
        ),
        key(
            "within",
            Kind::Text,
            Absent("`root`"),
            "No file outside this directory is ever served, whatever links say. `root` lies beneath it.",
            "within = \"/var/www\"",
        ),
        key(
            "symlinks",
            Kind::Choice(&["deny", "owner", "allow"]),
            Value("owner"),
            "Symbolic links below `root`: refused, followed where the link's owner owns its target, or followed. \
             Relative or absolute, each must end beneath `within`.",
            "symlinks = \"deny\"",
        ),
        key(
            "index",
            Kind::Other("list of file names"),
            Value("[\"index.html\"]"),
            "Names tried in a directory, in order.",
            "index = [\"index.htm\", \"index.html\"]",
        ),
        key(
            "try",
            Kind::Other(
                "list of `\"$path\"`, `\"$path/\"`, `\"$path.SUFFIX\"`, `\"/FILE\"`, `\"=STATUS\"`",
            ),
            Value("[\"$path\", \"$path/\"]"),
            "What a path is resolved to: the first that exists. `$path` is a file, `$path/` a directory with an \
             index, `/FILE` a fixed file (a front controller), `=404` an answer.",
            "try = [\"$path\", \"$path.html\", \"$path/\", \"/app.html\"]",
        ),
        key(
            "mounts",
            Kind::Other("list of tables"),
            Value("[]"),
            "Roots of their own below paths of the site.",
            "mounts = [{ path = \"/wiki\", root = \"/usr/share/mediawiki\" }]",
        ),
        HTACCESS_OF_SITE,
        key(
            "slashes",
            Kind::Choice(&["merge", "keep"]),
            Value("merge"),
            "Repeated slashes in a path.",
            "slashes = \"keep\"",
        ),
        key(
            "encoded_slash",
            Kind::Choice(&["refuse", "keep"]),
            Value("refuse"),
            "`%2F` in a path: answered 400, or kept as it is.",
            "encoded_slash = \"keep\"",
        ),
        key(
            "underscore_fields",
            Kind::Choice(&["drop", "refuse", "keep"]),
            Value("drop"),
            "Fields whose names hold anything but letters, digits and `-`. Programs confuse `A_B` with `A-B`.",
            "underscore_fields = \"refuse\"",
        ),
        key(
            "files",
            Kind::Other("table"),
            Absent("its defaults"),
            "How files are served.",
            "files = { listing = true }",
        ),
        COMPRESS_OF_LEVEL,
        RECORD_OF_SITE,
        key(
            "error_pages",
            Kind::Other("table of files"),
            Absent("short built-in pages"),
            "Bodies of error replies by status (400 to 599): `.html`, `.json`, `.svg` or `.txt` files of at most 256 KiB, \
             relative to the configuration file. Read when the configuration is, and never served.",
            "error_pages = { \"404\" = \"pages/404.html\" }",
        ),
        key(
            "log",
            Kind::Other("table"),
            Absent("as `[log]` says"),
            "The site's own logs.",
            "log = { access = \"/var/log/nagaya/example.log\" }",
        ),
        key(
            "tenant",
            Kind::Text,
            Absent("the first host"),
            "Whose site it is. Of a directory's sites the row says it: `\"$row.tenant\"`; a tenant of another site it cannot be. \
             Where there are `[tenants.NAME]`, it names one of them; where there are none, it is just a name.",
            "tenant = \"example\"",
        ),
        key(
            "user",
            Kind::Text,
            Absent("the `user` of the top level"),
            "The user the site's CGI programs and pools run as, when the gateway is started as root. Uid 0 is refused. \
             Of a directory's sites `\"$row.user\"`, whose files they are.",
            "user = \"example\"",
        ),
        PLAN_OF_SITE,
        POOL_OF_SITE,
        LIMITS_OF_LEVEL,
        TLS_OF_SITE,
        REWRITE_OF_LEVEL,
        SCRIPTS_OF_LEVEL,
        CGROUP_OF_LEVEL,
        CGROUP_REQUIRED,
        REQUEST_HEADERS,
        REPLY_HEADERS,
        EXPIRES,
        ALLOW,
        DENY,
        AUTHENTICATION,
        ENV,
        CAPS_OF_LEVEL,
        TIMEOUTS_OF_LEVEL,
        key(
            "rules",
            Kind::Other("list of tables"),
            Value("[]"),
            "What happens to which requests.",
            "rules = [{ match = { path = \"/health\" }, handler = { respond = { body = \"ok\" } } }]",
        ),
    ],
};

pub(crate) const SITE_LOG: Section = Section {
    title: "[sites.log]",
    about: "Logging of one site.",
    keys: &[
        key(
            "access",
            Kind::Text,
            Absent("as `[log]` says"),
            "Where the site's access records go; written as in `[log]`.",
            "access = \"\"",
        ),
        key(
            "error",
            Kind::Text,
            Absent("the error log of the process"),
            "The site's own error log, a file, `$site` in its name being the first host. What the site's programs say and \
             why its files are refused goes there and no longer to the error log of the process; failures and limits \
             stand in both. Where the site has a `user` the file is made that user's, to read.",
            "error = \"/var/log/nagaya/$site.error.log\"",
        ),
    ],
};

pub(crate) const RULE_LOG: Section = Section {
    title: "log = { … } of a rule",
    about: "Where the records of requests go that the rule matches. Of several matching rules the last one counts. \
        Requests that are refused before rules are tried are recorded as their site says; all are counted, \
        recorded or not.",
    keys: &[key(
        "access",
        Kind::Text,
        Absent("as the site says"),
        "Where their access records go; written as in `[log]`, but without `$host`. `\"\"` is nowhere.",
        "access = \"\"",
    )],
};

pub(crate) const FILES: Section = Section {
    title: "[sites.files]",
    about: "How a site serves its files.",
    keys: &[
        key(
            "sources",
            Kind::Other("list of globs"),
            Value(
                "[\"*.php\", \"*.phtml\", \"*.phps\", \"*.php3\", \"*.php4\", \"*.php5\", \"*.php7\", \"*.php8\", \
                 \"*.cgi\", \"*.pl\", \"*.py\", \"*.rb\"]",
            ),
            "File names that are programs' sources, in upper or lower case. They are never served, whether or not \
             anything runs them, nor are their copies: ending in `.gz`, `.br`, `.zst`, `~`, `#`, `,v`, `.bak`, `.old`, \
             `.orig`, `.save`, `.swp`, `.swo`, `.tmp` or `.rej`, and names with `.php.` or `.phtml.` in them; nor is \
             anything that ends in `.dpkg-*` or `.ucf-*`. With `[]` all are.",
            "sources = [\"*.php\", \"*.inc\"]",
        ),
        key(
            "sources_add",
            Kind::Other("list of globs"),
            Value("[]"),
            "Further ones, beside those of `sources` or its default.",
            "sources_add = [\"*.inc\"]",
        ),
        key(
            "listing",
            Kind::Flag,
            Value("false"),
            "List directories that have no index.",
            "listing = true",
        ),
        key(
            "types",
            Kind::Other("table of media types"),
            Value("{}"),
            "Media types by file extension, before the built-in ones.",
            "types = { wasm = \"application/wasm\" }",
        ),
        key(
            "default_type",
            Kind::Text,
            Value("application/octet-stream"),
            "Media type of unknown extensions.",
            "default_type = \"text/plain; charset=utf-8\"",
        ),
        key(
            "precompressed",
            Kind::Flag,
            Value("true"),
            "Serve a file's `.br`, `.zst` or `.gz` sibling to clients that accept it.",
            "precompressed = false",
        ),
        key(
            "compress",
            Kind::Flag,
            Value("true"),
            "Compress files on the fly whose types the site's `compress` names, where that saves a tenth or more.",
            "compress = false",
        ),
        key(
            "compress_min_bytes",
            Kind::Size(0, 1 << 30),
            Absent("`compress.min_bytes`"),
            "Smallest file that is compressed on the fly.",
            "compress_min_bytes = 256",
        ),
        key(
            "compress_max_bytes",
            Kind::Size(0, 1 << 30),
            Value("8MiB"),
            "Largest file that is compressed on the fly. No less than `compress_min_bytes`.",
            "compress_max_bytes = \"1MiB\"",
        ),
    ],
};

pub(crate) const COMPRESS: Section = Section {
    title: "compress = { … }",
    about: "Compression on the fly, on a site or a rule. Files go by their site's `types` and `level`, and by \
        `files.compress*`; all other replies by `programs`. Never compressed are replies that are compressed already, \
        parts (206), replies with `Cache-Control: no-transform`, and those to HTTP/1.0 clients, whose connection would \
        have to end with them.",
    keys: &[
        key(
            "types",
            Kind::Other("list of media types, or of `\"KIND/*\"`"),
            Absent(
                "text: `text/*` but for streams of events, JSON, XML, what is made of them, scripts and fonts",
            ),
            "What is compressed, in place of the default.",
            "types = [\"text/html\", \"application/*\"]",
        ),
        key(
            "min_bytes",
            Kind::Size(0, 1 << 30),
            Value("1KiB"),
            "Shortest reply that is compressed. One whose length is not known when it begins is.",
            "min_bytes = 256",
        ),
        key(
            "level",
            Kind::Count(1, 9),
            Value("5"),
            "How hard it is tried, from fast to small. gzip's level, of which the first two are the same; zstd's is \
             half of it, rounded up.",
            "level = 1",
        ),
        key(
            "programs",
            Kind::Flag,
            Value("true"),
            "Whether replies of programs, back ends and scripts are compressed, and whatever else is no file. Turn it \
             off where a reply holds a secret beside what a stranger may have chosen.",
            "programs = false",
        ),
    ],
};

pub(crate) const AUTH: Section = Section {
    title: "auth = { … }",
    about: "Basic authentication, on a site or a rule. A rule's takes the place of its site's.",
    keys: &[
        key(
            "realm",
            Kind::Text,
            Value("restricted"),
            "What the client's user is told it is about.",
            "realm = \"Staff\"",
        ),
        key(
            "file",
            Kind::Text,
            Required,
            "An htpasswd file, relative to the configuration file: hashes of bcrypt (up to cost 16), SHA, apr1, SHA-crypt \
             (`$5$`, `$6$`, up to 500,000 rounds) and yescrypt (`$y$`, up to 64 MiB); not crypt(3) by DES, not plain \
             text. Read when the configuration is, and never served.",
            "file = \"/etc/nagaya/htpasswd\"",
        ),
        key(
            "group_file",
            Kind::Text,
            Absent("there are no groups"),
            "A file that says who is in which group, as Apache's `AuthGroupFile`: lines like `staff: alice bob`. Read when \
             the configuration is, and never served.",
            "group_file = \"/etc/nagaya/groups\"",
        ),
        key(
            "require",
            Kind::Other("list of groups"),
            Absent("everybody in `file`"),
            "Groups of `group_file`, of one of which a user must be. Who is of none is asked again (401), as if the \
             password were wrong.",
            "require = [\"staff\"]",
        ),
    ],
};

pub(crate) const DENY_FILE: Section = Section {
    title: "deny = { … }",
    about: "A file of clients that are kept out, on a site or a rule: an address or a network a line, `#` before a comment.",
    keys: &[key(
        "file",
        Kind::Text,
        Required,
        "The file, relative to the configuration file; the server's user must be able to read it. A change counts within \
         two seconds, without a reload: at most 100,000 lines that name somebody, 16 MiB. Where a line is wrong, or the \
         file cannot be read, what it said before holds, over reloads too, and the error log says so; at the start the \
         lines that are right count, and nobody is let in (503) until the file is there.",
        "file = \"/etc/nagaya/denied\"",
    )],
};

pub(crate) const VARIABLE: Section = Section {
    title: "env.NAME = { … }",
    about: "A variable that depends on the request.",
    keys: &[
        key(
            "value",
            Kind::Other("template or `false`"),
            Required,
            "What it holds, or `false` to take it away.",
            "value = \"mobile\"",
        ),
        key(
            "match",
            Kind::Other("table"),
            Absent("every request"),
            "Conditions, all of which must hold; no `map`.",
            "match = { header = { User-Agent = { regex = 'iPhone|Android' } } }",
        ),
    ],
};

pub(crate) const EDITS: Section = Section {
    title: "request_headers, reply_headers",
    about: "Header changes, made in the order remove, set, add, and last what is to be there by default. Values are \
        templates: `$host`, `$path`, `$query`, `$uri`, `$request_uri`, `$scheme`, `$client`, `$request_id` and `$method` are filled in, and what a client's \
        certificate says (`$tls_client_subject` and others); on a rule with a `path_regex`, `$1` and `${name}` are its groups. `${host}` sets a name apart from what follows it, `$$` is a dollar.",
    keys: &[
        key(
            "set",
            Kind::Other("table of templates"),
            Value("{}"),
            "Fields given one value, whatever they had.",
            "set = { X-Request-Path = \"$path\" }",
        ),
        key(
            "add",
            Kind::Other("table of templates, or of lists of them"),
            Value("{}"),
            "Fields added beside those there are.",
            "add = { Link = [\"</a.css>; rel=preload\", \"</b.css>; rel=preload\"] }",
        ),
        key(
            "remove",
            Kind::Other("list of names"),
            Value("[]"),
            "Fields removed.",
            "remove = [\"X-Powered-By\"]",
        ),
        key(
            "default",
            Kind::Other("table of templates"),
            Value("{}"),
            "Fields set where there is none of that name when all levels have made their changes; where several levels \
             name one, the innermost says it.",
            "default = { X-Content-Type-Options = \"nosniff\" }",
        ),
    ],
};

pub(crate) const RULE: Section = Section {
    title: "[[sites.rules]]",
    about: "Rules are tried in order; the first that matches and has a handler decides. A rule without a handler \
        adds its settings and goes on.",
    keys: &[
        key(
            "name",
            Kind::Text,
            Absent("`rule 1`, `rule 2`, …"),
            "The rule's name in logs, and in the names of its limits. One that goes by its place is another rule's once \
             one is put above it, so changes are kept (`nagaya limits set … --keep`) of limits of named rules only.",
            "name = \"health\"",
        ),
        key(
            "match",
            Kind::Other("table"),
            Absent("every request matches"),
            "Conditions, all of which must hold.",
            "match = { path = \"/api/*\", method = \"GET\" }",
        ),
        REWRITE_OF_LEVEL,
        key(
            "handler",
            Kind::Other("table"),
            Absent("the rule adds its settings and goes on"),
            "What answers.",
            "handler = { redirect = \"https://$host$uri\" }",
        ),
        key(
            "log",
            Kind::Other("table"),
            Absent("as the site says"),
            "Where the access records go of requests that the rule matches.",
            "log = { access = \"\" }",
        ),
        REQUEST_HEADERS,
        REPLY_HEADERS,
        EXPIRES,
        ALLOW,
        DENY,
        AUTHENTICATION,
        ENV,
        CAPS_OF_LEVEL,
        TIMEOUTS_OF_LEVEL,
        COMPRESS_OF_LEVEL,
        LIMITS_OF_LEVEL,
        SCRIPTS_OF_LEVEL,
        CGROUP_OF_LEVEL,
        CGROUP_REQUIRED,
    ],
};
