//! What sites came to in a minute, as figures that are followed beside the machine's.
//!
//! The idea: what is written anyway is added up by site until the minute is over; then the busiest say how
//! many requests a second there were, what share failed, and how many seconds all but one in a hundred took;
//! and so do those that somebody wants to be told of, also where nobody asked for anything.

use std::collections::{HashMap, HashSet};

use ipc::recorder::AlertRule;

use crate::day::Figures;
use crate::piece::Piece;
use crate::store::Tier;

/// Sites whose figures are followed: the busiest of the minute.
const FOLLOWED_MAX: usize = 64;
/// Sites of a minute; as many as are told apart.
const SITES_MAX: usize = crate::fold::SITES_MAX;

/// Sites since the minute began.
#[derive(Debug, Default)]
pub(crate) struct SiteMinutes {
    minute_s: i64,
    sites: HashMap<Box<str>, Figures>,
    /// Whether the last write failed, and whether one did whose requests are not in their minute.
    is_behind: bool,
    is_mixed: bool,
    watched: HashSet<Box<str>>,
    /// Of the last minute that was told, the sites.
    followed: Vec<Box<str>>,
}

impl SiteMinutes {
    /// Nothing yet, and the sites that these rules are about.
    pub(crate) fn watching(rules: &[AlertRule]) -> SiteMinutes {
        let sites = rules.iter().filter_map(|rule| {
            let (site, _) = rule.figure.strip_prefix("site.")?.rsplit_once('.')?;
            Some(site.into())
        });
        SiteMinutes {
            watched: sites.collect(),
            ..SiteMinutes::default()
        }
    }

    /// Adds what was written of a site.
    pub(crate) fn take(&mut self, site: &str, piece: &Piece) {
        if !self.sites.contains_key(site) && self.sites.len() < SITES_MAX {
            self.sites.insert(site.into(), Figures::default());
        }
        if let Some(sum) = self.sites.get_mut(site) {
            piece.minutes().for_each(|figures| sum.merge(figures));
        }
    }

    /// Of what was to be written nothing is: it comes later, with that of another time.
    pub(crate) fn note_unwritten(&mut self) {
        (self.is_behind, self.is_mixed) = (true, true);
    }

    /// All that there was is written.
    pub(crate) fn note_written(&mut self) {
        self.is_behind = false;
    }

    /// The sites that are followed until the next minute is over.
    pub(crate) fn followed(&self) -> &[Box<str>] {
        &self.followed
    }

    /// The figures of a minute that is over, by name; nothing within it, and of one in which requests could
    /// not be written, or those of another were.
    pub(crate) fn over(&mut self, now_s: i64) -> Vec<(String, f64)> {
        let minute_s = Tier::Minute.begin(now_s);
        if minute_s == self.minute_s {
            return Vec::new();
        }
        // Of one that was not looked at to its end nothing is said: how long was it?
        let is_next = minute_s == self.minute_s + Tier::Minute.seconds();
        self.minute_s = minute_s;
        let mut sites = std::mem::take(&mut self.sites);
        if std::mem::replace(&mut self.is_mixed, self.is_behind) || !is_next {
            return Vec::new();
        }
        for site in &self.watched {
            sites.entry(site.clone()).or_default();
        }
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_unstable_by(|(site, one), (other, its)| {
            its.requests
                .cmp(&one.requests)
                .then_with(|| site.cmp(other))
        });
        let mut place = 0..;
        sites.retain(|(site, _)| place.next() < Some(FOLLOWED_MAX) || self.watched.contains(site));
        let figures = sites.iter().flat_map(|(site, figures)| told(site, figures));
        let figures = figures.collect();
        self.followed = sites.into_iter().map(|(site, _)| site).collect();
        figures
    }
}

fn told(site: &str, figures: &Figures) -> impl Iterator<Item = (String, f64)> {
    let requests = figures.requests as f64;
    let [.., failed] = figures.statuses;
    let share = (figures.requests > 0).then(|| failed as f64 / requests);
    let p99_us = figures.durations.quantile_us(0.99);
    [
        ("requests", Some(requests / Tier::Minute.seconds() as f64)),
        ("errors", share),
        ("p99", p99_us.map(|us| us as f64 / 1e6)),
    ]
    .into_iter()
    .filter_map(move |(what, value)| Some((format!("site.{site}.{what}"), value?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(requests: u64, failed: u64, us: u64) -> Piece {
        let mut piece = Piece::default();
        let figures = piece.minute(7);
        figures.requests = requests;
        figures.statuses[4] = failed;
        figures.durations.add(us, requests);
        piece
    }

    #[test]
    fn a_minute_is_told_when_it_is_over_and_the_busiest_come_first() {
        let mut minutes = SiteMinutes::default();
        assert_eq!(minutes.over(600), [], "this one has begun before");
        minutes.take("a", &piece(100, 20, 2_000));
        minutes.take("a", &piece(20, 4, 2_000));
        minutes.take("b", &piece(600, 0, 31));
        assert_eq!(minutes.over(659), []);
        let told = minutes.over(660);
        let value = |of: &str| told.iter().find(|(name, _)| name == of).map(|(_, it)| *it);
        assert_eq!(told[0].0, "site.b.requests");
        assert_eq!(value("site.a.requests"), Some(2.0));
        assert_eq!(value("site.a.errors"), Some(0.2));
        let p99 = value("site.a.p99").expect("told");
        assert!((p99 - 0.002).abs() < 0.00005, "{p99}");
        assert_eq!(minutes.over(720), [], "nobody asked for anything");
    }

    #[test]
    fn of_minutes_whose_requests_come_late_nothing_is_told() {
        let rule = AlertRule {
            name: "it".into(),
            figure: "site.a.requests".into(),
            side: ipc::recorder::Side::Below,
            bound: 0.1,
            leave: 0.1,
            for_s: 0,
        };
        let mut minutes = SiteMinutes::watching(&[rule]);
        minutes.over(0);
        assert_eq!(minutes.over(60), [("site.a.requests".into(), 0.0)]);
        minutes.note_unwritten();
        assert_eq!(minutes.over(120), [], "what came is not written");
        minutes.take("a", &piece(180, 0, 5));
        minutes.note_written();
        assert_eq!(minutes.over(180), [], "this is what came before");
        minutes.take("a", &piece(60, 0, 5));
        minutes.note_written();
        let told = minutes.over(240);
        assert_eq!(told[0], ("site.a.requests".into(), 1.0));
    }

    #[test]
    fn only_so_many_sites_are_followed() {
        let mut minutes = SiteMinutes::default();
        minutes.over(0);
        minutes.over(60);
        for number in 0..100 {
            minutes.take(&number.to_string(), &piece(number, 0, 5));
        }
        let told = minutes.over(120);
        let sites = told.iter().filter(|(name, _)| name.ends_with(".requests"));
        assert_eq!(sites.count(), FOLLOWED_MAX);
    }

    #[test]
    fn a_site_that_is_watched_is_told_of_whether_busy_or_silent() {
        let rule = AlertRule {
            name: "it".into(),
            figure: "site.www.0.example.errors".into(),
            side: ipc::recorder::Side::Above,
            bound: 0.1,
            leave: 0.1,
            for_s: 0,
        };
        let mut minutes = SiteMinutes::watching(&[rule]);
        minutes.over(0);
        let silent = minutes.over(60);
        assert_eq!(silent, [("site.www.0.example.requests".into(), 0.0)]);
        for number in 10..100 {
            minutes.take(&number.to_string(), &piece(number, 0, 5));
        }
        minutes.take("www.0.example", &piece(1, 1, 5));
        let told = minutes.over(120);
        let failed = told
            .iter()
            .find(|(name, _)| name == "site.www.0.example.errors");
        assert_eq!(failed.map(|(_, share)| *share), Some(1.0));
    }
}
