//! The rules of alerts, looked at once a second by what figures were just now.
//!
//! The idea: each rule has a state, and what was told is written down, so that a recorder that is started
//! again tells nothing twice and does not forget to say that it is over. What was beyond its bound for too
//! short a time begins anew. Who is told is not said here.

use ipc::recorder::{AlertNews, AlertRule};
use serde::{Deserialize, Serialize};

use crate::alert::{AlertStanding, AlertState};
use crate::history::History;

/// A figure is its mean over so many seconds: those that are told each second, those that are told every
/// ten, and those of whole minutes.
const SECONDS: i64 = 3;
const TENS: i64 = 25;
const MINUTES: i64 = 130;

/// Rules, each with how it stands.
#[derive(Debug)]
pub(crate) struct Watch {
    rules: Vec<AlertStanding>,
    looked_s: i64,
}

/// A rule that was told, and how it stands.
#[derive(Debug, Serialize, Deserialize)]
struct ToldAlert {
    name: String,
    state: AlertState,
}

impl Watch {
    pub(crate) fn new(rules: &[AlertRule]) -> Watch {
        let calm = |rule: &AlertRule| AlertStanding {
            rule: rule.clone(),
            state: AlertState::Calm,
            value: None,
        };
        Watch {
            rules: rules.iter().map(calm).collect(),
            looked_s: i64::MIN,
        }
    }

    /// Goes on where another was that told this ([`Self::told`]), also where that is known late: a rule that
    /// is no more calm goes on by itself.
    pub(crate) fn resume(&mut self, told: &str) {
        let told: Vec<ToldAlert> = serde_json::from_str(told).unwrap_or_default();
        for AlertStanding { rule, state, .. } in &mut self.rules {
            let known = told.iter().find(|it| it.name == rule.name);
            if let (AlertState::Calm, Some(known)) = (&state, known) {
                *state = known.state;
            }
        }
    }

    /// What was told and is not over, to be written down.
    pub(crate) fn told(&self) -> String {
        let raised = self.rules.iter().filter_map(|it| match it.state {
            AlertState::Raised { .. } => Some(ToldAlert {
                name: it.rule.name.clone(),
                state: it.state,
            }),
            AlertState::Calm | AlertState::Pending { .. } => None,
        });
        let raised: Vec<_> = raised.collect();
        serde_json::to_string(&raised).unwrap_or_default()
    }

    /// The rules with how they stand.
    pub(crate) fn states(&self) -> &[AlertStanding] {
        &self.rules
    }

    /// Looks at all rules, once a second: which have news.
    pub(crate) fn look(&mut self, history: &History, now_s: i64) -> Vec<(u32, AlertNews)> {
        if self.looked_s == now_s {
            return Vec::new();
        }
        self.looked_s = now_s;
        let rules = self.rules.iter_mut().zip(0..);
        let news = rules.filter_map(|(it, number)| {
            let figure = &it.rule.figure;
            it.value = history.mean(figure, now_s, seconds_of(figure));
            Some((number, it.state.step(&it.rule, now_s, it.value)?))
        });
        news.collect()
    }
}

/// Over how long a figure's mean is taken.
fn seconds_of(figure: &str) -> i64 {
    match figure.split_once('.') {
        None => SECONDS,
        Some(("site", _)) => MINUTES,
        Some(_) => TENS,
    }
}

#[cfg(test)]
mod tests {
    use ipc::recorder::Side;

    use super::*;
    use crate::history::Detail;

    fn rule(name: &str, figure: &str) -> AlertRule {
        AlertRule {
            name: name.into(),
            figure: figure.into(),
            side: Side::Above,
            bound: 10.0,
            leave: 8.0,
            for_s: 5,
        }
    }

    #[test]
    fn each_rule_is_looked_at_once_a_second_by_its_own_figure() {
        let rules = [rule("load", "load1"), rule("hog", "tenant.a.cpu")];
        let (mut watch, mut history) = (Watch::new(&rules), History::default());
        let mut told = Vec::new();
        for at_s in 100..160 {
            let load = if at_s < 130 { 20.0 } else { 1.0 };
            history.take(at_s, "load1", load, Detail::Seconds);
            if at_s % 10 == 0 {
                history.take(at_s, "tenant.a.cpu", 20.0, Detail::Seconds);
            }
            for _ in 0..20 {
                let news = watch.look(&history, at_s);
                told.extend(news.into_iter().map(|(rule, news)| (at_s, rule, news)));
            }
        }
        let (since_s, value) = (100, 20.0);
        let raised = AlertNews::Raised { since_s, value };
        let over = AlertNews::Over {
            since_s,
            // 20, 1 and 1.
            value: 22.0 / 3.0,
            worst: 20.0,
        };
        assert_eq!(told, [(105, 0, raised), (105, 1, raised), (131, 0, over)]);
    }

    #[test]
    fn what_was_told_is_told_once_though_another_goes_on() {
        let rules = [rule("load", "load1"), rule("other", "load5")];
        let (mut first, mut history) = (Watch::new(&rules), History::default());
        let mut beyond = |watch: &mut Watch, seconds: std::ops::Range<i64>, value| {
            let mut count = 0;
            for at_s in seconds {
                history.take(at_s, "load1", value, Detail::Seconds);
                count += watch.look(&history, at_s).len();
            }
            count
        };
        assert_eq!(beyond(&mut first, 0..10, 20.0), 1);
        let mut next = Watch::new(&rules[..1]);
        next.resume(&first.told());
        assert_eq!(next.states()[0].state, first.states()[0].state);
        assert_eq!(beyond(&mut next, 10..30, 20.0), 0, "it was told");
        assert_eq!(beyond(&mut next, 30..40, 1.0), 1, "it is over");
        assert_eq!(next.told(), "[]");
        let mut late = Watch::new(&rules[..1]);
        assert_eq!(
            late.look(&History::default(), 1_000),
            [],
            "there is no figure"
        );
        late.resume(&first.told());
        assert_eq!(late.told(), first.told(), "it is not forgotten");
        assert_eq!(beyond(&mut late, 1_001..1_010, 20.0), 0, "it was told");
        late.resume("[{\"name\":\"load\",\"state\":{\"Raised\":{\"since_s\":1,\"worst\":99.0}}}]");
        assert_eq!(late.told(), first.told(), "its own state stays");
        let mut other = Watch::new(&rules);
        for broken in ["", "[", "[{}]", "{\"name\":1}"] {
            other.resume(broken);
        }
        assert_eq!(other.states()[0].state, AlertState::Calm);
    }
}
