//! Variables: which of them something asks for that is carried, and which have one value here.
//!
//! The idea: what only a cache asks for is of no account, and a `map` none of whose entries can come
//! about is its default.

use std::collections::{BTreeMap, BTreeSet};

use super::Http;
use super::parse::Statement;
use super::table::{Meaning, meaning};
use super::template::{Piece, pieces};

/// How often maps are looked at, one of which may ask for another's variable.
const ROUNDS: usize = 4;

impl Http<'_> {
    /// Learns of all variables.
    pub(super) fn learn_variables(&mut self) {
        let maps: Vec<&Statement> = self
            .level
            .iter()
            .copied()
            .filter(|line| line.name == "map")
            .collect();
        let mut set = BTreeSet::new();
        self.files.each(&mut |line| {
            if line.name == "set" {
                set.insert(line.first().to_owned());
            }
        });
        let is_set = |name: &str| set.contains(&format!("${name}"));
        for _ in 0..ROUNDS {
            for map in &maps {
                if let (Some(name), Some(value)) = (named(map), constant_of(map, &self.constants))
                    && !is_set(name)
                {
                    self.constants.insert(name.to_owned(), value);
                }
            }
        }
        let (constants, asked) = (&self.constants, &mut self.asked);
        let mut note = |word: &str| {
            for piece in pieces(word) {
                if let Piece::Variable(name) = piece
                    && !constants.contains_key(name)
                {
                    asked.insert(name.to_owned());
                }
            }
        };
        self.files.each(&mut |line| {
            if matches!(meaning(&line.name), Meaning::Thought | Meaning::Closing(_)) {
                line.words.iter().for_each(|word| note(word));
            }
        });
        for _ in 0..ROUNDS {
            for map in &maps {
                if named(map).is_some_and(|name| self.asked.contains(name)) {
                    let asked = pieces(map.first()).into_iter();
                    self.asked.extend(asked.filter_map(|piece| match piece {
                        Piece::Variable(name) => Some(name.to_owned()),
                        Piece::Text(_) => None,
                    }));
                }
            }
        }
    }

    /// Whether something that is carried asks for a variable, `$name`.
    pub(super) fn asks_for(&self, variable: &str) -> bool {
        let name = variable.strip_prefix('$');
        name.is_none_or(|name| self.asked.contains(name))
    }

    /// Whether a `map` or `set` is for a variable that nothing asks for.
    pub(super) fn is_nobodys(&self, line: &Statement) -> bool {
        match line.name.as_str() {
            "map" => line.words.get(1).is_some_and(|it| !self.asks_for(it)),
            "set" => !self.asks_for(line.first()),
            _ => false,
        }
    }
}

/// The variable that a `map` sets.
fn named(map: &Statement) -> Option<&str> {
    map.words.get(1)?.strip_prefix('$')
}

/// The one value of a `map`, if it has no other by what is known of its source.
fn constant_of(map: &Statement, known: &BTreeMap<String, String>) -> Option<String> {
    let (mut begins, mut is_whole) = (String::new(), true);
    for piece in pieces(map.first()) {
        match piece {
            Piece::Text(text) => begins.push_str(text),
            Piece::Variable(name) => match known.get(name) {
                Some(value) => begins.push_str(value),
                None => {
                    is_whole = false;
                    break;
                }
            },
        }
    }
    let mut default = "";
    for line in map.block.iter().flatten() {
        let is_met = match is_whole {
            true => line.name == begins,
            false => line.name.starts_with(&begins),
        };
        match line.name.as_str() {
            "default" => default = line.first(),
            name if name.starts_with('~') => return None,
            "hostnames" | "include" | "volatile" => return None,
            _ if is_met => return None,
            _ => {}
        }
    }
    (!default.contains('$')).then(|| default.to_owned())
}
