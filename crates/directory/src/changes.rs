//! What a directory does of itself: it fills the snapshot, and hears of changes.
//!
//! The idea: a loop each that never ends and never hurries: what fails is tried again after a rest, and a list
//! is read a page at a time, so that neither memory nor the database is taken by it.

use std::rc::Rc;
use std::time::Duration;

use ipc::directory::ChangesSettings;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::asker::Asker;
use crate::judge::RawRow;
use crate::snapshot::{Change, now_ms};
use crate::source::{Question, ROWS_MAX, Source, host_of};

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
/// The fact of the snapshot: the highest number of a change.
const SINCE: &str = "since";

/// Begins what a directory does of itself.
pub(crate) fn begin(asker: &Rc<Asker>) {
    if asker.snapshot.is_some() && asker.source.lists_all(&asker.settings) {
        tokio::task::spawn_local(fill_again(Rc::clone(asker)));
    }
    match (&asker.settings.changes, &asker.source) {
        (_, Source::File(_)) => drop(tokio::task::spawn_local(look(Rc::clone(asker)))),
        (Some(ChangesSettings::Query(_)), _) => {
            drop(tokio::task::spawn_local(poll(Rc::clone(asker))))
        }
        (Some(ChangesSettings::Listen(channel)), Source::Postgres(_)) => {
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
                asker.failed(&why);
                sleep(REST).await;
            }
        }
    }
}

/// Writes every row into the snapshot, and forgets those that are not there any more.
async fn fill(asker: &Rc<Asker>) -> Result<(), String> {
    let begun_ms = now_ms();
    let (mut pages, mut last) = (Pages::default(), None);
    while let Some(page) = pages.next(asker).await? {
        let hosts = page
            .into_iter()
            .filter_map(|row| Some((host_of(&row).ok()?, row)));
        let mut hosts: Vec<_> = hosts.collect();
        hosts.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (host, row) in hosts {
            let is_second = last.as_ref() == Some(&host);
            let change = match asker.judged_text(row) {
                _ if is_second => Err("there are two rows".to_owned()),
                Ok(columns) => Ok(Change::Row(host.clone(), now_ms(), columns)),
                Err(why) => Err(why),
            };
            if let Err(why) = &change {
                asker.warn(&host, why);
            }
            put(asker, change.unwrap_or_else(|_| Change::Gone(host.clone()))).await;
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
}

impl Pages {
    /// The next page; `None` behind the last.
    pub(crate) async fn next(&mut self, asker: &Asker) -> Result<Option<Vec<RawRow>>, String> {
        if self.is_over || self.count >= PAGES_MAX {
            return Ok(None);
        }
        let asked = timeout(PAGE_WAIT, asker.source.ask(Question::After(&self.after))).await;
        let rows = asked.map_err(|_| "`all` takes too long".to_owned())??;
        self.count += 1;
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
        if let Source::File(table) = &asker.source {
            match table.look().await {
                Ok(true) => asker.changed(None).await,
                Ok(false) => {}
                Err(why) => asker.failed(&why),
            }
        }
        sleep(POLL).await;
    }
}

/// Asks for changes each second, and at once where a list was full.
async fn poll(asker: Rc<Asker>) {
    let known = asker
        .snapshot
        .as_ref()
        .and_then(|snapshot| snapshot.fact(SINCE));
    let known = known.and_then(|known| known.try_into().ok());
    let mut since = known.map_or(0, i64::from_le_bytes);
    loop {
        let asked = timeout(PAGE_WAIT, asker.source.ask(Question::Since(since))).await;
        let asked = asked.unwrap_or_else(|_| Err("`changes` takes too long".to_owned()));
        match asked.and_then(|rows| changes(rows, since)) {
            Ok((_, hosts)) if hosts.is_empty() => sleep(POLL).await,
            Ok((highest, hosts)) => {
                for host in hosts {
                    asker.changed(Some(host)).await;
                }
                since = highest;
                asker.keep(Change::Fact(SINCE, since.to_le_bytes().to_vec()));
            }
            Err(why) => {
                asker.failed(&why);
                sleep(REST).await;
            }
        }
    }
}

/// The highest number of a list of changes, and the hosts.
fn changes(rows: Vec<RawRow>, since: i64) -> Result<(i64, Vec<String>), String> {
    let wrong = || "`changes` gives other than a growing number and a host".to_owned();
    let (mut highest, mut hosts) = (since, Vec::new());
    for row in rows {
        let [(_, Ok(Some(number))), (_, Ok(Some(host)))] = row.as_slice() else {
            return Err(wrong());
        };
        let number: i64 = number.parse().map_err(|_| wrong())?;
        if number <= since {
            return Err(wrong());
        }
        highest = highest.max(number);
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        hosts.push(host);
    }
    Ok((highest, hosts))
}

/// Listens; what was said while nobody did is unknown, so that anything may have changed.
async fn listen(asker: Rc<Asker>, channel: String) {
    loop {
        let Source::Postgres(postgres) = &asker.source else {
            return;
        };
        let (said, mut heard) = mpsc::channel::<String>(NOTICES_MAX);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let hearing = async {
            if is_ready.await.is_ok() {
                asker.changed(None).await;
            }
            while let Some(host) = heard.recv().await {
                asker.changed(Some(host.to_ascii_lowercase())).await;
            }
        };
        // Who hears goes on as long as who listens does.
        let tell = || ready.send(()).unwrap_or_default();
        let listening = postgres.listen(&channel, said, tell);
        let (listened, ()) = tokio::join!(listening, hearing);
        if let Err(why) = listened {
            asker.failed(&why);
        }
        sleep(REST).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: &str, host: &str) -> RawRow {
        let text = |text: &str| Ok(Some(text.to_owned()));
        vec![("id".into(), text(number)), ("host".into(), text(host))]
    }

    #[test]
    fn changes_are_growing_numbers_and_hosts() {
        let heard = changes(vec![row("7", "A.example."), row("9", "b.example")], 6).unwrap();
        assert_eq!(heard, (9, vec!["a.example".into(), "b.example".into()]));
        for wrong in [row("6", "a"), row("x", "a"), vec![("id".into(), Ok(None))]] {
            assert!(changes(vec![wrong], 6).is_err());
        }
        assert_eq!(changes(Vec::new(), 6), Ok((6, Vec::new())));
    }
}
