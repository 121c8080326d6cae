//! Handlers as TOML.

use std::iter::once;

use super::pool;
use super::script;
use super::write::{braces, list, quote, quote_path, some_count, some_duration, some_size};
use crate::lower::names::Named;
use crate::lower::script::Place;
use crate::lower::template::spell;
use crate::lower::upstream::FASTCGI_PREFIX;
use crate::model::{
    AppPool, Cgi, Console, FastCgi, Handler, Model, PoolProgram, Proxy, ProxyHost, ProxyRedirects,
    ProxyTarget, Template, Upstream,
};
use crate::units;

/// `handler`, where it is one table of one entry.
pub(super) fn handler(handler: &Handler, model: &Model) -> String {
    let upstreams = &model.upstreams;
    if let Some(pool) = handler.pool().and_then(|at| model.pools.get(at)) {
        return of_pool(handler, &pool.program);
    }
    match handler {
        Handler::Static => "{ static = true }".to_owned(),
        Handler::Proxy(settings) => format!("{{ proxy = {} }}", proxy(settings, upstreams)),
        Handler::FastCgi(it) if it.of_row => {
            format!("{{ php = {} }}", braces(fastcgi_settings(it)))
        }
        Handler::FastCgi(settings) => format!("{{ fastcgi = {} }}", fastcgi(settings, upstreams)),
        Handler::Cgi(settings) => format!("{{ cgi = {} }}", cgi(settings)),
        Handler::Respond(reply) => format!(
            "{{ respond = {{ status = {}, body = {}, content_type = {} }} }}",
            reply.status,
            quote(spell(&reply.body)),
            quote(&reply.content_type)
        ),
        Handler::Redirect(redirect) => {
            format!(
                "{{ redirect = {}, status = {} }}",
                quote(spell(&redirect.target)),
                redirect.status
            )
        }
        Handler::Metrics(format) => format!("{{ metrics = {} }}", quote(format.name())),
        Handler::Console(it) => format!("{{ console = {} }}", console(it)),
        Handler::Script(given) => {
            format!("{{ script = {} }}", script::script(given, Place::Content))
        }
    }
}

fn console(console: &Console) -> String {
    let tenants = console.tenants.as_ref();
    let tenants = tenants.map(|names| format!("tenants = {}", list(names, quote)));
    let secret = console.secret.as_ref();
    let secret = secret.map(|secret| format!("link_secret = {}", quote_path(&secret.file)));
    match (tenants, secret) {
        (None, None) => "true".to_owned(),
        (tenants, secret) => braces(tenants.into_iter().chain(secret)),
    }
}

/// `php` or `app`.
fn of_pool(handler: &Handler, program: &PoolProgram) -> String {
    match (program, handler) {
        (PoolProgram::Php(_), Handler::FastCgi(it)) => {
            format!("{{ php = {} }}", braces(fastcgi_settings(it)))
        }
        (PoolProgram::App(program), Handler::FastCgi(it)) => {
            app(program, it.buffer_request, it.buffer_reply_bytes)
        }
        (PoolProgram::App(program), Handler::Proxy(it)) => app(
            program,
            it.buffer_request,
            it.buffer_reply.unwrap_or_default(),
        ),
        // No other handler has a pool.
        _ => String::new(),
    }
}

fn app(app: &AppPool, buffer_request: bool, reply_bytes: u64) -> String {
    let buffered = [
        format!("buffer_request = {buffer_request}"),
        buffer_reply(reply_bytes),
    ];
    format!("{{ app = {} }}", braces(pool::app(app).chain(buffered)))
}

fn proxy(proxy: &Proxy, upstreams: &[Upstream]) -> String {
    let target = match &proxy.target {
        ProxyTarget::Script(given) => format!("script = {}", script::script(given, Place::Set)),
        ProxyTarget::Row(column) => format!("upstream = {}", quote(format!("${{row.{column}}}"))),
        ProxyTarget::Upstream(index) => {
            let name = upstreams.get(*index).map_or("", |upstream| &upstream.name);
            format!("upstream = {}", quote(name))
        }
    };
    let host = match &proxy.host {
        ProxyHost::Client => "client",
        ProxyHost::Upstream => "upstream",
        ProxyHost::Fixed(host) => host,
    };
    let strip = proxy
        .strip_prefix
        .iter()
        .map(|prefix| format!("strip_prefix = {}", quote(prefix)));
    let add = proxy
        .add_prefix
        .iter()
        .map(|prefix| format!("add_prefix = {}", quote(prefix)));
    let path = proxy
        .path
        .iter()
        .map(|path| format!("path = {}", quote(spell(path))));
    let rest = [
        format!("host = {}", quote(host)),
        format!("buffer_request = {}", proxy.buffer_request),
        format!("tunnels = {}", proxy.tunnels),
        format!("early_hints = {}", quote(proxy.early_hints.name())),
    ];
    let aside = proxy.buffer_reply.map(buffer_reply);
    let entries = once(target).chain(script::allow(&proxy.allow));
    let entries = entries.chain(strip).chain(add).chain(path);
    let entries = entries.chain(once(redirects(proxy.redirects.as_deref())));
    braces(entries.chain(rest).chain(aside))
}

fn redirects(redirects: Option<&ProxyRedirects>) -> String {
    let Some(redirects) = redirects else {
        return "proxy_redirect = false".to_owned();
    };
    let table = |name: &str, rewrites: &[(String, Template)]| {
        let rewrites = rewrites.iter();
        let rewrites = rewrites.map(|(from, to)| format!("{} = {}", quote(from), quote(spell(to))));
        format!("{name} = {}", braces(rewrites))
    };
    let tables = [
        table("location", &redirects.location),
        table("cookie_domain", &redirects.cookie_domain),
        table("cookie_path", &redirects.cookie_path),
    ];
    format!("proxy_redirect = {}", braces(tables.into_iter()))
}

fn fastcgi(fastcgi: &FastCgi, upstreams: &[Upstream]) -> String {
    let upstream = upstreams.get(fastcgi.upstream);
    let name = upstream.map_or("", |upstream| &upstream.name);
    let address = name.strip_prefix(FASTCGI_PREFIX).unwrap_or(name);
    let root = fastcgi.root.as_deref();
    let entries = [
        Some(format!("address = {}", quote(address))),
        root.map(|root| format!("root = {}", quote_path(root))),
    ];
    braces(
        entries
            .into_iter()
            .flatten()
            .chain(fastcgi_settings(fastcgi)),
    )
}

fn fastcgi_settings(fastcgi: &FastCgi) -> [String; 4] {
    [
        params(&fastcgi.params),
        format!("buffer_request = {}", fastcgi.buffer_request),
        buffer_reply(fastcgi.buffer_reply_bytes),
        format!("abort_on_close = {}", fastcgi.abort_on_close),
    ]
}

fn cgi(cgi: &Cgi) -> String {
    let cpu_ms = cgi.limits.cpu_s.map(|seconds| seconds * 1_000);
    let entries = [
        some_duration("timeout", Some(cgi.timeout_ms)),
        Some(params(&cgi.params)),
        Some(format!("buffer_request = {}", cgi.buffer_request)),
        Some(buffer_reply(cgi.buffer_reply_bytes)),
        Some(format!("abort_on_close = {}", cgi.abort_on_close)),
        some_duration("cpu_time", cpu_ms),
        some_size("memory", cgi.limits.memory_bytes),
        some_count("files", cgi.limits.files),
        some_count("processes", cgi.limits.processes),
        some_size("file_size", cgi.limits.file_size_bytes),
    ];
    braces(entries.into_iter().flatten())
}

fn params(params: &[(String, Option<Template>)]) -> String {
    let set = params.iter().filter_map(|(name, template)| {
        let template = template.as_ref()?;
        Some(format!("{} = {}", quote(name), quote(spell(template))))
    });
    let removed = params.iter().filter(|(_, template)| template.is_none());
    let removed: Vec<&String> = removed.map(|(name, _)| name).collect();
    format!(
        "params = {{ set = {}, remove = {} }}",
        braces(set),
        list(&removed, quote)
    )
}

fn buffer_reply(bytes: u64) -> String {
    match bytes {
        0 => "buffer_reply = false".to_owned(),
        bytes => format!("buffer_reply = {}", quote(units::size(bytes))),
    }
}
