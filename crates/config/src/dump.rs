//! The effective configuration as TOML, every default written out.
//!
//! The idea: what is printed loads again to the same model. Upstreams that came from a URL are
//! left out of the list, for the handler's URL makes them anew.

mod acme;
mod alert;
mod conditions;
mod directory;
mod fleet;
mod handler;
mod limit;
mod map;
mod pool;
mod recorder;
mod rewrite;
mod script;
mod shed;
pub(crate) mod write;

use std::path::Path;

use crate::keys;
use crate::lower::cgroup::spell_cpu;
use crate::lower::names::Named;
use crate::lower::template::spell;
use crate::model::{
    Auth, Caps, Cgroup, Compress, DirectorySection, Expires, FieldEdits, Files, HostPattern,
    IoLimit, LevelCaps, LevelTimeouts, Lifetime, Limit, ListenAddress, LogTarget, Model, Mount,
    Root, Rule, Senders, Server, Settings, Site, SiteHtaccess, SiteRows, SiteTls, Template,
    Timeouts, TryEntry, Upstream, Variable,
};
use crate::units;
pub use write::quote;
use write::{Lines, braces, list, quote_path, said, some_count, some_duration, some_size};

/// The configuration `model` came from, in full.
pub fn dump(model: &Model) -> String {
    let mut out = Lines::default();
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
    out.key("last_good", quote_path(&model.last_good));
    out.limits(&model.limits);
    if let Some(control) = &model.control {
        out.section("[control]");
        out.key("socket", quote_path(&control.socket));
    }
    model.recorder.iter().for_each(|it| out.recorder(it));
    model.fleet.iter().for_each(|it| out.fleet(it));
    out.listeners(model);
    out.section("[log]");
    out.key("access", quote(log_target(&model.log.access)));
    out.key("format", quote(model.log.format.name()));
    out.key("reason", model.log.reason);
    out.key("level", quote(model.log.level.name()));
    out.key("files_max", model.log.files_max);
    out.section("[timeouts]");
    out.numbers(&keys::TIMEOUTS, &model.timeouts, &Timeouts::FIELDS);
    out.section("[caps]");
    out.numbers(&keys::CAPS, &model.caps, &Caps::FIELDS);
    out.section("[htaccess]");
    out.size("cached", model.htaccess_cached_bytes as u64);
    out.scripts(&model.scripts);
    let upstreams = model.upstreams.iter();
    for upstream in upstreams.filter(|upstream| !is_inline(upstream)) {
        out.upstream(upstream);
    }
    out.tenants(model);
    for map in &model.maps {
        out.map(map);
    }
    out.pools(model);
    for acme in &model.acme {
        out.account(acme, model);
    }
    out.directories(&model.directories);
    for shed in &model.shed {
        out.shed(shed);
    }
    for alert in &model.alerts {
        out.alert(alert);
    }
    for site in &model.sites {
        out.site(site, model);
    }
    out.text
}

/// Whether the upstream stands for a URL in a handler.
fn is_inline(upstream: &Upstream) -> bool {
    upstream.name.contains(':')
}

fn htaccess(files: &SiteHtaccess) -> String {
    let handlers = files.handlers.iter();
    let handlers =
        handlers.map(|(name, version, _)| format!("{} = {}", quote(name), quote(version)));
    braces([
        format!("override = {}", list(&files.words, quote)),
        format!("unknown = {}", quote(files.unknown.name())),
        format!("handlers = {}", braces(handlers)),
        format!("directories = {}", list(&files.directories, section)),
    ])
}

fn section(section: &DirectorySection) -> String {
    let said = section.overrides.iter();
    let said = said.map(|(words, _)| format!("override = {}", list(words, quote)));
    let members = [
        format!("path = {}", quote(&section.directory)),
        format!("text = {}", quote(&section.text)),
        format!("context = {}", quote(section.context.name())),
    ];
    braces(members.into_iter().chain(said))
}

impl Lines {
    /// The listeners, and what they speak.
    fn listeners(&mut self, model: &Model) {
        for listener in &model.listeners {
            self.section("[[listen]]");
            let address = match &listener.address {
                ListenAddress::Tcp(address) => address.to_string(),
                ListenAddress::Unix(path) => format!("unix:{}", path.display()),
            };
            self.key("address", quote(&address));
            self.key("backlog", listener.backlog);
            if matches!(listener.address, ListenAddress::Unix(_)) {
                self.key("mode", quote(format!("{:04o}", listener.mode)));
            }
            let from = match &listener.senders {
                Senders::Nobody => None,
                Senders::Unix => Some(quote("unix")),
                Senders::Networks(networks) => Some(list(networks, quote)),
            };
            if let Some(from) = from {
                self.key("proxy_protocol", braces([format!("from = {from}")]));
            }
            if let Some(tls) = &listener.tls {
                let host = tls.default.iter();
                self.key(
                    "tls",
                    braces(host.map(|host| format!("default = {}", quote(host)))),
                );
            }
            let http2 = if listener.tls.is_some() { "h2" } else { "h2c" };
            self.key("protocols", list(&listener.protocols.names(http2), quote));
        }
        self.section("[tls]");
        let tls = &model.tls;
        self.key("certificates", list(&tls.certificates, quote));
        self.key("versions", list(&tls.versions, |it| quote(it.name())));
        self.duration("tickets", tls.tickets_ms);
        if let Some(file) = &tls.ticket_secret {
            self.key("ticket_secret", quote_path(file));
        }
        self.key("script_files", list(&tls.script_files, |it| quote_path(it)));
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
        self.key("proxy_protocol", quote(upstream.proxy_protocol.name()));
        if let Some(tls) = &upstream.tls {
            let ca = tls
                .file
                .iter()
                .map(|file| format!("ca = {}", quote_path(file)));
            let name = tls
                .name
                .iter()
                .map(|name| format!("name = {}", quote(name)));
            let verify = [format!("verify = {}", tls.verify)];
            let files = tls.certificate.iter().flat_map(|files| {
                let certificate = format!("certificate = {}", quote_path(&files.certificate));
                [certificate, format!("key = {}", quote_path(&files.key))]
            });
            self.key("tls", braces(ca.chain(name).chain(files).chain(verify)));
        }
        self.limits(&upstream.limits);
    }

    fn tenants(&mut self, model: &Model) {
        for tenant in &model.tenants {
            self.section(&format!("[tenants.{}]", quote(&tenant.name)));
            self.key("weight", tenant.weight);
            if !tenant.classes.is_empty() {
                self.key("class", list(&tenant.classes, limit::class));
            }
            self.limits(&tenant.limits);
            self.level_scripts(&tenant.scripts);
            self.some("scripts_vm", tenant.scripts_vm.map(|vm| quote(vm.name())));
            self.cgroup(tenant.cgroup.as_deref());
            self.key("console", tenant.console);
        }
        for plan in &model.plans {
            self.section(&format!("[plans.{}]", quote(&plan.name)));
            self.key("weight", plan.weight);
            self.limits(&plan.limits);
            self.cgroup(plan.cgroup.as_deref());
            self.some("pool", pool::of_plan(&plan.pool));
            self.key("console", plan.console);
        }
    }

    fn site(&mut self, site: &Site, model: &Model) {
        self.section("[[sites]]");
        match &site.rows {
            Some(rows) => self.rows(rows),
            None => self.key("hosts", list(&site.hosts, quote)),
        }
        // The default may be no name that could be written: an IPv6 address.
        if site.rows.is_none()
            && site.hosts.first().map(HostPattern::to_string).as_ref() != Some(&site.tenant)
        {
            self.key("tenant", quote(&site.tenant));
        }
        if site.has_own_user {
            self.key("user", quote(&site.user));
        }
        self.cgroup(site.cgroup.as_deref());
        match &site.rows {
            None => self.key("pool", pool::of_site(&site.pool)),
            Some(_) if site.has_pools_of_rows() => self.key("pool", pool::of_rows(&site.pool)),
            Some(_) => {}
        }
        if let Some(root) = &site.root {
            self.root(root);
        }
        self.key("index", list(&site.index, quote));
        self.key("try", list(&site.resolve, try_entry));
        self.key("slashes", quote(site.slashes.name()));
        self.key("encoded_slash", quote(site.encoded_slash.name()));
        self.key("underscore_fields", quote(site.underscore_fields.name()));
        let access = format!("access = {}", quote(log_target(&site.log)));
        let error = site.error_log.iter();
        let error = error.map(|path| format!("error = {}", quote(path)));
        self.key("log", braces([access].into_iter().chain(error)));
        let pages = site.error_pages.iter();
        let pages =
            pages.map(|(status, page)| format!("\"{status}\" = {}", quote_path(&page.file)));
        self.key("error_pages", braces(pages));
        self.key("record", site.record);
        self.limits(&site.limits);
        self.level_scripts(&site.scripts);
        self.rewrites(&site.rewrites);
        self.settings(&site.settings, model);
        self.key("compress", compress(&site.compress));
        if *site.tls != SiteTls::default() || column(site).is_some() {
            self.key("tls", site_tls(site, model));
        }
        if let Some(files) = &site.htaccess {
            self.key("htaccess", htaccess(files));
        }
        self.files(&site.files);
        for mount in &site.mounts {
            self.mount(mount);
        }
        for rule in &site.rules {
            self.rule(rule, model);
        }
    }

    fn rows(&mut self, rows: &SiteRows) {
        self.key(
            "hosts",
            braces([format!("directory = {}", quote(&rows.name))]),
        );
        self.key("tenant", quote(spell(&rows.tenant)));
        if rows.has_user {
            self.key("user", quote("${row.user}"));
        }
        if let Some(plan) = &rows.plan {
            self.key("plan", quote(spell(plan)));
        }
        if let Some(root) = &rows.root {
            self.key("root", quote(spell(&root.path)));
            self.key("within", quote(spell(&root.within)));
            self.key("symlinks", quote(root.symlinks.name()));
        }
    }

    fn mount(&mut self, mount: &Mount) {
        self.section("[[sites.mounts]]");
        self.key("path", quote(&mount.path));
        self.root(&mount.root);
        self.key("index", list(&mount.index, quote));
        self.key("try", list(&mount.resolve, try_entry));
        self.rewrites(&mount.rewrites);
        if let Some(user) = &mount.user {
            self.key("user", quote(user));
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

    fn settings(&mut self, settings: &Settings, model: &Model) {
        self.edits(&settings.request_headers, &settings.reply_headers);
        if let Some(given) = &settings.expires {
            self.key("expires", expires(given));
        }
        if !settings.allow.is_empty() {
            self.key("allow", list(&settings.allow, quote));
        }
        let denied = denied(settings, model);
        if !denied.is_empty() {
            self.key("deny", list(&denied, String::clone));
        }
        if let Some(auth) = &settings.auth {
            self.key("auth", braces(basic(auth)));
        }
        if !settings.env.is_empty() {
            self.key("env", env(&settings.env));
        }
        let caps = said(&keys::LEVEL_CAPS, &settings.caps, &LevelCaps::FIELDS);
        let fields = &LevelTimeouts::FIELDS;
        let timeouts = said(&keys::LEVEL_TIMEOUTS, &settings.timeouts, fields);
        for (name, numbers) in [("caps", caps), ("timeouts", timeouts)] {
            if !numbers.is_empty() {
                self.key(name, braces(numbers));
            }
        }
    }

    fn edits(&mut self, request: &FieldEdits, reply: &FieldEdits) {
        for (name, edits) in [("request_headers", request), ("reply_headers", reply)] {
            if *edits != FieldEdits::default() {
                self.key(name, field_edits(edits));
            }
        }
    }

    fn rule(&mut self, rule: &Rule, model: &Model) {
        self.section("[[sites.rules]]");
        // Said, it would be a name.
        let name = if rule.is_named { "name" } else { "# name" };
        self.key(name, quote(&rule.name));
        if !rule.conditions.is_empty() {
            self.key("match", conditions::conditions(&rule.conditions));
        }
        self.rewrites(&rule.rewrites);
        if let Some(given) = &rule.handler {
            self.key("handler", handler::handler(given, model));
        }
        if let Some(target) = &rule.log {
            self.key(
                "log",
                format!("{{ access = {} }}", quote(log_target(target))),
            );
        }
        self.limits(&rule.limits);
        self.level_scripts(&rule.scripts);
        self.cgroup(rule.cgroup.as_deref());
        self.settings(&rule.settings, model);
        if let Some(own) = &rule.compress {
            self.key("compress", compress(own));
        }
    }

    /// Says which limits are another than the configuration's files say, and who says so; and who is
    /// suspended.
    fn kept(&mut self, model: &Model) {
        for tenant in &model.suspended {
            self.text
                .push_str(&format!("# tenant {tenant} is suspended\n"));
        }
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

fn denied(settings: &Settings, model: &Model) -> Vec<String> {
    let files = settings.deny_files.iter();
    let files = files.filter_map(|at| model.denied.get(*at));
    let files = files.map(|path| format!("{{ file = {} }}", quote_path(path)));
    settings.deny.iter().map(quote).chain(files).collect()
}

fn basic(auth: &Auth) -> Vec<String> {
    let (realm, file) = (quote(&auth.realm), quote_path(&auth.file));
    let mut keys = vec![format!("realm = {realm}"), format!("file = {file}")];
    if let Some(groups) = &auth.groups {
        keys.push(format!("group_file = {}", quote_path(&groups.file)));
        keys.push(format!("require = {}", list(&groups.required, quote)));
    }
    keys
}

fn cgroup(cgroup: &Cgroup) -> String {
    let cpu = cgroup.cpu_millicores.map(spell_cpu);
    let burst_ms = cgroup.cpu_burst_us.map(|us| us / 1_000);
    let entries = [
        cpu.map(|cpu| format!("cpu = {}", quote(cpu))),
        some_duration("burst", burst_ms),
        some_count("cpu_weight", cgroup.cpu_weight),
        some_size("memory", cgroup.memory_bytes),
        some_size("memory_high", cgroup.memory_high_bytes),
        some_count("pids", cgroup.pids),
        (!cgroup.io.is_empty()).then(|| format!("io = {}", list(&cgroup.io, io_limit))),
    ];
    braces(entries.into_iter().flatten())
}

fn io_limit(limit: &IoLimit) -> String {
    let entries = [
        Some(format!("device = {}", quote_path(&limit.device))),
        some_size("read", limit.read_bytes),
        some_size("write", limit.write_bytes),
        some_count("read_ops", limit.read_ops),
        some_count("write_ops", limit.write_ops),
    ];
    braces(entries.into_iter().flatten())
}

fn compress(compress: &Compress) -> String {
    let types = compress.types.as_ref();
    let entries = [
        types.map(|types| format!("types = {}", list(types, quote))),
        some_size("min_bytes", Some(compress.min_bytes as u64)),
        Some(format!("level = {}", compress.level)),
        Some(format!("programs = {}", compress.programs)),
    ];
    braces(entries.into_iter().flatten())
}

/// The column that names the certificate of a row's site.
fn column(site: &Site) -> Option<&str> {
    site.rows.as_ref()?.certificate.as_deref()
}

fn site_tls(site: &Site, model: &Model) -> String {
    let tls = &*site.tls;
    let path = |name: &str, path: &Path| format!("{name} = {}", quote_path(path));
    let files = tls.files.as_ref();
    let client = tls.client.as_ref();
    let account = tls.acme.and_then(|index| model.acme.get(index));
    let entries = [
        files.map(|files| path("certificate", &files.certificate)),
        files.map(|files| path("key", &files.key)),
        column(site).map(|column| format!("certificate = {}", quote(format!("${{row.{column}}}")))),
        tls.local.then(|| "local = true".to_owned()),
        account.map(|account| format!("acme = {}", quote(&account.name))),
        (site.rows.is_none()).then(|| format!("script = {}", tls.script)),
        client.map(|client| path("client_ca", &client.file)),
        client.map(|client| format!("client_auth = {}", quote(client.mode.name()))),
        Some(format!("redirect = {}", tls.redirect)),
        some_duration("hsts", tls.hsts_s.map(|seconds| seconds * 1_000)),
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
            (!edits.default.is_empty()).then(|| format!("default = {}", templates(&edits.default))),
        ]
        .into_iter()
        .flatten(),
    )
}

fn expires(given: &Expires) -> String {
    let lifetime = |lifetime: &Lifetime| match lifetime {
        Lifetime::Unsaid => quote("off"),
        Lifetime::Past => quote("epoch"),
        Lifetime::Seconds(seconds) => quote(units::duration(seconds * 1_000)),
    };
    let types = given.types.iter();
    let types = types.map(|(name, of_type)| format!("{} = {}", quote(name), lifetime(of_type)));
    braces(types.chain([format!("default = {}", lifetime(&given.default))]))
}

/// The variables, those of one name in a list.
fn env(variables: &[Variable]) -> String {
    let variable = |variable: &Variable| {
        let value = variable.value.as_ref();
        let value = value.map_or("false".to_owned(), |value| quote(spell(value)));
        match variable.conditions.as_slice() {
            [] => value,
            some => format!(
                "{{ value = {value}, match = {} }}",
                conditions::conditions(some)
            ),
        }
    };
    let named = variables.chunk_by(|one, next| one.name == next.name);
    braces(named.filter_map(|named| match named {
        [] => None,
        [only] => Some(format!("{} = {}", quote(&only.name), variable(only))),
        [first, ..] => Some(format!(
            "{} = {}",
            quote(&first.name),
            list(named, variable)
        )),
    }))
}

fn templates(named: &[(String, Template)]) -> String {
    braces(
        named
            .iter()
            .map(|(name, template)| format!("{} = {}", quote(name), quote(spell(template)))),
    )
}
