//! Branches of an alternation by the byte that comes next: of hundreds of words few begin with it.

use super::compile::may_begin;
use super::parse::Node;

/// Branches of an alternation from which on the next byte says which of them come in question.
const CHOICES_MIN: usize = 4;
/// Rows of a table of choices: a byte of ASCII each, all others, and the end of the text.
const ROWS: usize = 130;
const BEYOND_ASCII: usize = 128;
const AT_END: usize = 129;
/// Branches in a row, on average, up to which such a table is worth its room.
const CHOICES_A_ROW: usize = 8;

/// Where the branches of an alternation begin that may match, by the next byte.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    /// The list of each row.
    rows: [u16; ROWS],
    lists: Vec<Box<[usize]>>,
}

impl Choices {
    /// The numbers of the branches that may match, by the next byte; none where there are few, or that
    /// byte hardly tells.
    pub(super) fn new(all: &[Node]) -> Option<Self> {
        if all.len() < CHOICES_MIN {
            return None;
        }
        let mut rows = vec![Vec::new(); ROWS];
        let mut room = CHOICES_A_ROW * (ROWS + all.len());
        for (branch, node) in all.iter().enumerate() {
            let mut first = [false; 256];
            let may_be_empty = may_begin(node, &mut first);
            let is_beyond = first.iter().skip(BEYOND_ASCII).any(|may| *may);
            for (row, list) in rows.iter_mut().enumerate() {
                let may = match row {
                    BEYOND_ASCII => is_beyond,
                    AT_END => false,
                    byte => first.get(byte) == Some(&true),
                };
                if may || may_be_empty {
                    list.push(branch);
                    room = room.checked_sub(1)?;
                }
            }
        }
        let mut choices = Self {
            rows: [0; ROWS],
            lists: Vec::new(),
        };
        for (place, list) in choices.rows.iter_mut().zip(rows) {
            let known = choices.lists.iter().position(|have| **have == *list);
            let at = known.unwrap_or(choices.lists.len());
            if known.is_none() {
                choices.lists.push(list.into_boxed_slice());
            }
            *place = u16::try_from(at).ok()?;
        }
        Some(choices)
    }

    /// Has each branch, of which there is the number so far, begin where it does.
    pub(super) fn lead_to(&mut self, begins: &[usize]) {
        for branch in self.lists.iter_mut().flat_map(|list| list.iter_mut()) {
            *branch = begins.get(*branch).copied().unwrap_or_default();
        }
    }

    /// Those that may match before this byte, or at the end.
    pub(super) fn before(&self, byte: Option<&u8>) -> &[usize] {
        let row = byte.map_or(AT_END, |byte| usize::from(*byte).min(BEYOND_ASCII));
        let list = self.rows.get(row).map(|list| usize::from(*list));
        list.and_then(|list| self.lists.get(list))
            .map_or(&[], |list| list)
    }

    pub(super) fn bytes(&self) -> usize {
        let places: usize = self.lists.iter().map(|list| list.len()).sum();
        size_of::<Self>() + places * size_of::<usize>()
    }
}
