//! What holds for any pattern and text of a script, for the replayed corpus and the fuzz target.

use pattern::{Budget, Flags, Pattern};

/// A pattern and a text, with a NUL between: a match lies in the text, is found again from where
/// it begins, and looking from behind finds one as well.
pub(crate) fn pattern(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let source = parts.next().unwrap_or_default();
    let text = parts.next().unwrap_or_default();
    let Ok(source) = std::str::from_utf8(source) else {
        return;
    };
    let flags = Flags {
        ignore_case: bytes.len() % 2 == 1,
        extended: bytes.len() % 3 == 1,
        multiline: bytes.len() % 5 == 1,
        whole_text: bytes.len() % 7 == 1,
    };
    let Ok(pattern) = Pattern::new(source, flags) else {
        return;
    };
    let find = |from| {
        let mut budget = Budget::of_text(text.len());
        pattern.find(text, from, &mut budget)
    };
    let Ok(Some(spans)) = find(0) else {
        return;
    };
    assert_eq!(spans.iter().count(), pattern.groups() + 1);
    for (from, to) in spans.iter().flatten() {
        assert!(from <= text.len() && to <= text.len());
    }
    let mut budget = Budget::of_text(text.len());
    if let Ok(last) = pattern.find_last(text, text.len(), &mut budget) {
        // `\G` holds elsewhere then.
        assert!(last.is_some() || source.contains("G"), "{source}");
    }
}
