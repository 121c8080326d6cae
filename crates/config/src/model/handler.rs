//! Handlers: what answers a request.

use super::Template;

/// What answers a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Handler {
    /// Files below the site's root.
    Static,
    /// Forwarding.
    Proxy(Proxy),
    /// A fixed reply.
    Respond(Respond),
    /// A redirect.
    Redirect(Redirect),
    /// The process's own figures.
    Metrics(MetricsFormat),
}

/// `handler = { proxy = … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Index into [`super::Model::upstreams`].
    pub upstream: usize,
    /// Prefix cut from the path before forwarding; begins with `/`.
    pub strip_prefix: Option<String>,
    /// Prefix put before the path; begins with `/`.
    pub add_prefix: Option<String>,
    /// The `Host` sent. Default: the client's.
    pub host: ProxyHost,
    /// Take the whole request body before connecting.
    pub buffer_request: bool,
    /// Take up to this much of a reply off the upstream's hands; 0 streams.
    pub buffer_reply_bytes: u64,
    /// Upgrade tunnels are let through. Default yes.
    pub tunnels: bool,
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
