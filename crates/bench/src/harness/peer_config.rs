//! What every server is told. The aim is the same work for all: kept connections to the back end,
//! no cap on requests per connection, room for 12,000 connections, the same log setting, and for
//! nginx the caches and calls that make it fast.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::bed::{Bed, GREETING, Log, SERVER_CORE};
use super::peer::{Peer, Server};
use crate::error::Error;

/// How a server is to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// Names the server's directory.
    pub(crate) label: &'a str,
    pub(crate) workers: usize,
    /// As taskset takes them.
    pub(crate) cores: &'a str,
    pub(crate) log: Log,
    /// Sites besides the one measured.
    pub(crate) sites: usize,
    /// What the extra sites and `/generation` answer, to see a reload happen.
    pub(crate) generation: u32,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Plan {
            label: "plain",
            workers: 1,
            cores: SERVER_CORE,
            log: Log::Off,
            sites: 0,
            generation: 1,
        }
    }
}

/// Writes the configuration of `peer` into `home` and returns the command that serves it.
pub(crate) fn write(
    peer: &Peer,
    bed: &Bed,
    plan: &Plan<'_>,
    home: &Path,
    port: u16,
) -> Result<Vec<String>, Error> {
    let (name, text) = match peer.server {
        Server::Nagaya => ("nagaya.toml", nagaya(bed, plan, home, port)),
        Server::Nginx => ("nginx.conf", nginx(bed, plan, home, port)),
        Server::Haproxy => ("haproxy.cfg", haproxy(bed, plan, port)),
        Server::H2o => ("h2o.yaml", h2o(bed, plan, home, port)),
    };
    let file = home.join(name);
    fs::write(&file, text).map_err(|e| Error::new(format!("write {}", file.display()), e))?;
    let binary = peer.binary.display().to_string();
    let config = file.display().to_string();
    Ok(match peer.server {
        Server::Nagaya => vec![binary, "serve".into(), "-c".into(), config],
        Server::Nginx => nginx_command(&peer.binary, home, &file),
        Server::Haproxy => vec![binary, "-db".into(), "-f".into(), config],
        Server::H2o => vec![binary, "-c".into(), config],
    })
}

/// The command that runs nginx from its own directory, in the foreground.
pub(crate) fn nginx_command(binary: &Path, home: &Path, config: &Path) -> Vec<String> {
    [
        binary.as_os_str(),
        "-p".as_ref(),
        home.as_os_str(),
        "-c".as_ref(),
        config.as_os_str(),
        "-e".as_ref(),
        "stderr".as_ref(),
    ]
    .iter()
    .map(|part| part.to_string_lossy().into_owned())
    .collect()
}

/// The back end: a fixed reply and a file, as fast as nginx gives them.
pub(crate) fn backend(home: &Path, files: &Path, port: u16) -> String {
    let body = format!(
        "    listen 127.0.0.1:{port} backlog=4096;
    location = /proxy/13 {{ return 200 '{GREETING}'; }}
    location = /proxy/100k {{ alias {}/static/100k.txt; }}\n",
        files.display()
    );
    nginx_around(home, 1, "access_log off;", &body, "")
}

/// php-fpm with a child for every kept connection: one that waits in line behind idle ones would
/// measure the queue.
pub(crate) fn php(home: &Path, socket: &Path) -> String {
    let user = match rustix::process::geteuid().is_root() {
        true => "user = nobody\ngroup = nogroup\nlisten.mode = 0666\n",
        false => "",
    };
    format!(
        "[global]
error_log = {home}/error.log
daemonize = no
[www]
{user}listen = {socket}
listen.backlog = 1024
pm = static
pm.max_children = 128
",
        home = home.display(),
        socket = socket.display(),
    )
}

/// The command that runs php-fpm in the foreground.
pub(crate) fn php_command(binary: &Path, config: &Path) -> Vec<String> {
    let paths = [binary, "-F".as_ref(), "-y".as_ref(), config];
    let text = |path: &&Path| path.display().to_string();
    paths.iter().map(text).collect()
}

fn nginx(bed: &Bed, plan: &Plan<'_>, home: &Path, port: u16) -> String {
    let log = match plan.log {
        Log::Off => "access_log off;".to_owned(),
        Log::On => format!("access_log {}/access.log combined;", home.display()),
    };
    let reuseport = if plan.workers > 1 { " reuseport" } else { "" };
    let body = format!(
        "    listen 127.0.0.1:{port} backlog=4096{reuseport};
    root {files};
    location = /respond {{ return 200 '{GREETING}'; }}
    location = /generation {{ return 200 '{generation}'; }}
    location /proxy/ {{
      proxy_pass http://back;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
      proxy_buffer_size 16k;
      proxy_buffers 16 16k;
    }}
{php}\n",
        php = nginx_php(bed),
        files = bed.files().display(),
        generation = plan.generation,
    );
    let mut more = format!(
        "  upstream back {{ server 127.0.0.1:{}; keepalive 64; keepalive_requests 1000000000; }}\n",
        bed.backend_port()
    );
    if let Some(socket) = bed.php() {
        let socket = socket.display();
        let _ = writeln!(
            more,
            "  upstream php {{ server unix:{socket}; keepalive 64; keepalive_requests 1000000000; }}"
        );
    }
    for site in 0..plan.sites {
        let _ = writeln!(
            more,
            "  server {{ listen 127.0.0.1:{port}; server_name {}; root {}; location = /hello {{ return 200 'hello'; }} }}",
            site_name(site),
            bed.files().display()
        );
    }
    nginx_around(home, plan.workers, &log, &body, &more)
}

/// What Debian's `fastcgi_params` sends.
fn nginx_php(bed: &Bed) -> &'static str {
    if bed.php().is_none() {
        return "";
    }
    "    location /php/ {
      fastcgi_pass php;
      fastcgi_keep_conn on;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
      fastcgi_param SCRIPT_NAME $fastcgi_script_name;
      fastcgi_param REQUEST_URI $request_uri;
      fastcgi_param DOCUMENT_URI $document_uri;
      fastcgi_param DOCUMENT_ROOT $document_root;
      fastcgi_param SERVER_PROTOCOL $server_protocol;
      fastcgi_param REQUEST_SCHEME $scheme;
      fastcgi_param GATEWAY_INTERFACE CGI/1.1;
      fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;
      fastcgi_param REMOTE_ADDR $remote_addr;
      fastcgi_param REMOTE_PORT $remote_port;
      fastcgi_param SERVER_ADDR $server_addr;
      fastcgi_param SERVER_PORT $server_port;
      fastcgi_param SERVER_NAME $server_name;
      fastcgi_param REDIRECT_STATUS 200;
    }"
}

fn nginx_around(home: &Path, workers: usize, log: &str, server: &str, more: &str) -> String {
    let home = home.display();
    format!(
        "daemon off;
worker_processes {workers};
pid {home}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 12000; }}
http {{
  {log}
  default_type text/plain;
  types {{ text/plain txt; }}
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 300s;
  keepalive_requests 1000000000;
  open_file_cache max=1000 inactive=300s;
  server_names_hash_max_size 65536;
  server_names_hash_bucket_size 128;
  client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi;
  scgi_temp_path {home}/scgi;
  server {{
{server}  }}
{more}}}
"
    )
}

fn haproxy(bed: &Bed, plan: &Plan<'_>, port: u16) -> String {
    // HAProxy logs to descriptors; its standard output is a file of the bed.
    let (log, format) = match plan.log {
        Log::Off => ("", String::new()),
        Log::On => (
            "  log stdout format raw local0\n",
            "  log global\n  log-format '%ci - - [%t] \"%r\" %ST %B \"%[capture.req.hdr(0)]\" \"%[capture.req.hdr(1)]\"'\n  \
             http-request capture req.hdr(Referer) len 128\n  http-request capture req.hdr(User-Agent) len 128\n"
                .to_owned(),
        ),
    };
    format!(
        "global
  nbthread {workers}
  no strict-limits
  maxconn 12000
{log}
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 300s
  timeout http-keep-alive 300s
  timeout server 60s

frontend front
  bind 127.0.0.1:{port} backlog 4096
{format}  http-request return status 200 content-type text/plain string '{GREETING}' if {{ path /respond }}
  default_backend back

backend back
  server one 127.0.0.1:{backend}
",
        workers = plan.workers,
        backend = bed.backend_port(),
    )
}

fn h2o(bed: &Bed, plan: &Plan<'_>, home: &Path, port: u16) -> String {
    let log = match plan.log {
        Log::Off => String::new(),
        Log::On => format!(
            "access-log:\n  path: {}/access.log\n  format: '%h %l %u %t \"%r\" %s %b \"%{{Referer}}i\" \"%{{User-agent}}i\"'\n",
            home.display()
        ),
    };
    // Becoming another user would make it outlive a harness that is killed.
    let user = if rustix::process::geteuid().is_root() {
        "user: root\n"
    } else {
        ""
    };
    format!(
        "{user}num-threads: {workers}
max-connections: 12000
http1-request-timeout: 300
pid-file: {home}/h2o.pid
error-log: /dev/null
{log}hosts:
  default:
    listen:
      host: 127.0.0.1
      port: {port}
    paths:
      /static:
        file.dir: {files}/static
      /proxy:
        proxy.reverse.url: http://127.0.0.1:{backend}/proxy
        proxy.timeout.keepalive: 60000
",
        workers = plan.workers,
        home = home.display(),
        files = bed.files().display(),
        backend = bed.backend_port(),
    )
}

fn nagaya(bed: &Bed, plan: &Plan<'_>, home: &Path, port: u16) -> String {
    let log = match plan.log {
        Log::Off => String::new(),
        Log::On => format!("{}/access.log", home.display()),
    };
    let mut text = format!(
        "workers = {workers}

[[listen]]
address = \"127.0.0.1:{port}\"

[log]
access = \"{log}\"
format = \"combined\"
level = \"warn\"

[timeouts]
idle = \"300s\"

[caps]
connections_per_client = 0
requests_per_connection = 0

[upstreams.back]
servers = [\"127.0.0.1:{backend}\"]

[[sites]]
hosts = [\"*\"]
root = \"{files}\"

  [[sites.rules]]
  match = {{ path = \"/proxy/*\" }}
  handler = {{ proxy = \"back\" }}

  [[sites.rules]]
  match = {{ path = \"/respond\" }}
  handler = {{ respond = {{ status = 200, body = \"{GREETING}\" }} }}

  [[sites.rules]]
  match = {{ path = \"/generation\" }}
  handler = {{ respond = {{ status = 200, body = \"{generation}\" }} }}

  [[sites.rules]]
  match = {{ path = \"/metrics\" }}
  handler = {{ metrics = \"json\" }}
",
        workers = plan.workers,
        backend = bed.backend_port(),
        files = bed.files().display(),
        generation = plan.generation,
    );
    if let Some(socket) = bed.php() {
        let _ = write!(
            text,
            "
  [[sites.rules]]
  match = {{ file = \"*.php\" }}
  handler = {{ fastcgi = \"php\" }}

[upstreams.php]
protocol = \"fastcgi\"
servers = [\"unix:{}\"]
keepalive = 64
",
            socket.display()
        );
    }
    for site in 0..plan.sites {
        text.push_str(&further_site(bed, site));
    }
    text
}

fn further_site(bed: &Bed, site: usize) -> String {
    format!(
        "
[[sites]]
hosts = [\"{}\"]
root = \"{}\"

  [[sites.rules]]
  match = {{ path = \"/hello\" }}
  handler = {{ respond = {{ status = 200, body = \"hello\" }} }}
",
        site_name(site),
        bed.files().display()
    )
}

fn site_name(site: usize) -> String {
    format!("site-{site}.example")
}
