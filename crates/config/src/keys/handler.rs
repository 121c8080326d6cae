//! Keys of handlers that run no programs: files, forwarding, fixed replies, scripts.

use super::key::Fallback::{Absent, Value};
use super::key::{Key, Kind, Section, key};
use super::pool::{APP_OF_HANDLER, PHP_OF_HANDLER};
use super::script::{ALLOW_OF_PROXY, SCRIPT_OF_HANDLER, SCRIPT_OF_PROXY};

pub(crate) const HANDLER: Section = Section {
    title: "handler = { … }",
    about: "What answers a request: exactly one of `static`, `proxy`, `fastcgi`, `php`, `app`, `cgi`, `respond`, `redirect`, `metrics`, `console` and `script`.",
    keys: &[
        key(
            "static",
            Kind::Other("`true`"),
            Absent("not chosen"),
            "Files below the site's `root`.",
            "static = true",
        ),
        key(
            "proxy",
            Kind::Other("upstream's name, URL, or table"),
            Absent("not chosen"),
            "Forwarding to an upstream by its name, to `\"http://HOST:PORT/PREFIX\"`, or as a table says.",
            "proxy = \"http://127.0.0.1:9000\"",
        ),
        ALLOW_OF_ROWS,
        key(
            "fastcgi",
            Kind::Other("address, upstream's name, or table"),
            Absent("not chosen"),
            "A program that runs already and speaks FastCGI, such as php-fpm: at `\"unix:/PATH\"` or `\"HOST:PORT\"`, \
             in an upstream whose `protocol` is `\"fastcgi\"`, or as a table says. Needs a `root` in the site, where the file \
             is looked for.",
            "fastcgi = \"unix:/run/php/php-fpm.sock\"",
        ),
        PHP_OF_HANDLER,
        APP_OF_HANDLER,
        key(
            "cgi",
            Kind::Other("`true` or table"),
            Absent("not chosen"),
            "The file the request was resolved to is started as a program, as the site's `user`, for this request alone. \
             Needs a `root` in the site.",
            "cgi = true",
        ),
        key(
            "respond",
            Kind::Other("table"),
            Absent("not chosen"),
            "A fixed reply.",
            "respond = { status = 200, body = \"ok\" }",
        ),
        key(
            "redirect",
            Kind::Other("template"),
            Absent("not chosen"),
            "A redirect to this target. `$1` and `${name}` are groups of the rule's `path_regex`, escaped as in a URL.",
            "redirect = \"https://$host$uri\"",
        ),
        key(
            "status",
            Kind::Other("301, 302, 303, 307 or 308"),
            Value("302"),
            "Status of `redirect`.",
            "redirect = \"/new\", status = 301",
        ),
        key(
            "metrics",
            Kind::Choice(&["prometheus", "json"]),
            Absent("not chosen"),
            "The gateway's own figures.",
            "metrics = \"prometheus\"",
        ),
        key(
            "console",
            Kind::Other("`true`, `\"$tenant\"` or table"),
            Absent("not chosen"),
            "Pages of what the recorder knows and of what goes on now: of everything (`true`, on a site without files, \
             programs and back ends), of the site's own tenant (`\"$tenant\"`), or as a table says. It needs `[recorder]`, \
             and something in force that asks who comes: `auth`, certificates of clients, an `allow` of this machine alone, or a \
             `link_secret`. It stands below the `path` of its rule, as `/console/*`.",
            "console = true",
        ),
        SCRIPT_OF_HANDLER,
    ],
};

const ALLOW_OF_ROWS: Key = key(
    "allow",
    Kind::Other("list of addresses and networks, each with or without a port"),
    Absent("required beside `proxy = \"$row.NAME\"`"),
    "To which addresses rows may lead, as `allow` in `proxy = { … }` says it of scripts. The address that is connected to \
     is what counts; one of this machine only where an entry is of its loopback network.",
    "proxy = \"$row.upstream\", allow = [\"10.0.0.0/8\"]",
);

pub(crate) const PROXY: Section = Section {
    title: "proxy = { … }",
    about: "Forwarding, where an upstream's name alone does not say all.",
    keys: &[
        key(
            "upstream",
            Kind::Text,
            Absent("required, unless `script` names it"),
            "An upstream's name, or `\"http://HOST:PORT\"`.",
            "upstream = \"http://127.0.0.1:9001\"",
        ),
        key(
            "strip_prefix",
            Kind::Text,
            Absent("nothing is cut"),
            "Cut from the path's beginning; a path without it is forwarded as it is. Begins with `/`.",
            "strip_prefix = \"/app\"",
        ),
        key(
            "add_prefix",
            Kind::Text,
            Absent("nothing is added, or the URL's path"),
            "Put before the path, after `strip_prefix`. Begins with `/`.",
            "add_prefix = \"/v2\"",
        ),
        key(
            "path",
            Kind::Other("template"),
            Absent("the client's path"),
            "The whole path that is asked for in the place of the client's, `$1` and `${name}` being groups of the rule's \
             `path_regex`, escaped. The client's query follows, unless a `?` stands in it. Not beside `strip_prefix` and \
             `add_prefix`.",
            "path = \"/v2/status\"",
        ),
        key(
            "host",
            Kind::Other("`\"client\"`, `\"upstream\"` or a host"),
            Value("\"client\""),
            "The `Host` that is sent: what the client asked for, the server's own address, or this host.",
            "host = \"app.internal\"",
        ),
        key(
            "buffer_request",
            Kind::Flag,
            Value("false"),
            "Take the whole body before connecting. Slow clients then keep no server busy.",
            "buffer_request = true",
        ),
        key(
            "buffer_reply",
            Kind::Other("`false` or size, 1 to 1TiB"),
            Absent("`\"64MiB\"` for requests that hold a place in a limit, else `false`"),
            "Take up to this much of a reply off the server's hands, in memory and then in a temporary file \
             (`caps.spool_memory_bytes`, `caps.spool_disk_bytes`), so that slow clients keep it from nothing. What the \
             client takes at once is sent at once.",
            "buffer_reply = \"8MiB\"",
        ),
        key(
            "tunnels",
            Kind::Flag,
            Value("true"),
            "Let `Upgrade` through (WebSocket).",
            "tunnels = false",
        ),
        key(
            "proxy_redirect",
            Kind::Other("`true`, `false` or table"),
            Absent("URLs of the server itself become paths of the rule"),
            "What of a reply that would lead past the gateway is rewritten: URLs of the server, as nginx's `proxy_redirect \
             default` does it (`true` says no more), and what the table says. `false`: nothing is.",
            "proxy_redirect = false",
        ),
        key(
            "early_hints",
            Kind::Choice(&["browsers", "all", "none"]),
            Value("browsers"),
            "Who gets a back end's `103 Early Hints`: a browser that opens a page and comes straight here (`Sec-Fetch-Mode: \
             navigate`, and no sign of another proxy), everybody who speaks HTTP/1.1, or nobody. Never sent where scripts \
             see the reply's head.",
            "early_hints = \"all\"",
        ),
        SCRIPT_OF_PROXY,
        ALLOW_OF_PROXY,
    ],
};

pub(crate) const PROXY_REDIRECT: Section = Section {
    title: "proxy_redirect = { … }",
    about: "What a back end calls its own, and what stands there instead when a client sees it. Of the beginnings that \
            fit the longest counts; one ends at the end of a segment. At most 32 of each kind.",
    keys: &[
        key(
            "location",
            Kind::Other("table: path or URL = template"),
            Absent("only URLs of the server itself"),
            "Beginnings in `Location`, `Content-Location` and `Refresh`. A path fits a URL of the host that the client asked \
             for, too, which it then stays.",
            "location = { \"http://app.internal/\" = \"https://$host/app/\", \"/v2\" = \"/api\" }",
        ),
        key(
            "cookie_domain",
            Kind::Other("table: domain = template"),
            Absent("none"),
            "The `Domain` of cookies, whole; `\"\"` takes it away, and the cookie is for the client's host alone. A dot in front \
             does not count.",
            "cookie_domain = { \"app.internal\" = \"\" }",
        ),
        key(
            "cookie_path",
            Kind::Other("table: path = template"),
            Absent("none"),
            "Beginnings of the `Path` of cookies.",
            "cookie_path = { \"/v2\" = \"/api\" }",
        ),
    ],
};

pub(crate) const CONSOLE: Section = Section {
    title: "console = { … }",
    about: "Whose figures a console shows, and how a panel logs its customers in.",
    keys: &[
        key(
            "tenants",
            Kind::Other("list of names"),
            Absent("everybody's figures, and the machine's"),
            "The tenants whose figures are shown; `$tenant` is that of the site.",
            "tenants = [\"$tenant\"]",
        ),
        key(
            "link_secret",
            Kind::Text,
            Absent("no link lets anybody in"),
            "A file with a secret of 32 bytes at least, such as `openssl rand -hex 32` prints. With it who comes by a link that a panel \
             has signed is let in for 12 hours, and nobody else: to what the link names, of what is shown here. A link holds for 60 \
             seconds, for one host, and once.",
            "link_secret = \"console.key\"",
        ),
    ],
};

pub(crate) const RESPOND: Section = Section {
    title: "respond = { … }",
    about: "A fixed reply.",
    keys: &[
        key(
            "status",
            Kind::Count(200, 599),
            Value("200"),
            "The reply's status.",
            "status = 503",
        ),
        key(
            "body",
            Kind::Other("template"),
            Value("\"\""),
            "The reply's body. None is sent with 204 and 304.",
            "body = \"hello, $client\\n\"",
        ),
        key(
            "content_type",
            Kind::Text,
            Value("text/plain; charset=utf-8"),
            "The body's media type.",
            "content_type = \"application/json\"",
        ),
    ],
};
