//! `[[alerts]]`, every default written out.

use super::write::{Lines, list, quote};
use crate::model::Alert;
use crate::model::sensor::{Unit, Worse};

impl Lines {
    /// What somebody wants to be told of.
    pub(super) fn alert(&mut self, alert: &Alert) {
        self.section("[[alerts]]");
        self.key("name", quote(&alert.name));
        self.key("figure", quote(&alert.figure));
        let side = match alert.worse {
            Worse::Above => "above",
            Worse::Below => "below",
        };
        let number = |value: f64| match alert.figure.unit() {
            Unit::Bytes => format!("{value:.0}"),
            _ => format!("{value:?}"),
        };
        self.key(side, number(alert.bound));
        self.key("leave", number(alert.leave));
        self.duration("for", u64::from(alert.for_s) * 1_000);
        if let Some(run) = &alert.run {
            self.key("run", list(&run.command, quote));
            if run.has_own_user {
                self.key("user", quote(&run.user));
            }
        }
    }
}
