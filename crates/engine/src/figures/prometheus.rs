//! Figures in the text format Prometheus reads (version 0.0.4).

use control::{
    Certificates, Directory, Limit, Map, Phase, Pool, Programs, Replies, RequestClass, Scripts,
    Status, Stragglers, Upstream, Worker,
};

use super::exposition::{Text, seconds};
use super::groups::{FIGURES, Unit};
use super::{fleet, handshakes, shed, tried};

/// Puts figures into samples, each family with its help and type before it.
pub(crate) fn prometheus(figures: &Status) -> String {
    let mut text = Text {
        out: String::with_capacity(8192 + 800 * figures.sites.len()),
    };
    process(figures, &mut text);
    workers(figures, &mut text);
    programs(&figures.programs, &mut text);
    stragglers(&figures.stragglers, &mut text);
    scripts(&figures.scripts, &mut text);
    sites(figures, &mut text);
    upstreams(figures, &mut text);
    directories(&figures.directories, &mut text);
    maps(&figures.maps, &mut text);
    pools(&figures.pools, &mut text);
    classes(&figures.classes, &mut text);
    limits(&figures.limits, &mut text);
    sensors(figures, &mut text);
    shed::prometheus(figures, &mut text);
    tried::prometheus(figures, &mut text);
    handshakes::prometheus(figures, &mut text);
    certificates(figures, &mut text);
    recorder(figures, &mut text);
    fleet::prometheus(figures.fleet.as_ref(), &mut text);
    groups(figures, &mut text);
    let help = "Time from a request's head to its reply's end.";
    text.histogram("request_seconds", help, &figures.time.total);
    let help = "Time spent on upstreams.";
    text.histogram("upstream_seconds", help, &figures.time.upstream);
    text.out
}

fn process(figures: &Status, text: &mut Text) {
    let version = [([("version", &*figures.version)], 1)];
    text.each("info", "Always 1; says the version.", version);
    let help = "Time since the server started.";
    text.one("uptime_seconds", help, figures.uptime_s);
    let help = "Number of the configuration that serves.";
    text.one("generation", help, figures.generation);
    let help = "Configurations taken over after the first.";
    text.one("reloads_total", help, figures.reloads);
    let help = "Reloads that changed nothing.";
    text.one("reloads_refused_total", help, figures.reloads_refused);
    let help = "Servers started again after an unwanted end.";
    text.one("restarts_total", help, figures.restarts);
    let help = "Files of the configuration that are broken and set aside.";
    let aside = figures.config_files_set_aside;
    text.one("config_files_set_aside", help, aside);
    let help = "Access records that could not be written.";
    let lost = figures.access_records_lost;
    text.one("access_records_lost_total", help, lost);
    let help = "Lines of the error log that could not be written.";
    text.one("error_lines_lost_total", help, figures.error_lines_lost);
    if let Some(bytes) = figures.htaccess_cached_bytes {
        let help = "Memory of what is kept of .htaccess files.";
        text.one("htaccess_cached_bytes", help, bytes);
    }
    if !figures.suspended.is_nothing() {
        let help = "Tenants that operators have suspended.";
        text.one("tenants_suspended", help, figures.suspended.count);
        let help = "Requests that were refused since their tenant is suspended.";
        text.one("suspended_refused_total", help, figures.suspended.refused);
    }
}

fn programs(programs: &Programs, text: &mut Text) {
    text.one("programs_running", "Programs that run.", programs.running);
    let help = "Programs that ran.";
    text.one("programs_started_total", help, programs.started);
    let help = "Programs that could not be started.";
    text.one("programs_failed_total", help, programs.failed);
    let killed = programs.killed.iter();
    let killed = killed.map(|(reason, count)| ([("reason", reason)], count));
    text.each(
        "programs_killed_total",
        "Programs killed, by reason.",
        killed,
    );
}

fn stragglers(stragglers: &Stragglers, text: &mut Text) {
    let help = "Servers and programs at work for clients that have gone, with permits of limits.";
    text.one("stragglers", help, stragglers.now);
    let ended = stragglers.ended.iter();
    let ended = ended.map(|(end, count)| ([("end", end)], count));
    text.each(
        "stragglers_ended_total",
        "Such work that ended, by how.",
        ended,
    );
}

/// Where there are none, the families are not named either.
fn classes(classes: &[RequestClass], text: &mut Text) {
    if classes.is_empty() {
        return;
    }
    let labels = |it: &RequestClass| [("tenant", it.tenant.clone()), ("class", it.class.clone())];
    let of = |of: fn(&RequestClass) -> u64| classes.iter().map(move |it| (labels(it), of(it)));
    let help = "Requests of a tenant's class that waited for a limit.";
    text.each("class_waited_total", help, of(|it| it.waited));
    let help = "How long they waited.";
    let waited = classes.iter().map(|it| (labels(it), seconds(it.waited_us)));
    text.each("class_wait_seconds_total", help, waited);
    let help = "Requests of a tenant's class that limits refused.";
    text.each("class_refused_total", help, of(|it| it.refused));
}

/// A figure of a directory: its name, what it is, and where it is read.
type OfDirectory = (&'static str, &'static str, fn(&Directory) -> u64);

/// Where there are none, the families are not named either.
fn directories(directories: &[Directory], text: &mut Text) {
    if directories.is_empty() {
        return;
    }
    let of = |count: fn(&Directory) -> u64| {
        let all = directories.iter();
        all.map(move |it| ([("directory", &it.directory)], count(it)))
    };
    let families: [OfDirectory; 10] = [
        ("fresh", "Looks for rows that found what is fresh.", |it| {
            it.fresh
        }),
        (
            "old",
            "Looks for rows that found one that is old, and served on.",
            |it| it.old,
        ),
        (
            "waited",
            "Looks for rows that found nothing, and waited.",
            |it| it.waited,
        ),
        ("asked", "Questions for rows.", |it| it.asked),
        (
            "rows",
            "Questions for rows that were answered with one.",
            |it| it.rows,
        ),
        ("missing", "Questions for rows where there is none.", |it| {
            it.missing
        }),
        (
            "wrong",
            "Questions for rows that were answered with one of no use.",
            |it| it.wrong,
        ),
        (
            "down",
            "Questions for rows that nobody could answer.",
            |it| it.down,
        ),
        (
            "gave_up",
            "Requests refused as their row was not known in time.",
            |it| it.gave_up,
        ),
        (
            "busy",
            "Requests refused as their row was not asked for in time.",
            |it| it.busy,
        ),
    ];
    for (name, help, count) in families {
        text.each(&format!("directory_{name}_total"), help, of(count));
    }
    let gauges: [OfDirectory; 3] = [
        ("hosts", "Names that something of rows is known of.", |it| {
            it.hosts as u64
        }),
        ("bytes", "Bytes of what is known of rows, about.", |it| {
            it.bytes as u64
        }),
        ("waiting", "Names that wait to be asked for.", |it| {
            it.waiting as u64
        }),
    ];
    for (name, help, count) in gauges {
        text.each(&format!("directory_{name}"), help, of(count));
    }
}

/// Where there are none, the families are not named either.
fn maps(maps: &[Map], text: &mut Text) {
    if maps.is_empty() {
        return;
    }
    let of = |count: fn(&Map) -> u64| maps.iter().map(move |it| ([("map", &it.map)], count(it)));
    let questions = of(|it| it.questions);
    text.each("map_questions_total", "Questions to maps.", questions);
    let help = "Questions to maps that were answered from memory.";
    text.each("map_cached_total", help, of(|it| it.cached));
    let help = "Questions to maps that got what on_error says.";
    text.each("map_errors_total", help, of(|it| it.errors));
    let help = "Times that a map's program had to be started again.";
    text.each("map_restarts_total", help, of(|it| it.restarts));
    let running = maps.iter();
    let mut running = running
        .filter_map(|it| Some(([("map", &it.map)], it.running?)))
        .peekable();
    if running.peek().is_some() {
        let help = "Processes of a map's program that run.";
        text.each("map_processes", help, running);
    }
}

/// Where there are none, the families are not named either.
fn pools(pools: &[Pool], text: &mut Text) {
    if pools.is_empty() {
        return;
    }
    let labels = |pool: &'_ Pool| [("pool", pool.pool.clone()), ("tenant", pool.tenant.clone())];
    let of = |of: fn(&Pool) -> u64| pools.iter().map(move |it| (labels(it), of(it)));
    let help = "Whether the pool runs, as far as is known.";
    let up = of(|it| u64::from(it.state == "warm"));
    text.each("pool_up", help, up);
    let help = "Requests that wait until the pool runs.";
    text.each("pool_waiting", help, of(|it| it.waiting));
    let help = "Starts of the pool that requests waited for.";
    text.each("pool_starts_total", help, of(|it| it.starts));
    let help = "Starts of the pool that failed.";
    text.each("pool_failures_total", help, of(|it| it.failures));
    let help = "Requests that waited until the pool ran.";
    text.each("pool_waited_total", help, of(|it| it.waited));
    let help = "How long they waited, all together.";
    let waited = pools.iter().map(|it| (labels(it), seconds(it.waited_us)));
    text.each("pool_wait_seconds_total", help, waited);
    let help = "Masters of the pool that have been ready, since the spawner started.";
    text.each("pool_masters_total", help, of(|it| it.masters));
    let help = "How long they took until then, all together.";
    let took = pools.iter().map(|it| (labels(it), seconds(it.masters_us)));
    text.each("pool_master_start_seconds_total", help, took);
    let help =
        "Messages that nagaya sendmail has handed over in the pool, since the spawner started.";
    text.each("pool_mails_total", help, of(|it| it.mails));
    let help = "Messages that it could not hand over, or not to everybody.";
    text.each("pool_mails_unsent_total", help, of(|it| it.mails_unsent));
    let help = "Requests refused for want of the pool, by reason.";
    let refused = pools.iter().flat_map(|it| {
        let [pool, tenant] = labels(it);
        let of = move |(reason, count): (&str, &u64)| {
            let labels = [pool.clone(), tenant.clone(), ("reason", reason.to_owned())];
            (labels, *count)
        };
        it.refused.iter().map(of).collect::<Vec<_>>()
    });
    text.each("pool_refused_total", help, refused);
}

fn scripts(scripts: &Scripts, text: &mut Text) {
    text.one("script_vms", "VMs of scripts.", scripts.vms);
    let help = "Those of tenants among them.";
    text.one("script_tenant_vms", help, scripts.tenant_vms);
    for (name, help, counted) in [
        (
            "opened",
            "VMs of tenants that were opened.",
            scripts.tenant_vms_opened,
        ),
        (
            "closed",
            "VMs of tenants that closed to make room for others.",
            scripts.tenant_vms_closed,
        ),
        (
            "failed",
            "VMs of tenants that did not open.",
            scripts.tenant_vms_failed,
        ),
    ] {
        text.one(&format!("script_tenant_vms_{name}_total"), help, counted);
    }
    text.one(
        "script_memory_bytes",
        "What they hold.",
        scripts.memory_bytes,
    );
    text.one("scripts_parked", "Scripts that wait.", scripts.parked);
    let of = |count: fn(&Phase) -> u64| {
        let phases = scripts.phases.iter();
        phases.map(move |(phase, it)| ([("phase", phase)], count(it)))
    };
    let help = "Scripts that came to their end, by phase.";
    text.each("scripts_ended_total", help, of(|it| it.ended));
    let help = "Scripts that failed, by phase.";
    text.each("scripts_failed_total", help, of(|it| it.failed));
}

fn workers(figures: &Status, text: &mut Text) {
    let of = |count: fn(&Worker) -> u64| {
        let workers = figures.workers.iter().enumerate();
        workers.map(move |(index, it)| ([("worker", index.to_string())], count(it)))
    };
    let open = of(|it| it.connections as u64);
    text.each("connections", "Client connections open.", open);
    let help = "Client connections accepted.";
    text.each("connections_accepted_total", help, of(|it| it.accepted));
    let help = "Client connections closed because of a cap.";
    text.each("connections_refused_total", help, of(|it| it.refused));
    let help = "Client connections given to another worker.";
    let given = of(|it| it.handed_over);
    text.each("connections_handed_over_total", help, given);
    let help = "Client connections of HTTP/2 open.";
    text.each("http2_connections", help, of(|it| it.http2_connections));
    let help = "Streams of HTTP/2 being answered.";
    text.each("http2_streams", help, of(|it| it.http2_streams));
    let help = "Client connections of HTTP/2 broken off for what they did below their requests.";
    let broken_off = of(|it| it.http2_broken_off);
    text.each("http2_connections_broken_off_total", help, broken_off);
    let in_flight = of(|it| it.in_flight);
    text.each("exchanges_in_flight", "Requests being answered.", in_flight);
    let panics = of(|it| it.panics);
    text.each("panics_total", "Handlers that panicked.", panics);
}

fn sites(figures: &Status, text: &mut Text) {
    let sites = || {
        let named = figures.sites.iter();
        let named = named.map(|site| (site.site.as_str(), &site.replies));
        named.chain([("", &figures.without_site)])
    };
    let name = "requests_total";
    let help = "Requests answered, by site (empty: none) and hundreds of the status.";
    text.family(name, help);
    for (site, replies) in sites() {
        for (class, count) in (1..).zip(replies.by_class) {
            if count > 0 {
                let status = format!("{class}xx");
                text.sample(name, &[("site", site), ("status", &status)], count);
            }
        }
    }
    let of = |bytes: fn(&Replies) -> u64| {
        sites().map(move |(site, replies)| ([("site", site)], bytes(replies)))
    };
    let help = "Bytes of request bodies.";
    text.each("request_body_bytes_total", help, of(|it| it.bytes_in));
    let help = "Bytes of reply bodies.";
    text.each("reply_body_bytes_total", help, of(|it| it.bytes_out));
}

/// One figure of each server; one without it is left out.
fn servers<V>(
    figures: &Status,
    of: impl Fn(&Upstream) -> Option<V>,
) -> impl Iterator<Item = ([(&'static str, &str); 2], V)> {
    figures.upstreams.iter().filter_map(move |it| {
        let labels = [("upstream", &*it.upstream), ("server", &*it.server)];
        Some((labels, of(it)?))
    })
}

fn upstreams(figures: &Status, text: &mut Text) {
    let of = |count: fn(&Upstream) -> u64| servers(figures, move |it| Some(count(it)));
    let help = "Requests the server was chosen for.";
    text.each("upstream_requests_total", help, of(|it| it.requests));
    let help = "Failures to connect or to answer.";
    text.each("upstream_failures_total", help, of(|it| it.failures));
    let help = "Requests the server let wait for too long, before or within its reply.";
    text.each("upstream_timeouts_total", help, of(|it| it.timeouts));
    let help = "Requests the server is answering.";
    text.each("upstream_in_flight", help, of(|it| it.in_flight));
    let help = "0 while the server is out after failures, or is the only one and fails; else 1.";
    text.each("upstream_up", help, of(|it| u64::from(it.is_up())));
    let help = "How long the oldest request in flight is.";
    let oldest = servers(figures, |it| Some(it.oldest_s.unwrap_or_default()));
    text.each("upstream_oldest_seconds", help, oldest);
    let help = "Part of the server's weight that counts, as its agent says: 1 all of it, 0 while it drains.";
    let weights = servers(figures, |it| it.agent_weight);
    text.each("upstream_agent_weight", help, weights);
}

/// All keys of a limit together; what is a total counts those too that are forgotten by now.
fn limits(rows: &[Limit], text: &mut Text) {
    let of = |count: fn(&Limit) -> u64| {
        let rows = rows.iter();
        rows.map(move |row| ([("limit", &row.limit)], count(row)))
    };
    let help = "Requests that hold a permit.";
    text.each("limit_in_flight", help, of(|it| it.in_flight));
    let help = "Requests that hold a permit of the key that has most of them.";
    text.each("limit_in_flight_most", help, of(|it| it.in_flight_most));
    let help = "1 where the limit is in shadow and refuses nobody.";
    let shadow = of(|it| u64::from(it.mode == "shadow"));
    text.each("limit_shadow", help, shadow);
    let help = "Requests that wait for a permit.";
    text.each("limit_queued", help, of(|it| it.queued));
    text.each("limit_keys", "Keys in use.", of(|it| it.keys));
    let admitted = of(|it| it.admitted);
    text.each("limit_admitted_total", "Requests admitted.", admitted);
    let help = "Requests that waited, whatever came of it.";
    text.each("limit_waited_total", help, of(|it| it.waited));
    let help = "Requests the limit would have refused, were it not in shadow.";
    let refused = of(|it| it.shadow_refused);
    text.each("limit_shadow_refused_total", help, refused);
    let permits = rows.iter();
    let permits = permits.filter_map(|row| Some(([("limit", &row.limit)], row.permits?)));
    let help = "Permits there are for each key.";
    text.each("limit_concurrent", help, permits);
    let refused = rows.iter().flat_map(|row| {
        let counts = row.refused.iter().filter(|(_, count)| **count > 0);
        counts.map(|(reason, count)| ([("limit", &*row.limit), ("reason", reason)], count))
    });
    let help = "Requests refused, by limit and reason.";
    text.each("limit_refused_total", help, refused);
}

/// A sensor that this machine does not have is left out.
fn sensors(figures: &Status, text: &mut Text) {
    let sensors = figures.sensors.iter();
    let sensors = sensors.filter_map(|(name, value)| Some(([("sensor", name)], (*value)?)));
    let help = "What each sensor says: shares from 0 to 1, times in seconds.";
    text.each("sensor", help, sensors);
    let lags = figures.loop_lag_s.iter().enumerate();
    let lags = lags.filter_map(|(worker, lag)| Some(([("worker", worker.to_string())], (*lag)?)));
    let help = "How late a worker came to what was ready, at worst in the last second.";
    text.each("loop_lag_seconds", help, lags);
}

/// Certificates, and the two processes for them.
fn certificates(figures: &Status, text: &mut Text) {
    if let Some(of) = &figures.certificates {
        certificate_counts(of, text);
    }
    if let Some(of) = &figures.keeper {
        let help = "Signatures that the keeper of private keys made for this server.";
        text.one("keeper_signatures_total", help, of.signatures);
        let help = "What the keeper refused; key_cap and cap: the caps of signatures a second.";
        let refused = of.refused.iter();
        let refused = refused.map(|(reason, count)| ([("reason", reason)], count));
        text.each("keeper_refused_total", help, refused);
        let help = "Times that the keeper had to be started again.";
        text.one("keeper_restarts_total", help, of.restarts);
        let help = "Whether there is a keeper now.";
        text.one("keeper_up", help, u8::from(of.pid.is_some()));
    }
    if let Some(of) = &figures.acme {
        let help = "Times that the acme process had to be started again.";
        text.one("acme_restarts_total", help, of.restarts);
        let help = "Whether there is an acme process now.";
        text.one("acme_up", help, u8::from(of.pid.is_some()));
    }
}

fn certificate_counts(of: &Certificates, text: &mut Text) {
    let served = of.served.iter();
    let served = served.map(|(source, count)| ([("source", source)], count));
    text.each(
        "certificates",
        "Certificates that clients are shown.",
        served,
    );
    let help = "Sources of certificates that hold something wrong now.";
    text.one("certificates_broken", help, of.broken);
    let ending = of.ending_within_days.iter();
    let ending = ending.map(|(days, count)| ([("days", days)], count));
    let help = "Certificates that end within so many days; 0: that have ended.";
    text.each("certificates_ending", help, ending);
    let help = "When a certificate ends, in seconds since 1970, of the first hundred that do.";
    let first = of.first_to_end.iter();
    let first = first.map(|(name, end_s)| ([("name", name)], end_s));
    text.each("certificate_expiry_seconds", help, first);
    if of.orders + of.awaited > 0 {
        let help = "Orders of certificates since the acme process started.";
        text.one("acme_orders_total", help, of.orders);
        let help = "Certificates that were issued since then.";
        text.one("acme_issued_total", help, of.issued);
        let help = "Certificates of which the last order failed.";
        text.one("acme_failing", help, of.failing);
        let help = "Certificates that are ordered and not there yet.";
        text.one("acme_awaited", help, of.awaited);
    }
    if let Some(of) = &of.on_demand {
        let help =
            "Times that a map was asked whether a name may have a certificate ordered on demand.";
        text.one("acme_demands_total", help, of.asked);
        let help = "Of these, those that it accepted.";
        text.one("acme_demands_accepted_total", help, of.accepted);
        let help = "Of these, those whose certificates came while handshakes waited.";
        text.one("acme_demands_obtained_total", help, of.obtained);
        let help = "Handshakes that wait for a certificate now.";
        text.one("acme_demands_waiting", help, of.waiting);
    }
}

/// A tenant's group has no site, a site's group no rule, only one that a script made has `script`; what is used in one counts above, too.
fn groups(figures: &Status, text: &mut Text) {
    for figure in FIGURES {
        let name = match figure.unit {
            Unit::Time => format!(
                "group_{}_seconds_total",
                figure.name.trim_end_matches("_us")
            ),
            Unit::Events => format!("group_{}_total", figure.name),
            Unit::Level => format!("group_{}", figure.name),
        };
        text.family(&name, figure.help);
        for group in &figures.groups {
            let Some(&value) = group.used.get(figure.name) else {
                continue;
            };
            let mut labels = vec![
                ("tenant", group.tenant.as_str()),
                ("site", group.site.as_deref().unwrap_or_default()),
                ("rule", group.rule.as_deref().unwrap_or_default()),
            ];
            labels.extend(group.script.as_deref().map(|name| ("script", name)));
            labels.extend(group.pool.as_deref().map(|name| ("pool", name)));
            match figure.unit {
                Unit::Time => text.sample(&name, &labels, seconds(value)),
                Unit::Events | Unit::Level => text.sample(&name, &labels, value),
            }
        }
    }
    let help = "Groups of programs beyond those shown here, at least.";
    text.one("groups_left_out", help, figures.groups_left_out);
}

/// Without one, the families are not named either.
fn recorder(figures: &Status, text: &mut Text) {
    let Some(of) = &figures.recorder else {
        return;
    };
    let help = "Whether there is a recorder now.";
    text.one("recorder_up", help, u8::from(of.pid.is_some()));
    let help = "Times that the recorder had to be started again.";
    text.one("recorder_restarts_total", help, of.restarts);
    let help = "Requests that the recorder was told of.";
    text.one("recorder_told_total", help, of.told);
    let help = "Requests that are not recorded, as the configuration says.";
    text.one("recorder_excluded_total", help, of.excluded);
    let help = "Requests and names that are not recorded although they were to be, by reason.";
    let dropped = of.dropped.iter();
    let dropped = dropped.map(|(reason, count)| ([("reason", reason)], count));
    text.each("recorder_dropped_total", help, dropped);
    if let Some(ago) = of.seen_ago_s {
        let help = "Since the recorder looked for what it is told.";
        text.one("recorder_lag_seconds", help, ago);
    }
    if let Some(ago) = of.written_ago_s {
        let help = "Since the recorder has last written figures.";
        text.one("recorder_unwritten_seconds", help, ago);
    }
    let help = "Processor time that the recorder has taken.";
    text.one("recorder_cpu_seconds_total", help, of.cpu_s);
    let help = "Times that a program of an alert has failed.";
    text.one("recorder_alerts_failed_total", help, of.alerts_failed);
    let help = "Alerts whose program has failed when it was run last.";
    text.one("recorder_alerts_untold", help, of.untold_alerts.len());
    if let Some(sends) = &of.sends {
        let help = "Whether the database takes what the recorder sends.";
        text.one("recorder_send_up", help, u8::from(sends.up));
        let help = "Since the oldest minute was over that waits to be sent.";
        text.one("recorder_send_lag_seconds", help, sends.lag_s);
        let help = "Minutes and incidents that wait to be sent.";
        text.one("recorder_send_waiting", help, sends.waiting);
        let help = "Minutes and incidents that were not sent and are lost.";
        text.one("recorder_send_lost_total", help, sends.lost);
    }
}
