//! Who talks to whom, and which site it is about: `Connection`, `Server`, `Scoreboard`.

use mruby::{Answer, Datum};

use super::chapter::{Chapter, takes};
use super::entries::{Classes, function, holder, missing, not_there, reader};
use super::native::answered;
use super::request::{initialize, number, own, property, whole};
use crate::request::Property;
use crate::state::NativeCall;

const CONNECTIONS: Classes = &["Nginx::Connection", "Apache::Connection"];
const NGINX: Classes = &["Nginx::Connection"];
const APACHE: Classes = &["Apache::Connection"];
const SERVERS: Classes = &["Nginx::Server", "Apache::Server"];
const NGINX_SERVER: Classes = &["Nginx::Server"];
const APACHE_SERVER: Classes = &["Apache::Server"];
const SCOREBOARD: Classes = &["Apache::Scoreboard"];

/// Classes whose objects tell of one request.
const OF_REQUESTS: Classes = &[
    "Nginx::Connection",
    "Apache::Connection",
    "Nginx::Server",
    "Apache::Server",
];

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Connection, Server, Scoreboard",
    text: "Connection and site of the request whose script it is. Ports are Strings for nginx, Integers \
           for Apache.",
    classes: &[
        holder("Nginx::Connection"),
        holder("Apache::Connection"),
        holder("Nginx::Server"),
        holder("Apache::Server"),
        holder("Apache::Scoreboard"),
    ],
    constants: &[],
    methods: &[
        reader(OF_REQUESTS, &["initialize"], "", initialize),
        reader(
            CONNECTIONS,
            &["remote_ip"],
            "The client's address.",
            |call| property(call, Property::RemoteAddress),
        ),
        reader(
            CONNECTIONS,
            &["local_ip"],
            "The address it connected to.",
            |call| property(call, Property::LocalAddress),
        ),
        reader(NGINX, &["remote_port"], "The client's port.", |call| {
            property(call, Property::RemotePort)
        }),
        reader(
            NGINX,
            &["local_port"],
            "The port it connected to.",
            |call| property(call, Property::LocalPort),
        ),
        reader(APACHE, &["remote_port"], "The client's port.", |call| {
            number(call, Property::RemotePort)
        }),
        reader(
            APACHE,
            &["local_port"],
            "The port it connected to.",
            |call| number(call, Property::LocalPort),
        ),
        reader(
            APACHE,
            &["remote_host", "remote_logname", "local_host"],
            "Always `nil`: no names are looked up.",
            |_| Answer::Nil,
        ),
        reader(
            APACHE,
            &["keepalives"],
            "Requests before this one on its connection.",
            keepalives,
        ),
        reader(APACHE, &["data_in_input_filters"], "Always 0.", |_| {
            Answer::Int(0)
        }),
        reader(SERVERS, &["document_root"], "The site's root.", |call| {
            property(call, Property::DocumentRoot)
        }),
        reader(NGINX_SERVER, &["path"], "The site's root.", |call| {
            property(call, Property::DocumentRoot)
        }),
        function(
            NGINX_SERVER,
            &["add_listener"],
            (takes(0, 16), "…"),
            "Raises `NotImplementedError`: see `[[listen]]` in the configuration.",
            |_| add_listener(),
        ),
        missing(NGINX_SERVER, &["add_listener"], |_| add_listener()),
        reader(
            APACHE_SERVER,
            &["hostname"],
            "The site's first host.",
            |call| property(call, Property::SiteName),
        ),
        reader(
            APACHE_SERVER,
            &["redirect_server_scheme"],
            "The scheme of the request.",
            |call| property(call, Property::Scheme),
        ),
        reader(
            APACHE_SERVER,
            &["redirect_server_port"],
            "The port the client connected to.",
            |call| number(call, Property::LocalPort),
        ),
        reader(
            APACHE_SERVER,
            &["is_virtual", "keep_alive"],
            "Always 1.",
            |_| Answer::Int(1),
        ),
        reader(APACHE_SERVER, &["path", "admin"], "Always `nil`.", |_| {
            Answer::Nil
        }),
        reader(APACHE_SERVER, &["pathlen"], "Always 0.", |_| Answer::Int(0)),
        missing(
            APACHE_SERVER,
            &[
                "error_fname",
                "error_fname=",
                "loglevel",
                "loglevel=",
                "defn_name",
                "defn_line_number",
                "keep_alive_max",
                "keep_alive_timeout",
                "limit_req_line",
                "limit_req_fieldsize",
                "limit_req_fields",
                "timeout",
                "timeout=",
            ],
            |_| {
                not_there(
                    "this of Apache::Server",
                    "the configuration says it: see log, timeouts and request in its reference",
                )
            },
        ),
        reader(SCOREBOARD, &["pid"], "The number of the process.", |_| {
            Answer::Int(i64::from(std::process::id()))
        }),
        reader(
            SCOREBOARD,
            &["loadavg"],
            "How many processes were ready to run, on average: of the last 1, 5 and 15 minutes.",
            loadavg,
        ),
        missing(
            SCOREBOARD,
            &[
                "status",
                "counter",
                "cpu_load",
                "server_limit",
                "thread_limit",
                "access_counter",
                "total_kbyte",
                "total_access",
                "uptime",
                "restart_time",
                "idle_worker",
                "busy_worker",
            ],
            |_| {
                not_there(
                    "this of Apache::Scoreboard",
                    "`nagaya status` and the metrics handler tell what the gateway does",
                )
            },
        ),
    ],
    in_ruby: &[],
    prelude: "",
};

fn add_listener() -> Answer {
    not_there(
        "Nginx::Server#add_listener",
        "write [[listen]] into the configuration and reload",
    )
}

fn keepalives(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|own| {
        let mut digits = Vec::new();
        own.read(Property::ConnectionRequests, &mut digits);
        Answer::Int((whole(&digits) - 1).max(0))
    }))
}

/// The kernel makes the file up from memory when it is read: nobody waits for a disk.
fn loadavg(_: &mut NativeCall<'_>) -> Answer {
    match std::fs::read("/proc/loadavg").map(|text| averages(&text)) {
        Ok(Some(averages)) => Answer::Datum(averages),
        Ok(None) => Answer::runtime_error("/proc/loadavg holds no load"),
        Err(error) => Answer::runtime_error(format!("/proc/loadavg cannot be read: {error}")),
    }
}

fn averages(text: &[u8]) -> Option<Datum> {
    let text = std::str::from_utf8(text).ok()?;
    let numbers = text.split_ascii_whitespace().take(3);
    let averages: Result<Vec<Datum>, _> = numbers
        .map(|number| number.parse().map(Datum::Float))
        .collect();
    averages
        .ok()
        .filter(|averages| averages.len() == 3)
        .map(Datum::Array)
}
