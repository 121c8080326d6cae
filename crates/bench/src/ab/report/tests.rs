//! Reports of outcomes made up, to the byte.

use std::ffi::OsString;
use std::time::Duration;

use super::super::flags::{Wish, parse};
use super::super::{notes, tables};
use super::*;
use load::client::{Errors, Outcome};

fn flags(line: &str) -> Flags {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    match parse(&words) {
        Ok(Wish::Load(flags)) => *flags,
        other => panic!("{line}: {other:?}"),
    }
}

/// Ten exchanges over two connections: 1 ms to connect, 2 to 11 ms in all, a millisecond less to
/// wait.
fn outcome() -> Outcome {
    let mut outcome = Outcome {
        recorded: Duration::from_millis(50),
        completed: 10,
        received_bytes: 2_000,
        body_bytes: 130,
        sent_bytes: 900,
        statuses: [(200, 10)].into(),
        first: Some(FirstReply {
            server: "nagaya (x)".into(),
            body_bytes: 13,
            tls: None,
            status: 200,
            streams_max: None,
        }),
        ..Outcome::default()
    };
    for n in 0..10 {
        outcome.times.connect.record(1_000);
        outcome.times.waiting.record(1_000 + n * 1_000);
        outcome.times.processing.record(1_000 + n * 1_000);
        outcome.times.service.record(2_000 + n * 1_000);
    }
    outcome
}

fn report(line: &str, outcome: &Outcome) -> String {
    let flags = flags(line);
    let target = Target::parse(&flags.url).expect("a URL");
    let told = Told {
        flags: &flags,
        target: &target,
        first: outcome.first.as_ref(),
        tls_name: None,
        figures: &Figures::of(outcome),
    };
    match &flags.html {
        Some(attributes) => tables::text(told, attributes),
        None => text(told) + &notes::text(told, outcome),
    }
}

#[test]
fn a_report_is_apache_benchs_to_the_byte() {
    let expected = "

Server Software:        nagaya
Server Hostname:        127.0.0.1
Server Port:            8080

Document Path:          /a?b
Document Length:        13 bytes

Concurrency Level:      2
Time taken for tests:   0.050 seconds
Complete requests:      10
Failed requests:        0
Total transferred:      2000 bytes
HTML transferred:       130 bytes
Requests per second:    200.00 [#/sec] (mean)
Time per request:       10.000 [ms] (mean)
Time per request:       5.000 [ms] (mean, across all concurrent requests)
Transfer rate:          39.06 [Kbytes/sec] received

Connection Times (ms)
              min  mean[+/-sd] median   max
Connect:        1    1   0.0      1       1
Processing:     1    6   3.0      6      10
Waiting:        1    6   3.0      6      10
Total:          2    7   3.0      7      11

Percentage of the requests served within a certain time (ms)
  50%      7
  66%      8
  75%      9
  80%     10
  90%     11
  95%     11
  98%     11
  99%     11
 100%     11 (longest request)
";
    let line = "-n 10 -c 2 http://127.0.0.1:8080/a?b";
    assert_eq!(report(line, &outcome()), expected);
}

#[test]
fn lines_that_are_not_always_there_stand_where_they_do() {
    let mut outcome = outcome();
    outcome.judged_failed = 4;
    outcome.kept = 9;
    outcome.statuses = [(200, 7), (301, 2), (404, 1)].into();
    outcome.errors = Errors {
        connect: 1,
        tls: 2,
        reset: 3,
        closed: 4,
        timeout: 5,
        framing: 6,
        write: 7,
    };
    let report = report("-k -S -p /dev/null -n 10 -c 2 a/", &outcome);
    let expected = "
Complete requests:      10
Failed requests:        25
   (Connect: 3, Receive: 7, Length: 4, Exceptions: 11)
Write errors:           7
Non-2xx responses:      3
Keep-Alive requests:    9
Total transferred:      2000 bytes
Total body sent:        900
HTML transferred:       130 bytes
Requests per second:    200.00 [#/sec] (mean)
Time per request:       10.000 [ms] (mean)
Time per request:       5.000 [ms] (mean, across all concurrent requests)
Transfer rate:          39.06 [Kbytes/sec] received
                        17.58 kb/s sent
                        56.64 kb/s total

Connection Times (ms)
              min   avg   max
Connect:        1     1    1
Processing:     1     6   10
Waiting:        1     6   10
Total:          2     7   11

Percentage of";
    assert!(report.contains(expected), "{report}");
}

#[test]
fn what_is_ours_stands_after_the_report() {
    let mut outcome = outcome();
    outcome.judged_failed = 4;
    outcome.generator_busy = 0.97;
    let report = report("-n 10 a/", &outcome);
    let (_, after) = report.split_once(" (longest request)\n").expect("a table");
    assert!(
        after.starts_with("\nNote: the 4 failed by Length"),
        "{after}"
    );
    assert!(
        after.contains("not of 13 bytes") && after.contains("try -l"),
        "{after}"
    );
    assert!(
        after.contains("97 % of a core") && after.contains("-W 2"),
        "{after}"
    );
}

#[test]
fn a_load_of_refusals_alone_is_told() {
    let mut outcome = outcome();
    let said = |outcome: &Outcome| report("-n 10 a/", outcome).contains("Note: not one good reply");
    outcome.statuses = [(302, 1), (404, 9)].into();
    assert!(!said(&outcome));
    outcome.statuses = [(404, 10)].into();
    assert!(said(&outcome));
}

#[test]
fn means_far_from_medians_are_doubted() {
    let doubted = |mean_us, median_us, deviation_us| {
        let row = Row {
            mean_us,
            median_us,
            deviation_us,
            ..Row::default()
        };
        doubt("the total time", &row)
    };
    assert_eq!(doubted(5_000, 5_000, 0.0), "");
    assert_eq!(doubted(6_000, 5_000, 1_000.0), "");
    assert_eq!(
        doubted(7_000, 5_000, 1_500.0),
        "WARNING: The median and mean for the total time are not within a normal deviation\n        \
         These results are probably not that reliable.\n"
    );
    assert_eq!(
        doubted(5_000, 9_000, 1_500.0),
        "ERROR: The median and mean for the total time are more than twice the standard\n       \
         deviation apart. These results are NOT reliable.\n"
    );
}

#[test]
fn short_or_empty_reports_leave_tables_out() {
    let mut one = outcome();
    one.completed = 1;
    assert!(!report("a/", &one).contains("Percentage"));
    assert!(!report("-n 10 -d a/", &outcome()).contains("Percentage"));
    let none = report("-n 10 a/", &Outcome::default());
    assert!(
        none.contains("\nDocument Length:        0 bytes\n"),
        "{none}"
    );
    assert!(
        none.ends_with("\nHTML transferred:       0 bytes\n"),
        "{none}"
    );
    assert!(report("-l a/", &outcome()).contains("\nDocument Length:        Variable\n"));
}

#[test]
fn tables_have_the_attributes_given() {
    let table = report(
        "-n 10 -c 2 -x border=1 -y class=r -z class=d a/",
        &outcome(),
    );
    let expected = "\n\n<table border=1>\n\
        <tr class=r><th colspan=2 class=d>Server Software:</th>\
        <td colspan=2 class=d>nagaya</td></tr>\n";
    assert!(table.starts_with(expected), "{table}");
    let expected = "<tr class=r><th class=d>Connect:</th><td class=d>    1</td>\
        <td class=d>    1</td><td class=d>    1</td></tr>\n\
        <tr class=r><th class=d>Processing:</th><td class=d>    1</td>\
        <td class=d>    6</td><td class=d>   10</td></tr>\n\
        <tr class=r><th class=d>Total:</th><td class=d>    2</td>\
        <td class=d>    7</td><td class=d>   11</td></tr>\n</table>\n";
    assert!(table.ends_with(expected), "{table}");
    let mut hostile = outcome();
    if let Some(first) = &mut hostile.first {
        first.server = "<script>".into();
    }
    assert!(report("-w -n 10 a/", &hostile).contains(">&lt;script&gt;<"));
}

#[test]
fn tls_has_lines_of_its_own() {
    let mut outcome = outcome();
    if let Some(first) = &mut outcome.first {
        first.tls = Some(TlsFacts {
            version: "TLSv1.3".into(),
            suite: "TLS_AES_256_GCM_SHA384".into(),
            server_key_bits: 256,
            cipher_bits: 256,
            temporary_key: Some("X25519 253 bits".into()),
        });
    }
    let expected = "
Server Port:            443
SSL/TLS Protocol:       TLSv1.3,TLS_AES_256_GCM_SHA384,256,256
Server Temp Key:        X25519 253 bits

Document Path:          /
";
    let report = report("https://a/", &outcome);
    assert!(report.contains(expected), "{report}");
}
