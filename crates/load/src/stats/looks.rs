//! When a running comparison may be judged. Who looks after each block and stops at the first
//! difference finds one sooner or later; so looks are few, fixed beforehand, and share the error.

use super::normal::normal_quantile;

/// Nothing is judged on fewer blocks.
pub const BLOCKS_LEAST: usize = 10;
/// Chance that any look calls equals different. Less than the usual 5 %, so that 200 comparisons of
/// equals stay below ten such calls, and not on average only.
const ERROR: f64 = 0.03;

/// The numbers of blocks at which a comparison is judged: 10, doubled until the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looks {
    at: Vec<usize>,
}

impl Looks {
    /// Looks of a comparison of at most `blocks_max` blocks, the last at its end. Fewer than ten
    /// blocks are one look, at ten.
    pub fn until(blocks_max: usize) -> Looks {
        let last = blocks_max.max(BLOCKS_LEAST);
        let doubled = std::iter::successors(Some(BLOCKS_LEAST), |at| at.checked_mul(2));
        let mut at: Vec<usize> = doubled.take_while(|at| *at < last).collect();
        at.push(last);
        Looks { at }
    }

    /// Whether so many blocks are looked at.
    pub fn is_due(&self, blocks: usize) -> bool {
        self.at.contains(&blocks)
    }

    /// All of them, ascending.
    pub fn at(&self) -> &[usize] {
        &self.at
    }

    /// The level of each look's interval, so that all together err in 3 % at most: each gets an
    /// equal share of it.
    pub fn level(&self) -> f64 {
        1.0 - ERROR / self.at.len() as f64
    }
}

/// The smallest difference that `blocks` blocks show in 80 of 100 comparisons, judged at `level`
/// with a `margin`, where the logarithms of the ratios deviate by `deviation`: as a share, 0.02 for
/// 2 %. It has to be sure of its direction, and estimated at the margin or beyond.
pub fn minimum_detectable(deviation: f64, blocks: usize, level: f64, margin: f64) -> f64 {
    let error = deviation / (blocks.max(1) as f64).sqrt();
    let sure = normal_quantile(1.0 - (1.0 - level) / 2.0) * error;
    (sure.max(margin.max(0.0).ln_1p()) + normal_quantile(0.8) * error).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_double_and_end_with_the_last_block() {
        for (most, expected) in [
            (1, vec![10]),
            (10, vec![10]),
            (11, vec![10, 11]),
            (60, vec![10, 20, 40, 60]),
            (80, vec![10, 20, 40, 80]),
            (200, vec![10, 20, 40, 80, 160, 200]),
        ] {
            assert_eq!(Looks::until(most).at(), expected, "{most}");
        }
        let looks = Looks::until(60);
        assert!(looks.is_due(40) && !looks.is_due(41));
        assert!((looks.level() - 0.9925).abs() < 1e-12);
    }

    #[test]
    fn what_can_be_found_shrinks_with_the_root_of_the_blocks() {
        // 2.8 deviations over the root of n, the rule of thumb for 80 % at 5 %.
        let seen = minimum_detectable(0.03, 30, 0.95, 0.01);
        assert!((seen - 0.0154).abs() < 0.0002, "{seen}");
        let more = minimum_detectable(0.03, 120, 0.95, 0.0);
        assert!((seen / more - 2.0).abs() < 0.02, "{more}");
        // Below the margin nothing is called different, however quiet the machine.
        let quiet = minimum_detectable(0.0001, 60, 0.95, 0.01);
        assert!((0.01..0.0101).contains(&quiet), "{quiet}");
    }
}
