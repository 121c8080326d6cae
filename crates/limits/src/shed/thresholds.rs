//! When a sensor's value means that there is too much to do, and when no longer.

/// The values at which a rule changes its mind. Kept so that more is always worse: those of a
/// sensor that falls are turned round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Above it there is too much.
    pub(super) enter: f64,
    /// Not above it there is not, any more.
    pub(super) leave: f64,
    /// Above it there is far too much.
    pub(super) severe: f64,
    /// Not above it there is no longer far too much.
    pub(super) ease: f64,
    /// 1, or -1 for a sensor that falls.
    sign: f64,
}

impl Thresholds {
    /// Of a sensor whose high values are bad; `full` is the highest it can have.
    ///
    /// Far too much is twice as much as too much, or half the way from there to full.
    #[must_use]
    pub fn rising(enter: f64, leave: f64, full: Option<f64>) -> Self {
        let midway = full.map_or(f64::INFINITY, |full| f64::midpoint(enter, full));
        Self::new(1.0, enter, leave, (enter * 2.0).min(midway))
    }

    /// Of a sensor whose low values are bad. Far too little is half of too little.
    #[must_use]
    pub fn falling(enter: f64, leave: f64) -> Self {
        Self::new(-1.0, -enter, -leave, -enter / 2.0)
    }

    fn new(sign: f64, enter: f64, leave: f64, severe: f64) -> Self {
        Self {
            enter,
            leave,
            severe,
            // `enter` is never 0: the configuration sees to it. What is not even too much is not
            // far too much, however far `leave` is from there.
            ease: (severe * (leave / enter)).max(enter),
            sign,
        }
    }

    /// A value, turned so that more is worse; or a threshold turned back.
    pub(super) fn turned(&self, value: f64) -> f64 {
        self.sign * value
    }

    /// A value that is well.
    pub(super) fn calm(&self) -> f64 {
        self.leave - self.leave.abs()
    }

    /// How far a value is on the way from too much to far too much.
    pub(super) fn severity(&self, value: f64) -> f64 {
        let way = self.severe - self.enter;
        match way > 0.0 {
            true => ((value - self.enter) / way).clamp(0.0, 1.0),
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_too_much_is_twice_as_much_or_half_the_way_to_full() {
        for (enter, full, severe) in [
            (0.4, Some(1.0), 0.7),
            (0.1, Some(1.0), 0.2),
            (0.8, Some(1.0), 0.9),
            (3.0, None, 6.0),
        ] {
            let found = Thresholds::rising(enter, enter * 0.6, full).severe;
            assert!((found - severe).abs() < 1e-9, "{enter}: {found}");
        }
        let falling = Thresholds::falling(0.1, 0.15);
        assert!((falling.turned(falling.severe) - 0.05).abs() < 1e-9);
        assert!((falling.turned(falling.ease) - 0.075).abs() < 1e-9);
    }

    #[test]
    fn what_is_left_is_between_what_is_entered_and_its_opposite() {
        for thresholds in [
            Thresholds::rising(0.4, 0.24, Some(1.0)),
            Thresholds::rising(3.0, 3.0, None),
            Thresholds::rising(0.4, 0.05, Some(1.0)),
            Thresholds::falling(0.1, 0.15),
        ] {
            assert!(thresholds.leave <= thresholds.enter);
            assert!(thresholds.enter <= thresholds.severe);
            assert!(thresholds.ease <= thresholds.severe && thresholds.enter <= thresholds.ease);
        }
    }
}
