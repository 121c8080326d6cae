//! wrk beside our own generator: the cross-check that both see the same server.

use std::collections::BTreeMap;
use std::time::Duration;

use super::generator;
use super::hook::Surroundings;
use super::model::{Ask, Command, Load, ServiceAddress};
use super::program;
use load::Error;

/// Whether wrk can send what the row asks for, and is there.
pub(crate) fn can(asks: &[Ask], load: &Load) -> bool {
    let plain = |ask: &Ask| ask.method == "GET" && ask.body.is_empty() && ask.headers.is_empty();
    asks.len() == 1
        && asks.iter().all(plain)
        && load.keep_alive
        && program::on_path("wrk").is_some()
}

/// Loads a port with wrk for a slice; returns its replies and figures.
pub(crate) fn run(
    surroundings: &Surroundings<'_>,
    load: &Load,
    ask: &Ask,
    address: ServiceAddress,
) -> Result<(f64, BTreeMap<String, f64>), Error> {
    let wrk = program::on_path("wrk").ok_or_else(|| Error::new("start wrk", "it is not there"))?;
    let seconds = load.seconds.max(1.0).round();
    let words = [
        wrk.display().to_string(),
        "-t1".into(),
        "--latency".into(),
        format!("-c{}", load.connections),
        format!("-d{seconds}s"),
        generator::url(address, ask),
    ];
    let within = Duration::from_secs_f64(seconds + 60.0);
    let said = surroundings.said(&Command::Words(words.into()), within)?;
    parse(&said).ok_or_else(|| Error::new("read what wrk says", said))
}

fn parse(text: &str) -> Option<(f64, BTreeMap<String, f64>)> {
    let after = |label: &str| {
        let found = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(label));
        found.map(str::trim)
    };
    let requests = text.lines().find(|line| line.contains(" requests in "))?;
    let requests: f64 = requests.split_whitespace().next()?.parse().ok()?;
    let per_second: f64 = after("Requests/sec:")?.parse().ok()?;
    let mut figures = BTreeMap::new();
    figures.insert("per_second".to_owned(), per_second);
    for (label, name) in [("50%", "p50_us"), ("99%", "p99_us")] {
        figures.insert(name.to_owned(), microseconds(after(label)?)?);
    }
    Some((requests, figures))
}

fn microseconds(text: &str) -> Option<f64> {
    let (number, scale) = if let Some(number) = text.strip_suffix("us") {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1e3)
    } else {
        (text.strip_suffix('s')?, 1e6)
    };
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 1s test @ http://127.0.0.1:8080/
  Latency Distribution
     50%    1.42ms
     75%    1.61ms
     90%  980.00us
     99%    4.13ms
  42305 requests in 1.00s, 6.62MB read
Requests/sec:  42290.11
Transfer/sec:      6.61MB
";

    #[test]
    fn what_wrk_says_is_read_back() {
        let (requests, figures) = parse(SAID).expect("a whole report");
        assert_eq!((requests, figures["per_second"]), (42305.0, 42290.11));
        assert_eq!((figures["p50_us"], figures["p99_us"]), (1420.0, 4130.0));
        assert_eq!(parse(&SAID[..120]), None);
    }
}
