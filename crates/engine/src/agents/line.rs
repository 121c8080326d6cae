//! The line an agent answers with: that of HAProxy's agent-check, with sensors behind it.
//!
//! `up 75% # load1=0.5 cpu_pressure=0.125`: words that say whether the server is to be asked, a
//! percentage of its weight, and behind the `#`, where HAProxy has a description for people, what
//! sensors say. An agent of anybody else's, which has none of these, is understood as far as it goes.
//! Each line stands for itself: what HAProxy keeps until `ready` (`drain`, `maint`) is over here with
//! the first line that does not say so.

use std::fmt;

use config::model::sensor::{Gauge, Unit};

/// Highest percentage that is believed.
const PERCENT_MAX: u32 = 256;

/// What an agent says.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentLine {
    /// How much of its weight the server is up to; 0: it is to be left alone.
    pub percent: u32,
    values: Vec<(Gauge, f64)>,
}

impl AgentLine {
    /// Makes a line of what is known.
    pub fn new(percent: u32, values: impl IntoIterator<Item = (Gauge, f64)>) -> Self {
        Self {
            percent,
            values: values.into_iter().collect(),
        }
    }

    /// Understands the first line of a text; `None` where it says nothing of the server.
    pub fn read(text: &str) -> Option<Self> {
        let line = text.split(['\r', '\n']).next().unwrap_or_default();
        let (words, rest) = line.split_once('#').unwrap_or((line, ""));
        let (mut percent, mut is_asked) = (None, None);
        for word in words.to_ascii_lowercase().split([' ', '\t', ',']) {
            match word {
                "up" | "ready" => is_asked = Some(is_asked.unwrap_or(true)),
                "drain" | "maint" | "down" | "fail" | "failed" | "stopped" => {
                    is_asked = Some(false)
                }
                _ => {
                    let number = word.strip_suffix('%').and_then(|word| word.parse().ok());
                    percent = number
                        .map(|number: u32| number.min(PERCENT_MAX))
                        .or(percent);
                }
            }
        }
        let percent = match (is_asked, percent) {
            (None, None) => return None,
            (Some(false), _) => 0,
            (_, percent) => percent.unwrap_or(super::WHOLE_PERCENT),
        };
        let pairs = rest.split_ascii_whitespace();
        let values = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let gauge = Gauge::from_name(name).filter(|gauge| gauge.is_of_machine())?;
            let value = value.parse::<f64>().ok()?;
            let most = match gauge.unit() {
                Unit::Share => 1.0,
                _ => f64::MAX,
            };
            (value.is_finite() && value >= 0.0).then_some((gauge, value.min(most)))
        });
        // Each name once, however often it is said.
        Some(Self::new(percent, values.take(Gauge::ALL.len())))
    }

    /// What a sensor says.
    pub fn value(&self, gauge: Gauge) -> Option<f64> {
        let found = self.values.iter().find(|(told, _)| *told == gauge)?;
        Some(found.1)
    }
}

impl fmt::Display for AgentLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.percent {
            0 => f.write_str("drain")?,
            percent => write!(f, "up ready {percent}%")?,
        }
        for (at, (gauge, value)) in self.values.iter().enumerate() {
            let before = if at == 0 { " # " } else { " " };
            write!(f, "{before}{}={value}", gauge.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_understood_as_far_as_it_goes() {
        for (text, percent) in [
            ("up 75%\n", Some(75)),
            ("75%\r\n", Some(75)),
            ("up", Some(100)),
            ("ready,up,50%", Some(50)),
            ("0%", Some(0)),
            ("999999%", Some(PERCENT_MAX)),
            ("drain 50%", Some(0)),
            ("maint", Some(0)),
            ("down # out of order", Some(0)),
            ("up drain", Some(0)),
            ("UP 75%", Some(75)),
            ("Drain", Some(0)),
            // Only the first line counts, as for HAProxy.
            ("up 75%\ndown\n", Some(75)),
            ("up\r\ndrain", Some(100)),
            ("\nup", None),
            ("stopped\tup", Some(0)),
            ("up maxconn:30 x%", Some(100)),
            ("-5%", None),
            ("4294967296%", None),
            ("hello", None),
            ("# up 75%", None),
            ("", None),
        ] {
            let found = AgentLine::read(text).map(|line| line.percent);
            assert_eq!(found, percent, "{text:?}");
        }
    }

    #[test]
    fn sensors_stand_behind_the_sign() {
        let line = AgentLine::read(
            "up # load1=1.5 cpu_pressure=nan io_pressure=-1 swap_in=1e999 loop_lag=3 what=1 load5 load15=x memory_pressure=0.5",
        );
        let line = line.expect("a line");
        let known = Gauge::ALL
            .into_iter()
            .filter(|gauge| line.value(*gauge).is_some());
        assert_eq!(
            known.collect::<Vec<_>>(),
            [Gauge::Load1, Gauge::MemoryPressure]
        );
        let line = AgentLine::read("up # cpu_pressure=7 load1=1e300\nload5=1").expect("a line");
        assert_eq!(line.value(Gauge::CpuPressure), Some(1.0));
        assert_eq!(line.value(Gauge::Load1), Some(1e300));
        assert_eq!(line.value(Gauge::Load5), None);
        let flood = format!("up #{}", " load1=1".repeat(10_000));
        assert_eq!(
            AgentLine::read(&flood).map(|line| line.values.len()),
            Some(18)
        );
    }

    #[test]
    fn what_is_written_is_read() {
        for (line, text) in [
            (AgentLine::new(0, []), "drain"),
            (AgentLine::new(80, []), "up ready 80%"),
            (
                AgentLine::new(7, [(Gauge::Load1, 0.25), (Gauge::SwapIn, 3.0)]),
                "up ready 7% # load1=0.25 swap_in=3",
            ),
        ] {
            assert_eq!(line.to_string(), text);
            assert_eq!(AgentLine::read(text), Some(line));
        }
    }
}
