//! A database of SQLite, read on a thread beside the runtime.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, ToSql};

use super::{Answered, Queries, Question, WRONG_TYPE};
use crate::users::own_name;

/// Steps of a query after which the time is looked at.
const STEPS: i32 = 10_000;

/// A database.
pub(crate) struct Sqlite {
    path: PathBuf,
    pub(super) queries: Queries,
    wait: Duration,
    open: Arc<Mutex<Option<OpenFile>>>,
}

/// A connection to the file that has this device and number.
struct OpenFile {
    file: (u64, u64),
    connection: Connection,
}

impl Sqlite {
    pub(super) fn new(path: PathBuf, queries: Queries, wait: Duration) -> Sqlite {
        Sqlite {
            path,
            queries,
            wait,
            open: Arc::default(),
        }
    }

    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answered, String> {
        let query = self.queries.of_question(question)?.clone();
        let parameter: Box<dyn ToSql + Send> = match question {
            Question::Host(text) | Question::After(text) => Box::new(text.to_owned()),
            Question::Since(number) => Box::new(number),
        };
        let (open, path, wait) = (Arc::clone(&self.open), self.path.clone(), self.wait);
        let rows_max = question.rows_max();
        let asked = tokio::task::spawn_blocking(move || {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            let connection = connection(&mut open, &path, wait)?;
            let until = Instant::now() + wait;
            let is_late = move || Instant::now() >= until;
            let parameter = (query.count > 0).then_some(&*parameter as &dyn ToSql);
            let asked = connection
                .progress_handler(STEPS, Some(is_late))
                .and_then(|()| rows(connection, &query.text, parameter, rows_max));
            asked.map_err(|error| error.to_string())
        });
        asked.await.map_err(|_| "it cannot be asked".to_owned())?
    }
}

/// The connection, made anew where another file has its name.
fn connection<'a>(
    open: &'a mut Option<OpenFile>,
    path: &Path,
    wait: Duration,
) -> Result<&'a Connection, String> {
    let whose = |why: String| format!("{why}, for user {}", own_name());
    let metadata = path.metadata();
    let metadata = metadata.map_err(|error| whose(config::reason(&error)))?;
    let file = (metadata.dev(), metadata.ino());
    if open.as_ref().is_none_or(|open| open.file != file) {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let made = Connection::open_with_flags(path, flags)
            .and_then(|connection| connection.busy_timeout(wait).map(|()| connection));
        let connection = made.map_err(|error| whose(error.to_string()))?;
        *open = Some(OpenFile { file, connection });
    }
    let open = open.as_ref().map(|open| &open.connection);
    open.ok_or_else(|| "it cannot be opened".to_owned())
}

fn rows(
    connection: &Connection,
    sql: &str,
    parameter: Option<&dyn ToSql>,
    rows_max: usize,
) -> rusqlite::Result<Answered> {
    let mut statement = connection.prepare_cached(sql)?;
    let names: Vec<String> = statement
        .column_names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let parameters: Vec<&dyn ToSql> = parameter.into_iter().collect();
    let mut found = statement.query(&*parameters)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let columns = names.iter().enumerate();
        let columns = columns.map(|(at, name)| Ok((name.clone(), text(row.get_ref(at)?))));
        rows.push(columns.collect::<rusqlite::Result<_>>()?);
        if rows.len() >= rows_max {
            break;
        }
    }
    drop(found);
    Ok(Answered {
        columns: Some(names),
        rows,
    })
}

fn text(value: ValueRef<'_>) -> Result<Option<String>, String> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number.to_string())),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err("is not text in UTF-8".to_owned()),
        },
        ValueRef::Real(_) | ValueRef::Blob(_) => Err(WRONG_TYPE.to_owned()),
    }
}
