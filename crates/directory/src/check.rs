//! Looks whether directories can be asked, and lists rows that are wrong: for operators.

use std::rc::Rc;
use std::time::Duration;

use ipc::directory::{ChangesSettings, DirectorySettings, Row, RowFrom};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::asker::Asker;
use crate::changes::Pages;
use crate::source::{Answered, Question, RowSource, host_of, lacking};

/// A host that nobody has (RFC 6761).
const NOBODY: &str = "nobody.invalid";
/// Wrong rows that are told.
const TOLD_MAX: usize = 10_000;
/// How long a first question may take.
const WAIT: Duration = Duration::from_secs(30);

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rows that were looked at.
    pub rows: u64,
    /// What is wrong: of a row its host, or of the whole.
    pub wrong: Vec<String>,
}

/// Judges the row of a host beside what it is by itself.
pub type RowCheck<'a> = &'a dyn Fn(&str, &Row) -> Result<(), String>;

/// Connects to a source, asks it once and, where `all` is wanted, judges every row; with `more`, where it is right by
/// itself.
#[must_use]
pub fn check(
    mut settings: DirectorySettings,
    tenants: &[String],
    all: bool,
    more: RowCheck<'_>,
) -> Checked {
    // Looking changes nothing.
    settings.snapshot = None;
    settings.wait_ms = settings.wait_ms.max(5_000);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let mut checked = Checked::default();
    let looked = match runtime {
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, async {
            let (words, _) = mpsc::channel(1);
            let asker = Asker::new(settings, 0, words)?;
            asker.keep_from(tenants);
            look(&asker, all.then_some(more), &mut checked).await
        }),
        Err(error) => Err(config::reason(&error)),
    };
    checked.wrong.extend(looked.err());
    checked.wrong.dedup();
    checked
}

async fn look(
    asker: &Rc<Asker>,
    all: Option<RowCheck<'_>>,
    checked: &mut Checked,
) -> Result<(), String> {
    let columns = match asked(asker, Question::Host(NOBODY)).await {
        Ok(answered) => {
            let lacks = lacking(answered.columns.as_deref(), &asker.settings.columns);
            let lacks = lacks.map(|names| asker.source.lacks("`query`", &names));
            checked.wrong.extend(lacks);
            answered.columns
        }
        Err(why) if all.is_none() => return Err(why),
        Err(why) => {
            checked.wrong.push(why);
            None
        }
    };
    if let RowSource::File(table) = &asker.source {
        checked.wrong.extend(table.broken().await?);
    }
    if let Some(ChangesSettings::Query(_)) = &asker.settings.changes {
        let asked = asked(asker, Question::Since(0)).await;
        let wrong = asked.err().map(|why| format!("`changes`: {why}"));
        checked.wrong.extend(wrong);
    }
    checked.wrong.extend(memcached_wrong(asker).await);
    match all {
        Some(more) => look_at_all(asker, columns.as_deref(), more, checked).await,
        None => Ok(()),
    }
}

/// What is wrong with the memcached that is asked first.
async fn memcached_wrong(asker: &Asker) -> Option<String> {
    let asked = timeout(WAIT, asker.memcached.as_ref()?.row(NOBODY)).await;
    let asked = asked.unwrap_or_else(|_| Err("it is silent".to_owned()));
    let why = asked.err()?;
    Some(format!("memcached does not answer: {why}"))
}

async fn asked(asker: &Rc<Asker>, question: Question<'_>) -> Result<Answered, String> {
    let asked = timeout(WAIT, asker.source.ask(question)).await;
    asked.unwrap_or_else(|_| Err("it does not answer".to_owned()))
}

/// Judges every row; `columns` are those that `query` gives.
async fn look_at_all(
    asker: &Rc<Asker>,
    columns: Option<&[String]>,
    more: RowCheck<'_>,
    checked: &mut Checked,
) -> Result<(), String> {
    if !asker.source.lists_all(&asker.settings) {
        return Err("it has no `all`, which lists every row".to_owned());
    }
    let (mut pages, mut last) = (Pages::default(), None);
    while let Some(page) = pages.next(asker).await? {
        if let (0, Some(listed)) = (checked.rows, pages.columns.as_deref())
            && asker.settings.all.is_some()
        {
            let of_all = lacking(Some(listed), &asker.settings.columns);
            let of_all = of_all.map(|names| asker.source.lacks("`all`", &names));
            let is_more = |name: &&String| !name.eq_ignore_ascii_case("host");
            let listed: Vec<_> = listed.iter().filter(is_more).cloned().collect();
            let of_query = lacking(columns, &listed)
                .map(|names| format!("`query` does not select `{names}`, which `all` does"));
            checked.wrong.extend(of_all.into_iter().chain(of_query));
        }
        for row in page {
            checked.rows += 1;
            let judged = match host_of(&row) {
                Ok(host) if last.as_ref() == Some(&host) => {
                    Err(format!("{host}: there are two rows"))
                }
                Ok(host) => {
                    let judged = asker.judged(&host, vec![row], RowFrom::Source).await;
                    let judged = judged.map_err(|why| why.text().to_owned());
                    let judged = judged.and_then(|row| row.map_or(Ok(()), |row| more(&host, &row)));
                    let judged = judged.map_err(|why| format!("{host}: {why}"));
                    last = Some(host);
                    judged
                }
                Err(why) => Err(format!("row {}: {why}", checked.rows)),
            };
            if let Err(why) = judged
                && checked.wrong.len() < TOLD_MAX
            {
                checked.wrong.push(why);
            }
        }
    }
    Ok(())
}
