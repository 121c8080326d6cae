//! The report as text, for a terminal or a file, and what it shares with the page.

use report::units;
use report::{Cell, Column, Document, Paint, Table, Tone};

use super::notes;
use super::record::{Asked, HandshakesRecord, PaceWord, Report, per_second};
use super::tables;
use super::timeline::{self, TimelineStep};
use super::watch;

/// What a line over time has beside its blocks: its name, and from what to what it goes.
const BESIDE_BLOCKS: usize = 36;
/// Blocks of a line over time, at most.
const BLOCKS_MAX: usize = 60;
/// The line over time that tells times.
const TIMES: &str = "p99";
/// URLs that are named on top.
const URLS_SHOWN: usize = 3;

/// The whole report, for so many columns; ends with a line's end.
pub(crate) fn text(report: &Report, width: usize, paint: Paint) -> String {
    let mut document = Document::new(urls(&report.asked), load(&report.asked));
    document.facts = facts(report);
    let section = document.section("");
    if let Some(failures) = tables::failures(report) {
        section.table(failures);
    }
    for failure in &report.first_failures {
        section.text(format!("first {} {}", failure.kind, failure.text));
    }
    if report.completed > 0 {
        section.table(tables::latencies(report));
        if let Some(note) = tables::too_few(report) {
            section.text(note);
        }
    }
    if let Some((title, course)) = course(report, width) {
        document.section(title).table(course);
    }
    let section = document.section("");
    if let Some(urls) = tables::urls(report) {
        section.table(urls);
    }
    if let Some(server) = &report.server {
        section.table(watch::table(server));
    }
    for (tone, note) in notes::notes(report) {
        section.text(match tone {
            Tone::Bad | Tone::Warn => format!("! {note}"),
            Tone::Plain | Tone::Good => note,
        });
    }
    document.to_text(width, paint)
}

fn urls(asked: &Asked) -> String {
    let urls = asked.urls.iter().take(URLS_SHOWN);
    let mut words: Vec<String> = urls
        .map(|url| match url.weight {
            1 => url.url.clone(),
            weight => format!("{weight}@{}", url.url),
        })
        .collect();
    if asked.urls.len() > URLS_SHOWN {
        words.push(format!("and {} more", asked.urls.len() - URLS_SHOWN));
    }
    words.join(" ")
}

/// The load in a line: `closed loop · 50 connections · 1 thread · 10 s`.
pub(crate) fn load(asked: &Asked) -> String {
    let mut words = vec![match asked.pace {
        PaceWord::Closed => "closed loop".to_owned(),
        PaceWord::Open => format!(
            "open loop, {} {}",
            units::per_second(asked.rate_per_second.unwrap_or(0.0)),
            asked.arrivals.as_deref().unwrap_or_default()
        ),
    }];
    let kept = match asked.requests_per_connection {
        None => "kept".to_owned(),
        Some(1) => "each for one request".to_owned(),
        Some(requests) => format!("each for {} requests", units::count(requests)),
    };
    let connections = plural(asked.connections, "connection");
    words.push(match asked.streams {
        None => format!("{connections}, {kept}"),
        Some(streams) => format!("{connections} of {}, {kept}", plural(streams, "stream")),
    });
    words.push(plural(asked.threads, "thread"));
    words.extend(asked.duration_s.map(units::seconds));
    words.extend(asked.requests.map(|requests| plural(requests, "request")));
    if asked.method != "GET" || asked.http != "1.1" {
        words.push(format!("{} by HTTP/{}", asked.method, asked.http));
    }
    words.join(" · ")
}

/// What came, name and value.
pub(crate) fn facts(report: &Report) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    fact(
        "Rate",
        format!("{}   ({})", notes::headline(report), counted(report)),
    );
    if report.failed > 0 && report.completed > 0 {
        fact("Good", units::per_second(report.good_per_second));
    }
    fact("Failed", failed(report));
    let classes: Vec<String> = tables::status_classes(report)
        .iter()
        .map(|(class, count)| format!("{class} {}", units::count(*count)))
        .collect();
    if !classes.is_empty() {
        fact("Statuses", classes.join("   "));
    }
    if let Some(made) = &report.handshakes {
        fact("Handshakes", handshakes(made));
    }
    fact("Received", received(report));
    if let Some(first) = &report.first {
        let bytes = units::bytes(first.body_bytes as f64);
        let mut words = vec![format!("status {}, {bytes}", first.status)];
        words.extend((!first.server.is_empty()).then(|| first.server.clone()));
        words.extend(first.tls.clone());
        fact("First reply", words.join(", "));
    }
    if let Some(schedule) = &report.schedule {
        fact(
            "Schedule",
            format!(
                "{} due, {} late ({} of them by the generator), {} never sent",
                units::count(schedule.due),
                units::count(schedule.late),
                units::count(schedule.late_by_generator),
                units::count(schedule.unsent)
            ),
        );
    }
    fact("Warm-up", warm_up(report));
    fact("Generator", generator(report));
    facts
}

fn counted(report: &Report) -> String {
    let kept = match report.on_kept_connections {
        0 => String::new(),
        kept => format!(", {} of them over kept connections", units::count(kept)),
    };
    let whole = match report.completed {
        1 => "1 whole reply".to_owned(),
        count => format!("{} whole replies", units::count(count)),
    };
    format!("{whole} in {}{kept}", units::seconds(report.recorded_s))
}

fn failed(report: &Report) -> String {
    if report.failed == 0 {
        return "none".to_owned();
    }
    let attempts = report.attempts();
    format!(
        "{} of {} ({})",
        units::count(report.failed),
        units::count(attempts),
        units::share(report.failed as f64 / attempts.max(1) as f64)
    )
}

fn handshakes(made: &HandshakesRecord) -> String {
    let all = made.full + made.resumed;
    let resumed = match all {
        0 => String::new(),
        all => format!(
            ", {} of them resumed",
            units::share(made.resumed as f64 / all as f64)
        ),
    };
    format!(
        "{}   ({}{resumed})",
        units::per_second(made.per_second),
        units::count(all)
    )
}

fn received(report: &Report) -> String {
    format!(
        "{}/s   ({}, of which bodies {}; sent {})",
        units::bytes(per_second(report.received_bytes, report.recorded_s)),
        units::bytes(report.received_bytes as f64),
        units::bytes(report.body_bytes as f64),
        units::bytes(report.sent_bytes as f64)
    )
}

fn warm_up(report: &Report) -> String {
    if report.asked.warm_up == "none" {
        return "none, everything is recorded".to_owned();
    }
    format!(
        "{} with {} left out",
        units::seconds(report.warm_up.time.as_secs_f64()),
        match report.warm_up.completed {
            1 => "1 reply".to_owned(),
            count => format!("{} replies", units::count(count)),
        }
    )
}

fn generator(report: &Report) -> String {
    let per_request = report.own.cpu_s * 1e6 / report.attempts().max(1) as f64;
    format!(
        "{} of CPU, {} a request; its busiest thread {} of a core",
        units::seconds(report.own.cpu_s),
        units::micros(per_request),
        units::share(report.own.busy)
    )
}

/// Rate and latency over time, a line of blocks each, and what a block is.
fn course(report: &Report, width: usize) -> Option<(String, Table)> {
    let room = width.saturating_sub(BESIDE_BLOCKS).clamp(1, BLOCKS_MAX);
    let steps = timeline::steps(&report.timeline, room);
    let step = units::seconds(steps.first()?.end_s);
    let mut table = Table::new(["", "", ""].map(Column::left));
    let mut line = |name: &str, of: fn(&TimelineStep) -> f64, say: fn(f64) -> String| {
        let values = steps.iter().map(of);
        // Where no reply came there is no time, least of all a short one.
        let told = |step: &&TimelineStep| name != TIMES || step.per_second > 0.0;
        let most = values.clone().fold(0.0, f64::max);
        let least = steps.iter().filter(told).map(of).fold(most, f64::min);
        let range = format!("{} to {}", say(least), say(most));
        table.row([name, &timeline::blocks(values), &range].map(Cell::from));
    };
    if report.completed > 0 {
        line("rate", |s| s.per_second, units::per_second);
        line(TIMES, |s| s.p99_us, units::micros);
    }
    if report.failed > 0 {
        line("failures", |s| s.failed_per_second, units::per_second);
    }
    let title = format!("Over time, a block each {step}");
    (!table.rows.is_empty()).then_some((title, table))
}

fn plural(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{} {noun}s", units::count(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use load::client::Errors;

    /// The report of the open loop, every part of it filled.
    const OPEN: &str = include_str!("../../tests/native/open.txt");
    /// The report of the closed loop, and nobody watched.
    const CLOSED: &str = include_str!("../../tests/native/closed.txt");

    /// A file has all the room there is.
    const WIDE: usize = usize::MAX;

    fn closed() -> Report {
        Report::of(&fixture::asked(), &fixture::outcome(), None)
    }

    #[test]
    fn the_report_of_an_open_loop_says_all_there_is() {
        assert_eq!(text(&fixture::report(), WIDE, Paint::Never), OPEN);
    }

    #[test]
    fn the_report_of_a_closed_loop_says_what_its_times_mean() {
        assert_eq!(text(&closed(), WIDE, Paint::Never), CLOSED);
    }

    #[test]
    fn a_narrow_terminal_breaks_no_line_but_what_cannot_be_broken() {
        let text = text(&fixture::report(), 64, Paint::Never);
        let long: Vec<&str> = text
            .lines()
            .filter(|line| line.chars().count() > 64)
            .collect();
        let is_as_it_came = |line: &&str| line.starts_with("first ") || line.contains(" loop,");
        assert!(long.iter().all(is_as_it_came), "{long:#?}\n{text}");
        assert!(text.contains("a block each 300 ms"), "{text}");
    }

    #[test]
    fn the_generators_limit_is_not_called_a_capacity() {
        let mut report = closed();
        report.own.bound = true;
        report.own.busy = 0.97;
        let text = text(&report, WIDE, Paint::Never);
        assert!(text.contains("at least 1,250/s, generator-bound"), "{text}");
        assert_eq!(text.matches("! Generator-bound:").count(), 1, "{text}");
        assert!(text.contains("used 97 % of a core"), "{text}");
    }

    #[test]
    fn a_machine_with_other_work_is_told_of() {
        let mut report = fixture::report();
        report.server.as_mut().expect("watched").foreign_share = 0.4;
        let text = text(&report, WIDE, Paint::Never);
        assert!(
            text.contains("! The machine was not quiet: other work took 40 %"),
            "{text}"
        );
    }

    #[test]
    fn a_rate_that_was_not_reached_is_told() {
        let mut report = fixture::report();
        report.schedule.as_mut().expect("open").due = 12_000;
        let text = text(&report, WIDE, Paint::Never);
        assert!(
            text.contains("! The rate was not reached: of 12,000 requests"),
            "{text}"
        );
    }

    #[test]
    fn a_late_open_loop_says_whose_fault_it_is() {
        let mut report = fixture::report();
        report.own.bound = true;
        report.schedule.as_mut().expect("open").generator_p99_us = 2500;
        let text = text(&report, WIDE, Paint::Never);
        assert!(
            text.contains("2.50 ms late or more by its own doing"),
            "{text}"
        );
    }

    #[test]
    fn a_load_without_one_reply_says_why_and_no_latencies() {
        let mut report = closed();
        report.completed = 0;
        report.first = None;
        report.statuses.clear();
        let text = text(&report, WIDE, Paint::Never);
        assert!(
            text.contains("Not one whole reply: read from 127.0.0.1:8080"),
            "{text}"
        );
        assert!(!text.contains("p50"), "{text}");
    }

    #[test]
    fn nobody_listening_and_the_wrong_scheme_are_told_with_what_to_look_at() {
        for (kind, words, hint) in [
            (
                "connect",
                "connect to a: connection refused",
                "Does the server run,",
            ),
            (
                "tls",
                "agree on TLS with a: received corrupt message of type InvalidContentType",
                "http:// there?",
            ),
            (
                "closed",
                "a closed the connection before its reply was whole",
                "https:// there?",
            ),
        ] {
            let mut report = closed();
            report.completed = 0;
            let first = report.first_failures.first_mut().expect("there is one");
            (first.kind, first.text) = (kind.to_owned(), words.to_owned());
            let text = text(&report, WIDE, Paint::Never);
            assert!(text.contains(hint), "{text}");
            assert!(!text.contains("\nrate  "), "{text}");
        }
    }

    #[test]
    fn replies_of_a_wrong_url_are_no_good_result() {
        let mut report = closed();
        report.failed_by_status = report.completed;
        report.first.as_mut().expect("a reply").status = 404;
        let said = text(&report, WIDE, Paint::Never);
        assert!(
            said.contains("! Not one good reply, the first was status 404"),
            "{said}"
        );
        report.failed_by_status -= 1;
        assert!(!text(&report, WIDE, Paint::Never).contains("Not one good reply"));
    }

    #[test]
    fn a_time_without_a_reply_is_no_short_response_time() {
        let mut report = closed();
        // The two tenths of the first block.
        for tenth in report.timeline.iter_mut().take(2) {
            (tenth.completed, tenth.p99_us, tenth.max_us) = (0, 0, 0);
        }
        let text = text(&report, WIDE, Paint::Never);
        assert!(text.contains("  1.10 ms to 1.18 ms"), "{text}");
        assert!(text.contains("  0/s to 1,790/s"), "{text}");
    }

    #[test]
    fn a_load_that_ended_in_its_warm_up_says_so_and_tells_no_figures() {
        let mut report = closed();
        report.completed = 0;
        report.errors = Errors::default();
        report.first_failures.clear();
        report.recorded_s = 0.0;
        report.received_bytes = 0;
        report.warm_up.completed = 16_509;
        report.warm_up.steady = Some(false);
        report.cut_short = true;
        let text = text(&report, WIDE, Paint::Never);
        assert!(text.contains("Rate         nothing recorded"), "{text}");
        assert!(
            text.contains("before its warm-up, in which 16,509 replies came"),
            "{text}"
        );
        assert!(text.contains("Received     0 B/s"), "{text}");
        assert!(!text.contains("stood still"), "{text}");
    }

    #[test]
    fn what_a_server_says_cannot_steer_the_terminal() {
        let mut report = closed();
        report.first.as_mut().expect("a reply").server = "a\u{1b}[2Jb\n".to_owned();
        report.cut_short = true;
        let text = text(&report, WIDE, Paint::Never);
        assert!(text.contains("a·[2Jb·"), "{text}");
        assert!(text.contains("Cut short"), "{text}");
    }
}
