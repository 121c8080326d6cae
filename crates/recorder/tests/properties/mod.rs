//! What holds for any bytes, for the property tests and the fuzz targets.

use jiff::tz::TimeZone;
use recorder::line::{read, read_asked};
use recorder::{
    DayFigures, Fold, LineFate, ListOf, LogReader, NAMES_MAX, ReadingOptions, SaltPeriod, Salts,
};

/// 2100-01-01T00:00:00Z: no salt of a line is one of now, so none is stored.
const NOW_US: i64 = 4_102_444_800_000_000;

/// Of any lines those that are taken are counted, and lists keep within their bounds.
pub(crate) fn log_lines(bytes: &[u8]) {
    let nowhere = std::path::Path::new("/nonexistent");
    let salts = Salts::open(nowhere, SaltPeriod::Week, i32::MAX / 2, || Ok([3; 16]));
    let options = ReadingOptions {
        searches: vec!["q".into(), "s".into()],
        ..ReadingOptions::default()
    };
    let mut reader = LogReader::new(options, salts.expect("there is none"), [5; 16]);
    let mut fold = Fold::new(TimeZone::UTC, Vec::new());
    let mut taken = 0;
    for line in String::from_utf8_lossy(bytes).lines() {
        let _ = (read(line), read_asked(line));
        taken += u64::from(matches!(
            reader.take(line, NOW_US, &mut fold),
            Ok(LineFate::Taken)
        ));
    }
    let mut requests = 0_u64;
    for (site, _, piece) in fold.pieces() {
        assert!(recorder::is_site_name(site), "{site}");
        let mut day = DayFigures::default();
        day.absorb(piece.stored(), recorder::PartsWanted::ALL);
        day.trim(NAMES_MAX);
        requests = requests.saturating_add(day.total.requests);
        let statuses = day.list(ListOf::Statuses).total();
        assert_eq!(statuses.unsigned_abs(), day.total.requests);
        for list in &day.lists {
            assert!(list.ranked().len() <= NAMES_MAX);
            assert!(list.ranked().iter().all(|(name, _)| name.len() <= 256));
        }
    }
    assert!(requests >= taken, "{requests} of {taken}");
}
