//! What must hold: `p99<50ms`, `p99.9<200ms,errors<0.1%`.

use std::fmt;
use std::str::FromStr;

use load::client::Outcome;

/// Goals of one search.
const GOALS_MAX: usize = 16;
/// Requests beyond a quantile that make it one.
const BEYOND: f64 = 10.0;
/// Requests that a mean, a maximum or a share of errors stands on.
const REQUESTS_LEAST: f64 = 100.0;

/// A figure that is bounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    /// A quantile of the response times, 0.99 for p99.
    Quantile(f64),
    Mean,
    Max,
    /// Share of failed requests.
    Errors,
}

/// One bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goal {
    pub(crate) figure: Figure,
    /// It must be below this: microseconds, or a share.
    pub(crate) below: f64,
}

/// All that must hold at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Goals {
    goals: Vec<Goal>,
    text: String,
}

impl Goals {
    /// Requests a probe needs so that each figure means something.
    pub(crate) fn requests_needed(&self) -> f64 {
        let needed = self.goals.iter().map(|goal| match goal.figure {
            Figure::Quantile(q) => BEYOND / (1.0 - q),
            // Ten failures are a share.
            Figure::Errors => (BEYOND / goal.below).min(10_000.0),
            Figure::Mean | Figure::Max => REQUESTS_LEAST,
        });
        needed.fold(REQUESTS_LEAST, f64::max)
    }

    /// What was missed, in words; nothing where all hold.
    pub(crate) fn missed(&self, outcome: &Outcome) -> Vec<String> {
        let missed = self.goals.iter().filter_map(|goal| {
            let value = goal.figure.of(outcome);
            (value >= goal.below).then(|| {
                let unit = goal.figure.unit();
                format!("{} {}", goal.figure, unit.write(value))
            })
        });
        missed.collect()
    }
}

impl Figure {
    /// Its value.
    pub(crate) fn of(self, outcome: &Outcome) -> f64 {
        let times = &outcome.times.response;
        match self {
            Figure::Quantile(q) => times.quantile_us(q) as f64,
            Figure::Mean => times.mean_us(),
            Figure::Max => times.max_us as f64,
            Figure::Errors => {
                let all = outcome.completed + outcome.errors.total();
                outcome.failed() as f64 / all.max(1) as f64
            }
        }
    }

    fn unit(self) -> report::units::Unit {
        use report::units::Unit;
        match self {
            Figure::Errors => Unit::Share,
            _ => Unit::Micros,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // 0.999 * 100 is not quite 99.9.
            Figure::Quantile(q) => write!(f, "p{}", (q * 1e6).round() / 1e4),
            Figure::Mean => f.write_str("mean"),
            Figure::Max => f.write_str("max"),
            Figure::Errors => f.write_str("errors"),
        }
    }
}

impl fmt::Display for Goals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Goals {
    type Err = String;

    fn from_str(text: &str) -> Result<Goals, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.len() > GOALS_MAX {
            return Err(format!("more than {GOALS_MAX} goals"));
        }
        let goals: Result<Vec<Goal>, String> = parts.iter().map(|part| goal(part)).collect();
        Ok(Goals {
            goals: goals?,
            text: parts.join(", "),
        })
    }
}

fn goal(text: &str) -> Result<Goal, String> {
    let example = "write 'p99<50ms' or 'p99<50ms,errors<0.1%'";
    let Some((figure, bound)) = text.split_once('<') else {
        return Err(format!("`{}` has no <: {example}", text.escape_debug()));
    };
    let figure = figure.trim();
    let figure = match figure {
        "mean" => Figure::Mean,
        "max" => Figure::Max,
        "errors" => Figure::Errors,
        _ => Figure::Quantile(quantile(figure).ok_or_else(|| {
            format!(
                "`{}` is no figure: p50, p90, p99, p99.9, max, mean or errors; {example}",
                figure.escape_debug()
            )
        })?),
    };
    let bound = bound.trim();
    let below = match figure {
        Figure::Errors => share(bound),
        _ => microseconds(bound),
    };
    let below = below.filter(|below| below.is_finite() && *below > 0.0);
    let below = below.ok_or_else(|| {
        format!(
            "`{}` is no bound for {figure}: {}; {example}",
            bound.escape_debug(),
            match figure {
                Figure::Errors => "a share such as 0.1%",
                _ => "a time with its unit, us, ms or s",
            }
        )
    })?;
    Ok(Goal { figure, below })
}

/// `p99.9` to 0.999; at most p99.999, for nobody waits for more.
fn quantile(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_prefix('p')?.parse().ok()?;
    (1.0..=99.999).contains(&percent).then_some(percent / 100.0)
}

fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (number, times) = units
        .iter()
        .find_map(|(unit, times)| Some((text.strip_suffix(unit)?, times)))?;
    Some(number.trim().parse::<f64>().ok()? * times)
}

fn share(text: &str) -> Option<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (value <= 1.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read() {
        for (text, figure, below) in [
            ("p99<50ms", Figure::Quantile(0.99), 50_000.0),
            ("p50 < 800us", Figure::Quantile(0.5), 800.0),
            ("mean<1.5s", Figure::Mean, 1_500_000.0),
            ("max<2s", Figure::Max, 2_000_000.0),
            ("errors<0.1%", Figure::Errors, 0.001),
            ("errors<0.01", Figure::Errors, 0.01),
        ] {
            let goals: Goals = text.parse().expect(text);
            let goal = goals.goals[0];
            assert_eq!(goal.figure, figure, "{text}");
            assert!((goal.below / below - 1.0).abs() < 1e-9, "{text}");
        }
        let goals: Goals = "p99.9<200ms, errors<1%".parse().expect("two goals");
        assert_eq!(goals.goals.len(), 2);
        assert_eq!(goals.to_string(), "p99.9<200ms, errors<1%");
        assert_eq!(goals.goals[0].figure.to_string(), "p99.9");
        assert!((goals.requests_needed() - 10_000.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_goal_is_told_what_to_write() {
        for text in [
            "",
            "p99",
            "p99<",
            "p99<50",
            "p99<-1ms",
            "p99<0ms",
            "p0<1ms",
            "p100<1ms",
            "pNaN<1ms",
            "q99<1ms",
            "p99<nanms",
            "p99<infs",
            "errors<5ms",
            "errors<200%",
            "errors<0",
            "p99<1ms,",
            "p99>1ms",
        ] {
            let told = text.parse::<Goals>().expect_err(text);
            assert!(told.contains("write 'p99<50ms'"), "{text}: {told}");
        }
        let many = ["p99<1ms"; 17].join(",");
        assert!(many.parse::<Goals>().is_err());
    }
}
