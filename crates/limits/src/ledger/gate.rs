//! One gate: a limit and one of its keys, with what is counted there.

use std::time::Duration;

use super::digest::Digest;
use crate::Time;
use crate::fleet::RateStock;

/// Bytes kept of a key's text. The digest is its identity; the text is for people.
const TEXT_BYTES: usize = 61;
/// Bytes kept of the beginning of a text that is longer; the end is where files and paths differ.
const TEXT_BEGIN_BYTES: usize = 18;
/// Bytes of a first part, before a space, that is kept whole: it may say whose the key is.
const FIRST_PART_BYTES: usize = 40;
/// Stands for what is left out.
const CUT: &[u8] = "…".as_bytes();

/// No gate.
pub(crate) const NONE: u32 = u32::MAX;

/// A limit and one of its keys.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) digest: Digest,
    /// When the next request would come if they came evenly (the rate's only state).
    pub(crate) tat: Time,
    /// Requests admitted here; of a fixed limit only its counters and cells know.
    pub(crate) admitted: u64,
    pub(crate) limit: u32,
    pub(crate) tenant: u32,
    /// Permits out; of a fixed limit also those that lie in workers' cells.
    pub(crate) in_flight: u32,
    /// Waiters in its queue.
    pub(crate) waiting: u32,
    /// Waiters that will need it, wherever they wait.
    pub(crate) pins: u32,
    pub(crate) refused: u32,
    pub(crate) shadow_refused: u32,
    pub(crate) waited: u32,
    /// How long permits were held lately, in microseconds; 0: not measured.
    pub(crate) held_us: u32,
    /// How many were refused that would be under way, had they not been.
    pub(crate) lost: u32,
    /// How many were refused in a row: had they waited, all of them might still.
    pub(crate) lost_in_row: u32,
    /// When some of the former were last taken off, in milliseconds.
    lost_ms: u64,
    /// When the last was refused, in milliseconds.
    refused_ms: u64,
    /// When it was used last, in seconds.
    pub(crate) seen_s: u32,
    /// Permits leased of the store, of a limit that has them from there, and until when.
    pub(crate) leased: u32,
    pub(crate) leased_until: Time,
    /// What may begin, of a rate that machines share.
    pub(crate) stock: RateStock,
    /// The next gate of its bucket, or of the vacant ones.
    pub(crate) next: u32,
    /// The next gate of its tenant in its shard, in a ring.
    pub(crate) sibling: u32,
    pub(crate) standing: Standing,
    text_len: u8,
    text: [u8; TEXT_BYTES],
    /// It has a queue at the wait_queue, perhaps an empty one.
    pub(crate) queue: bool,
    /// The wait_queue has a lease of it, or draws of it.
    pub(crate) is_listed: bool,
    /// The store has no more of it.
    pub(crate) is_short: bool,
    /// What is leased is what the limit does while the store is away.
    pub(crate) is_away: bool,
}

/// What a slot is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Vacant,
    /// The only gate of a fixed limit.
    Fixed,
    /// One key.
    Key,
    /// All keys a tenant had no room for.
    Overflow,
}

impl Gate {
    pub(crate) const VACANT: Self = Self {
        digest: [0; 2],
        tat: Time::ZERO,
        admitted: 0,
        limit: 0,
        tenant: 0,
        in_flight: 0,
        waiting: 0,
        pins: 0,
        refused: 0,
        shadow_refused: 0,
        waited: 0,
        held_us: 0,
        lost: 0,
        lost_in_row: 0,
        lost_ms: 0,
        refused_ms: 0,
        seen_s: 0,
        leased: 0,
        leased_until: Time::ZERO,
        stock: RateStock::NONE,
        next: NONE,
        sibling: NONE,
        standing: Standing::Vacant,
        text_len: 0,
        text: [0; TEXT_BYTES],
        queue: false,
        is_listed: false,
        is_short: false,
        is_away: false,
    };

    /// A gate of a limit that counts nothing yet.
    pub(crate) fn of(limit: u32, tenant: u32, standing: Standing) -> Self {
        Self {
            limit,
            tenant,
            standing,
            ..Self::VACANT
        }
    }

    /// A gate of nothing, in the list of vacant ones.
    pub(crate) fn vacant(next: u32) -> Self {
        Self {
            next,
            ..Self::VACANT
        }
    }

    pub(crate) fn set_text(&mut self, text: &[u8]) {
        let parts = match text.len() {
            ..=TEXT_BYTES => [text, &[], &[]],
            _ => {
                let begin = begin_of(text);
                [begin, CUT, end_of(text, begin.len())]
            }
        };
        let kept = parts.into_iter().flatten();
        let count = self
            .text
            .iter_mut()
            .zip(kept)
            .map(|(to, from)| *to = *from)
            .count();
        self.text_len = u8::try_from(count).unwrap_or(0);
    }

    /// Its key for people; `(none)` where the request had no such field or cookie.
    pub(crate) fn shown(&self) -> String {
        match (self.standing, self.text()) {
            (Standing::Key, []) => "(none)".to_owned(),
            (_, text) => printable(text),
        }
    }

    fn text(&self) -> &[u8] {
        self.text.get(..usize::from(self.text_len)).unwrap_or(&[])
    }

    /// Has nothing leased any more.
    pub(crate) fn unlist(&mut self) {
        (self.is_listed, self.is_short, self.is_away) = (false, false, false);
        (self.leased, self.leased_until) = (0, Time::ZERO);
        self.stock.unlist();
    }

    pub(crate) fn see(&mut self, now: Time) {
        self.seen_s = seconds(now);
    }

    pub(crate) fn note_held(&mut self, held_ns: u64) {
        self.held_us = smoothed_us(self.held_us, held_ns);
    }

    /// Counts one more that is refused. The next is `each` later in turn, and so many turns without a refusal, beside
    /// one for each that was refused, make an end of being refused in a row.
    pub(crate) fn note_lost(&mut self, now: Time, each: Duration, turns: u32) {
        let now_ms = now.0 / 1_000_000;
        let turns = u128::from(self.lost_in_row) + u128::from(turns);
        let row_ms = each.as_nanos() * turns / 1_000_000;
        if u128::from(now_ms.saturating_sub(self.refused_ms)) > row_ms {
            self.lost_in_row = 0;
        }
        self.lost_in_row = self.lost_in_row.saturating_add(1);
        self.refused_ms = now_ms;
        let held_ms = u64::from(self.held_us / 1_000).max(1);
        let since_ms = now_ms.saturating_sub(self.lost_ms).min(held_ms);
        let gone = u64::from(self.lost) * since_ms / held_ms;
        if gone > 0 || self.lost == 0 {
            self.lost -= u32::try_from(gone).unwrap_or(self.lost).min(self.lost);
            self.lost_ms = now_ms;
        }
        self.lost = self.lost.saturating_add(1);
    }

    /// How long permits were held lately; zero: not measured.
    pub(crate) fn held(&self) -> Duration {
        Duration::from_micros(u64::from(self.held_us))
    }

    /// Whether forgetting it loses nothing.
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.in_flight == 0
            && self.waiting == 0
            && self.pins == 0
            && !self.queue
            && !self.is_listed
            && self.tat <= now
    }
}

/// An exponential average over about ten values, in whole microseconds and never 0. One value
/// counts for ten averages at most, so that a tunnel of an hour says little about the next page.
pub(crate) fn smoothed_us(average_us: u32, held_ns: u64) -> u32 {
    let held_us = u32::try_from(held_ns / 1000).unwrap_or(u32::MAX).max(1);
    if average_us == 0 {
        return held_us;
    }
    let held_us = held_us.min(average_us.saturating_mul(10));
    let sum = u64::from(average_us) * 9 + u64::from(held_us);
    u32::try_from(sum / 10).unwrap_or(u32::MAX).max(1)
}

/// Whole seconds of an instant.
pub(crate) fn seconds(now: Time) -> u32 {
    u32::try_from(now.0 / 1_000_000_000).unwrap_or(u32::MAX)
}

/// The first bytes of a long text, up to where a character begins, or the first part and the space behind it.
fn begin_of(text: &[u8]) -> &[u8] {
    let mut first = text.iter().take(FIRST_PART_BYTES + 1);
    let first = first.position(|byte| *byte == b' ');
    if let Some(space) = first.filter(|it| *it >= TEXT_BEGIN_BYTES) {
        return text.get(..=space).unwrap_or_default();
    }
    let ends = (TEXT_BEGIN_BYTES - 3..=TEXT_BEGIN_BYTES).rev();
    let end = ends
        .into_iter()
        .find(|end| text.get(*end).is_some_and(begins_character));
    text.get(..end.unwrap_or(TEXT_BEGIN_BYTES))
        .unwrap_or_default()
}

/// The last bytes of a long text of which so many are kept at its beginning, from where a character begins.
fn end_of(text: &[u8], begin: usize) -> &[u8] {
    let room = TEXT_BYTES.saturating_sub(begin + CUT.len());
    let first = text.len().saturating_sub(room);
    let start = (first..text.len())
        .take(4)
        .find(|start| text.get(*start).is_some_and(begins_character));
    text.get(start.unwrap_or(first)..).unwrap_or_default()
}

/// Whether a byte of UTF-8 is the first of a character.
fn begins_character(byte: &u8) -> bool {
    byte & 0xc0 != 0x80
}

/// Makes a key's text printable.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|character| {
            if character.is_control() || turns_text(character) {
                '?'
            } else {
                character
            }
        })
        .collect()
}

/// Whether it changes where the characters around it stand, so that a line reads as another.
fn turns_text(character: char) -> bool {
    matches!(
        character,
        '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> String {
        let mut gate = Gate::VACANT;
        gate.set_text(text.as_bytes());
        gate.shown()
    }

    #[test]
    fn long_keys_keep_their_beginning_and_their_end() {
        let long = "/var/www/vhosts/example.jp/httpdocs/wp-content/plugins/some-plugin/";
        let shown = kept(&format!("{long}a.php"));
        assert_eq!(
            shown,
            "/var/www/vhosts/ex…ocs/wp-content/plugins/some-plugin/a.php"
        );
        assert_ne!(shown, kept(&format!("{long}b.php")));
        assert_eq!(kept("/short"), "/short");
    }

    #[test]
    fn a_first_part_that_fits_is_kept_whole() {
        let path = "/blog/2026/11/29/a-rather-long-title-of-a-page/with-more.html";
        assert_eq!(
            kept(&format!("www.a-shop-of-thirty.example.jp {path}")),
            "www.a-shop-of-thirty.example.jp …e-of-a-page/with-more.html"
        );
        let longest = "x".repeat(FIRST_PART_BYTES);
        let shown = kept(&format!("{longest} {path}"));
        assert!(shown.starts_with(&format!("{longest} …")), "{shown}");
        let shown = kept(&format!("x{longest} {path}"));
        assert!(
            shown.starts_with(&format!("{}…", "x".repeat(TEXT_BEGIN_BYTES))),
            "{shown}"
        );
    }

    #[test]
    fn no_character_is_cut_in_two() {
        for lead in 0..4 {
            let text = format!("{}{}", "x".repeat(lead), "長屋の掟".repeat(9));
            let shown = kept(&text);
            assert!(!shown.contains('\u{fffd}'), "{shown}");
            assert!(shown.ends_with("の掟") && shown.contains('…'), "{shown}");
        }
        let mut gate = Gate::VACANT;
        gate.set_text(&[0x80; 300]);
        assert!(gate.text().len() <= TEXT_BYTES);
    }
}
