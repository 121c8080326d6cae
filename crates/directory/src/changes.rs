//! What a directory does of itself: it fills the snapshot, and hears of changes.
//!
//! The idea: a loop each that never ends and never hurries: what fails is tried again after a rest, and a list
//! is read a page at a time, so that neither memory nor the database is taken by it.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use ipc::directory::ChangesSettings;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::asker::Asker;
use crate::judge::RawRow;
use crate::snapshot::{Change, now_ms};
use crate::source::{Question, ROWS_MAX, RowSource, host_of, lacking};

/// How often changes are asked for, and files looked at.
const POLL: Duration = Duration::from_secs(1);
/// How long after a failure one tries again.
const REST: Duration = Duration::from_secs(5);
/// How often everything is listed.
const FILL: Duration = Duration::from_secs(3_600);
/// How long one page may take.
const PAGE_WAIT: Duration = Duration::from_secs(60);
/// Pages of one filling: 100 million rows of a thousand a page.
const PAGES_MAX: usize = 100_000;
/// Messages that wait to be heard.
const NOTICES_MAX: usize = 10_000;
/// How many numbers are looked at again, since what they stand for may have been committed late.
const LATE: i64 = 100;
/// The fact of the snapshot: the highest number of a change.
const SINCE: &str = "since";

/// Begins what a directory does of itself.
pub(crate) fn begin(asker: &Rc<Asker>) {
    if asker.snapshot.is_some() && asker.source.lists_all(&asker.settings) {
        tokio::task::spawn_local(fill_again(Rc::clone(asker)));
    }
    match (&asker.settings.changes, &asker.source) {
        (_, RowSource::File(_)) => drop(tokio::task::spawn_local(look(Rc::clone(asker)))),
        (Some(ChangesSettings::Query(_)), _) => {
            drop(tokio::task::spawn_local(poll(Rc::clone(asker))))
        }
        (Some(ChangesSettings::Listen(channel)), RowSource::Postgres(_)) => {
            drop(tokio::task::spawn_local(listen(
                Rc::clone(asker),
                channel.clone(),
            )));
        }
        (Some(ChangesSettings::Listen(_)) | None, _) => {}
    }
}

async fn fill_again(asker: Rc<Asker>) {
    loop {
        match fill(&asker).await {
            Ok(()) => sleep(FILL).await,
            Err(why) => {
                asker.complain(&why);
                sleep(REST).await;
            }
        }
    }
}

/// Writes every row into the snapshot, and forgets those that are not there any more.
async fn fill(asker: &Rc<Asker>) -> Result<(), String> {
    fill_by(asker, now_ms).await
}

/// The same by a clock, which may be put back while pages are read: what is written is never older than when it began.
async fn fill_by(asker: &Rc<Asker>, clock: impl Fn() -> i64) -> Result<(), String> {
    let mut begun_ms = clock();
    let (mut pages, mut last) = (Pages::default(), None);
    loop {
        let (asked, asked_ms) = (Instant::now(), clock());
        begun_ms = begun_ms.min(asked_ms);
        let Some(page) = pages.next(asker).await? else {
            break;
        };
        let columns = pages.columns.as_deref();
        if let Some(names) = lacking(columns, &asker.settings.columns) {
            return Err(asker.source.lacks("`all`", &names));
        }
        let hosts = page
            .into_iter()
            .filter_map(|row| Some((host_of(&row).ok()?, row)));
        let mut hosts: Vec<_> = hosts.collect();
        hosts.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (host, row) in hosts {
            let is_second = last.as_ref() == Some(&host);
            let change = match asker.judged_text(&host, row) {
                _ if is_second => Err("there are two rows".to_owned()),
                Ok(columns) => Ok(Change::Row(host.clone(), asked_ms, columns)),
                Err(why) => Err(why),
            };
            if let Err(why) = &change {
                asker.warn(&host, why);
            }
            // What has changed since the page was asked for is asked for by itself.
            if !asker.distrusts(&host, asked.elapsed()) {
                put(asker, change.unwrap_or_else(|_| Change::Gone(host.clone()))).await;
            }
            last = Some(host);
        }
    }
    put(asker, Change::Older(begun_ms)).await;
    Ok(())
}

/// Has something written for which there may be no room for a moment.
async fn put(asker: &Asker, change: Change) {
    let Some(snapshot) = &asker.snapshot else {
        return;
    };
    let mut change = Some(change);
    while let Some(waits) = change.take() {
        change = snapshot.put(waits).err();
        if change.is_some() {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A list, read page by page.
#[derive(Default)]
pub(crate) struct Pages {
    after: String,
    count: usize,
    is_over: bool,
    /// Which columns the last one had.
    pub(crate) columns: Option<Vec<String>>,
}

impl Pages {
    /// The next page; `None` behind the last.
    pub(crate) async fn next(&mut self, asker: &Asker) -> Result<Option<Vec<RawRow>>, String> {
        if self.is_over || self.count >= PAGES_MAX {
            return Ok(None);
        }
        let asked = timeout(PAGE_WAIT, asker.source.ask(Question::After(&self.after))).await;
        let answered = asked.map_err(|_| "`all` takes too long".to_owned())??;
        self.count += 1;
        self.columns = answered.columns;
        let rows = answered.rows;
        if !asker.source.has_pages() {
            self.is_over = true;
            if rows.len() >= ROWS_MAX {
                return Err(format!(
                    "`all` gives {ROWS_MAX} rows or more: ask page by page, with `$after`"
                ));
            }
            return Ok(Some(rows));
        }
        let last = rows.last().and_then(|row| {
            // A file's rows are in the order of their hosts as they are looked for.
            if let RowSource::File(_) = &asker.source {
                return host_of(row).ok();
            }
            let host = row
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case("host"))?;
            host.1.clone().ok().flatten()
        });
        match last {
            None if rows.is_empty() => Ok(None),
            None => Err("`all` has no column `host`".to_owned()),
            Some(last) if last == self.after => Err("`all` gives the same page again".to_owned()),
            Some(last) => {
                self.after = last;
                Ok(Some(rows))
            }
        }
    }
}

/// Looks whether a file is another.
async fn look(asker: Rc<Asker>) {
    loop {
        if let RowSource::File(table) = &asker.source {
            match table.look().await {
                Ok(true) => asker.changed(None).await,
                Ok(false) => {}
                Err(why) => asker.failed(&why),
            }
        }
        sleep(POLL).await;
    }
}

/// Asks for changes each second, and at once where there were some.
async fn poll(asker: Rc<Asker>) {
    let known = asker.snapshot.as_ref();
    let known = known.and_then(|snapshot| snapshot.fact(SINCE)?.try_into().ok());
    let mut heard = HeardChanges {
        highest: known.map_or(0, i64::from_le_bytes),
        ..HeardChanges::default()
    };
    loop {
        let before = heard.highest;
        match heard.next(&asker).await {
            Ok(hosts) => {
                for host in hosts {
                    asker.changed(Some(host)).await;
                }
            }
            Err(why) => {
                asker.complain(&why);
                sleep(REST).await;
            }
        }
        if heard.highest == before {
            sleep(POLL).await;
        } else {
            let highest = heard.highest.to_le_bytes().to_vec();
            asker.keep(Change::Fact(SINCE, highest));
        }
    }
}

/// Which changes have been heard of. One with a lower number may be there later than one with a higher: numbers are
/// given before what they stand for is committed, so that the last of them are looked at again.
#[derive(Debug, Default)]
struct HeardChanges {
    highest: i64,
    /// Those among the last.
    last: BTreeSet<i64>,
}

impl HeardChanges {
    /// The hosts that have changed since.
    async fn next(&mut self, asker: &Asker) -> Result<Vec<String>, String> {
        let late_since = self.highest.saturating_sub(LATE);
        let late = changes(ask(asker, late_since).await?, late_since)?;
        let fresh = changes(ask(asker, self.highest).await?, self.highest)?;
        if fresh.iter().any(|(_, host)| host.is_none()) {
            asker.complain("`changes` has a row without a host, which changes nothing");
        }
        Ok(self.hear(late, fresh))
    }

    fn hear(&mut self, late: Vec<HeardChange>, fresh: Vec<HeardChange>) -> Vec<String> {
        let mut hosts = Vec::new();
        for (number, host) in late.into_iter().chain(fresh) {
            if self.last.insert(number) {
                hosts.extend(host);
            }
            self.highest = self.highest.max(number);
        }
        self.last = self.last.split_off(&self.highest.saturating_sub(LATE));
        hosts
    }
}

async fn ask(asker: &Asker, since: i64) -> Result<Vec<RawRow>, String> {
    let asked = timeout(PAGE_WAIT, asker.source.ask(Question::Since(since))).await;
    let asked = asked.unwrap_or_else(|_| Err("`changes` takes too long".to_owned()));
    asked.map(|answered| answered.rows)
}

/// A change's number, and its host where it has one.
type HeardChange = (i64, Option<String>);

/// Numbers above one, and hosts.
fn changes(rows: Vec<RawRow>, since: i64) -> Result<Vec<HeardChange>, String> {
    let change = |row: RawRow| {
        let [(_, Ok(Some(number))), (_, host)] = row.as_slice() else {
            return None;
        };
        let number: i64 = number.parse().ok()?;
        let host = host.as_ref().ok().and_then(Option::as_ref);
        let host = host.map(|it| it.strip_suffix('.').unwrap_or(it).to_ascii_lowercase());
        (number > since).then_some((number, host))
    };
    let changes: Option<Vec<_>> = rows.into_iter().map(change).collect();
    changes.ok_or_else(|| "`changes` gives other than a growing number and a host".to_owned())
}

/// Listens; what was said while nobody did is unknown, so that anything may have changed.
async fn listen(asker: Rc<Asker>, channel: String) {
    loop {
        let RowSource::Postgres(postgres) = &asker.source else {
            return;
        };
        let (said, mut heard) = mpsc::channel::<String>(NOTICES_MAX);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let hearing = async {
            if is_ready.await.is_ok() {
                asker.changed(None).await;
            }
            while let Some(host) = heard.recv().await {
                let host = host.strip_suffix('.').unwrap_or(&host);
                asker.changed(Some(host.to_ascii_lowercase())).await;
            }
        };
        // Who hears goes on as long as who listens does.
        let tell = || ready.send(()).unwrap_or_default();
        let listening = postgres.listen(&channel, said, tell);
        let (listened, ()) = tokio::join!(listening, hearing);
        if let Err(why) = listened {
            asker.complain(&why);
        }
        sleep(REST).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ipc::directory::{DirectorySettings, SourceSettings};

    use super::*;

    #[test]
    fn a_clock_that_is_put_back_while_all_is_listed_costs_no_row() {
        let directory = testkit::TempDir::new();
        let path = directory.write("rows.csv", "host,tenant\na.example,anna\n");
        let settings = DirectorySettings {
            name: "d".into(),
            source: SourceSettings::Csv(path),
            query: String::new(),
            columns: Vec::new(),
            all: None,
            changes: None,
            memcached: None,
            trusts_unsigned: false,
            keep_ms: 60_000,
            stale_ms: 60_000,
            snapshot: Some(directory.path().join("kept")),
            wait_ms: 60_000,
            uid_min: 1_000,
            own_uids: Vec::new(),
            row_key: ipc::rows::RowKey::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let asker = Asker::new(settings, 0, mpsc::channel(1).0).unwrap();
            let times = Cell::new(9_000);
            let back = || times.replace(times.get() - 1_000);
            fill_by(&asker, back).await.unwrap();
            // What is told after it is written after it.
            let snapshot = asker.snapshot.as_ref().unwrap();
            assert!(snapshot.put(Change::Fact("over", Vec::new())).is_ok());
            testkit::eventually(Duration::from_secs(60), "all to be written", || {
                snapshot.fact("over")
            });
            assert!(snapshot.row("a.example").is_some());
        });
    }

    fn row(number: &str, host: &str) -> RawRow {
        let text = |text: &str| Ok(Some(text.to_owned()));
        vec![("id".into(), text(number)), ("host".into(), text(host))]
    }

    #[test]
    fn changes_are_growing_numbers_and_hosts() {
        let heard = changes(vec![row("7", "A.example."), row("9", "b.example")], 6).unwrap();
        let hosts = ["a.example", "b.example"].map(|host| Some(host.to_owned()));
        let [first, second] = hosts;
        assert_eq!(heard, [(7, first), (9, second)]);
        for wrong in [row("6", "a"), row("x", "a"), vec![("id".into(), Ok(None))]] {
            assert!(changes(vec![wrong], 6).is_err());
        }
        assert_eq!(changes(Vec::new(), 6), Ok(Vec::new()));
    }

    #[test]
    fn a_change_without_a_host_stops_no_other() {
        let mut none = row("7", "");
        none[1].1 = Ok(None);
        let rows = vec![none, row("8", "b.example")];
        let mut heard = HeardChanges::default();
        let hosts = heard.hear(vec![], changes(rows, 6).unwrap());
        assert_eq!((hosts, heard.highest), (vec!["b.example".to_owned()], 8));
    }

    #[test]
    fn a_change_that_is_committed_late_is_heard_of_once() {
        let change = |number: i64| (number, Some(number.to_string()));
        let mut heard = HeardChanges::default();
        assert_eq!(heard.hear(vec![], vec![change(5), change(7)]), ["5", "7"]);
        let again = vec![change(5), change(6), change(7)];
        assert_eq!(heard.hear(again.clone(), vec![]), ["6"]);
        assert!(heard.hear(again, vec![]).is_empty());
        assert_eq!(heard.hear(vec![], vec![change(LATE + 8)]).len(), 1);
        assert_eq!((heard.highest, heard.last.len()), (LATE + 8, 1));
    }
}
