//! From a row's load to plans of the generator, and from their outcomes to figures.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::model::{Arrivals, Ask, Background, Failures, Load, Rate, ServiceAddress, Window};
use load::Error;
use load::client::{
    self, End, Judge, Keep, Opening, Outcome, Pace, Persistence, Plan, Protocol, RequestBuilder,
    Reuse, Scheme, SocketOptions, Times, Tls, Url, WarmUp,
};

/// The generator's core, where there are two.
pub(crate) const CORE: usize = 1;
/// How much longer than its slice a load beside it may last.
const BESIDE: Duration = Duration::from_secs(600);
/// Seconds of a step of a timeline.
const TIMELINE_STEP: f64 = 0.1;
/// Addresses of the clients of a load begin here, where it has several.
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
/// Those of a load beside it.
const FIRST_BESIDE: Ipv4Addr = Ipv4Addr::new(127, 2, 0, 1);
/// Digits of the times that are kept of a slice.
const STORED_DIGITS: u8 = 2;

/// A load for a server of this machine. A `rate` takes the place of the load's own.
pub(crate) fn plan(
    load: &Load,
    asks: &[Ask],
    address: ServiceAddress,
    rate: Rate,
    seed: u64,
) -> Result<Plan, Error> {
    let requests: Result<Vec<_>, Error> =
        asks.iter().map(|ask| request(ask, address, load)).collect();
    let reuse = match (load.keep_alive, load.requests_per_connection) {
        (false, _) => Reuse::Close,
        (true, Some(count)) => Reuse::Requests(count),
        (true, None) => Reuse::Keep,
    };
    let warm_up = match load.requests {
        None if !load.warm_up.is_zero() => WarmUp::For(load.warm_up),
        _ => WarmUp::None,
    };
    let seconds = Duration::from_secs_f64(load.seconds);
    Ok(Plan {
        requests: requests?,
        protocol: match load.streams {
            None => Protocol::Http1,
            Some(streams) => Protocol::Http2 { streams },
        },
        connections: load.connections,
        threads: 1,
        cores: vec![CORE],
        pace: pace(load, rate, seed),
        end: match load.requests {
            Some(count) => End {
                after: Some(BESIDE),
                requests: Some(count),
            },
            None => End {
                after: Some(seconds + load.warm_up),
                requests: None,
            },
        },
        opening: Opening::AllAtOnce,
        reuse,
        warm_up,
        timeout: load.timeout,
        judge: match load.failures {
            Failures::Status => Judge::Status,
            Failures::Broken => Judge::Nothing,
        },
        deadline: load.deadline,
        keep: Keep::Histograms,
        socket: SocketOptions {
            local: addresses(FIRST_CLIENT, load.clients),
            ..SocketOptions::default()
        },
    })
}

/// A load that is held until it is stopped.
pub(crate) fn beside(
    background: &Background,
    load: &Load,
    address: ServiceAddress,
    seed: u64,
) -> Result<Plan, Error> {
    let own = Load {
        connections: background.connections,
        keep_alive: background.keep_alive,
        requests: None,
        requests_per_connection: None,
        clients: background.clients,
        tls_names: background.tls_names,
        ..load.clone()
    };
    let mut plan = plan(
        &own,
        std::slice::from_ref(&background.ask),
        address,
        background.rate,
        seed,
    )?;
    // Whoever loads beside comes from elsewhere.
    plan.socket.local = addresses(FIRST_BESIDE, background.clients);
    plan.end.after = Some(BESIDE + Duration::from_secs_f64(load.seconds));
    Ok(plan)
}

fn pace(load: &Load, rate: Rate, seed: u64) -> Pace {
    match rate {
        Rate::Full | Rate::Share(_) => Pace::Closed,
        Rate::PerSecond(per_second) => Pace::Open {
            per_second,
            arrivals: match load.arrivals {
                Arrivals::Poisson => client::Arrivals::Poisson(seed),
                Arrivals::Constant => client::Arrivals::Constant,
                Arrivals::Bursts => client::Arrivals::Bursts(seed),
            },
            ramp: load.ramp,
        },
    }
}

fn request(ask: &Ask, address: ServiceAddress, load: &Load) -> Result<client::Request, Error> {
    let url: Url = url(address, ask).parse()?;
    let builder = RequestBuilder {
        method: ask.method.clone(),
        headers: ask.headers.clone(),
        body: ask.body.clone(),
        persistence: if load.keep_alive {
            Persistence::Keep
        } else {
            Persistence::Close
        },
        weight: ask.weight,
        patience: ask.patience,
        numbers: ask.numbers,
        label: Some(ask.label.clone()),
        ..RequestBuilder::default()
    };
    let mut request = builder.build(&url)?;
    if let Some(speaks) = &mut request.endpoint.tls {
        *speaks = Tls {
            resume: load.tls_resume,
            versions: load.tls_version.into_iter().collect(),
            groups: load.tls_groups.clone(),
            ..tls(load.tls_names)
        };
    }
    Ok(request)
}

/// What is asked for, as a URL.
pub(crate) fn url(address: ServiceAddress, ask: &Ask) -> String {
    let scheme = match address.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    format!("{scheme}://127.0.0.1:{}{}", address.port, ask.path)
}

/// TLS that asks for `localhost`, or for so many names in turn.
pub(crate) fn tls(names: u32) -> Tls {
    if names == 1 {
        return Tls::to("localhost");
    }
    let name = |n: u32| format!("site-{n}.example");
    Tls {
        more_names: (1..names).map(name).collect(),
        ..Tls::to(&name(0))
    }
}

/// So many addresses of this machine; none where the kernel may choose.
fn addresses(first: Ipv4Addr, clients: u32) -> Vec<IpAddr> {
    let several = (0..clients).filter(|_| clients > 1);
    let nth = |n: u32| Ipv4Addr::from(u32::from(first).saturating_add(n));
    several.map(|n| nth(n).into()).collect()
}

/// `goodput_in.NAME` of parts of a slice.
pub(crate) fn window_figures(windows: &[Window], outcome: &Outcome) -> BTreeMap<String, f64> {
    let good = |window: &Window| {
        let tenth = |seconds: f64| (seconds / TIMELINE_STEP).round() as usize;
        let (from, until) = (tenth(window.from), tenth(window.until));
        let tenths = outcome.timeline.iter().take(until).skip(from);
        let good: u64 = tenths.map(|tenth| tenth.good).sum();
        good as f64 / (window.until - window.from)
    };
    let named = |window: &Window| (format!("goodput_in.{}", window.name), good(window));
    windows.iter().map(named).collect()
}

/// What the client saw.
pub(crate) fn figures(outcome: &Outcome) -> BTreeMap<String, f64> {
    let seconds = outcome.recorded.as_secs_f64().max(1e-9);
    let response = &outcome.times.response;
    let waiting = &outcome.times.waiting;
    let quantile = |q| response.quantile_us(q) as f64;
    let Times {
        admitted, refused, ..
    } = &outcome.times;
    let mut found: BTreeMap<String, f64> = [
        ("completed", outcome.completed as f64),
        (
            "replies",
            (outcome.completed + outcome.warm_up.completed) as f64,
        ),
        ("per_second", outcome.completed as f64 / seconds),
        // Whatever the plan judges: a refusal is a reply, but no good one.
        ("goodput", outcome.good as f64 / seconds),
        ("refused", refused.count() as f64 / seconds),
        ("failed", outcome.failed() as f64),
        ("generator_busy", outcome.generator_busy),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if outcome.completed > 0 {
        let times = [
            ("p50_us", quantile(0.5)),
            ("p90_us", quantile(0.9)),
            ("p99_us", quantile(0.99)),
            ("p999_us", quantile(0.999)),
            ("mean_us", response.mean_us()),
            ("max_us", response.max_us as f64),
            ("first_byte_p50_us", waiting.quantile_us(0.5) as f64),
            ("first_byte_p99_us", waiting.quantile_us(0.99) as f64),
        ];
        found.extend(times.map(|(name, value)| (name.to_owned(), value)));
    }
    if admitted.count() > 0 {
        for (name, q) in [("admitted_p50_us", 0.5), ("admitted_p99_us", 0.99)] {
            found.insert(name.into(), admitted.quantile_us(q) as f64);
        }
    }
    if refused.count() > 0 {
        found.insert("refused_p99_us".into(), refused.quantile_us(0.99) as f64);
    }
    let made = outcome.handshakes;
    if made.full + made.resumed > 0 {
        let resumed = made.resumed as f64 / (made.full + made.resumed) as f64;
        found.insert("resumed_share".into(), resumed);
    }
    if outcome.schedule.due > 0 {
        let late = outcome.schedule.late_by_generator as f64 / outcome.schedule.due as f64;
        found.insert("late_share".into(), late);
    }
    found
}

/// Response times as microseconds and counts, in steps of about 1 %.
pub(crate) fn times(outcome: &Outcome) -> Vec<(u64, u64)> {
    let Ok(mut coarse) = hdrhistogram::Histogram::<u64>::new(STORED_DIGITS) else {
        return Vec::new();
    };
    for step in outcome.times.response.histogram.iter_recorded() {
        let _ = coarse.record_n(step.value_iterated_to(), step.count_at_value());
    }
    let steps = coarse.iter_recorded();
    steps
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect()
}

/// How a row is loaded, in words.
pub(crate) fn words(load: &Load) -> String {
    let length = match load.requests {
        Some(count) => format!("{count} requests a slice"),
        None => format!("{} s a slice", load.seconds),
    };
    let kept = if load.keep_alive {
        "kept"
    } else {
        "new for each request"
    };
    let rate = match load.rate {
        Rate::Full => String::new(),
        Rate::PerSecond(rate) => match load.arrivals {
            Arrivals::Bursts => format!(", {rate} requests a second in bursts"),
            Arrivals::Constant | Arrivals::Poisson => format!(", {rate} requests a second"),
        },
        Rate::Share(share) => format!(", {:.0} % of the slowest variant's rate", share * 100.0),
    };
    let deadline = load.deadline.map_or_else(String::new, |deadline| {
        format!(", good within {} ms", deadline.as_millis())
    });
    format!(
        "{} connections, {kept}, {length}{rate}{deadline}",
        load.connections
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_clients_and_names_are_different_ones() {
        assert!(addresses(FIRST_CLIENT, 1).is_empty());
        let clients = addresses(FIRST_CLIENT, 300);
        assert_eq!(clients.len(), 300);
        assert_eq!(clients[255], IpAddr::from([127, 1, 1, 0]));
        assert!(!addresses(FIRST_BESIDE, 200).contains(&clients[0]));
        assert_eq!(tls(1), Tls::to("localhost"));
        let several = tls(3);
        assert_eq!(several.name, "site-0.example");
        assert_eq!(several.more_names, ["site-1.example", "site-2.example"]);
    }
}
