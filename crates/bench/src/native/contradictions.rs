//! What does not go together on the command line, and what to write instead.
//!
//! All of it is told at once; each line is one reason.

use std::path::Path;
use std::time::Duration;

use load::client::{CONNECTIONS_MAX, REQUESTS_MAX, Scheme, THREADS_MAX};

use super::options::{HttpWord, Options, ResumeWord, WarmUpWord};
use super::target::Target;

/// A condition under which the options cannot be meant, and what is said then.
type Rule = (bool, &'static str);

/// Everything that does not go together.
pub(crate) fn of(options: &Options, targets: &[Target]) -> Vec<String> {
    [
        of_targets(options, targets),
        of_load(options),
        of_lengths(options),
        of_tasks(options, targets),
        of_report(options),
    ]
    .concat()
    .into_iter()
    .filter(|(wrong, _)| *wrong)
    .map(|(_, reason)| reason.to_owned())
    .collect()
}

fn of_targets(options: &Options, targets: &[Target]) -> Vec<Rule> {
    let is_tls = |target: &Target| target.url.scheme() == Scheme::Https;
    let has_tls = targets.iter().chain(&options.vs).any(is_tls);
    let asks_tls = options.tls_version.is_some()
        || !options.tls_suites.is_empty()
        || !options.tls_groups.is_empty()
        || options.tls_name.is_some()
        || options.no_tls_name
        || options.tls_identity.is_some()
        || options.tls_resume == ResumeWord::Always;
    vec![
        (
            targets.is_empty(),
            "no URL: write nagaya bench http://127.0.0.1:8080/",
        ),
        (
            targets.len() > REQUESTS_MAX,
            "more than 1000 URLs: draw a thousand of them, for example with shuf -n 1000",
        ),
        (
            asks_tls && !has_tls && !targets.is_empty(),
            "TLS options, but no URL begins with https",
        ),
        (
            options.no_tls_name && options.tls_name.is_some(),
            "--no-tls-name and --tls-name: which of them?",
        ),
        (
            options.body.is_some() && options.body_file.is_some(),
            "--body and --body-file: which of them?",
        ),
        (
            options
                .user
                .as_ref()
                .is_some_and(|user| !user.contains(':')),
            "--user needs a name and a password: --user name:password",
        ),
    ]
}

fn of_load(options: &Options) -> Vec<Rule> {
    let has_rate = options.rate.is_some();
    let per_connection = options.requests_per_connection;
    vec![
        (
            !has_rate && options.until.is_none() && options.arrivals.is_some(),
            "--arrivals belongs to --rate: without a rate each connection asks again when it has its reply",
        ),
        (
            !has_rate && options.ramp.is_some(),
            "--ramp belongs to --rate; --open-over opens connections one after another",
        ),
        (
            options.no_keep_alive && per_connection.is_some(),
            "--no-keep-alive and --requests-per-connection: the first means 1 of the second",
        ),
        (
            per_connection.is_some_and(|requests| u32::try_from(requests).is_err()),
            "--requests-per-connection: at most 4294967295",
        ),
        (
            options.streams.is_some() && options.http != HttpWord::V2,
            "--streams belongs to --http 2: in HTTP/1 a connection has one request at a time",
        ),
        (
            options.no_keep_alive && options.streams().is_some_and(|streams| streams > 1),
            "--no-keep-alive and --streams: a connection for each request has one stream",
        ),
        (
            options.streams().is_some_and(|streams| {
                streams.saturating_mul(options.connections) > CONNECTIONS_MAX as u64
            }),
            "--connections times --streams: at most 100000 (32 streams without --streams)",
        ),
        (
            options.threads > options.connections,
            "more --threads than --connections: each thread needs one",
        ),
        (
            options.connections > CONNECTIONS_MAX as u64,
            "--connections: at most 100000",
        ),
        (
            options.threads > THREADS_MAX as u64,
            "--threads: at most 256",
        ),
    ]
}

fn of_lengths(options: &Options) -> Vec<Rule> {
    let fills = |part: Option<Duration>| {
        part.zip(options.duration)
            .is_some_and(|(part, whole)| part >= whole)
    };
    let warm_up = match options.warm_up {
        Some(WarmUpWord::For(time)) => Some(time),
        _ => None,
    };
    vec![
        (
            fills(options.ramp),
            "--ramp is as long as --duration: nothing would be left at the full rate",
        ),
        (
            fills(options.open_over),
            "--open-over is as long as --duration: nothing would be left with all connections",
        ),
        (
            fills(warm_up),
            "--warm-up is as long as --duration: nothing would be recorded",
        ),
    ]
}

fn of_tasks(options: &Options, targets: &[Target]) -> Vec<Rule> {
    let compares = options.vs.is_some();
    let searches = options.until.is_some();
    let of_vs = options.blocks.is_some() || options.block.is_some() || options.margin.is_some();
    vec![
        (
            compares && searches,
            "--vs and --until: one question at a time; search each server's rate first, then compare them at the lower one with --rate",
        ),
        (
            compares && targets.len() > 1,
            "--vs with several URLs: it compares one URL with one other",
        ),
        (
            compares && (options.duration.is_some() || options.requests.is_some()),
            "--vs with --duration or --requests: --blocks and --block say how long it takes",
        ),
        (
            compares && options.warm_up.is_some(),
            "--vs with --warm-up: it finds its own",
        ),
        (
            !compares && of_vs,
            "--blocks, --block and --margin belong to --vs URL-B",
        ),
        (
            searches && options.rate.is_some(),
            "--rate and --until: --until looks for the rate itself, leave --rate out",
        ),
        (
            searches && options.requests.is_some(),
            "--until with --requests: it sends as many as it needs; --duration says how long each rate is tried",
        ),
    ]
}

fn of_report(options: &Options) -> Vec<Rule> {
    let named = options.pid.len() + options.listen.len();
    let compares = options.vs.is_some();
    vec![
        (
            !options.pid.is_empty() && !options.listen.is_empty(),
            "--pid and --listen: name the server by one of them",
        ),
        (
            named > 1 && !compares,
            "several servers: only --vs watches two; name the one whose process tree holds all of it",
        ),
        (
            named > 2 && compares,
            "more than two servers: --vs takes A's and B's",
        ),
        (
            options.cooldown.is_some() && (compares || options.until.is_some()),
            "--cooldown belongs to a single load, without --vs and --until",
        ),
        (
            options.cooldown.is_some() && named == 0,
            "--cooldown needs the server it watches: --pid PID or --listen PORT",
        ),
        (
            options.json.is_some() && options.json == options.html,
            "--json and --html name the same file",
        ),
        (
            options.html.as_deref() == Some(Path::new("-")),
            "--html needs a file: --html report.html",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// What is said of a command line; empty where it is fine.
    fn said(line: &str) -> Vec<String> {
        let words = std::iter::once("nagaya bench").chain(line.split_whitespace());
        let options = Options::try_parse_from(words).expect("each option alone is well formed");
        let targets = options.urls.clone();
        of(&options, &targets)
    }

    #[test]
    fn what_goes_together_is_not_complained_of() {
        for line in [
            "http://127.0.0.1/",
            "http://127.0.0.1/ 3@http://127.0.0.1/b --rate 5k --arrivals constant --ramp 2s --duration 10s",
            "http://127.0.0.1/ --requests 100 --no-keep-alive --threads 2 --connections 2",
            "https://127.0.0.1/ --tls-version 1.3 --insecure",
            "http://127.0.0.1/ --vs http://127.0.0.1/b --blocks 10 --block 1s --margin 2% --rate 100",
            "http://127.0.0.1/ --until p99<50ms --arrivals poisson --duration 3s",
            "http://127.0.0.1/ --vs http://127.0.0.1/b --listen 80 --listen 81",
            "http://127.0.0.1/ --http 2 --streams 100 --connections 1k",
            "https://127.0.0.1/ --http 2 --no-keep-alive",
            "http://127.0.0.1/ --listen 80 --cooldown 10s --json - --html page.html",
        ] {
            assert_eq!(said(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn every_contradiction_says_what_to_write_instead() {
        for (line, part) in [
            ("", "no URL"),
            ("http://a/ --tls-version 1.2", "https"),
            ("https://a/ --no-tls-name --tls-name b", "which of them"),
            ("http://a/ --body x --body-file y", "which of them"),
            ("http://a/ --user x", "name:password"),
            ("http://a/ --arrivals constant", "belongs to --rate"),
            ("http://a/ --ramp 2s", "belongs to --rate"),
            (
                "http://a/ --no-keep-alive --requests-per-connection 4",
                "1 of the second",
            ),
            (
                "http://a/ --threads 2 --connections 1",
                "each thread needs one",
            ),
            ("http://a/ --connections 1M", "at most"),
            ("http://a/ --streams 2", "belongs to --http 2"),
            (
                "http://a/ --http 2 --streams 2 --no-keep-alive",
                "one stream",
            ),
            ("http://a/ --http 2 --connections 4k", "at most 100000"),
            ("http://a/ --threads 1k --connections 2k", "at most"),
            ("http://a/ --rate 5 --ramp 10s --duration 10s", "full rate"),
            (
                "http://a/ --open-over 10s --duration 10s",
                "all connections",
            ),
            (
                "http://a/ --warm-up 10s --duration 10s",
                "nothing would be recorded",
            ),
            (
                "http://a/ --vs http://b/ --until p99<1ms",
                "one question at a time",
            ),
            ("http://a/ http://c/ --vs http://b/", "several URLs"),
            ("http://a/ --vs http://b/ --duration 3s", "--blocks"),
            ("http://a/ --vs http://b/ --warm-up none", "its own"),
            ("http://a/ --blocks 3", "belong to --vs"),
            ("http://a/ --until p99<1ms --rate 5", "leave --rate out"),
            (
                "http://a/ --until p99<1ms --requests 5",
                "as many as it needs",
            ),
            (
                "http://a/ --vs http://b/ --pid 1 --listen 80",
                "one of them",
            ),
            ("http://a/ --listen 80 --listen 81", "only --vs"),
            (
                "http://a/ --vs http://b/ --pid 1 --pid 2 --pid 3",
                "more than two",
            ),
            (
                "http://a/ --vs http://b/ --pid 1 --cooldown 1s",
                "single load",
            ),
            ("http://a/ --cooldown 3s", "--listen PORT"),
            ("http://a/ --json x --html x", "same file"),
            ("http://a/ --html -", "needs a file"),
        ] {
            let said = said(line);
            assert_eq!(said.len(), 1, "{line}: {said:?}");
            assert!(said[0].contains(part), "{line}: {said:?}");
        }
    }

    #[test]
    fn all_contradictions_are_told_at_once() {
        assert_eq!(
            said("http://a/ --ramp 2s --blocks 3 --cooldown 1s").len(),
            3
        );
    }
}
