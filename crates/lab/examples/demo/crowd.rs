//! Who asks: a few visitors at each site, at instants of their own, and the crawler.

use std::time::Duration;

use super::{CRAWLED, SITES};
use load::Error;
use load::client::{Arrivals, End, Judge, Pace, Plan, RequestBuilder, Running, Series, Url};

/// Visitors' requests to each site a second; all of them are half of what PHP can do.
pub(super) const VISITS_PER_SECOND: f64 = 2.0;
/// Enough for all that wait where a wait takes seconds.
const CONNECTIONS: usize = 100;
/// The crawler's.
pub(super) const CRAWLER_CONNECTIONS: usize = 200;
/// How long a visitor waits for a byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is being asked of a server.
pub(super) struct Crowd {
    sites: Vec<Running>,
    crawler: Running,
    /// The last wait that each site has told.
    waits_us: Vec<u64>,
}

/// A site at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// The longest wait of about the last second; 0 before the first reply.
    pub(super) wait_us: u64,
    pub(super) replies: u64,
    pub(super) failed: u64,
}

/// Every site at one moment, and what the crawler has got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Looks {
    pub(super) sites: Vec<Look>,
    pub(super) crawled: u64,
    pub(super) elapsed: Duration,
}

/// What the visitors of a site met with, in all.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) waits: Series,
    pub(super) failed: u64,
    /// Pages the crawler got of this site a second; 0 where it was not.
    pub(super) crawled_per_second: f64,
}

impl Crowd {
    /// Begins to ask the server on a port.
    pub(super) fn start(port: u16, time: Duration) -> Result<Crowd, Error> {
        let visitors = (0..SITES).map(|site| {
            let pace = (site, VISITS_PER_SECOND);
            Ok(Running::start(visitors(
                port,
                &site_name(site),
                pace,
                time,
            )?))
        });
        Ok(Crowd {
            sites: visitors.collect::<Result<_, Error>>()?,
            crawler: Running::start(crawler(port, time)?),
            waits_us: vec![0; SITES],
        })
    }

    /// Whether everybody has been answered.
    pub(super) fn is_over(&self) -> bool {
        let mut all = self.sites.iter().chain(std::iter::once(&self.crawler));
        all.all(Running::is_over)
    }

    pub(super) fn look(&mut self) -> Looks {
        let look = |(load, wait_us): (&Running, &mut u64)| {
            let seen = load.live().look();
            // In a second without a reply nothing was told.
            if seen.p99_us > 0 {
                *wait_us = seen.p99_us;
            }
            Look {
                wait_us: *wait_us,
                replies: seen.completed,
                failed: seen.failed,
            }
        };
        let crawler = self.crawler.live().look();
        Looks {
            sites: self
                .sites
                .iter()
                .zip(&mut self.waits_us)
                .map(look)
                .collect(),
            crawled: crawler.completed - crawler.failed.min(crawler.completed),
            elapsed: crawler.elapsed,
        }
    }

    /// What it all came to.
    pub(super) fn seen(mut self) -> Result<Vec<Seen>, Error> {
        let crawler = self.crawler.outcome()?;
        let crawled = crawler.good as f64 / crawler.recorded.as_secs_f64().max(1e-9);
        let mut found = Vec::new();
        for (site, load) in self.sites.iter_mut().enumerate() {
            let outcome = load.outcome()?;
            found.push(Seen {
                failed: outcome.failed(),
                waits: outcome.times.admitted,
                crawled_per_second: if site == CRAWLED { crawled } else { 0.0 },
            });
        }
        Ok(found)
    }
}

/// What a site is called.
pub(super) fn site_name(site: usize) -> String {
    format!("site-{:02}.demo", site + 1)
}

/// Visitors of a site; its number tells their address and the instants they come at.
pub(super) fn visitors(
    port: u16,
    host: &str,
    (site, per_second): (usize, f64),
    time: Duration,
) -> Result<Plan, Error> {
    let mut plan = asking(port, host, &format!("10.9.{site}.7"), time)?;
    plan.connections = CONNECTIONS;
    plan.pace = Pace::Open {
        per_second,
        arrivals: Arrivals::Poisson(1 + site as u64),
        ramp: Duration::ZERO,
    };
    Ok(plan)
}

fn crawler(port: u16, time: Duration) -> Result<Plan, Error> {
    let mut plan = asking(port, &site_name(CRAWLED), "203.0.113.9", time)?;
    plan.connections = CRAWLER_CONNECTIONS;
    Ok(plan)
}

fn asking(port: u16, host: &str, address: &str, time: Duration) -> Result<Plan, Error> {
    let url: Url = format!("http://127.0.0.1:{port}/index.php").parse()?;
    let builder = RequestBuilder {
        headers: vec![
            ("Host".into(), host.into()),
            ("X-Forwarded-For".into(), address.into()),
        ],
        ..RequestBuilder::default()
    };
    let mut plan = Plan::new(vec![builder.build(&url)?]);
    plan.timeout = PATIENCE;
    plan.judge = Judge::Status;
    plan.end = End {
        after: Some(time),
        requests: None,
    };
    Ok(plan)
}
