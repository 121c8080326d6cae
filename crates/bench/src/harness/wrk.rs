//! Runs wrk and reads what it says.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::bed::CLIENT_CORE;
use super::progress;
use crate::error::Error;

/// What wrk saw in one slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    pub(crate) requests: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Replies that were not 2xx, and socket errors.
    pub(crate) failed: u64,
}

/// Loads `url` from the client's core for `seconds`.
pub(crate) fn load(port: u16, path: &str, connections: usize, seconds: u64) -> Result<Load, Error> {
    let url = format!("http://127.0.0.1:{port}{path}");
    let child = Command::new("taskset")
        .args(["-c", CLIENT_CORE, "wrk", "-t1", "--latency"])
        .arg(format!("-c{connections}"))
        .arg(format!("-d{seconds}s"))
        .arg(&url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::new("start wrk", e))?;
    let output = finish(child)?;
    parse(&output).ok_or_else(|| Error::new(format!("read what wrk says of {url}"), output))
}

/// wrk ends by itself; an interrupted run does not wait for it.
fn finish(mut child: Child) -> Result<String, Error> {
    while let Ok(None) = child.try_wait() {
        if let Err(error) = progress::check() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child
        .wait_with_output()
        .map_err(|e| Error::new("wait for wrk", e))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn parse(text: &str) -> Option<Load> {
    let after = |label: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(label))
            .map(str::trim)
    };
    let requests = text.lines().find(|line| line.contains(" requests in "))?;
    let numbers = |line: &str| -> u64 {
        line.split(|c: char| !c.is_ascii_digit())
            .filter_map(|n| n.parse::<u64>().ok())
            .sum()
    };
    Some(Load {
        requests: requests.split_whitespace().next()?.parse().ok()?,
        per_second: after("Requests/sec:")?.parse().ok()?,
        p50_us: microseconds(after("50%")?)?,
        p99_us: microseconds(after("99%")?)?,
        failed: after("Non-2xx or 3xx responses:").map_or(0, numbers)
            + after("Socket errors:").map_or(0, numbers),
    })
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
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.52ms  602.32us  11.55ms   89.13%
    Req/Sec    42.51k     2.10k   44.60k    80.00%
  Latency Distribution
     50%    1.42ms
     75%    1.61ms
     90%  980.00us
     99%    4.13ms
  42305 requests in 1.00s, 6.62MB read
  Socket errors: connect 0, read 2, write 0, timeout 1
  Non-2xx or 3xx responses: 7
Requests/sec:  42290.11
Transfer/sec:      6.61MB
";

    #[test]
    fn what_wrk_says_is_read_back() {
        let load = parse(SAID).expect("a whole report");
        assert_eq!(
            load,
            Load {
                requests: 42305.0,
                per_second: 42290.11,
                p50_us: 1420.0,
                p99_us: 4130.0,
                failed: 10
            }
        );
    }

    #[test]
    fn half_a_report_is_no_report() {
        assert_eq!(parse(&SAID[..300]), None);
    }
}
