//! Alerts: a figure that is beyond its bound for long enough is told once, and once when that is over.
//!
//! The idea: a state and the time it began; a step takes the value of now and says what is to be told.
//! No clock is read, nobody is told here, and a figure that says nothing changes nothing: what was
//! told stays until a value says otherwise.

use ipc::recorder::{AlertNews, AlertRule};
use serde::{Deserialize, Serialize};

/// A rule with how it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertStanding {
    /// The rule.
    pub rule: AlertRule,
    /// How it stands.
    pub state: AlertState,
    /// What its figure was when that was last looked at, if it was anything.
    pub value: Option<f64>,
}

/// How it stands with a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum AlertState {
    /// All is well.
    #[default]
    Calm,
    /// The figure is beyond its bound, not for long enough.
    Pending {
        /// Since when.
        since_s: i64,
    },
    /// It was told.
    Raised {
        /// Since when the figure was beyond its bound.
        since_s: i64,
        /// The worst it was.
        worst: f64,
    },
}

impl AlertState {
    /// Goes on with the value of now, if there is one.
    pub fn step(&mut self, rule: &AlertRule, now_s: i64, value: Option<f64>) -> Option<AlertNews> {
        let value = value.filter(|value| value.is_finite())?;
        let side = rule.side;
        let is_beyond = side.is_worse(value, rule.bound);
        match *self {
            AlertState::Calm if is_beyond => self.pend(rule, now_s, now_s, value),
            AlertState::Pending { since_s } if is_beyond => {
                // A clock that went back has it begin anew.
                self.pend(rule, since_s.min(now_s), now_s, value)
            }
            AlertState::Pending { .. } => {
                *self = AlertState::Calm;
                None
            }
            AlertState::Raised { since_s, worst } if side.is_worse(value, rule.leave) => {
                if side.is_worse(value, worst) {
                    let worst = value;
                    *self = AlertState::Raised { since_s, worst };
                }
                None
            }
            AlertState::Raised { since_s, worst } => {
                *self = AlertState::Calm;
                Some(AlertNews::Over {
                    since_s,
                    value,
                    worst,
                })
            }
            AlertState::Calm => None,
        }
    }

    fn pend(
        &mut self,
        rule: &AlertRule,
        since_s: i64,
        now_s: i64,
        value: f64,
    ) -> Option<AlertNews> {
        if now_s.saturating_sub(since_s) < i64::from(rule.for_s) {
            *self = AlertState::Pending { since_s };
            return None;
        }
        *self = AlertState::Raised {
            since_s,
            worst: value,
        };
        Some(AlertNews::Raised { since_s, value })
    }
}

#[cfg(test)]
mod tests {
    use ipc::recorder::Side;
    use proptest::prelude::*;

    use super::*;

    fn rule(side: Side, for_s: u32) -> AlertRule {
        let (bound, leave) = match side {
            Side::Above => (10.0, 8.0),
            Side::Below => (0.1, 0.15),
        };
        AlertRule {
            name: "it".into(),
            figure: "load1".into(),
            side,
            bound,
            leave,
            for_s,
        }
    }

    /// What is told of values, one a second.
    fn told(rule: &AlertRule, values: &[f64]) -> Vec<(i64, AlertNews)> {
        let mut state = AlertState::default();
        let values = values.iter().zip(0..);
        let news = values.filter_map(|(value, at_s)| {
            let news = state.step(rule, at_s, Some(*value))?;
            Some((at_s, news))
        });
        news.collect()
    }

    #[test]
    fn it_is_told_once_after_its_time_and_once_when_it_is_back() {
        let values = [11.0, 11.0, 12.0, 19.0, 9.0, 11.0, 8.0, 7.0];
        let raised = AlertNews::Raised {
            since_s: 0,
            value: 12.0,
        };
        let over = AlertNews::Over {
            since_s: 0,
            value: 8.0,
            worst: 19.0,
        };
        let news = told(&rule(Side::Above, 2), &values);
        assert_eq!(news, [(2, raised), (6, over)]);
    }

    #[test]
    fn a_moment_beyond_is_nobodys_news() {
        let values = [11.0, 11.0, 10.0, 11.0, 11.0];
        assert_eq!(told(&rule(Side::Above, 2), &values), []);
    }

    #[test]
    fn below_is_turned_and_silence_changes_nothing() {
        let rule = rule(Side::Below, 0);
        let mut state = AlertState::default();
        let mut step = |at_s, value| state.step(&rule, at_s, value).is_some();
        assert!(step(0, Some(0.05)));
        assert!(!step(1, None));
        assert!(!step(2, Some(f64::NAN)));
        assert!(!step(3, Some(0.12)));
        assert!(step(4, Some(0.2)));
    }

    proptest! {
        #[test]
        fn news_take_turns_and_none_is_told_early(
            for_s in 0_u32..5,
            values in prop::collection::vec(0.0_f64..20.0, 0..200),
        ) {
            let rule = rule(Side::Above, for_s);
            for (number, (at_s, news)) in told(&rule, &values).into_iter().enumerate() {
                match news {
                    AlertNews::Raised { since_s, .. } => {
                        prop_assert_eq!(number % 2, 0);
                        prop_assert!(at_s - since_s >= i64::from(for_s));
                        let from = usize::try_from(since_s).expect("small");
                        let to = usize::try_from(at_s).expect("small");
                        prop_assert!(values[from..=to].iter().all(|value| *value > 10.0));
                    }
                    AlertNews::Over { value, .. } => {
                        prop_assert_eq!(number % 2, 1);
                        prop_assert!(value <= 8.0);
                    }
                }
            }
        }
    }
}
