//! Where tables are: each source answers the same three questions.
//!
//! The idea: a question has one parameter, which goes beside its text and never into it. What comes back are
//! rows of columns, each a text, nothing, or a complaint about its type, so that a wrong value costs its
//! row alone. Rows, bytes and times of each have a bound.

mod file;
mod mysql;
mod postgres;
mod sqlite;
pub(crate) mod tls;

use std::rc::Rc;
use std::time::Duration;

use config::model::{AFTER_PARAMETER, HOST_PARAMETER, SINCE_PARAMETER, with_placeholder};
use ipc::directory::{ChangesSettings, DirectorySettings, SourceSettings};
use stores::Stores;

use crate::judge::RawRow;
pub(crate) use file::{FileTable, host as host_of, row_of_json};
use mysql::Mysql;
pub(crate) use postgres::{Postgres, PostgresLogin, told};
use sqlite::Sqlite;

/// Rows of an answer that lists many.
pub(crate) const ROWS_MAX: usize = 10_000;
/// Rows of an answer for one host: the second of its own is wrong, and some may be of hosts that the source takes for
/// equal.
pub(crate) const ROWS_OF_HOST_MAX: usize = 16;
/// What is said of a value of another kind.
const WRONG_TYPE: &str = "is neither a text nor a whole number: cast it in the query";

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question<'a> {
    /// The rows of a host.
    Host(&'a str),
    /// Rows behind a host.
    After(&'a str),
    /// Changes above a number.
    Since(i64),
}

/// What is answered.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// The columns that each row has, whether or not there is a row; `None` where each may have others.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) rows: Vec<RawRow>,
}

/// Those of the columns that are wanted which are not among those there are, as one says them.
pub(crate) fn lacking(columns: Option<&[String]>, wanted: &[String]) -> Option<String> {
    let columns = columns?;
    let is_lacking = |name: &&str| !columns.iter().any(|it| it.eq_ignore_ascii_case(name));
    let lacking = wanted.iter().map(String::as_str).filter(is_lacking);
    let lacking: Vec<_> = lacking.collect();
    (!lacking.is_empty()).then(|| lacking.join("`, `"))
}

/// A query as its database takes it, and how often its parameter stands there.
#[derive(Debug, Clone, Default)]
struct Query {
    text: String,
    count: usize,
}

/// The queries of a source.
#[derive(Debug, Clone)]
struct Queries {
    host: Query,
    all: Option<Query>,
    changes: Option<Query>,
}

impl Queries {
    fn of(settings: &DirectorySettings, placeholder: &str) -> Queries {
        let place = |text: &str, parameter| {
            let placed = with_placeholder(text, parameter, placeholder);
            let text = placed.text.trim().trim_end_matches(';').to_owned();
            Query {
                text,
                count: placed.count,
            }
        };
        let changes = settings.changes.as_ref().and_then(|changes| match changes {
            ChangesSettings::Query(text) => Some(place(text, SINCE_PARAMETER)),
            ChangesSettings::Listen(_) => None,
        });
        Queries {
            host: place(&settings.query, HOST_PARAMETER),
            all: settings
                .all
                .as_deref()
                .map(|text| place(text, AFTER_PARAMETER)),
            changes,
        }
    }

    fn of_question(&self, question: Question<'_>) -> Result<&Query, String> {
        let query = match question {
            Question::Host(_) => Some(&self.host),
            Question::After(_) => self.all.as_ref(),
            Question::Since(_) => self.changes.as_ref(),
        };
        query.ok_or_else(|| "no query is there for that".to_owned())
    }
}

impl Question<'_> {
    fn rows_max(self) -> usize {
        match self {
            Question::Host(_) => ROWS_OF_HOST_MAX,
            Question::After(_) | Question::Since(_) => ROWS_MAX,
        }
    }
}

/// A table that can be asked.
pub(crate) enum RowSource {
    Mysql(Mysql),
    Postgres(Postgres),
    Sqlite(Sqlite),
    File(FileTable),
}

impl RowSource {
    /// Makes ready to ask; nothing is connected yet.
    pub(crate) fn new(
        settings: &DirectorySettings,
        stores: &Rc<Stores>,
    ) -> Result<RowSource, String> {
        let wait = Duration::from_millis(settings.wait_ms);
        Ok(match &settings.source {
            SourceSettings::Mysql(server) => {
                RowSource::Mysql(Mysql::new(server, Queries::of(settings, "?"), stores)?)
            }
            SourceSettings::Postgres(server) => RowSource::Postgres(Postgres::new(
                server.clone(),
                Queries::of(settings, "$1"),
                wait,
            )?),
            SourceSettings::Sqlite(path) => {
                RowSource::Sqlite(Sqlite::new(path.clone(), Queries::of(settings, "?1"), wait))
            }
            SourceSettings::Csv(path) => {
                RowSource::File(FileTable::new(path.clone(), file::Format::Csv))
            }
            SourceSettings::JsonLines(path) => {
                RowSource::File(FileTable::new(path.clone(), file::Format::JsonLines))
            }
        })
    }

    /// Asks; whoever waits no longer drops it.
    pub(crate) async fn ask(&self, question: Question<'_>) -> Result<Answered, String> {
        match self {
            RowSource::Mysql(mysql) => mysql.ask(question).await,
            RowSource::Postgres(postgres) => postgres.ask(question).await,
            RowSource::Sqlite(sqlite) => sqlite.ask(question).await,
            RowSource::File(table) => table.ask(question).await,
        }
    }

    /// What is said where columns are not there that are wanted.
    pub(crate) fn lacks(&self, query: &str, names: &str) -> String {
        let what = match self {
            RowSource::File(_) => "the file",
            _ => query,
        };
        format!("{what} has no column `{names}`, which the site of its rows uses")
    }

    /// Gives up connections after a question that was not answered in time.
    pub(crate) fn give_up(&self) {
        if let RowSource::Postgres(postgres) = self {
            postgres.give_up();
        }
    }

    /// Whether all rows can be listed.
    pub(crate) fn lists_all(&self, settings: &DirectorySettings) -> bool {
        settings.all.is_some() || matches!(self, RowSource::File(_))
    }

    /// Whether rows are listed page by page.
    pub(crate) fn has_pages(&self) -> bool {
        let queries = match self {
            RowSource::Mysql(mysql) => &mysql.queries,
            RowSource::Postgres(postgres) => &postgres.queries,
            RowSource::Sqlite(sqlite) => &sqlite.queries,
            RowSource::File(_) => return true,
        };
        queries.all.as_ref().is_some_and(|all| all.count > 0)
    }
}
