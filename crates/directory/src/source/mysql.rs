//! MySQL and MariaDB, by the client of the gateway's scripts.

use std::rc::Rc;

use ipc::directory::ServerSettings;
use stores::mysql::{Cell, Database, Login};
use stores::{Address, ServerTls, Session, Stores};

use super::{Answered, Queries, Question, WRONG_TYPE, tls};
use crate::judge::RawRow;

/// A database.
pub(crate) struct Mysql {
    database: Rc<Database>,
    pub(super) queries: Queries,
}

impl Mysql {
    pub(super) fn new(
        server: &ServerSettings,
        queries: Queries,
        stores: &Rc<Stores>,
    ) -> Result<Mysql, String> {
        let address = match server.port {
            Some(port) => Address::tcp(&server.host, port).map_err(|error| error.to_string())?,
            None => Address::unix(&server.host),
        };
        let tls = server.tls.as_deref().map(tls::client_config).transpose()?;
        let login = Login {
            address,
            user: server.user.clone(),
            password: server.password.clone().unwrap_or_default(),
            database: server.database.clone(),
            tls: tls.map(ServerTls),
        };
        Ok(Mysql {
            database: stores.mysql(&login),
            queries,
        })
    }

    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answered, String> {
        let query = self.queries.of_question(question)?;
        let bind = match question {
            Question::Host(text) | Question::After(text) => Cell::Bytes(text.into()),
            Question::Since(number) => Cell::Int(number),
        };
        let binds = vec![bind; query.count];
        let sql = query.text.clone().into_bytes();
        let answer = self.database.execute(Session(0), sql, binds).await;
        let table = answer.map_err(|error| error.to_string())?.table;
        let table = table.ok_or("the query gives no rows: it is no SELECT")?;
        let row = |cells: Vec<Cell>| {
            let names = table.fields.iter().cloned();
            names.zip(cells.into_iter().map(text)).collect()
        };
        let rows = table.rows.into_iter().take(question.rows_max());
        let rows: Vec<RawRow> = rows.map(row).collect();
        let columns = table.fields.iter().cloned().collect();
        Ok(Answered {
            columns: Some(columns),
            rows,
        })
    }
}

fn text(cell: Cell) -> Result<Option<String>, String> {
    match cell {
        Cell::Nil => Ok(None),
        Cell::Int(number) => Ok(Some(number.to_string())),
        Cell::Bytes(bytes) => {
            let text = String::from_utf8(bytes);
            text.map(Some)
                .map_err(|_| "is not text in UTF-8".to_owned())
        }
        Cell::Float(_) | Cell::Time(_) | Cell::Span(_) => Err(WRONG_TYPE.to_owned()),
    }
}
