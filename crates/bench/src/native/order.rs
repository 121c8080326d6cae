//! From the command line to what is to be done: contradictions are refused, defaults filled in,
//! requests built.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::compare;
use crate::search::{self, Goals};
use load::client::{
    Address, Arrivals, End, HttpVersion, Judge, Keep, Opening, Pace, Persistence, Plan, Protocol,
    Request, RequestBuilder, Reuse, SocketOptions, Tls, TlsResume, TlsVersion, WarmUp,
};
use load::server::Which;

use super::contradictions;
use super::options::{ArrivalsWord, HttpWord, Options, ResumeWord, TlsWord, WarmUpWord};
use super::record::Asked;
use super::target::{self, Target};

/// Sending without `--duration` and `--requests`.
const DURATION: Duration = Duration::from_secs(10);
/// Longest warm-up that is found.
const WARM_UP_MAX: Duration = Duration::from_secs(5);
/// Blocks of a comparison at most, without `--blocks`.
const BLOCKS: u64 = 60;
/// Length of its slices, without `--block`.
const SLICE: Duration = Duration::from_secs(1);
/// Differences below this are none, without `--margin`.
const MARGIN: f64 = 0.01;
/// How long a rate of a search is tried, without `--duration`.
const PROBE: Duration = Duration::from_secs(2);
/// The gap between rates at which a search is content.
const PRECISION: f64 = 0.04;
/// Longest body that is sent.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Order {
    /// The load, or the first of two.
    pub(crate) plan: Plan,
    /// The same for the report.
    pub(crate) asked: Asked,
    /// One load, a comparison or a search.
    pub(crate) task: Task,
    /// What else was said: what is watched, where reports go.
    pub(crate) options: Options,
}

/// What becomes of the plan.
#[derive(Debug)]
pub(crate) enum Task {
    /// It is run once.
    Load,
    /// It is compared with another.
    Versus(Box<Versus>),
    /// The highest rate that holds these goals is looked for.
    Until(search::Options),
}

/// `--vs`.
#[derive(Debug)]
pub(crate) struct Versus {
    /// B.
    pub(crate) plan: Plan,
    /// How it is compared.
    pub(crate) options: compare::Options,
}

/// Why nothing is done.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The command line cannot be meant; every reason.
    Misuse(Vec<String>),
    /// It can, but a name is not known or a file cannot be read.
    Failed(String),
}

impl From<load::Error> for Refused {
    fn from(error: load::Error) -> Self {
        Refused::Failed(error.to_string())
    }
}

impl Order {
    /// Judges the options and builds what they ask for.
    pub(crate) fn from(options: Options) -> Result<Order, Refused> {
        let mut targets = options.urls.clone();
        if let Some(file) = &options.urls_file {
            targets.extend(target::from_file(file).map_err(Refused::Failed)?);
        }
        let wrong = contradictions::of(&options, &targets);
        if !wrong.is_empty() {
            return Err(Refused::Misuse(wrong));
        }
        let builder = builder(&options)?;
        let plan = plan(&options, requests(&options, &builder, &targets)?);
        let task = match (&options.vs, &options.until) {
            (Some(b), _) => Task::Versus(Box::new(versus(&options, &plan, &builder, b)?)),
            (None, Some(goals)) => Task::Until(until(&options, &plan, goals)),
            (None, None) => Task::Load,
        };
        let headers = builder.headers.iter().map(|(name, _)| name.clone());
        let http = match options.http {
            HttpWord::V10 => "1.0",
            HttpWord::V11 => "1.1",
            HttpWord::V2 => "2",
        };
        let asked = Asked::of(
            &plan,
            &builder.method,
            http,
            headers.collect(),
            options.seed,
        );
        Ok(Order {
            plan,
            asked,
            task,
            options,
        })
    }

    /// The server that is watched.
    pub(crate) fn watch(&self) -> Option<Which> {
        watched(&self.options).into_iter().next()
    }
}

fn builder(options: &Options) -> Result<RequestBuilder, Refused> {
    let mut headers = options
        .headers
        .iter()
        .map(|field| header(field))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(user) = &options.user {
        let value = format!("Basic {}", STANDARD.encode(user));
        headers.push(("Authorization".to_owned(), value));
    }
    let body = body(options)?;
    let method = match (
        &options.method,
        options.body.is_some() || options.body_file.is_some(),
    ) {
        (Some(method), _) => method.clone(),
        (None, true) => "POST".to_owned(),
        (None, false) => "GET".to_owned(),
    };
    Ok(RequestBuilder {
        method,
        version: match options.http {
            HttpWord::V10 => HttpVersion::V10,
            // The bytes that are sent in frames.
            HttpWord::V11 | HttpWord::V2 => HttpVersion::V11,
        },
        headers,
        body,
        persistence: match options.no_keep_alive {
            true => Persistence::Close,
            false => Persistence::Keep,
        },
        ..RequestBuilder::default()
    })
}

fn header(field: &str) -> Result<(String, String), Refused> {
    match field.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(Refused::Misuse(vec![format!(
            "--header '{}' has no colon: write --header 'Accept: text/html'",
            field.escape_debug()
        )])),
    }
}

fn body(options: &Options) -> Result<Vec<u8>, Refused> {
    let Some(path) = &options.body_file else {
        return Ok(options.body.clone().unwrap_or_default().into_bytes());
    };
    let failed = |reason: &dyn std::fmt::Display| {
        Refused::Failed(format!("--body-file {}: {reason}", path.display()))
    };
    let length = std::fs::metadata(path).map_err(|e| failed(&e))?.len();
    if length > BODY_BYTES_MAX {
        return Err(failed(&"longer than 64 MiB"));
    }
    std::fs::read(path).map_err(|e| failed(&e))
}

fn requests(
    options: &Options,
    builder: &RequestBuilder,
    targets: &[Target],
) -> Result<Vec<Request>, Refused> {
    targets
        .iter()
        .map(|target| {
            let builder = RequestBuilder {
                weight: target.weight,
                label: Some(target.text.clone()),
                ..builder.clone()
            };
            let mut request = builder.build(&target.url)?;
            if let Some(tls) = &mut request.endpoint.tls {
                set_tls(tls, options);
            }
            Ok(request)
        })
        .collect()
}

fn set_tls(tls: &mut Tls, options: &Options) {
    if let Some(name) = &options.tls_name {
        tls.name.clone_from(name);
    }
    tls.sni = !options.no_tls_name;
    tls.versions = match options.tls_version {
        Some(TlsWord::V12) => vec![TlsVersion::V12],
        Some(TlsWord::V13) => vec![TlsVersion::V13],
        None => Vec::new(),
    };
    tls.suites.clone_from(&options.tls_suites);
    tls.groups.clone_from(&options.tls_groups);
    tls.identity.clone_from(&options.tls_identity);
    tls.resume = match options.tls_resume {
        ResumeWord::Never => TlsResume::Never,
        ResumeWord::Always => TlsResume::Always,
    };
}

fn plan(options: &Options, requests: Vec<Request>) -> Plan {
    let after = match (options.duration, options.requests) {
        (None, None) => Some(DURATION),
        (after, _) => after,
    };
    Plan {
        protocol: match options.streams() {
            None => Protocol::Http1,
            Some(streams) => Protocol::Http2 {
                streams: streams as usize,
            },
        },
        connections: options.connections as usize,
        threads: options.threads as usize,
        cores: options
            .cores
            .clone()
            .map(|cores| cores.0)
            .unwrap_or_default(),
        pace: match options.rate {
            None => Pace::Closed,
            Some(per_second) => Pace::Open {
                per_second,
                arrivals: match options.arrivals {
                    Some(ArrivalsWord::Constant) => Arrivals::Constant,
                    _ => Arrivals::Poisson(options.seed),
                },
                ramp: options.ramp.unwrap_or_default(),
            },
        },
        end: End {
            after,
            requests: options.requests,
        },
        opening: match options.open_over {
            Some(time) => Opening::Ramp(time),
            None => Opening::AllAtOnce,
        },
        reuse: match (options.no_keep_alive, options.requests_per_connection) {
            (true, _) => Reuse::Close,
            (false, Some(requests)) => Reuse::Requests(u32::try_from(requests).unwrap_or(u32::MAX)),
            (false, None) => Reuse::Keep,
        },
        warm_up: warm_up(options, after),
        timeout: options.timeout,
        deadline: None,
        judge: match options.accept_any_status {
            true => Judge::Nothing,
            false => Judge::Status,
        },
        keep: Keep::Histograms,
        socket: SocketOptions {
            local: options.from.into_iter().collect(),
            buffer_bytes: options.socket_buffer,
        },
        ..Plan::new(requests)
    }
}

fn warm_up(options: &Options, after: Option<Duration>) -> WarmUp {
    let auto = match options.requests {
        Some(_) => WarmUpWord::None,
        None => WarmUpWord::Auto,
    };
    match options.warm_up.unwrap_or(auto) {
        WarmUpWord::None => WarmUp::None,
        WarmUpWord::For(time) => WarmUp::For(time),
        WarmUpWord::Auto => {
            let quarter = after.map_or(WARM_UP_MAX, |after| after / 4);
            WarmUp::UntilSteady(quarter.min(WARM_UP_MAX))
        }
    }
}

fn versus(
    options: &Options,
    plan: &Plan,
    builder: &RequestBuilder,
    b: &Target,
) -> Result<Versus, Refused> {
    let requests = requests(options, builder, std::slice::from_ref(b))?;
    let ([of_a, ..], [of_b, ..]) = (plan.requests.as_slice(), requests.as_slice()) else {
        return Err(Refused::Misuse(vec!["--vs needs two URLs".to_owned()]));
    };
    let [at_a, at_b] = [of_a, of_b].map(|request| &request.endpoint.address);
    let servers = both(&watched(options), at_a, at_b)?;
    let names = [of_a.label.clone(), b.text.clone()];
    Ok(Versus {
        plan: Plan {
            requests,
            ..plan.clone()
        },
        options: compare::Options {
            names,
            servers,
            blocks_max: options.blocks.unwrap_or(BLOCKS) as usize,
            slice: options.block.unwrap_or(SLICE),
            margin: options.margin.unwrap_or(MARGIN),
            seed: options.seed,
        },
    })
}

/// The servers that are named, in their order.
fn watched(options: &Options) -> Vec<Which> {
    let by_number = options.pid.iter().map(|pid| Which::Pid(*pid));
    let by_port = options.listen.iter().map(|port| Which::Listening(*port));
    by_number.chain(by_port).collect()
}

/// A's and B's of a comparison. Where one alone is named it is A's, and B's is the same if it has
/// the same address, else whoever listens on B's port here.
fn both(watched: &[Which], a: &Address, b: &Address) -> Result<[Which; 2], Refused> {
    match (watched, b) {
        ([], _) => Ok([Which::MachineOnly, Which::MachineOnly]),
        ([of_a, of_b, ..], _) => Ok([of_a.clone(), of_b.clone()]),
        ([of_a], _) if a == b => Ok([of_a.clone(), of_a.clone()]),
        ([of_a], Address::Tcp(address)) if address.ip().is_loopback() => {
            Ok([of_a.clone(), Which::Listening(address.port())])
        }
        ([_], _) => Err(Refused::Misuse(vec![
            "--vs with one --pid or --listen: give it twice, A's server first; their CPU times are compared"
                .to_owned(),
        ])),
    }
}

fn until(options: &Options, plan: &Plan, goals: &Goals) -> search::Options {
    let name = match plan.requests.as_slice() {
        [] => String::new(),
        [only] => only.label.clone(),
        [first, rest @ ..] => format!("{} and {} more", first.label, rest.len()),
    };
    let server = watched(options).into_iter().next();
    search::Options {
        name,
        goals: goals.clone(),
        server: server.unwrap_or(Which::MachineOnly),
        probe: options.duration.unwrap_or(PROBE),
        precision: PRECISION,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use clap::Parser;

    use super::*;

    fn order(line: &str) -> Result<Order, Refused> {
        let words = std::iter::once("nagaya bench").chain(line.split_whitespace());
        Order::from(Options::try_parse_from(words).expect("each option alone is well formed"))
    }

    fn plan_of(line: &str) -> Plan {
        order(&format!("http://127.0.0.1:1/ {line}"))
            .expect("goes together")
            .plan
    }

    fn bytes(plan: &Plan) -> String {
        String::from_utf8_lossy(&plan.requests[0].bytes).into_owned()
    }

    #[test]
    fn without_options_fifty_connections_ask_for_ten_seconds() {
        let plan = plan_of("");
        assert_eq!((plan.connections, plan.threads), (50, 1));
        assert_eq!(plan.pace, Pace::Closed);
        assert_eq!(
            plan.end,
            End {
                after: Some(DURATION),
                requests: None
            }
        );
        assert_eq!(
            plan.warm_up,
            WarmUp::UntilSteady(Duration::from_millis(2500))
        );
        assert_eq!((plan.reuse, plan.judge), (Reuse::Keep, Judge::Status));
        assert_eq!(plan.opening, Opening::AllAtOnce);
        assert_eq!(bytes(&plan), "GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
    }

    #[test]
    fn options_become_the_plan() {
        let seconds = Duration::from_secs;
        assert_eq!(
            plan_of("--rate 5k --ramp 2s --seed 7").pace,
            Pace::Open {
                per_second: 5000.0,
                arrivals: Arrivals::Poisson(7),
                ramp: seconds(2)
            }
        );
        assert_eq!(
            plan_of("--rate 5k --arrivals constant").pace,
            Pace::Open {
                per_second: 5000.0,
                arrivals: Arrivals::Constant,
                ramp: Duration::ZERO
            }
        );
        let counted = plan_of("--requests 20k");
        assert_eq!(
            counted.end,
            End {
                after: None,
                requests: Some(20_000)
            }
        );
        assert_eq!(counted.warm_up, WarmUp::None);
        assert_eq!(
            plan_of("--requests 9 --warm-up 1s").warm_up,
            WarmUp::For(seconds(1))
        );
        assert_eq!(
            plan_of("--duration 60s").warm_up,
            WarmUp::UntilSteady(WARM_UP_MAX)
        );
        assert_eq!(plan_of("--no-keep-alive").reuse, Reuse::Close);
        assert!(bytes(&plan_of("--no-keep-alive")).contains("Connection: close"));
        assert_eq!(
            plan_of("--requests-per-connection 9").reuse,
            Reuse::Requests(9)
        );
        assert_eq!(plan_of("--open-over 2s").opening, Opening::Ramp(seconds(2)));
        assert_eq!(plan_of("--accept-any-status").judge, Judge::Nothing);
        assert_eq!(plan_of("--cores 0,2-3").cores, [0, 2, 3]);
        assert_eq!(
            plan_of("--timeout 250ms").timeout,
            Duration::from_millis(250)
        );
        assert_eq!(
            plan_of("--socket-buffer 64KiB").socket.buffer_bytes,
            Some(65536)
        );
        assert_eq!(
            plan_of("--from 127.0.0.2").socket.local,
            ["127.0.0.2".parse::<IpAddr>().expect("an address")]
        );
    }

    #[test]
    fn a_request_is_what_was_asked_for() {
        let posted = bytes(&plan_of(
            "--body hello --header Accept:x --user me:secret --http 1.0",
        ));
        assert!(posted.starts_with("POST / HTTP/1.0\r\n"), "{posted}");
        assert!(posted.contains("\r\nAccept: x\r\n"), "{posted}");
        assert!(
            posted.contains("\r\nAuthorization: Basic bWU6c2VjcmV0\r\n"),
            "{posted}"
        );
        assert!(posted.ends_with("\r\n\r\nhello"), "{posted}");
        assert!(bytes(&plan_of("--method DELETE")).starts_with("DELETE / "));
        let order = order("http://127.0.0.1/ --user me:secret").expect("goes together");
        assert_eq!(order.asked.header_names, ["Authorization"]);
        assert!(
            !format!("{:?}", order.asked).contains("bWU6"),
            "a secret is kept out of reports"
        );
    }

    #[test]
    fn several_urls_keep_their_weights() {
        let plan = plan_of("3@http://127.0.0.1:2/b unix:/run/x.sock:/c");
        let weights: Vec<u32> = plan.requests.iter().map(|request| request.weight).collect();
        assert_eq!(weights, [1, 3, 1]);
        assert_eq!(plan.requests[1].label, "http://127.0.0.1:2/b");
    }

    #[test]
    fn tls_options_reach_the_endpoint() {
        let line = "https://127.0.0.1/ --tls-version 1.3 --tls-name a.jp --tls-suites A,B --tls-resume always";
        let plan = order(line).expect("goes together").plan;
        let tls = plan.requests[0].endpoint.tls.clone().expect("TLS");
        assert_eq!((tls.name.as_str(), tls.sni), ("a.jp", true));
        assert_eq!(tls.versions, [TlsVersion::V13]);
        assert_eq!(tls.suites, ["A", "B"]);
        assert_eq!(tls.resume, TlsResume::Always);
    }

    #[test]
    fn what_cannot_be_done_is_misuse_or_a_failure() {
        for line in [
            "",
            "http://127.0.0.1/ --ramp 1s",
            "http://127.0.0.1/ --header x",
        ] {
            assert!(matches!(order(line), Err(Refused::Misuse(_))), "{line}");
        }
        for line in [
            "http://127.0.0.1/ --body-file /nowhere/body",
            "--urls /nowhere/urls",
            "http://127.0.0.1/ --header A:b --method G{T",
        ] {
            assert!(matches!(order(line), Err(Refused::Failed(_))), "{line}");
        }
    }

    #[test]
    fn a_comparison_watches_the_server_of_each() {
        let servers = |line: &str| match order(&format!("http://127.0.0.1/ {line}")) {
            Ok(order) => match order.task {
                Task::Versus(versus) => Some(versus.options.servers),
                other => panic!("{other:?}"),
            },
            Err(Refused::Misuse(_)) => None,
            Err(other) => panic!("{other:?}"),
        };
        let by_port = Which::Listening;
        for (line, expected) in [
            (
                "--vs http://127.0.0.1/b --listen 80",
                Some([by_port(80), by_port(80)]),
            ),
            (
                "--vs http://127.0.0.1:81/ --pid 7",
                Some([Which::Pid(7), by_port(81)]),
            ),
            (
                "--vs http://127.0.0.1:81/ --pid 7 --pid 8",
                Some([Which::Pid(7), Which::Pid(8)]),
            ),
            ("--vs http://192.0.2.1/ --pid 7", None),
        ] {
            assert_eq!(servers(line), expected, "{line}");
        }
    }

    #[test]
    fn comparison_and_search_are_orders_of_their_own() {
        match order("http://127.0.0.1/ --vs http://127.0.0.1/b --margin 2%").map(|o| o.task) {
            Ok(Task::Versus(versus)) => {
                let options = &versus.options;
                assert_eq!(
                    (options.blocks_max, options.slice),
                    (BLOCKS as usize, SLICE)
                );
                assert_eq!(options.margin, 0.02);
                assert_eq!(options.names, ["http://127.0.0.1/", "http://127.0.0.1/b"]);
                assert_eq!(options.servers, [Which::MachineOnly, Which::MachineOnly]);
                assert_eq!(versus.plan.requests.len(), 1);
            }
            other => panic!("{other:?}"),
        }
        let task = order("http://127.0.0.1/ --until p99<50ms").map(|o| o.task);
        assert!(matches!(task, Ok(Task::Until(search)) if search.goals.to_string() == "p99<50ms"));
    }
}
