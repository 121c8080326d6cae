//! What was folded of one site's day since it was last written.
//!
//! The idea: names are known here by their hashes, in one table for all lists, so that a request costs
//! no look at a text and a name no copy. Several hashes may mean one name: they are joined when a day
//! takes the piece up. A piece that was written is emptied and used again.

use std::collections::VecDeque;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::day::{Figures, ListOf, MINUTES_OF_DAY, Tally, cut};
use crate::names::ByHash;

/// Pages of trails that a piece holds; of a busier site the rest are in no trail.
const STEPS_MAX: usize = 4_000;
/// Names for which an emptied piece keeps room.
const ROOM_MIN: usize = 16;

/// One site's day, as far as it was not written.
#[derive(Debug, Default)]
pub struct Piece {
    /// By minute of the day: mostly one, and always few.
    minutes: Vec<(u16, Figures)>,
    names: ByHash<u64, Listed>,
    visitors: Vec<u64>,
    /// Those seen last.
    steps: VecDeque<(u64, u32, Rc<str>)>,
}

#[derive(Debug)]
struct Listed {
    of: ListOf,
    name: Rc<str>,
    tally: Tally,
}

/// A piece as it lies on disk; its texts are elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPiece<'a> {
    /// By minute of the day.
    pub(crate) minutes: Vec<(u16, Figures)>,
    /// Place in [`ListOf::ALL`], name and tally; a name may come more than once.
    #[serde(borrow)]
    pub(crate) names: Vec<(u8, &'a str, Tally)>,
    /// Each once, in order.
    pub(crate) visitors: Vec<u64>,
    /// Visitor, second of the day and page.
    #[serde(borrow)]
    pub(crate) steps: Vec<(u64, u32, &'a str)>,
}

impl Piece {
    /// The figures of a minute of the day.
    pub fn minute(&mut self, minute: u16) -> &mut Figures {
        let minute = minute.min(MINUTES_OF_DAY - 1);
        let known = self.minutes.iter().rposition(|(it, _)| *it == minute);
        let at = known.unwrap_or_else(|| {
            self.minutes.push((minute, Figures::default()));
            self.minutes.len() - 1
        });
        // It was found there, or put there.
        &mut self.minutes[at].1
    }

    /// Figures by minute of the day.
    pub fn minutes(&self) -> impl Iterator<Item = &Figures> {
        self.minutes.iter().map(|(_, figures)| figures)
    }

    /// Which minutes of the day have figures.
    pub(crate) fn minutes_of_day(&self) -> impl Iterator<Item = u16> {
        self.minutes.iter().map(|(minute, _)| *minute)
    }

    /// Adds to a name of a list; `hash` stands for the name.
    pub fn add(&mut self, of: ListOf, hash: u64, tally: &Tally, name: impl FnOnce() -> Rc<str>) {
        // Of each list another number, spread over all bits.
        let key = hash ^ (of as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let listed = self.names.entry(key).or_insert_with(|| Listed {
            of,
            name: name(),
            tally: Tally::default(),
        });
        listed.tally.merge(tally);
    }

    /// A visitor sees a page.
    pub fn step(&mut self, visitor: u64, second: u32, page: &Rc<str>) {
        self.visitors.push(visitor);
        if self.steps.len() >= STEPS_MAX {
            self.steps.pop_front();
        }
        self.steps.push_back((visitor, second, Rc::clone(page)));
    }

    /// About how many names it holds, or things as large.
    pub fn held(&self) -> usize {
        self.names.len() + 4 * self.minutes.len() + self.visitors.len() / 8 + self.steps.len() / 2
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.minutes.is_empty() && self.names.is_empty()
    }

    /// Forgets all, and keeps the room that it needed.
    pub fn clear(&mut self) {
        let room = |used: usize| 2 * used.max(ROOM_MIN);
        let [names, visitors, steps] =
            [self.names.len(), self.visitors.len(), self.steps.len()].map(room);
        self.minutes.clear();
        self.names.clear();
        self.names.shrink_to(names);
        self.visitors.clear();
        self.visitors.shrink_to(visitors);
        self.steps.clear();
        self.steps.shrink_to(steps);
    }

    /// As it lies on disk.
    pub fn stored(&self) -> StoredPiece<'_> {
        let listed = self.names.values();
        let mut visitors = self.visitors.clone();
        visitors.sort_unstable();
        visitors.dedup();
        StoredPiece {
            minutes: self.minutes.clone(),
            names: listed
                .map(|it| (it.of as u8, cut(&it.name), it.tally))
                .collect(),
            visitors,
            steps: self
                .steps
                .iter()
                .map(|(visitor, second, page)| (*visitor, *second, cut(page)))
                .collect(),
        }
    }
}
