//! `nagaya pools`: how each pool of processes stands; and starting, ending and clearing those of a site.

use std::path::Path;

use clap::{Args, Subcommand};

use crate::control::{Running, Where, show};
use crate::outcome::{Outcome, complain, print};

/// Options of `pools`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PoolsOptions {
    #[command(subcommand)]
    order: Option<PoolsOrder>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// What to have done.
#[derive(Debug, Subcommand)]
enum PoolsOrder {
    /// Start another master of each pool of a site that runs; it takes over when it is ready
    ///
    /// No request is lost: the old one ends what it has begun.
    Restart(SiteOptions),
    /// End the pools of a site; the next request starts them again
    Stop(SiteOptions),
    /// End the pools of a site, and remove the compiled files that they keep
    Clear(SiteOptions),
}

/// Whose pools.
#[derive(Debug, Args)]
struct SiteOptions {
    /// A host of the site
    site: String,
    #[command(flatten)]
    place: Where,
}

/// Shows pools, or has something done to those of a site.
pub(crate) fn run(config: &Path, options: &PoolsOptions) -> Outcome {
    match &options.order {
        Some(PoolsOrder::Restart(site)) => have_done(config, site, "restart", "being restarted"),
        Some(PoolsOrder::Stop(site)) => have_done(config, site, "stop", "being ended"),
        Some(PoolsOrder::Clear(site)) => {
            have_done(config, site, "clear", "being ended and cleared")
        }
        None => {
            let question = if options.json { "pools json" } else { "pools" };
            show(config, &options.place, question)
        }
    }
}

fn have_done(config: &Path, options: &SiteOptions, order: &str, done: &str) -> Outcome {
    let site = &options.site;
    if site.is_empty() || site.contains(|it: char| it.is_whitespace() || it.is_control()) {
        let site = site.escape_debug();
        complain(&format!("nagaya: `{site}` is no name of a site\n"));
        return Outcome::Wrong;
    }
    let running = Running::find(config, &options.place);
    let answer = running.and_then(|running| running.done(&format!("pools-{order} {site}")));
    match answer {
        Ok(answer) => print(told(&String::from_utf8_lossy(&answer), site, done).as_bytes()),
        Err(outcome) => outcome,
    }
}

/// What is said of the count that is answered.
fn told(count: &str, site: &str, done: &str) -> String {
    match count.trim() {
        "0" => format!("no pool of {site} runs\n"),
        "1" => format!("1 pool of {site} is {done}\n"),
        count => format!("{count} pools of {site} are {done}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_told_by_its_count() {
        for (count, said) in [
            ("0\n", "no pool of a.test runs\n"),
            ("1\n", "1 pool of a.test is being ended\n"),
            ("2\n", "2 pools of a.test are being ended\n"),
        ] {
            assert_eq!(told(count, "a.test", "being ended"), said);
        }
    }
}
