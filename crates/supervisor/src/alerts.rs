//! What the recorder says of alerts: told in the error log, and by the program that the rule names.
//!
//! The idea: the recorder says a rule's place and numbers; which rule that is, what is run for it and as
//! whom stands here. A rule's news are told in their order, by one program at a time and few of all rules
//! together, so that others' programs get on beside them. What was not told when the gateway ends stays so.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use config::model::{ALERTS_MAX, Chore};
use config::reason;
use ipc::recorder::{AlertFailures, AlertNews, AlertRule, FromRecorder, UNTOLD_MAX, UntoldAlert};
use jiff::{Timestamp, Unit};
use serde_json::json;

use crate::acme::Purpose;
use crate::chores::{ChoreEnd, Chores, program};
use crate::{Supervisor, surroundings};

/// How long a program may run.
const RUN_MAX: Duration = Duration::from_secs(60);
/// Programs of alerts that run at once: half of what may.
const RUNNING_MAX: usize = 4;
/// News that wait for their programs: of each rule that may be, that it began and that it is over.
const WAITING_MAX: usize = 512;
/// News of a minute that are told, and with which a recorder is ended: there cannot be so many.
const NEWS_MAX: u32 = 600;
const NEWS_TOO_MANY: u32 = 10 * NEWS_MAX;
const MINUTE: Duration = Duration::from_secs(60);
/// Letters that are kept of why a program failed.
const WHY_CHARS_MAX: usize = 300;

/// News that are told by programs.
#[derive(Debug, Default)]
pub(super) struct AlertTelling {
    waiting: VecDeque<WaitingNews>,
    /// The alerts whose programs run.
    running: Vec<String>,
    /// When the minute began that is counted, and the news in it.
    minute: Option<(Instant, u32)>,
    /// How often a program failed, and the alerts whose program did when it was run last: when, and why.
    failed: u64,
    untold: BTreeMap<String, (i64, String)>,
}

#[derive(Debug)]
struct WaitingNews {
    alert: String,
    run: Chore,
    facts: String,
}

impl AlertTelling {
    /// Counts one more; says how many there were in this minute.
    fn count(&mut self, now: Instant) -> u32 {
        let counted = self.minute.filter(|(began, _)| now < *began + MINUTE);
        let (began, count) = counted.unwrap_or((now, 0));
        let count = count.saturating_add(1);
        self.minute = Some((began, count));
        if count == NEWS_MAX + 1 {
            tracing::error!(
                most = NEWS_MAX,
                "alerts have more news than are told in a minute"
            );
        }
        count
    }

    fn add(&mut self, news: WaitingNews) {
        if self.waiting.len() >= WAITING_MAX {
            let why = "it is not run: too many wait for theirs to end";
            return self.note(&news.alert, Err(why));
        }
        self.waiting.push_back(news);
    }

    /// Notes what became of an alert's program, and says what went wrong.
    fn note(&mut self, alert: &str, outcome: Result<(), &str>) {
        let Err(why) = outcome else {
            self.untold.remove(alert);
            return;
        };
        tracing::error!(alert, "its program: {why}");
        self.failed += 1;
        if self.untold.len() < ALERTS_MAX || self.untold.contains_key(alert) {
            let line = why.lines().last().unwrap_or_default();
            let why = line.chars().take(WHY_CHARS_MAX).collect();
            let now_s = Timestamp::now().as_second();
            self.untold.insert(alert.to_owned(), (now_s, why));
        }
    }

    /// What there is of it that concerns these rules.
    pub(super) fn failures(&mut self, rules: &[AlertRule]) -> AlertFailures {
        self.untold
            .retain(|alert, _| rules.iter().any(|rule| rule.name == *alert));
        let untold = self.untold.iter().take(UNTOLD_MAX);
        let untold = untold.map(|(alert, (at_s, why))| UntoldAlert {
            alert: alert.clone(),
            at_s: *at_s,
            why: why.clone(),
        });
        AlertFailures {
            count: self.failed,
            untold: untold.collect(),
        }
    }

    /// The next whose turn it is: the first of an alert whose program does not run.
    fn next(&mut self) -> Option<WaitingNews> {
        if self.running.len() >= RUNNING_MAX {
            return None;
        }
        let running = &self.running;
        let at = self
            .waiting
            .iter()
            .position(|it| !running.contains(&it.alert))?;
        let news = self.waiting.remove(at)?;
        self.running.push(news.alert.clone());
        Some(news)
    }

    /// Has programs run whose turn it is.
    fn run(&mut self, chores: &mut Chores<Purpose>) {
        while let Some(WaitingNews { alert, run, facts }) = self.next() {
            let user = surroundings::user_of_chore(&run, ("alert", &alert));
            let program = program(&run, format!("alert {alert}"), user.ok().flatten(), &[]);
            chores.add_told(Purpose::Alert(alert), program, facts, RUN_MAX);
        }
    }
}

impl Supervisor {
    /// Hears what a recorder has said whose link is closed next.
    pub(super) fn hear_out_recorder(&mut self) {
        for _ in 0..WAITING_MAX {
            match self.recordings.hear() {
                Ok(Some(FromRecorder::Alert { rule, news })) => self.on_alert(rule, news),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Says which alerts' programs are not run, for another program takes this one's place.
    pub(super) fn leave_alerts(&mut self) {
        self.hear_out_recorder();
        for news in self.alerts.waiting.drain(..) {
            let alert = news.alert;
            tracing::error!(alert, "its program is not run: the gateway is upgraded");
        }
    }

    /// Deals with a word of the recorder, or with its end.
    pub(super) fn on_recorder_word(&mut self) {
        match self.recordings.hear() {
            Ok(Some(FromRecorder::Alert { rule, news })) => self.on_alert(rule, news),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.recordings.lose("it ended");
            }
            Err(error) => {
                let why = format!("the link to it failed: {}", reason(&error));
                self.recordings.lose(&why);
            }
        }
    }

    fn on_alert(&mut self, rule: u32, news: AlertNews) {
        let count = self.alerts.count(Instant::now());
        if count > NEWS_TOO_MANY {
            return self.recordings.lose("it has more news than there can be");
        }
        if count > NEWS_MAX {
            return;
        }
        let Some((rule, run)) = self.recordings.alert(rule) else {
            return self
                .recordings
                .lose("it tells of an alert that there is not");
        };
        let told = ToldNews::of(rule, news, Timestamp::now());
        match news {
            AlertNews::Raised { .. } => tracing::warn!(alert = rule.name, "{}", told.text),
            AlertNews::Over { .. } => tracing::info!(alert = rule.name, "{}", told.text),
        }
        if let Some(run) = run {
            let (alert, run) = (rule.name.clone(), run.clone());
            let facts = told.facts(rule, &os::kernel::name().node);
            self.alerts.add(WaitingNews { alert, run, facts });
            self.alerts.run(&mut self.authorities.chores);
        }
    }

    /// Goes on once the program of an alert has ended.
    pub(super) fn on_alert_told(&mut self, alert: &str, outcome: &ChoreEnd) {
        self.alerts.running.retain(|it| it != alert);
        self.alerts
            .note(alert, outcome.as_ref().map(drop).map_err(String::as_str));
        self.alerts.run(&mut self.authorities.chores);
    }
}

/// News in words.
struct ToldNews {
    state: &'static str,
    value: f64,
    worst: f64,
    since: Timestamp,
    at: Timestamp,
    text: String,
}

impl ToldNews {
    fn of(rule: &AlertRule, news: AlertNews, now: Timestamp) -> ToldNews {
        let second = |time: Timestamp| time.round(Unit::Second).unwrap_or(time);
        let at = second(now);
        // A time that cannot be is now.
        let since = |s: i64| Timestamp::from_second(s).map_or(at, |since| since.min(at));
        let AlertRule {
            name,
            figure,
            side,
            bound,
            ..
        } = rule;
        let whose = match name == figure {
            true => String::new(),
            false => format!("{name}: "),
        };
        let side = side.word();
        match news {
            AlertNews::Raised { since_s, value } => {
                let since = since(since_s);
                let shown = shown(value);
                ToldNews {
                    state: "raised",
                    value,
                    worst: value,
                    since,
                    at,
                    text: format!("{whose}{figure} is {shown}, {side} {bound} since {since}"),
                }
            }
            AlertNews::Over {
                since_s,
                value,
                worst,
            } => {
                let since = since(since_s);
                let (value_shown, worst_shown) = (shown(value), shown(worst));
                ToldNews {
                    state: "over",
                    value,
                    worst,
                    since,
                    at,
                    text: format!(
                        "{whose}{figure} is back at {value_shown}: it was {side} {bound} since {since}, at worst {worst_shown}"
                    ),
                }
            }
        }
    }

    /// One line of JSON.
    fn facts(&self, rule: &AlertRule, machine: &str) -> String {
        let facts = json!({
            "alert": rule.name,
            "figure": rule.figure,
            "state": self.state,
            "value": self.value,
            "worst": self.worst,
            rule.side.word(): rule.bound,
            "bound": rule.bound,
            "since": self.since.to_string(),
            "at": self.at.to_string(),
            "machine": machine,
            "text": format!("{machine}: {}", self.text),
        });
        format!("{facts}\n")
    }
}

/// A value with three digits behind the point at most, of a smaller one three that say something.
fn shown(value: f64) -> String {
    let digits = match value.abs().log10().floor() {
        place @ -12.0..0.0 => 2 - place as i32,
        _ => 3,
    };
    let text = format!("{value:.*}", usize::try_from(digits).unwrap_or(3));
    match text.trim_end_matches('0').trim_end_matches('.') {
        "" | "-" | "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ipc::recorder::Side;

    use super::*;
    use crate::chores::STDIN_BYTES_MAX;

    fn rule(name: &str) -> AlertRule {
        AlertRule {
            name: name.into(),
            figure: "load1".into(),
            side: Side::Above,
            bound: 3.5,
            leave: 3.0,
            for_s: 60,
        }
    }

    fn waiting(alert: &str, facts: &str) -> WaitingNews {
        WaitingNews {
            alert: alert.into(),
            run: Chore {
                command: vec!["true".into()],
                directory: PathBuf::from("/"),
                user: "nobody".into(),
                has_own_user: false,
            },
            facts: facts.into(),
        }
    }

    #[test]
    fn news_are_told_in_words_and_as_json() {
        let now = Timestamp::from_second(1_800_000_100).unwrap();
        let since_s = 1_800_000_000;
        let news = AlertNews::Raised {
            since_s,
            value: 4.25,
        };
        let told = ToldNews::of(&rule("load1"), news, now);
        assert_eq!(
            told.text,
            "load1 is 4.25, above 3.5 since 2027-01-15T08:00:00Z"
        );
        let news = AlertNews::Over {
            since_s,
            value: 2.0,
            worst: 9.0,
        };
        let busy = rule("a \"busy\" machine");
        let facts = ToldNews::of(&busy, news, now).facts(&busy, "web1");
        assert_eq!(facts.matches('\n').count(), 1, "one line");
        let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
        for (key, expected) in [
            ("alert", json!("a \"busy\" machine")),
            ("state", json!("over")),
            ("value", json!(2.0)),
            ("worst", json!(9.0)),
            ("bound", json!(3.5)),
            ("above", json!(3.5)),
            ("since", json!("2027-01-15T08:00:00Z")),
            ("at", json!("2027-01-15T08:01:40Z")),
            ("machine", json!("web1")),
        ] {
            assert_eq!(facts[key], expected, "{key}");
        }
    }

    #[test]
    fn a_small_value_is_not_told_as_none() {
        for (value, text) in [
            (0.0004, "0.0004"),
            (0.000_123_49, "0.000123"),
            (0.05, "0.05"),
            (0.0, "0"),
            (-0.5, "-0.5"),
            (1e-13, "0"),
            (2.0, "2"),
            (120.0, "120"),
            (4.256_78, "4.257"),
        ] {
            assert_eq!(shown(value), text);
        }
    }

    #[test]
    fn whatever_the_recorder_says_the_facts_fit_on_standard_input() {
        let mut rule = rule(&"\"".repeat(255));
        rule.figure = format!("site.{}.requests", "a".repeat(253));
        for number in [i64::MIN, -1, i64::MAX] {
            for value in [f64::MIN, f64::MAX, f64::MIN_POSITIVE] {
                let news = AlertNews::Over {
                    since_s: number,
                    value,
                    worst: value,
                };
                let told = ToldNews::of(&rule, news, Timestamp::now());
                assert!(told.since <= told.at);
                let facts = told.facts(&rule, &"m".repeat(64));
                assert!(facts.len() <= STDIN_BYTES_MAX, "{}", facts.len());
            }
        }
    }

    #[test]
    fn a_rule_has_one_program_at_a_time_in_order_and_all_have_a_few() {
        let mut alerts = AlertTelling::default();
        for (alert, facts) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
            alerts.add(waiting(alert, facts));
        }
        let mut told = Vec::new();
        while let Some(news) = alerts.next() {
            told.push(format!("{}{}", news.alert, news.facts));
        }
        assert_eq!(told, ["a1", "b1", "c1"]);
        alerts.running.retain(|it| it != "a");
        assert_eq!(alerts.next().map(|it| it.facts), Some("2".into()));
        for number in 0..RUNNING_MAX + WAITING_MAX + 9 {
            alerts.add(waiting(&number.to_string(), ""));
        }
        assert_eq!(alerts.waiting.len(), WAITING_MAX);
        assert!(alerts.next().is_some() && alerts.next().is_none());
    }

    #[test]
    fn an_alert_is_untold_until_its_program_has_done_its_work() {
        let mut alerts = AlertTelling::default();
        let rules = [rule("a"), rule("b")];
        alerts.note("a", Err("it ended with status 3: no pager here"));
        alerts.note("b", Err("it took more than 60 s"));
        alerts.note("gone", Err("it ended with status 1"));
        alerts.note("b", Ok(()));
        let failures = alerts.failures(&rules);
        let untold: Vec<_> = failures.untold.iter().map(|it| &*it.alert).collect();
        assert_eq!((failures.count, untold), (3, vec!["a"]));
        assert!(failures.untold[0].why.ends_with("no pager here"));
        for number in 0..2 * ALERTS_MAX {
            alerts.note(&number.to_string(), Err(&"x".repeat(9_999)));
        }
        assert!(alerts.untold.len() <= ALERTS_MAX);
        assert_eq!(alerts.failures(&[]).untold, []);
    }

    #[test]
    fn so_many_news_are_told_in_a_minute_and_again_in_the_next() {
        let mut alerts = AlertTelling::default();
        let now = Instant::now();
        let told = |alerts: &mut AlertTelling, now| {
            let all = 0..2 * NEWS_MAX;
            all.filter(|_| alerts.count(now) <= NEWS_MAX).count()
        };
        assert_eq!(told(&mut alerts, now), NEWS_MAX as usize);
        assert_eq!(told(&mut alerts, now + MINUTE), NEWS_MAX as usize);
    }
}
