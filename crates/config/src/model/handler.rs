//! Handlers: what answers a request.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::script::{AllowedAddress, Script};
use super::template::Template;

/// What answers a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Handler {
    /// Files below the site's root.
    Static,
    /// Forwarding.
    Proxy(Proxy),
    /// A program that runs already and speaks FastCGI, such as php-fpm. The site has a root.
    FastCgi(FastCgi),
    /// A program started for each request. The site has a root.
    Cgi(Box<Cgi>),
    /// A fixed reply.
    Respond(Respond),
    /// A redirect.
    Redirect(Redirect),
    /// The process's own figures.
    Metrics(MetricsFormat),
    /// Pages of what is recorded and goes on.
    Console(Box<Console>),
    /// A `content` script.
    Script(Box<Script>),
}

impl Handler {
    /// The word for it in records.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Proxy(_) => "proxy",
            Self::FastCgi(_) => "fastcgi",
            Self::Cgi(_) => "cgi",
            Self::Respond(_) => "respond",
            Self::Redirect(_) => "redirect",
            Self::Metrics(_) => "metrics",
            Self::Console(_) => "console",
            Self::Script(_) => "script",
        }
    }

    /// Index of the upstream it goes to, in [`super::Model::upstreams`]; `None` where it goes to
    /// none, or a script chooses.
    #[must_use]
    pub fn upstream(&self) -> Option<usize> {
        match self {
            Self::Proxy(proxy) => proxy.upstream(),
            Self::FastCgi(fastcgi) => (!fastcgi.of_row).then_some(fastcgi.upstream),
            _ => None,
        }
    }

    /// Index of the pool behind its upstream, in [`super::Model::pools`].
    #[must_use]
    pub fn pool(&self) -> Option<usize> {
        match self {
            Self::Proxy(proxy) => proxy.pool,
            Self::FastCgi(fastcgi) => fastcgi.pool,
            _ => None,
        }
    }

    /// Whether the gateway starts programs for it, as the site's user.
    #[must_use]
    pub fn starts_programs(&self) -> bool {
        matches!(self, Self::Cgi(_)) || self.has_pool()
    }

    /// Whether a pool of the gateway's answers.
    #[must_use]
    pub fn has_pool(&self) -> bool {
        self.pool().is_some() || self.has_pool_of_row()
    }

    /// Whether that is the pool of the row that makes the site.
    #[must_use]
    pub fn has_pool_of_row(&self) -> bool {
        matches!(self, Self::FastCgi(fastcgi) if fastcgi.of_row)
    }

    /// The script that answers, or names the upstream.
    #[must_use]
    pub fn script(&self) -> Option<&Script> {
        match self {
            Self::Script(script) => Some(script),
            Self::Proxy(proxy) => proxy.script(),
            _ => None,
        }
    }

    /// Whether it wants a body whole before it begins. A program must be told the length, so one
    /// without `length` is always taken first.
    #[must_use]
    pub fn takes_body_first(&self, length: Option<u64>) -> bool {
        match self {
            Self::Proxy(proxy) => proxy.buffer_request,
            Self::FastCgi(fastcgi) => fastcgi.buffer_request || length.is_none(),
            Self::Cgi(cgi) => cgi.buffer_request || length.is_none(),
            _ => false,
        }
    }

    /// Whether a client that ends its side of the connection has gone.
    #[must_use]
    pub fn aborts_on_close(&self) -> bool {
        match self {
            Self::Cgi(cgi) => cgi.abort_on_close,
            Self::FastCgi(fastcgi) => fastcgi.abort_on_close,
            _ => false,
        }
    }

    /// Its texts, which may ask maps.
    pub fn texts(&self) -> impl Iterator<Item = &Template> {
        let (one, params) = match self {
            Self::Proxy(proxy) => (proxy.path.as_ref(), &[][..]),
            Self::Redirect(redirect) => (Some(&redirect.target), &[][..]),
            Self::Respond(respond) => (Some(&respond.body), &[][..]),
            Self::Cgi(cgi) => (None, &*cgi.params),
            Self::FastCgi(fastcgi) => (None, &*fastcgi.params),
            _ => (None, &[][..]),
        };
        let params = params.iter().filter_map(|(_, template)| template.as_ref());
        let redirects = match self {
            Self::Proxy(proxy) => proxy.redirects.as_deref(),
            _ => None,
        };
        let redirects = redirects.into_iter().flat_map(ProxyRedirects::texts);
        one.into_iter().chain(params).chain(redirects)
    }
}

/// `handler = { proxy = … }`.
#[derive(Debug, Clone, PartialEq)]
pub struct Proxy {
    /// Where to.
    pub target: ProxyTarget,
    /// Index into [`super::Model::pools`] of the application behind the target's upstream, which
    /// is started when it is wanted: `handler = { app = … }`.
    pub pool: Option<usize>,
    /// Addresses that scripts and rows may choose beside named upstreams. Empty: none.
    pub allow: Box<[AllowedAddress]>,
    /// Prefix cut from the path before forwarding; begins with `/`.
    pub strip_prefix: Option<String>,
    /// Prefix put before the path; begins with `/`.
    pub add_prefix: Option<String>,
    /// What is asked for in the place of the client's path, with its query unless there is a `?`;
    /// beside it no prefix is cut or put.
    pub path: Option<Template>,
    /// The `Host` sent. Default: the client's.
    pub host: ProxyHost,
    /// Take the whole request body before connecting.
    pub buffer_request: bool,
    /// Take up to this much of a reply off the upstream's hands; 0 streams. Not said, it is
    /// [`Proxy::HELD_REPLY_BYTES`] for requests that hold a place in a limit, else 0.
    pub buffer_reply: Option<u64>,
    /// Upgrade tunnels are let through. Default yes.
    pub tunnels: bool,
    /// What of replies is rewritten, beside URLs of the server itself; `None` where nothing is.
    pub redirects: Option<Box<ProxyRedirects>>,
    /// Who gets a 103 of the upstream. Default: browsers.
    pub early_hints: EarlyHints,
}

/// What of a back end's replies would lead past the gateway, and what stands there instead. Of
/// several beginnings that fit the longest counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyRedirects {
    /// Beginnings of URLs and paths.
    pub location: Vec<(String, Template)>,
    /// Domains of cookies, without a dot in front. Nothing instead takes the domain away.
    pub cookie_domain: Vec<(String, Template)>,
    /// Beginnings of paths of cookies.
    pub cookie_path: Vec<(String, Template)>,
}

impl ProxyRedirects {
    /// Whether cookies are looked at.
    #[must_use]
    pub fn has_cookies(&self) -> bool {
        !self.cookie_domain.is_empty() || !self.cookie_path.is_empty()
    }

    /// Its texts.
    fn texts(&self) -> impl Iterator<Item = &Template> {
        let all = self.location.iter().chain(&self.cookie_domain);
        all.chain(&self.cookie_path).map(|(_, to)| to)
    }
}

/// Who is told what a back end says ahead of its reply (RFC 8297).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyHints {
    /// A browser that opens a page, where nothing says that a proxy stands between.
    Browsers,
    /// Every client that speaks HTTP/1.1.
    All,
    /// Nobody.
    None,
}

/// Where requests are forwarded.
#[derive(Debug, Clone, PartialEq)]
pub enum ProxyTarget {
    /// Index into [`super::Model::upstreams`].
    Upstream(usize),
    /// To what a script names, request by request.
    Script(Box<Script>),
    /// To the address that the row of the host says in this column.
    Row(Box<str>),
}

impl Proxy {
    /// How much of a reply is taken off the hands of an upstream for a request that holds places in
    /// limits: a client that stops reading is not to keep them.
    pub const HELD_REPLY_BYTES: u64 = 64 << 20;

    /// Index into [`super::Model::upstreams`]; `None` where a script or a row chooses.
    #[must_use]
    pub fn upstream(&self) -> Option<usize> {
        match self.target {
            ProxyTarget::Upstream(upstream) => Some(upstream),
            ProxyTarget::Script(_) | ProxyTarget::Row(_) => None,
        }
    }

    /// The column of the row that says where to.
    #[must_use]
    pub fn row(&self) -> Option<&str> {
        match &self.target {
            ProxyTarget::Row(column) => Some(column),
            ProxyTarget::Upstream(_) | ProxyTarget::Script(_) => None,
        }
    }

    /// The script that chooses.
    #[must_use]
    pub fn script(&self) -> Option<&Script> {
        match &self.target {
            ProxyTarget::Upstream(_) | ProxyTarget::Row(_) => None,
            ProxyTarget::Script(script) => Some(script),
        }
    }
}

/// The `Host` an upstream sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyHost {
    /// What the client asked for.
    Client,
    /// The server's own name or address.
    Upstream,
    /// This text.
    Fixed(String),
}

/// `handler = { fastcgi = … }`, and `handler = { php = true }`, which has a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastCgi {
    /// Index into [`super::Model::upstreams`], one that speaks FastCGI.
    pub upstream: usize,
    /// Index into [`super::Model::pools`] of the pool behind it, which is started when it is wanted.
    pub pool: Option<usize>,
    /// Whether the pool is the one of the row that makes the site: then it is found by that, and `upstream` is none.
    pub of_row: bool,
    /// The site's root as the server sees it, absolute; `None`: as we do.
    pub root: Option<PathBuf>,
    /// Parameters set (`Some`) and left out (`None`), each name once.
    pub params: Vec<(String, Option<Template>)>,
    /// Take the whole request body before a server is taken. Default yes.
    pub buffer_request: bool,
    /// Take up to this much of a reply off the server's hands; 0 streams. Default 64 MiB.
    pub buffer_reply_bytes: u64,
    /// A client that ends its side of the connection has gone. Default no.
    pub abort_on_close: bool,
}

/// `handler = { cgi = … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgi {
    /// How long a program may run in all. Default 10 min; its silence is `timeouts.upstream_read`.
    pub timeout_ms: u64,
    /// Variables set (`Some`) and left out (`None`), each name once.
    pub params: Vec<(String, Option<Template>)>,
    /// Take the whole request body before a program is started. Default yes.
    pub buffer_request: bool,
    /// Take up to this much of a reply off the program's hands; 0 streams. Default 64 MiB.
    pub buffer_reply_bytes: u64,
    /// A client that ends its side of the connection has gone. Default no.
    pub abort_on_close: bool,
    /// Limits of each of its processes.
    pub limits: Rlimits,
}

/// Limits of a process (`setrlimit(2)`); `None` leaves the one there is. No core is ever written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rlimits {
    /// CPU time in seconds.
    pub cpu_s: Option<u64>,
    /// Address space.
    pub memory_bytes: Option<u64>,
    /// Open descriptors.
    pub files: Option<u64>,
    /// Processes of the user.
    pub processes: Option<u64>,
    /// A file written.
    pub file_size_bytes: Option<u64>,
}

/// `handler = { respond = … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    /// 200 to 599.
    pub status: u16,
    /// The body.
    pub body: Template,
    /// Default `text/plain; charset=utf-8`.
    pub content_type: String,
}

/// `handler = { redirect = … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Where to.
    pub target: Template,
    /// 301, 302, 303, 307 or 308. Default 302.
    pub status: u16,
}

/// Formats of the metrics handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum MetricsFormat {
    Prometheus,
    Json,
}

/// `handler = { console = … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    /// The path below which it stands, with a slash at both ends: letters, digits, `-`, `.`, `_`, `~`
    /// and slashes.
    pub base: String,
    /// Whose figures are shown, [`Console::OWN_TENANT`] being the site's; `None` for everybody's and the
    /// machine's.
    pub tenants: Option<Vec<String>>,
    /// By which links of a panel are signed; `None`: none lets anybody in.
    pub secret: Option<LinkSecret>,
}

impl Console {
    /// The word for the tenant of the site; no tenant is called so.
    pub const OWN_TENANT: &str = "$tenant";
}

/// What a panel signs links with.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkSecret {
    /// The file, for messages.
    pub file: PathBuf,
    /// What was in it, without the space around it: 32 bytes at least.
    pub bytes: Arc<[u8]>,
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LinkSecret").field(&self.file).finish()
    }
}
