//! `MySQL::Database` and `MySQL::ResultSet`: the classes of mruby-mysql.
//!
//! A result is read whole before the script goes on; `ResultSet#next` gives row after row of it and
//! never waits. Dates come as parts and become a Time in Ruby, which shows the digits the server
//! sent whatever the time zone is.

use std::any::Any;
use std::cell::{Cell as Held, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mruby::{Answer, Datum, MethodOf, Takes};

use super::chapter::{Chapter, InRuby, Method, takes};
use super::entries::{Native, holder, module};
use super::native::{answered, holding, wait_for};
use super::stores::{fits, raised, session, stores};
use crate::state::NativeCall;
use crate::wait::Woken;
use stores::mysql::{self, Cell, Database, Login, Table};
use stores::{Address, Error, Kind};

const DATABASE: &[&str] = &["MySQL::Database"];
const RESULT: &[&str] = &["MySQL::ResultSet"];

/// Requests of which it is known what their last statement changed.
const CHANGED_MAX: usize = 4_096;

/// What a `MySQL::Database` holds.
struct DatabaseHandle {
    database: Rc<Database>,
    /// What messages call it.
    name: Rc<str>,
    /// By request: rows changed last, and the id given last.
    changed: Rc<RefCell<BTreeMap<u64, (u64, u64)>>>,
}

/// What a `MySQL::ResultSet` holds.
struct Rows {
    table: RefCell<Table>,
    next: Held<usize>,
    /// Whether the row given last has parts of times in it.
    has_times: Held<bool>,
}

const fn method(
    classes: &'static [&'static str],
    name: &'static [&'static str],
    takes: Takes,
    waits: &'static str,
    doc: &'static str,
    native: Native,
) -> Method {
    Method {
        classes,
        names: name,
        of: MethodOf::Object,
        takes,
        arguments: "",
        waits,
        doc,
        native,
    }
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "MySQL",
    text: "MySQL and MariaDB. One object may be kept in `Userdata` and used by many requests at \
           once: each statement takes a connection (all objects with the same login share them, and \
           plain `SELECT`s that are not slow go over one together), and a transaction \
           belongs to the request that began it and is undone when that ends. Integers, Floats and Strings come as \
           they are, NULL as `nil`, dates and times as Time in the server's digits (a TIME counts \
           from 1970-01-01), DECIMAL and the rest as String. Connecting raises RuntimeError, as \
           does a statement that cannot be prepared (SQLSTATE 42: its grammar, a table that is not \
           there); one the server refuses to execute raises ArgumentError; after a lost connection the next call \
           connects anew.",
    classes: &[
        module("MySQL"),
        holder("MySQL::Database"),
        holder("MySQL::ResultSet"),
    ],
    constants: &[],
    methods: METHODS,
    in_ruby: &[
        InRuby {
            name: "MySQL::Database.new",
            arguments: "host, user, password, database, port = 3306, socket = nil",
            waits: "the connection",
            doc: "Connects. With a `socket` and `localhost` as host it goes over the Unix socket.",
        },
        InRuby {
            name: "MySQL::Database#execute",
            arguments: "sql, *values { |row, fields| }",
            waits: "the result",
            doc: "Runs a statement with its values for `?`. Answers a ResultSet, or `nil` where there \
                  is no result. With a block, calls it for each row and answers `nil`.",
        },
        InRuby {
            name: "MySQL::Database#execute_batch",
            arguments: "sql, *values",
            waits: "the result",
            doc: "Runs a statement and answers 0.",
        },
        InRuby {
            name: "MySQL::ResultSet#next",
            arguments: "",
            waits: "",
            doc: "The next row, an Array, or `nil`.",
        },
    ],
    prelude: "
class MySQL::Database
  def initialize(host, user, password, database, port = nil, socket = nil, flags = nil)
    __open(host, user, password, database, port, socket)
    __connect
  end
  def execute(sql, *values)
    result = __execute(sql, *values)
    return result unless result && block_given?
    fields = result.fields
    while row = result.next
      yield row, fields
    end
    result.close
    nil
  end
  def execute_batch(sql, *values)
    __execute(sql, *values)
    0
  end
end
class MySQL::ResultSet
  def next
    row = __next
    return row unless __has_times
    row.map do |value|
      next value unless value.is_a?(Array)
      value.size == 2 ? Time.local(1970) + value[0] + value[1] / 1_000_000.0 : Time.local(*value)
    end
  end
end
",
};

const METHODS: &[Method] = &[
    method(DATABASE, &["__open"], takes(6, 6), "", "", open),
    method(DATABASE, &["__connect"], takes(0, 0), "", "", connect),
    method(DATABASE, &["__execute"], takes(1, 64), "", "", execute),
    method(
        DATABASE,
        &["last_insert_rowid"],
        takes(0, 0),
        "",
        "The AUTO_INCREMENT value this request's last statement was given.",
        |call| changed(call, |(_, id)| id),
    ),
    method(
        DATABASE,
        &["changes"],
        takes(0, 0),
        "",
        "How many rows this request's last statement changed.",
        |call| changed(call, |(rows, _)| rows),
    ),
    method(
        DATABASE,
        &["transaction"],
        takes(0, 0),
        "the server",
        "Begins a transaction: this request's statements keep one connection until it ends.",
        |call| transact(call, TransactionStep::Begin),
    ),
    method(
        DATABASE,
        &["commit"],
        takes(0, 0),
        "the server",
        "Makes this request's transaction last.",
        |call| transact(call, TransactionStep::Commit),
    ),
    method(
        DATABASE,
        &["rollback"],
        takes(0, 0),
        "the server",
        "Undoes this request's transaction.",
        |call| transact(call, TransactionStep::Rollback),
    ),
    method(
        DATABASE,
        &["close"],
        takes(0, 0),
        "",
        "Undoes an open transaction; what is called later raises RuntimeError. Connections belong to \
         all objects with the same login.",
        close,
    ),
    method(RESULT, &["__next"], takes(0, 0), "", "", next),
    method(RESULT, &["__has_times"], takes(0, 0), "", "", |call| {
        with(call, |rows| Answer::Bool(rows.has_times.get()))
    }),
    method(
        RESULT,
        &["fields"],
        takes(0, 0),
        "",
        "Names of the columns.",
        fields,
    ),
    method(
        RESULT,
        &["eof?"],
        takes(0, 0),
        "",
        "Whether every row was given.",
        |call| with(call, |rows| Answer::Bool(rows.left() == 0)),
    ),
    method(
        RESULT,
        &["close"],
        takes(0, 0),
        "",
        "Lets the rows go.",
        |call| {
            with(call, |rows| {
                rows.table.borrow_mut().rows = Vec::new();
                Answer::Nil
            })
        },
    ),
];

fn open(call: &mut NativeCall<'_>) -> Answer {
    answered(login(call).map(|login| {
        let handle = DatabaseHandle {
            database: stores(call).mysql(&login),
            name: format!("MySQL {}", login.address).into(),
            changed: Rc::default(),
        };
        Answer::Attach(Rc::new(handle) as Rc<dyn Any>)
    }))
}

fn login(call: &NativeCall<'_>) -> Result<Login, Answer> {
    let text = |index: usize, what: &str| match (call.kind(index), call.bytes(index)) {
        (mruby::Kind::Nil, _) => Ok(String::new()),
        (_, Some(bytes)) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(Answer::type_error(format!("{what} of MySQL is a String"))),
    };
    let (host, socket) = (text(0, "the host")?, text(5, "the socket")?);
    let port = match call.int(4) {
        None | Some(0) => Some(mysql::DEFAULT_PORT),
        Some(port) => u16::try_from(port).ok(),
    };
    let local = host.is_empty() || host == "localhost";
    let address = match (socket.is_empty(), local, port) {
        (false, true, _) => Ok(Address::unix(&socket)),
        (_, true, Some(port)) => Address::tcp("localhost", port),
        (_, false, Some(port)) => Address::tcp(&host, port),
        (_, _, None) => return Err(Answer::argument_error("a port is between 1 and 65535")),
    };
    Ok(Login {
        address: address.map_err(|error| Answer::runtime_error(error.to_string()))?,
        user: text(1, "the user")?,
        password: text(2, "the password")?,
        database: text(3, "the database")?,
        tls: None,
    })
}

fn connect(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.attached::<DatabaseHandle>() else {
        return unopened();
    };
    if handle.database.is_connected() {
        return Answer::Nil;
    }
    let connected = handle.database.connect();
    wait_for(call, Rc::clone(&handle.name), async move {
        match connected.await {
            Ok(()) => Woken::Value(Datum::Nil),
            Err(error) => raised("RuntimeError", &error),
        }
    })
}

fn execute(call: &mut NativeCall<'_>) -> Answer {
    answered(start(call))
}

fn start(call: &mut NativeCall<'_>) -> Result<Answer, Answer> {
    let handle = call.attached::<DatabaseHandle>().ok_or_else(unopened)?;
    fits(call, "a statement with its values")?;
    let sql = call.bytes(0).map(<[u8]>::to_vec);
    let sql = sql.ok_or_else(|| Answer::type_error("a statement is a String"))?;
    let values = (1..call.count()).map(|index| bound(call.datum(index)));
    let values = values.collect::<Result<Vec<Cell>, Answer>>()?;
    let session = session(call)?;
    let answer = handle.database.execute(session, sql, values);
    Ok(wait_for(call, Rc::clone(&handle.name), async move {
        match answer.await {
            Ok(answer) => {
                handle.note(session.0, (answer.affected, answer.last_insert_id));
                answer.table.map_or(Woken::Value(Datum::Nil), |table| {
                    let rows = Rows {
                        table: RefCell::new(table),
                        next: Held::new(0),
                        has_times: Held::new(false),
                    };
                    Woken::Object("MySQL::ResultSet", Rc::new(rows))
                })
            }
            Err(error) => raised(class(&error), &error),
        }
    }))
}

/// A value for a `?`.
fn bound(value: Datum) -> Result<Cell, Answer> {
    match value {
        Datum::Nil => Ok(Cell::Nil),
        Datum::Bool(truth) => Ok(Cell::Int(truth.into())),
        Datum::Int(number) => Ok(Cell::Int(number)),
        Datum::Float(number) => Ok(Cell::Float(number)),
        Datum::Bytes(bytes) | Datum::Symbol(bytes) => Ok(Cell::Bytes(bytes)),
        _ => Err(Answer::type_error(
            "a value for a statement is nil, true, false, a number, a String or a Symbol: for a \
             Time write it as the server reads it",
        )),
    }
}

impl DatabaseHandle {
    /// Notes what a request's statement changed; the oldest request's is forgotten for it.
    fn note(&self, serial: u64, figures: (u64, u64)) {
        let mut changed = self.changed.borrow_mut();
        // Of who is not known, nothing was changed.
        if figures == (0, 0) {
            changed.remove(&serial);
            return;
        }
        if changed.len() >= CHANGED_MAX && !changed.contains_key(&serial) {
            changed.pop_first();
        }
        changed.insert(serial, figures);
    }
}

fn changed(call: &mut NativeCall<'_>, which: fn((u64, u64)) -> u64) -> Answer {
    let Some(handle) = call.attached::<DatabaseHandle>() else {
        return unopened();
    };
    let serial = holding(call).serial();
    let figures = handle.changed.borrow().get(&serial).copied();
    let figure = which(figures.unwrap_or_default());
    Answer::Int(i64::try_from(figure).unwrap_or(i64::MAX))
}

#[derive(Clone, Copy)]
enum TransactionStep {
    Begin,
    Commit,
    Rollback,
}

fn transact(call: &mut NativeCall<'_>, step: TransactionStep) -> Answer {
    let Some(handle) = call.attached::<DatabaseHandle>() else {
        return unopened();
    };
    let session = match session(call) {
        Ok(session) => session,
        Err(raise) => return raise,
    };
    wait_for(call, Rc::clone(&handle.name), async move {
        let database = &handle.database;
        let done = match step {
            TransactionStep::Begin => database.transaction(session).await,
            TransactionStep::Commit => database.commit(session).await,
            TransactionStep::Rollback => database.rollback(session).await,
        };
        match done {
            Ok(()) => Woken::Value(Datum::Nil),
            Err(error) => raised("RuntimeError", &error),
        }
    })
}

fn close(call: &mut NativeCall<'_>) -> Answer {
    match call.attached::<DatabaseHandle>() {
        Some(handle) => {
            handle.database.close();
            Answer::Nil
        }
        None => unopened(),
    }
}

impl Rows {
    fn left(&self) -> usize {
        self.table
            .borrow()
            .rows
            .len()
            .saturating_sub(self.next.get())
    }
}

fn next(call: &mut NativeCall<'_>) -> Answer {
    with(call, |rows| {
        let index = rows.next.get();
        let mut table = rows.table.borrow_mut();
        rows.has_times.set(false);
        let Some(row) = table.rows.get_mut(index).map(std::mem::take) else {
            return Answer::Nil;
        };
        rows.next.set(index + 1);
        let shown: Vec<Datum> = row.into_iter().map(shown).collect();
        let is_time = |value: &Datum| matches!(value, Datum::Array(_));
        rows.has_times.set(shown.iter().any(is_time));
        Answer::Datum(Datum::Array(shown))
    })
}

fn fields(call: &mut NativeCall<'_>) -> Answer {
    with(call, |rows| {
        let table = rows.table.borrow();
        let names = table.fields.iter().map(|name| Datum::from(name.as_str()));
        Answer::Datum(Datum::Array(names.collect()))
    })
}

fn with(call: &mut NativeCall<'_>, act: impl FnOnce(&Rows) -> Answer) -> Answer {
    match call.attached::<Rows>() {
        Some(rows) => act(&rows),
        None => Answer::argument_error("a ResultSet comes from MySQL::Database#execute"),
    }
}

/// A value of a row; times in parts, of which Ruby makes a Time.
fn shown(cell: Cell) -> Datum {
    let parts = |numbers: &[i64]| Datum::Array(numbers.iter().copied().map(Datum::Int).collect());
    match cell {
        Cell::Nil => Datum::Nil,
        Cell::Int(number) => Datum::Int(number),
        Cell::Float(number) => Datum::Float(number),
        Cell::Bytes(bytes) => Datum::Bytes(bytes),
        // No day has these numbers: MySQL's zero date.
        Cell::Time(at) if at.month == 0 || at.day == 0 => Datum::Nil,
        Cell::Time(at) => parts(&[
            at.year.into(),
            at.month.into(),
            at.day.into(),
            at.hour.into(),
            at.minute.into(),
            at.second.into(),
            at.micros.into(),
        ]),
        Cell::Span(span) => {
            let sign = if span.negative { -1 } else { 1 };
            let seconds = i64::try_from(span.seconds).unwrap_or(i64::MAX);
            parts(&[sign * seconds, sign * i64::from(span.micros)])
        }
    }
}

/// The class of the exception for a statement that did not work out.
fn class(error: &Error) -> &'static str {
    match error.kind() {
        Kind::Server | Kind::Argument => "ArgumentError",
        _ => "RuntimeError",
    }
}

fn unopened() -> Answer {
    Answer::runtime_error("this MySQL::Database was made without MySQL::Database.new")
}
