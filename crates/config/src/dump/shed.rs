//! `[[shed]]`, every default written out.

use super::conditions::conditions;
use super::write::{Lines, braces, list, quote, quote_path};
use crate::lower::names::Named;
use crate::lower::template::spell;
use crate::model::{Shed, ShedReply};

impl Lines {
    /// A rule that sheds.
    pub(super) fn shed(&mut self, shed: &Shed) {
        self.section("[[shed]]");
        self.key("name", quote(&shed.name));
        self.key("sensor", quote(&shed.sensor));
        self.key("enter", number(shed.enter));
        self.key("leave", number(shed.leave));
        self.duration("dwell", shed.dwell_ms);
        self.key("scope", quote(shed.scope.name()));
        self.key("mode", quote(shed.mode.name()));
        match &shed.respond {
            ShedReply::Whale => {}
            ShedReply::Page(page) => {
                let page = format!("page = {}", quote_path(&page.file));
                self.key("respond", braces(std::iter::once(page)));
            }
            ShedReply::Redirect(target) => {
                let target = format!("redirect = {}", quote(spell(target)));
                self.key("respond", braces(std::iter::once(target)));
            }
        }
        if !shed.conditions.is_empty() {
            self.key("match", conditions(&shed.conditions));
        }
        let degrade = list(&shed.degrade, |degrade| quote(degrade.name()));
        self.key("degrade", degrade);
    }
}

/// A number with a fraction, as TOML has it.
fn number(value: f64) -> String {
    format!("{value:?}")
}
