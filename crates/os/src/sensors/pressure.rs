//! Pressure stall information: `/proc/pressure/*`, and the same file of a control group.

use std::time::Duration;

/// Time lost since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// While at least one task waited.
    pub some: Duration,
    /// While all that were not idle waited; no line of a kernel before 5.13 for processors.
    pub full: Option<Duration>,
}

/// What the text of a pressure file says.
pub fn pressure(text: &str) -> Option<Pressure> {
    Some(Pressure {
        some: total(text, "some ")?,
        full: total(text, "full "),
    })
}

fn total(text: &str, kind: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let mut words = line.split_ascii_whitespace();
    let total = words.find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found_by_their_names() {
        let micros = Duration::from_micros;
        let whole = "some avg10=1.25 avg60=1.82 avg300=3.25 total=24005259015\n\
                     full avg10=0.00 avg60=0.00 avg300=0.00 total=17\n";
        for (text, expected) in [
            (whole, Some((24_005_259_015, Some(17)))),
            (
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
                Some((5, None)),
            ),
            ("full total=2\nsome total=1", Some((1, Some(2)))),
            ("some total=18446744073709551615", Some((u64::MAX, None))),
            ("some total=18446744073709551616", None),
            ("some avg10=1.25 avg60=1.82 avg300=3.25\n", None),
            ("some total=-1", None),
            ("some total=\nfull total=1", None),
            ("something total=1", None),
            ("some total=1\nfull total=x", Some((1, None))),
            ("", None),
        ] {
            let expected = expected.map(|(some, full)| Pressure {
                some: micros(some),
                full: full.map(micros),
            });
            assert_eq!(pressure(text), expected, "{text:?}");
        }
    }
}
