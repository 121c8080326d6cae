//! What an interval of a ratio comes to in words.

use std::fmt;

use super::bootstrap::Interval;

/// Which way of the ratio is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Better {
    /// As for latency, and CPU seconds per request.
    Lower,
    /// As for requests per second.
    Higher,
}

/// What B is against A.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub enum Verdict {
    /// Better beyond doubt, and by at least the margin as far as one can say.
    Faster,
    /// Worse beyond doubt, and by at least the margin as far as one can say.
    Slower,
    /// The whole interval is within the margin.
    Same {
        /// The margin, as a share: 0.01 for 1 %.
        within: f64,
    },
    /// Neither.
    CannotTell {
        /// Blocks it may still take, going by the interval's width.
        more_blocks: usize,
    },
}

/// Judges the ratio of B to A over `blocks` blocks with a `margin` (0.01 for 1 %).
///
/// Different is what does not include 1 and is estimated at the margin or beyond: a difference
/// must be sure of its direction, and worth a word. Same is what lies within the margin wholly.
pub fn verdict(ratio: &Interval, blocks: usize, margin: f64, better: Better) -> Verdict {
    let (low, centre, high) = (ratio.low.ln(), ratio.estimate.ln(), ratio.high.ln());
    let edge = margin.max(0.0).ln_1p();
    if low > -edge && high < edge {
        return Verdict::Same { within: margin };
    }
    if (low > 0.0 || high < 0.0) && centre.abs() >= edge {
        return match (centre > 0.0, better) {
            (true, Better::Higher) | (false, Better::Lower) => Verdict::Faster,
            (true, Better::Lower) | (false, Better::Higher) => Verdict::Slower,
        };
    }
    let half = f64::midpoint(high - centre, centre - low);
    // Near the edge the estimate itself may cross it: a third of the margin is as narrow as asked.
    let needed = if centre.abs() >= edge {
        centre.abs()
    } else {
        (edge - centre.abs()).max(edge / 3.0)
    };
    let times = (half / needed).powi(2);
    let in_all = blocks as f64 * times;
    let more = if in_all.is_finite() {
        in_all - blocks as f64
    } else {
        0.0
    };
    Verdict::CannotTell {
        more_blocks: more.clamp(1.0, 1e6).ceil() as usize,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Faster => write!(f, "faster"),
            Verdict::Slower => write!(f, "slower"),
            Verdict::Same { within } => {
                // Two digits are enough for a margin, and 1 % is not 1.00 %.
                let percent = (within * 10_000.0).round() / 100.0;
                write!(f, "same within ±{percent} %")
            }
            Verdict::CannotTell { more_blocks } => {
                write!(f, "cannot tell yet (about {more_blocks} more blocks)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(low: f64, estimate: f64, high: f64, expected: &str) {
        let ratio = Interval {
            low,
            estimate,
            high,
        };
        let seen = verdict(&ratio, 20, 0.01, Better::Lower).to_string();
        assert_eq!(seen, expected, "{ratio:?}");
    }

    #[test]
    fn an_interval_comes_to_one_of_four_words() {
        check(1.01, 1.03, 1.05, "slower");
        check(0.95, 0.97, 0.99, "faster");
        // Sure of its direction, and probably worth a word.
        check(1.002, 1.02, 1.038, "slower");
        check(0.995, 1.001, 1.007, "same within ±1 %");
        // Sure of its direction, and not worth a word.
        check(1.001, 1.004, 1.008, "same within ±1 %");
        check(0.98, 1.02, 1.06, "cannot tell yet (about 59 more blocks)");
        check(
            1.001,
            1.008,
            1.016,
            "cannot tell yet (about 81 more blocks)",
        );
    }

    #[test]
    fn for_throughput_more_is_better() {
        let ratio = Interval {
            low: 1.01,
            estimate: 1.03,
            high: 1.05,
        };
        assert_eq!(verdict(&ratio, 20, 0.01, Better::Higher), Verdict::Faster);
    }

    #[test]
    fn an_interval_of_nonsense_does_not_panic() {
        for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let ratio = Interval {
                low: value,
                estimate: value,
                high: value,
            };
            let seen = verdict(&ratio, 0, f64::NAN, Better::Lower);
            assert!(!seen.to_string().is_empty());
        }
    }
}
