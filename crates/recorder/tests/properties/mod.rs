//! What holds for any bytes, for the property tests and the fuzz targets.

use ipc::console::{ConsoleQuestion, ConsoleScope, TenantSites};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use recorder::line::{read, read_asked};
use recorder::{
    ConsoleMoment, DayFigures, FigureStore, Fold, LineFate, ListOf, LogReader, NAMES_MAX,
    ReadingOptions, SaltPeriod, Salts, answer,
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

thread_local! {
    /// Figures of nobody, in a directory that is gone when they are open.
    static NOTHING: FigureStore = {
        let own = (std::process::id(), std::thread::current().id());
        let directory = std::env::temp_dir().join(format!("nagaya-asked-{own:?}"));
        let store = FigureStore::open(&directory, 0).expect("it opens").0;
        let _ = std::fs::remove_dir_all(directory);
        store
    };
}

/// Whatever is asked is answered: with a page, or that there is none, or that it is not understood; and no word
/// of it is more than text. Path, query and the languages of a client stand each in a line.
pub(crate) fn console_question(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n').map(str::to_owned);
    let mut next = || lines.next().unwrap_or_default();
    let mut question = ConsoleQuestion {
        base: "/console/".into(),
        path: next(),
        query: next(),
        accept_language: next(),
        ..ConsoleQuestion::default()
    };
    let moment = ConsoleMoment {
        now: Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC),
        salt: SaltPeriod::Day,
        live: None,
        heard: None,
        outlook: None,
        archive: None,
    };
    let tea = TenantSites {
        tenant: "tea".into(),
        sites: vec!["tea.example".into()],
    };
    for scope in [ConsoleScope::All, ConsoleScope::Tenants(vec![tea])] {
        question.scope = scope;
        let answer = NOTHING.with(|store| answer(store, &question, &moment));
        assert!(
            [200, 400, 404].contains(&answer.status),
            "{}",
            answer.status
        );
        if answer.content_type.starts_with("text/html") {
            let body = &answer.body;
            let scripts = body.split("<script").skip(1);
            assert!(scripts.clone().all(|it| it.contains("EventSource")));
            assert!(scripts.count() <= 1 && !body.contains('\0'));
        }
    }
}
