//! Clients that are refused and come back at once.

use std::time::Duration;

use testkit::client::{Body, reply};
use testkit::gateway::Gateway;
use testkit::wait::eventually;

const CONFIG: &str = r#"
workers = 2
[log]
access = "{dir}/access.log"
format = "json"
[caps]
refusals_per_client = 5
[[sites]]
hosts = ["*"]
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
  [[sites.rules]]
  limits = [{ key = "client", rate = "1/h", burst = 1 }]
  handler = { respond = { body = "x" } }
"#;

#[test]
fn who_comes_back_at_once_is_sent_away_and_of_the_records_one_in_a_hundred_is_written() {
    const REFUSED: usize = 3_000;
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG).start();
    let request = b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let (mut client, mut closed, mut refused) = (gateway.client(), 0, 0);
    while refused < REFUSED {
        client.send(request);
        let reply = reply(client.read_reply(Body::Framed));
        refused += usize::from(reply.status == 429);
        if reply.head.field("connection") == Some("close") {
            closed += 1;
            client = gateway.client();
        }
    }
    // A machine that stands still has more seconds, with five whole records in each.
    let metrics = gateway.ask(b"GET /metrics HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let text = String::from_utf8(reply(metrics).body).unwrap();
    let counted = text
        .lines()
        .filter(|line| {
            line.starts_with("nagaya_limit_refused_total") && line.contains("limit_rate")
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
    assert_eq!(counted.sum::<usize>(), refused);
    let log = gateway.directory().path().join("access.log");
    eventually(Duration::from_secs(30), "the last record", || {
        let records = std::fs::read_to_string(&log).unwrap();
        records.contains("/metrics").then_some(())
    });
    let records = std::fs::read_to_string(&log).unwrap();
    let sampled = records.matches("\"sampled\":100").count();
    let whole = records.matches("\"reason\":\"limit_rate\"").count() - sampled;
    assert_eq!(whole, refused - closed);
    assert!(
        (closed / 400..=closed / 40).contains(&sampled),
        "{sampled} of {closed}"
    );
    assert!(closed > 100, "{closed}");
}
