//! Finds what a misspelt word was meant to be.
//!
//! The idea: the fewest insertions, deletions, replacements and swaps of neighbours; a third of
//! the word may be wrong, more would be guessing.

/// The candidate nearest to `word`, if it is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(word, (word.chars().count() / 3).max(1), candidates)
}

/// The candidate nearest to `word`, if no more than `limit` slips lie between.
pub(crate) fn nearest_within<'a>(
    word: &str,
    limit: usize,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (distance(word, candidate), candidate));
    scored
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The handler that is meant by another program's word for it.
pub(crate) fn others_handler(word: &str) -> Option<&'static str> {
    match word {
        "php_fpm" | "php-fpm" | "fpm" | "fcgi" | "fastcgi_pass" => Some("fastcgi"),
        "proxy_pass" | "reverse_proxy" => Some("proxy"),
        _ => None,
    }
}

/// What to write for a phase that stands in a handler, not in a `scripts` table.
pub(crate) fn phase_of_handler(word: &str) -> Option<&'static str> {
    match word {
        "set" => Some("what names the upstream stands in `handler = { proxy = { script = … } }`"),
        "content" => Some("what answers stands in `handler = { script = … }`"),
        _ => None,
    }
}

/// Optimal string alignment distance of the two words in lower case.
fn distance(left: &str, right: &str) -> usize {
    /// Longer words are not compared.
    const CHARS_MAX: usize = 64;
    let left: Vec<char> = left.to_lowercase().chars().take(CHARS_MAX).collect();
    let right: Vec<char> = right.to_lowercase().chars().take(CHARS_MAX).collect();
    let width = right.len() + 1;
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1; width];
        for (j, b) in right.iter().enumerate() {
            let cost = usize::from(a != b);
            let mut best = (rows[i][j] + cost).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row[j + 1] = best;
        }
        rows.push(row);
    }
    rows.last()
        .and_then(|row| row.last())
        .copied()
        .unwrap_or_default()
}
