//! The effective configuration as TOML, every default written out.
//!
//! The idea: what is printed loads again to the same model. Upstreams that came from a URL are
//! left out of the list, for the handler's URL makes them anew.

mod limit;
mod map;
mod script;
mod shed;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use crate::lower::names::Named;
use crate::lower::script::Place;
use crate::lower::{FASTCGI_PREFIX, spell, spell_cpu};
use crate::model::{
    Caps, Cgi, Cgroup, Condition, FastCgi, FieldEdits, Files, Glob, Handler, HostPattern, IoLimit,
    Limit, ListenAddress, LogTarget, Model, Proxy, ProxyHost, ProxyTarget, Root, Rule, Server,
    Settings, Site, Template, Timeouts, TryEntry, Upstream,
};
use crate::units;

/// The configuration `model` came from, in full.
pub fn dump(model: &Model) -> String {
    let mut out = Lines {
        text: String::new(),
    };
    out.kept(model);
    out.key("workers", model.workers);
    out.key("user", quote(&model.user));
    out.key("cgroup_required", model.cgroup_required);
    out.key("trusted_proxies", list(&model.trusted_proxies, quote));
    out.edits(&model.request_headers, &model.reply_headers);
    if let Some(zone) = &model.time_zone {
        out.key("time_zone", quote(zone));
    }
    out.key("limits_overrides", quote_path(&model.limits_overrides));
    out.limits(&model.limits);
    if let Some(control) = &model.control {
        out.section("[control]");
        out.key("socket", quote_path(&control.socket));
    }
    for listener in &model.listeners {
        out.section("[[listen]]");
        let address = match &listener.address {
            ListenAddress::Tcp(address) => address.to_string(),
            ListenAddress::Unix(path) => format!("unix:{}", path.display()),
        };
        out.key("address", quote(&address));
        out.key("backlog", listener.backlog);
    }
    out.section("[log]");
    out.key("access", quote(log_target(&model.log.access)));
    out.key("format", quote(model.log.format.name()));
    out.key("level", quote(model.log.level.name()));
    out.key("files_max", model.log.files_max);
    out.timeouts(&model.timeouts);
    out.caps(&model.caps);
    out.scripts(&model.scripts);
    for upstream in model
        .upstreams
        .iter()
        .filter(|upstream| !is_inline(upstream))
    {
        out.upstream(upstream);
    }
    for tenant in &model.tenants {
        out.section(&format!("[tenants.{}]", quote(&tenant.name)));
        out.key("weight", tenant.weight);
        out.limits(&tenant.limits);
        out.level_scripts(&tenant.scripts);
        out.cgroup(tenant.cgroup.as_deref());
    }
    for map in &model.maps {
        out.map(map);
    }
    for shed in &model.shed {
        out.shed(shed);
    }
    for site in &model.sites {
        out.site(site, &model.upstreams);
    }
    out.text
}

/// Whether the upstream stands for a URL in a handler.
fn is_inline(upstream: &Upstream) -> bool {
    upstream.name.contains(':')
}

/// The text so far, a key a line.
struct Lines {
    text: String,
}

impl Lines {
    fn section(&mut self, title: &str) {
        self.text.push_str(&format!("\n{title}\n"));
    }

    fn key(&mut self, name: &str, value: impl fmt::Display) {
        self.text.push_str(&format!("{name} = {value}\n"));
    }

    fn duration(&mut self, name: &str, ms: u64) {
        self.key(name, quote(units::duration(ms)));
    }

    fn size(&mut self, name: &str, bytes: u64) {
        self.key(name, quote(units::size(bytes)));
    }

    fn timeouts(&mut self, timeouts: &Timeouts) {
        self.section("[timeouts]");
        self.duration("header", timeouts.header_ms);
        self.duration("body", timeouts.body_ms);
        self.duration("write", timeouts.write_ms);
        self.duration("idle", timeouts.idle_ms);
        self.duration("upstream_connect", timeouts.upstream_connect_ms);
        self.duration("upstream_read", timeouts.upstream_read_ms);
        self.duration("upstream_write", timeouts.upstream_write_ms);
        self.duration("upstream_idle", timeouts.upstream_idle_ms);
        self.duration("tunnel", timeouts.tunnel_ms);
        self.duration("drain", timeouts.drain_ms);
        self.duration("resolve", timeouts.resolve_ms);
    }

    fn caps(&mut self, caps: &Caps) {
        self.section("[caps]");
        self.size("head_bytes", caps.head_bytes as u64);
        self.size("target_bytes", caps.target_bytes as u64);
        self.key("fields", caps.fields);
        self.size("body_bytes", caps.body_bytes);
        self.size("chunk_extension_bytes", caps.chunk_extension_bytes as u64);
        self.size("trailer_bytes", caps.trailer_bytes as u64);
        self.size("drain_bytes", caps.drain_bytes);
        self.size("upstream_head_bytes", caps.upstream_head_bytes as u64);
        self.key("connections", caps.connections);
        self.key("connections_per_client", caps.connections_per_client);
        self.key("refusals_per_client", caps.refusals_per_client);
        self.key("requests_per_connection", caps.requests_per_connection);
        self.size("body_rate_min", caps.body_rate_min);
        self.size("write_rate_min", caps.write_rate_min);
        self.size("spool_memory_bytes", caps.spool_memory_bytes as u64);
        self.size("spool_disk_bytes", caps.spool_disk_bytes);
        self.size("cached_file_bytes", caps.cached_file_bytes as u64);
        self.size("file_cache_bytes", caps.file_cache_bytes as u64);
        self.key("auth_waiting", caps.auth_waiting);
        self.key("programs", caps.programs);
        self.size("env_bytes", caps.env_bytes as u64);
        self.key("limit_keys", caps.limit_keys);
    }

    fn upstream(&mut self, upstream: &Upstream) {
        self.section(&format!("[upstreams.{}]", quote(&upstream.name)));
        self.key("protocol", quote(upstream.protocol.name()));
        self.key("servers", list(&upstream.servers, server));
        self.key("keepalive", upstream.keepalive);
        self.key("balance", quote(upstream.balance.name()));
        self.key("fails", upstream.fails);
        self.duration("back_off", upstream.back_off_ms);
        self.duration("back_off_max", upstream.back_off_max_ms);
        self.key("tries", upstream.tries);
        if let Some(port) = upstream.agent_port {
            self.key("agent", port);
        }
        self.limits(&upstream.limits);
    }

    fn site(&mut self, site: &Site, upstreams: &[Upstream]) {
        self.section("[[sites]]");
        self.key("hosts", list(&site.hosts, quote));
        // The default may be no name that could be written: an IPv6 address.
        if site.hosts.first().map(HostPattern::to_string).as_ref() != Some(&site.tenant) {
            self.key("tenant", quote(&site.tenant));
        }
        if site.has_own_user {
            self.key("user", quote(&site.user));
        }
        self.cgroup(site.cgroup.as_deref());
        if let Some(root) = &site.root {
            self.root(root);
        }
        self.key("index", list(&site.index, quote));
        self.key("try", list(&site.resolve, try_entry));
        self.key("slashes", quote(site.slashes.name()));
        self.key("encoded_slash", quote(site.encoded_slash.name()));
        self.key("underscore_fields", quote(site.underscore_fields.name()));
        self.key(
            "log",
            format!("{{ access = {} }}", quote(log_target(&site.log))),
        );
        let pages = site.error_pages.iter();
        let pages =
            pages.map(|(status, page)| format!("\"{status}\" = {}", quote_path(&page.file)));
        self.key("error_pages", braces(pages));
        self.limits(&site.limits);
        self.level_scripts(&site.scripts);
        self.settings(&site.settings);
        self.files(&site.files);
        for rule in &site.rules {
            self.rule(rule, upstreams);
        }
    }

    fn root(&mut self, root: &Root) {
        self.key("root", quote_path(&root.path));
        self.key("within", quote_path(&root.within));
        self.key("symlinks", quote(root.symlinks.name()));
    }

    fn files(&mut self, files: &Files) {
        self.section("[sites.files]");
        self.key("sources", list(&files.sources, quote));
        self.key("listing", files.listing);
        let types = files.types.iter();
        self.key(
            "types",
            braces(
                types.map(|(extension, media)| format!("{} = {}", quote(extension), quote(media))),
            ),
        );
        self.key("default_type", quote(&files.default_type));
        self.key("precompressed", files.precompressed);
        self.key("compress", files.compress);
        self.size("compress_min_bytes", files.compress_min_bytes as u64);
        self.size("compress_max_bytes", files.compress_max_bytes as u64);
    }

    fn settings(&mut self, settings: &Settings) {
        self.edits(&settings.request_headers, &settings.reply_headers);
        if !settings.allow.is_empty() {
            self.key("allow", list(&settings.allow, quote));
        }
        if !settings.deny.is_empty() {
            self.key("deny", list(&settings.deny, quote));
        }
        if let Some(auth) = &settings.auth {
            let (realm, file) = (quote(&auth.realm), quote_path(&auth.file));
            self.key("auth", format!("{{ realm = {realm}, file = {file} }}"));
        }
        if !settings.env.is_empty() {
            self.key("env", templates(&settings.env));
        }
    }

    fn edits(&mut self, request: &FieldEdits, reply: &FieldEdits) {
        for (name, edits) in [("request_headers", request), ("reply_headers", reply)] {
            if *edits != FieldEdits::default() {
                self.key(name, field_edits(edits));
            }
        }
    }

    fn rule(&mut self, rule: &Rule, upstreams: &[Upstream]) {
        self.section("[[sites.rules]]");
        // Said, it would be a name.
        let name = if rule.is_named { "name" } else { "# name" };
        self.key(name, quote(&rule.name));
        if !rule.conditions.is_empty() {
            self.key("match", conditions(&rule.conditions));
        }
        if let Some(given) = &rule.handler {
            self.key("handler", handler(given, upstreams));
        }
        self.limits(&rule.limits);
        self.level_scripts(&rule.scripts);
        self.cgroup(rule.cgroup.as_deref());
        self.settings(&rule.settings);
    }

    /// Says which limits are another than the configuration's files say, and who says so.
    fn kept(&mut self, model: &Model) {
        for kept in model.kept() {
            let (file, line, identity) = (&kept.file, kept.line, &kept.identity);
            self.text
                .push_str(&format!("# {file}:{line} changes the limit {identity}\n"));
        }
    }

    fn limits(&mut self, limits: &[Limit]) {
        if !limits.is_empty() {
            self.key("limits", list(limits, limit::limit));
        }
    }

    fn cgroup(&mut self, given: Option<&Cgroup>) {
        if let Some(given) = given {
            self.key("cgroup", cgroup(given));
            self.key("cgroup_required", given.required);
        }
    }
}

fn cgroup(cgroup: &Cgroup) -> String {
    let size = |name, bytes: Option<u64>| {
        bytes.map(|bytes| format!("{name} = {}", quote(units::size(bytes))))
    };
    let count = |name, number: Option<u32>| number.map(|number| format!("{name} = {number}"));
    let cpu = cgroup.cpu_millicores.map(spell_cpu);
    let burst_ms = cgroup.cpu_burst_us.map(|us| us / 1_000);
    let entries = [
        cpu.map(|cpu| format!("cpu = {}", quote(cpu))),
        burst_ms.map(|ms| format!("burst = {}", quote(units::duration(ms)))),
        count("cpu_weight", cgroup.cpu_weight),
        size("memory", cgroup.memory_bytes),
        size("memory_high", cgroup.memory_high_bytes),
        count("pids", cgroup.pids),
        (!cgroup.io.is_empty()).then(|| format!("io = {}", list(&cgroup.io, io_limit))),
    ];
    braces(entries.into_iter().flatten())
}

fn io_limit(limit: &IoLimit) -> String {
    let size = |name, bytes: Option<u64>| {
        bytes.map(|bytes| format!("{name} = {}", quote(units::size(bytes))))
    };
    let count = |name, number: Option<u64>| number.map(|number| format!("{name} = {number}"));
    let entries = [
        Some(format!("device = {}", quote_path(&limit.device))),
        size("read", limit.read_bytes),
        size("write", limit.write_bytes),
        count("read_ops", limit.read_ops),
        count("write_ops", limit.write_ops),
    ];
    braces(entries.into_iter().flatten())
}

fn server(server: &Server) -> String {
    format!(
        "{{ address = {}, weight = {} }}",
        quote(server.address.to_string()),
        server.weight
    )
}

fn try_entry(entry: &TryEntry) -> String {
    match entry {
        TryEntry::Path => quote("$path"),
        TryEntry::Directory => quote("$path/"),
        TryEntry::Suffix(suffix) => quote(format!("$path{suffix}")),
        TryEntry::Fixed(file) => quote(file),
        TryEntry::Status(status) => quote(format!("={status}")),
    }
}

fn log_target(target: &LogTarget) -> &str {
    match target {
        LogTarget::Off => "",
        LogTarget::Stdout => "-",
        LogTarget::File(path) => path,
    }
}

fn field_edits(edits: &FieldEdits) -> String {
    let mut added: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, template) in &edits.add {
        let value = quote(spell(template));
        match added.last_mut() {
            Some((last, values)) if last == name => values.push(value),
            _ => added.push((name, vec![value])),
        }
    }
    let added = added
        .iter()
        .map(|(name, values)| format!("{} = [{}]", quote(name), values.join(", ")));
    braces(
        [
            (!edits.remove.is_empty()).then(|| format!("remove = {}", list(&edits.remove, quote))),
            (!edits.set.is_empty()).then(|| format!("set = {}", templates(&edits.set))),
            (!edits.add.is_empty()).then(|| format!("add = {}", braces(added))),
        ]
        .into_iter()
        .flatten(),
    )
}

fn templates(named: &[(String, Template)]) -> String {
    braces(
        named
            .iter()
            .map(|(name, template)| format!("{} = {}", quote(name), quote(spell(template)))),
    )
}

fn conditions(conditions: &[Condition]) -> String {
    let mut single = Vec::new();
    let mut tables: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for condition in conditions {
        match condition {
            Condition::File(glob) => single.push(format!("file = {}", quote(&glob.0))),
            Condition::Path(glob) => single.push(format!("path = {}", quote(&glob.0))),
            Condition::PathRegex(regex) => single.push(format!("path_regex = {}", quote(regex))),
            Condition::Method(methods) => single.push(format!("method = {}", list(methods, quote))),
            Condition::Client(networks) => {
                single.push(format!("client = {}", list(networks, quote)))
            }
            Condition::Exists(exists) => single.push(format!("exists = {exists}")),
            Condition::Map(asked) => single.extend(map::conditions(asked)),
            Condition::Not(inner) => single.push(format!("not = {}", self::conditions(inner))),
            Condition::Header(name, glob) => tables
                .entry("header")
                .or_default()
                .push(presence(name, glob)),
            Condition::Query(name, glob) => tables
                .entry("query")
                .or_default()
                .push(presence(name, glob)),
        }
    }
    let tables = tables
        .into_iter()
        .map(|(name, entries)| format!("{name} = {}", braces(entries.into_iter())));
    braces(single.into_iter().chain(tables))
}

fn presence(name: &str, glob: &Option<Glob>) -> String {
    let value = glob
        .as_ref()
        .map_or("true".to_owned(), |glob| quote(&glob.0));
    format!("{} = {value}", quote(name))
}

fn handler(handler: &Handler, upstreams: &[Upstream]) -> String {
    match handler {
        Handler::Static => "{ static = true }".to_owned(),
        Handler::Proxy(settings) => format!("{{ proxy = {} }}", proxy(settings, upstreams)),
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
        Handler::Script(given) => {
            format!("{{ script = {} }}", script::script(given, Place::Content))
        }
    }
}

fn proxy(proxy: &Proxy, upstreams: &[Upstream]) -> String {
    let target = match &proxy.target {
        ProxyTarget::Script(given) => format!("script = {}", script::script(given, Place::Set)),
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
    let rest = [
        format!("host = {}", quote(host)),
        format!("buffer_request = {}", proxy.buffer_request),
        format!("tunnels = {}", proxy.tunnels),
    ];
    let aside = proxy.buffer_reply.map(buffer_reply);
    let entries = std::iter::once(target).chain(script::allow(&proxy.allow));
    let entries = entries.chain(strip).chain(add);
    braces(entries.chain(rest).chain(aside))
}

fn fastcgi(fastcgi: &FastCgi, upstreams: &[Upstream]) -> String {
    let upstream = upstreams.get(fastcgi.upstream);
    let name = upstream.map_or("", |upstream| &upstream.name);
    let address = name.strip_prefix(FASTCGI_PREFIX).unwrap_or(name);
    let root = fastcgi.root.as_deref();
    let entries = [
        Some(format!("address = {}", quote(address))),
        root.map(|root| format!("root = {}", quote_path(root))),
        Some(params(&fastcgi.params)),
        Some(format!("buffer_request = {}", fastcgi.buffer_request)),
        Some(buffer_reply(fastcgi.buffer_reply_bytes)),
        Some(format!("abort_on_close = {}", fastcgi.abort_on_close)),
    ];
    braces(entries.into_iter().flatten())
}

fn cgi(cgi: &Cgi) -> String {
    let size = |name, bytes: Option<u64>| {
        bytes.map(|bytes| format!("{name} = {}", quote(units::size(bytes))))
    };
    let count = |name, number: Option<u64>| number.map(|number| format!("{name} = {number}"));
    let cpu_ms = cgi.limits.cpu_s.map(|seconds| seconds * 1_000);
    let entries = [
        Some(format!(
            "timeout = {}",
            quote(units::duration(cgi.timeout_ms))
        )),
        Some(params(&cgi.params)),
        Some(format!("buffer_request = {}", cgi.buffer_request)),
        Some(buffer_reply(cgi.buffer_reply_bytes)),
        Some(format!("abort_on_close = {}", cgi.abort_on_close)),
        cpu_ms.map(|ms| format!("cpu_time = {}", quote(units::duration(ms)))),
        size("memory", cgi.limits.memory_bytes),
        count("files", cgi.limits.files),
        count("processes", cgi.limits.processes),
        size("file_size", cgi.limits.file_size_bytes),
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

fn list<'t, T>(items: &'t [T], spell: impl Fn(&'t T) -> String) -> String {
    format!(
        "[{}]",
        items.iter().map(spell).collect::<Vec<_>>().join(", ")
    )
}

fn braces(entries: impl Iterator<Item = String>) -> String {
    let entries: Vec<String> = entries.collect();
    if entries.is_empty() {
        "{}".to_owned()
    } else {
        format!("{{ {} }}", entries.join(", "))
    }
}

fn quote_path(path: &Path) -> String {
    quote(path.display())
}

/// Writes a text as a basic string of TOML, quotes and all.
#[must_use]
pub fn quote(text: impl fmt::Display) -> String {
    let mut out = String::from("\"");
    for c in text.to_string().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Writing to a text cannot fail.
            c if c.is_control() => write!(out, "\\u{:04X}", u32::from(c)).unwrap_or_default(),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
