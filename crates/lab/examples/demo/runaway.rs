//! A page of one tenant that never ends, and what visitors of its neighbours wait meanwhile.
//!
//! The idea: each site has a pool that the gateway starts, and the one with the page has half a
//! core. Visitors come for a while without it, and as long beside it; in between the gateway is asked
//! who takes what.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::crowd::{self, Seen};
use super::stage::Stage;
use super::{FRAME, PAGE};
use lab::interrupted;
use load::Error;
use load::client::Running;
use report::units;

/// Sites beside the one with the page.
pub(super) const NEIGHBOURS: usize = 3;
/// Pages without end at once.
const PAGES: usize = 4;
/// What the tenant of these may take of a core.
pub(super) const CPU: &str = "50%";
/// Visits of each neighbour a second.
const VISITS_PER_SECOND: f64 = 8.0;
/// How long the first page of a pool may take.
const FIRST_WAIT: Duration = Duration::from_secs(20);

/// What a site is called: its tenant is called so, too.
pub(super) fn name(site: usize) -> String {
    match site {
        0 => "runaway.demo".to_owned(),
        site => format!("neighbour-{site}.demo"),
    }
}

/// Shows it on one gateway, for twice this time; what is to be read of it.
pub(super) fn show(stage: &Stage, nagaya: &Path, time: Duration) -> Result<String, Error> {
    let playing = stage.start_pools(nagaya)?;
    let port = playing.port;
    for site in 0..=NEIGHBOURS {
        first_page(port, site)?;
    }
    eprintln!(
        "demo: {} and {NEIGHBOURS} neighbours, for {} s",
        name(0),
        2 * time.as_secs()
    );
    let (before, ()) = visited(port, time, || Ok(()))?;
    let pages = (0..PAGES).map(|_| ask(port, 0, "/loop.php"));
    let pages = pages.collect::<Result<Vec<_>, _>>()?;
    let (meanwhile, top) = visited(port, time, || {
        pause(time / 2)?;
        stage.top(nagaya)
    })?;
    drop(pages);
    Ok(text(&before, &meanwhile, &top))
}

/// What visitors of the neighbours met with in this time, and what came of something done meanwhile.
fn visited<T>(
    port: u16,
    time: Duration,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<(Vec<Seen>, T), Error> {
    let start = |site| {
        let plan = crowd::visitors(port, &name(site), (site, VISITS_PER_SECOND), time)?;
        Ok(Running::start(plan))
    };
    let mut loads = (1..=NEIGHBOURS)
        .map(start)
        .collect::<Result<Vec<_>, Error>>()?;
    let done = work()?;
    while !loads.iter().all(Running::is_over) {
        pause(FRAME)?;
    }
    let seen = loads.iter_mut().map(|load| {
        let outcome = load.outcome()?;
        Ok(Seen {
            failed: outcome.failed(),
            waits: outcome.times.admitted,
            crawled_per_second: 0.0,
        })
    });
    Ok((seen.collect::<Result<_, Error>>()?, done))
}

fn pause(time: Duration) -> Result<(), Error> {
    interrupted()?;
    std::thread::sleep(time);
    Ok(())
}

/// Has a site's pool started.
fn first_page(port: u16, site: usize) -> Result<(), Error> {
    let mut stream = ask(port, site, "/index.php")?;
    let mut reply = String::new();
    let what = format!("the first page of {}", name(site));
    let read = stream.read_to_string(&mut reply);
    read.map_err(|error| Error::new(&*what, error))?;
    match reply.starts_with("HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(Error::new(what, reply.lines().next().unwrap_or("no reply"))),
    }
}

fn ask(port: u16, site: usize, path: &str) -> Result<TcpStream, Error> {
    let host = name(site);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let asked = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|mut stream| {
        stream.set_read_timeout(Some(FIRST_WAIT))?;
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    });
    asked.map_err(|error| Error::new(format!("ask {host}"), error))
}

/// What the gateway says of its tenants.
pub(super) fn top(nagaya: &Path, socket: &Path) -> Result<String, Error> {
    let mut top = Command::new(nagaya);
    let output = top.args(["top", "--once", "--socket"]).arg(socket).output();
    let output = output.map_err(|error| Error::new("run nagaya top", error))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(before: &[Seen], meanwhile: &[Seen], top: &str) -> String {
    let mut out = format!("\n{:<18}{:>28}{:>28}\n", "", "before", "beside it");
    let _ = write!(out, "{:<18}", "visitors of");
    for _ in 0..2 {
        let _ = write!(out, "{:>10}{:>10}{:>8}", "p50", "p99", "failed");
    }
    for (site, both) in (1..).zip(before.iter().zip(meanwhile)) {
        let _ = write!(out, "\n{:<18}", name(site));
        for seen in [both.0, both.1] {
            let wait = |q| units::micros(seen.waits.quantile_us(q) as f64);
            let _ = write!(out, "{:>10}{:>10}{:>8}", wait(0.5), wait(0.99), seen.failed);
        }
    }
    // The column of what is throttled is a dash where the kernel bounds nobody.
    let bounded = top.lines().any(|line| {
        let mut cells = line
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        cells.next() == Some(&*name(0)) && cells.nth(1).is_some_and(|cell| cell != "-")
    });
    let limit = match bounded {
        true => format!("Its tenant has {CPU} of a core (`cgroup = {{ cpu = \"{CPU}\" }}`)"),
        false => {
            "There are no control groups for processor time to be had here, so it takes what it \
                  gets; where there are,\nits tenant has half a core"
                .to_owned()
        }
    };
    let _ = write!(
        out,
        "\n\n{top}\nA page of {} runs for ever, {PAGES} times: while (true) {{}}. A page of the others takes {} ms.\n\
         {limit}. Who takes what is told by nagaya top.\n",
        name(0),
        PAGE.as_millis()
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::client::Series;

    #[test]
    fn it_is_said_whether_the_kernel_bounds_the_page() {
        let one = || {
            let mut waits = Series::default();
            waits.record_n(52_000, 3);
            Seen {
                waits,
                failed: 0,
                crawled_per_second: 0.0,
            }
        };
        let seen: Vec<_> = (0..NEIGHBOURS).map(|_| one()).collect();
        let top = "tenant        cpu  throttled\nrunaway.demo  50.1 %     98.0 %\n";
        let bounded = text(&seen, &seen, top);
        assert!(bounded.contains("has 50% of a core"), "{bounded}");
        assert!(bounded.contains("neighbour-3.demo"), "{bounded}");
        let free = text(&seen, &seen, &top.replace("98.0 %", "-"));
        assert!(free.contains("no control groups"), "{free}");
    }
}
