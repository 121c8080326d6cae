//! A range's figures as a report, for a terminal, as a page, or for the console.
//!
//! The idea: what a figure is worth stands beside it: visitors of several salts are a sum, lists say
//! what is beyond their names, and what was never logged is not shown as zero. All texts in it come
//! from clients; the renderers take them for nothing else.

mod lists;
mod table;
mod times;

use std::time::{Duration, UNIX_EPOCH};

use report::{Document, Language, Tone, units};

use crate::range::RangeFigures;
use crate::salts::{SaltPeriod, civil};
pub(crate) use lists::{Shown, VISITOR_DIGITS, list, slowest, trail, trails};
pub(crate) use table::{MaybeFigure, RowTable, toned};
pub(crate) use times::{
    FigureOf, by_day, counts_by_day, days, hours, months, overview, panel, speed, visitor_facts,
    weekdays,
};

/// Days of a range that are shown each; a longer one is shown by month.
const DAYS_SHOWN_MAX: usize = 31;
/// Trails that a report shows.
const TRAILS_SHOWN: usize = 20;

/// How figures are told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telling<'a> {
    /// In what language.
    pub(crate) language: Language,
    /// How long visitors are known.
    pub(crate) salt: SaltPeriod,
    /// Rows of a list.
    pub(crate) rows: usize,
    /// What names have to contain, in lower case; all do where it is empty.
    pub(crate) filter: &'a str,
}

impl Telling<'_> {
    /// Everything, in a language.
    pub(crate) fn whole_in(language: Language) -> Telling<'static> {
        Telling {
            language,
            salt: SaltPeriod::Day,
            rows: usize::MAX,
            filter: "",
        }
    }

    /// Words in the language.
    pub(crate) fn say(&self, english: &'static str, japanese: &'static str) -> &'static str {
        report::Phrase::new(english, japanese).said_in(self.language)
    }

    /// The time a salt holds, as a word.
    fn salt_word(&self) -> &'static str {
        match self.salt {
            SaltPeriod::Day => self.say("day", "日"),
            SaltPeriod::Week => self.say("week", "週"),
            SaltPeriod::Month => self.say("month", "月"),
        }
    }

    /// Whether a name is one of those that are shown.
    pub(crate) fn shows(&self, name: &str) -> bool {
        self.filter.is_empty() || name.to_lowercase().contains(self.filter)
    }
}

/// A time, as people write it.
pub(crate) fn instant(at_s: i64) -> String {
    let since = Duration::from_secs(u64::try_from(at_s).unwrap_or(0));
    units::instant(UNIX_EPOCH + since)
}

/// Makes a report, with so many rows of each list.
pub fn document(site: &str, range: &RangeFigures, salt: SaltPeriod, rows: usize) -> Document {
    let (from, to) = (civil(range.from), civil(range.to));
    let mut document = Document::new(format!("Visits of {site}"), format!("{from} to {to}"));
    let telling = Telling {
        salt,
        rows,
        ..Telling::whole_in(Language::English)
    };
    if range.days.is_empty() {
        let nothing = "Nothing was recorded on these days.";
        document.answer = Some((Tone::Warn, nothing.into()));
        return document;
    }
    overview(&mut document, range, &telling);
    days(&mut document, range, &telling);
    hours(&mut document, range, &telling);
    weekdays(&mut document, range, &telling);
    months(&mut document, range, &telling);
    for shown in &lists::LISTS {
        list(&mut document, range.list(shown.of), shown, &telling);
    }
    slowest(&mut document, range, &telling);
    trails(&mut document, &range.trails, TRAILS_SHOWN, &telling);
    document
}
