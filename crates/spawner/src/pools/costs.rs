//! What runs of PHP files have cost, as php-fpm's access log tells it.
//!
//! The idea: the log is among the words of a run, a line for each request, and is added up here until
//! it was read for this time. Whatever runs in a pool can write such lines as well: so they count for
//! files of sites that the pool serves, and for no others.

use std::collections::BTreeMap;

use ipc::order::FileCost;
use ipc::pools::PoolProgramManifest;

/// The processor time of a request in hundredths of how long it took, how long that was, and the
/// file.
pub(super) const FORMAT: &str = "nagaya-cost %{total}C %{microseconds}d %f";
const BEGINNING: &str = "nagaya-cost ";
/// Files that are told of at once; what others cost is left out.
const FILES_MAX: usize = 64;
/// Bytes of a file's name: php-fpm cuts longer ones.
const FILE_BYTES_MAX: usize = 255;
/// The most that is believed of one request: a day, on a thousand cores.
const TIME_US_MAX: u64 = 86_400_000_000;
const PERCENT_MAX: f64 = 100_000.0;

/// What runs have cost since it was told last, by file: how many they were, and microseconds.
#[derive(Debug, Default)]
pub(super) struct Costs(BTreeMap<String, (u32, u64)>);

impl Costs {
    /// Takes a line of the log; whether it is one.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let Some(rest) = line.strip_prefix(BEGINNING) else {
            return false;
        };
        let Some((cpu_us, file)) = read(rest) else {
            return true;
        };
        if self.0.len() < FILES_MAX || self.0.contains_key(file) {
            let (runs, sum_us) = self.0.entry(file.to_owned()).or_default();
            *runs = runs.saturating_add(1);
            *sum_us = sum_us.saturating_add(cpu_us);
        }
        true
    }

    /// Whether there is nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What there is to tell of files that belong to the pool in which this runs.
    pub(super) fn tell(&mut self, program: &PoolProgramManifest) -> Vec<FileCost> {
        let told = std::mem::take(&mut self.0).into_iter();
        let PoolProgramManifest::Php { sites, .. } = program else {
            return Vec::new();
        };
        let roots = sites.iter().filter_map(|site| site.root.to_str());
        let roots: Vec<&str> = roots.filter(|root| !root.is_empty()).collect();
        let is_below = |file: &str, root: &str| {
            let rest = file.strip_prefix(root.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let told = told.filter(|(file, _)| roots.iter().any(|root| is_below(file, root)));
        let told = told.map(|(file, (runs, cpu_us))| FileCost { file, runs, cpu_us });
        told.collect()
    }
}

/// Processor time and file of a line.
fn read(line: &str) -> Option<(u64, &str)> {
    let (percent, rest) = line.split_once(' ')?;
    let (time_us, file) = rest.split_once(' ')?;
    // A program may have set a language that writes numbers with a comma.
    let percent: f64 = percent.replace(',', ".").parse().ok()?;
    let time_us: u64 = time_us.parse().ok()?;
    let is_possible = (0.0..=PERCENT_MAX).contains(&percent) && time_us <= TIME_US_MAX;
    let cpu_us = percent / 100.0 * time_us as f64;
    let is_file = file.starts_with('/') && file.len() <= FILE_BYTES_MAX;
    (is_possible && is_file).then_some((cpu_us as u64, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc::pools::PoolSite;

    fn php(roots: &[&str]) -> PoolProgramManifest {
        let site = |root: &&str| PoolSite {
            name: "a.test".into(),
            root: root.into(),
        };
        PoolProgramManifest::Php {
            program: "/usr/sbin/php-fpm".into(),
            processes: 8,
            requests: 4_000,
            time_ms: 300_000,
            ini: Vec::new(),
            admin: Vec::new(),
            sites: roots.iter().map(site).collect(),
        }
    }

    fn told(lines: &[&str]) -> Vec<(String, u32, u64)> {
        let mut costs = Costs::default();
        for line in lines {
            assert!(costs.take(line), "{line}");
        }
        let told = costs.tell(&php(&["/srv/a/", "/srv/b"])).into_iter();
        told.map(|it| (it.file, it.runs, it.cpu_us)).collect()
    }

    #[test]
    fn runs_are_added_up_by_file() {
        let lines = [
            "nagaya-cost 50.00 20000 /srv/a/x.php",
            "nagaya-cost 100.00 5000 /srv/a/x.php",
            "nagaya-cost 0,50 1000000 /srv/b/with space.php",
        ];
        let expected = [
            ("/srv/a/x.php".to_owned(), 2, 15_000),
            ("/srv/b/with space.php".to_owned(), 1, 5_000),
        ];
        assert_eq!(told(&lines), expected);
        assert!(!Costs::default().take("NOTICE: nagaya-cost 1 1 /srv/a/x"));
    }

    #[test]
    fn a_pool_can_say_nothing_of_anothers_files_and_nothing_impossible() {
        for line in [
            "nagaya-cost 50.00 20000 /srv/c/x.php",
            "nagaya-cost 50.00 20000 /srv/bb/x.php",
            "nagaya-cost 50.00 20000 /srv/b",
            "nagaya-cost 50.00 20000 srv/a/x.php",
            "nagaya-cost -1.00 20000 /srv/a/x.php",
            "nagaya-cost NaN 20000 /srv/a/x.php",
            "nagaya-cost inf 20000 /srv/a/x.php",
            "nagaya-cost 1e9 20000 /srv/a/x.php",
            "nagaya-cost 1.00 -3 /srv/a/x.php",
            "nagaya-cost 1.00 99999999999999999999 /srv/a/x.php",
            "nagaya-cost 1.00 86400000000001 /srv/a/x.php",
            "nagaya-cost 1.00",
            "nagaya-cost ",
        ] {
            assert_eq!(told(&[line]), [], "{line}");
        }
        let long = format!("nagaya-cost 1.00 100 /srv/a/{}", "x".repeat(300));
        assert_eq!(told(&[&long]), []);
    }

    #[test]
    fn so_many_files_are_told_of_and_no_more() {
        let mut costs = Costs::default();
        for number in 0..10_000 {
            costs.take(&format!("nagaya-cost 1.00 100 /srv/a/{number}.php"));
        }
        assert_eq!(costs.tell(&php(&["/srv/a"])).len(), FILES_MAX);
        assert_eq!(costs.tell(&php(&["/srv/a"])), []);
    }
}
