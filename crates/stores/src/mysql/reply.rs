//! What MySQL answers to a statement: bytes in, values out, as far as they have come.
//!
//! Rows are taken in one by one, so that a long answer in many pieces is read once. Every byte may
//! be anything: numbers the server announces are bounds to what is read, never room that is made.

use std::fmt;
use std::rc::Rc;

use super::answer::{Answer, Cell, ROWS_MAX, Table, weight};
use super::packet::{Fields, Front, HEADER_BYTES, front};
use super::value::{Type, binary_row, text_row};
use crate::channel::Progress;
use crate::error::Kind;
use crate::limits::VALUE_BYTES_MAX;

/// The longest packet taken: one row may be as long as all rows together.
const PACKET_BYTES_MAX: usize = VALUE_BYTES_MAX + 64 * 1024;
/// Columns of a result, which is what servers allow themselves.
pub const COLUMNS_MAX: usize = 4_096;
/// Results of one statement: a procedure may have several.
const RESULTS_MAX: usize = 256;
/// The longest text of a refusal that is shown.
const WORDS_BYTES_MAX: usize = 1_024;

const OK: u8 = 0;
const END: u8 = 0xfe;
const REFUSED: u8 = 0xff;

/// What the server tells with each answer (`SERVER_STATUS_…`).
const STATUS_IN_TRANSACTION: u16 = 1;
const STATUS_AUTOCOMMIT: u16 = 1 << 1;
const STATUS_MORE_RESULTS: u16 = 1 << 3;
/// A column without signs (`UNSIGNED_FLAG`).
const UNSIGNED: u16 = 1 << 5;

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MysqlFault {
    /// Nothing of MySQL's protocol.
    Unknown,
    /// More rows than [`ROWS_MAX`].
    Rows,
    /// More bytes than [`VALUE_BYTES_MAX`].
    Bytes,
    /// More columns than [`COLUMNS_MAX`].
    Columns,
    /// More results than 256.
    Results,
    /// More than was asked for.
    Unasked,
}

impl MysqlFault {
    /// The kind of error it makes.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Unknown | Self::Unasked => Kind::Protocol,
            Self::Rows | Self::Bytes | Self::Columns | Self::Results => Kind::TooLarge,
        }
    }
}

impl fmt::Display for MysqlFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                formatter.write_str("the answer is none of MySQL's: what listens there?")
            }
            Self::Rows => write!(formatter, "more than {ROWS_MAX} rows: add a LIMIT"),
            Self::Bytes => write!(
                formatter,
                "more than {VALUE_BYTES_MAX} bytes: ask for less at a time"
            ),
            Self::Columns => write!(
                formatter,
                "more than {COLUMNS_MAX} columns: name those you need"
            ),
            Self::Results => write!(formatter, "more than {RESULTS_MAX} results"),
            Self::Unasked => formatter.write_str("the server said more than it was asked"),
        }
    }
}

/// How a server puts its answers, as was agreed on when logging in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// MySQL before 5.7.5: packets of their own end columns and rows.
    Old,
    /// Rows end with what a statement without rows ends with.
    Plain,
    /// The same, and columns known from before are left out: MariaDB from 10.6 on.
    Short,
}

/// What is to be answered.
#[derive(Clone, Debug)]
pub enum MysqlQuestion {
    /// That a statement is to be prepared.
    Prepare,
    /// That a prepared one is to be executed; its columns are those known.
    Execute(Option<Rc<Columns>>),
    /// That a text is to be executed, or another command without rows.
    Text,
}

/// The columns of a result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Columns {
    pub(super) names: Rc<[String]>,
    pub(super) types: Vec<Type>,
}

impl Columns {
    fn has(&self, place: usize, name: &[u8], of: Type) -> bool {
        let named = self
            .names
            .get(place)
            .is_some_and(|it| it.as_bytes() == name);
        named && self.types.get(place) == Some(&of)
    }

    fn begin(&self, count: usize) -> (Vec<String>, Vec<Type>) {
        let names = self.names.iter().take(count).cloned().collect();
        (names, self.types.iter().take(count).copied().collect())
    }
}

/// A statement that was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub(super) id: u32,
    /// How many `?` it has.
    pub(super) binds: usize,
    pub(super) columns: Option<Rc<Columns>>,
}

/// The server's no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(super) code: u16,
    /// What is wrong is the statement itself, which nobody can prepare.
    pub(super) is_of_text: bool,
    text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// One whole answer.
#[derive(Clone, Debug, PartialEq)]
pub enum MysqlReply {
    /// A statement was prepared.
    Prepared(Prepared),
    /// A statement was executed; its columns, if it has rows, for the next time.
    Done(Answer, Option<Rc<Columns>>),
    /// It was not; the connection can be used further, unless the words were the last.
    Refused(Refusal),
}

/// What the next packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextPacket {
    Head,
    /// Descriptions of `?`, which nobody needs.
    Binds(usize),
    BindsEnd,
    Columns(usize),
    ColumnsEnd,
    Rows,
}

/// Takes in the answer to one question.
#[derive(Debug)]
pub struct MysqlDecoder {
    dialect: Dialect,
    question: MysqlQuestion,
    step: NextPacket,
    /// The number of the next packet.
    sequence: u8,
    prepared: Option<Prepared>,
    /// Columns that differ from those known.
    fresh: Option<(Vec<String>, Vec<Type>)>,
    columns_count: usize,
    columns: Option<Rc<Columns>>,
    answer: Answer,
    rows: Vec<Vec<Cell>>,
    rows_seen: usize,
    results: usize,
    bytes: usize,
    status: Option<u16>,
}

/// What the server said last about transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionState {
    Free,
    InTransaction,
}

impl MysqlDecoder {
    /// Begins with the first byte of an answer.
    pub fn new(dialect: Dialect, question: MysqlQuestion) -> Self {
        Self {
            dialect,
            question,
            step: NextPacket::Head,
            sequence: 1,
            prepared: None,
            fresh: None,
            columns_count: 0,
            columns: None,
            answer: Answer::default(),
            rows: Vec::new(),
            rows_seen: 0,
            results: 0,
            bytes: 0,
            status: None,
        }
    }

    /// What the server said about transactions, if it said something.
    pub(super) fn transaction(&self) -> Option<TransactionState> {
        let status = self.status?;
        let free = status & STATUS_AUTOCOMMIT != 0 && status & STATUS_IN_TRANSACTION == 0;
        Some(match free {
            true => TransactionState::Free,
            false => TransactionState::InTransaction,
        })
    }

    /// Takes in what it can of the bytes that came after those it used before.
    ///
    /// # Errors
    /// A [`MysqlFault`], after which nothing more of the connection can be understood.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Progress<MysqlReply>, MysqlFault> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match front(rest, PACKET_BYTES_MAX)? {
                Front::Partial(awaited) => return Ok(Progress::More { used, awaited }),
                Front::Whole { sequence, payload } => {
                    used += HEADER_BYTES + payload.len();
                    if let Some(reply) = self.packet(sequence, payload)? {
                        return Ok(Progress::Done(reply, used));
                    }
                }
            }
        }
    }

    fn packet(&mut self, sequence: u8, payload: &[u8]) -> Result<Option<MysqlReply>, MysqlFault> {
        let first = *payload.first().ok_or(MysqlFault::Unknown)?;
        // Last words come unasked, and so with any number.
        if first == REFUSED {
            return Ok(Some(MysqlReply::Refused(
                refusal(payload).ok_or(MysqlFault::Unknown)?,
            )));
        }
        if sequence != self.sequence {
            return Err(MysqlFault::Unknown);
        }
        self.sequence = sequence.wrapping_add(1);
        match (self.step, first) {
            (NextPacket::Head, _) => self.head(first, payload),
            (NextPacket::Binds(left), _) => self.bind(left),
            (NextPacket::BindsEnd, END) => self.after_binds(),
            (NextPacket::Columns(left), _) => {
                self.column(payload)?;
                self.after_column(left - 1)
            }
            (NextPacket::ColumnsEnd, END) => self.after_columns(),
            (NextPacket::Rows, END) => self.end(payload),
            (NextPacket::Rows, _) => self.row(payload).map(|()| None),
            (NextPacket::BindsEnd | NextPacket::ColumnsEnd, _) => Err(MysqlFault::Unknown),
        }
    }

    fn head(&mut self, first: u8, payload: &[u8]) -> Result<Option<MysqlReply>, MysqlFault> {
        if let MysqlQuestion::Prepare = self.question {
            return self.head_of_prepared(payload);
        }
        self.results += 1;
        if self.results > RESULTS_MAX {
            return Err(MysqlFault::Results);
        }
        match first {
            OK => {
                let (affected, id, status) = done(payload).ok_or(MysqlFault::Unknown)?;
                if self.results == 1 {
                    (self.answer.affected, self.answer.last_insert_id) = (affected, id);
                }
                Ok(self.after_result(status))
            }
            END => Err(MysqlFault::Unknown),
            _ => self.head_of_rows(payload),
        }
    }

    fn head_of_prepared(&mut self, payload: &[u8]) -> Result<Option<MysqlReply>, MysqlFault> {
        let mut fields = Fields(payload);
        let mut read = || {
            let ok = fields.u8()? == OK;
            let read = (fields.u32()?, fields.u16()?, fields.u16()?);
            ok.then_some(read)
        };
        let (id, columns, binds) = read().ok_or(MysqlFault::Unknown)?;
        self.prepared = Some(Prepared {
            id,
            binds: binds.into(),
            columns: None,
        });
        self.columns_count = bounded(columns.into())?;
        match binds {
            0 => self.after_binds(),
            left => {
                self.step = NextPacket::Binds(left.into());
                Ok(None)
            }
        }
    }

    fn bind(&mut self, left: usize) -> Result<Option<MysqlReply>, MysqlFault> {
        self.step = match (left - 1, self.dialect) {
            (0, Dialect::Old) => NextPacket::BindsEnd,
            (0, _) => return self.after_binds(),
            (left, _) => NextPacket::Binds(left),
        };
        Ok(None)
    }

    fn after_binds(&mut self) -> Result<Option<MysqlReply>, MysqlFault> {
        match self.columns_count {
            0 => Ok(self.prepared.take().map(MysqlReply::Prepared)),
            count => {
                self.step = NextPacket::Columns(count);
                Ok(None)
            }
        }
    }

    fn head_of_rows(&mut self, payload: &[u8]) -> Result<Option<MysqlReply>, MysqlFault> {
        let mut fields = Fields(payload);
        let count = fields.number().ok_or(MysqlFault::Unknown)?;
        self.columns_count = bounded(count)?;
        let follow = match self.dialect {
            Dialect::Short => fields.u8().is_none_or(|said| said != 0),
            Dialect::Old | Dialect::Plain => true,
        };
        if !fields.0.is_empty() || self.columns_count == 0 {
            return Err(MysqlFault::Unknown);
        }
        if follow {
            self.step = NextPacket::Columns(self.columns_count);
            return Ok(None);
        }
        let known = self
            .known()
            .filter(|it| it.types.len() == self.columns_count);
        self.columns = Some(Rc::clone(known.ok_or(MysqlFault::Unknown)?));
        self.begin_rows();
        Ok(None)
    }

    /// Columns known from before, which those of the first result may be.
    fn known(&self) -> Option<&Rc<Columns>> {
        match &self.question {
            MysqlQuestion::Execute(known) if self.results == 1 => known.as_ref(),
            _ => None,
        }
    }

    fn column(&mut self, payload: &[u8]) -> Result<(), MysqlFault> {
        let (name, of) = column(payload).ok_or(MysqlFault::Unknown)?;
        let NextPacket::Columns(left) = self.step else {
            return Err(MysqlFault::Unknown);
        };
        let place = self.columns_count.saturating_sub(left);
        if self.fresh.is_none() {
            if self.known().is_some_and(|known| known.has(place, name, of)) {
                return Ok(());
            }
            let begun = self.known().map(|known| known.begin(place));
            self.fresh = Some(begun.unwrap_or_default());
        }
        self.weigh(payload.len())?;
        if let Some((names, types)) = &mut self.fresh {
            names.push(String::from_utf8_lossy(name).into_owned());
            types.push(of);
        }
        Ok(())
    }

    fn after_column(&mut self, left: usize) -> Result<Option<MysqlReply>, MysqlFault> {
        self.step = match (left, self.dialect) {
            (0, Dialect::Old) => NextPacket::ColumnsEnd,
            (0, _) => return self.after_columns(),
            (left, _) => NextPacket::Columns(left),
        };
        Ok(None)
    }

    fn after_columns(&mut self) -> Result<Option<MysqlReply>, MysqlFault> {
        let count = self.columns_count;
        let fresh = self.fresh.take();
        // The statement may have fewer columns than it had, and be equal as far as it goes.
        let fresh = fresh.or_else(|| {
            let shorter = self.known().filter(|known| known.types.len() != count);
            shorter.map(|known| known.begin(count))
        });
        self.columns = match fresh {
            Some((names, types)) => Some(Rc::new(Columns {
                names: names.into(),
                types,
            })),
            None => self.known().cloned(),
        };
        if let Some(mut prepared) = self.prepared.take() {
            prepared.columns = self.columns.take();
            return Ok(Some(MysqlReply::Prepared(prepared)));
        }
        self.begin_rows();
        Ok(None)
    }

    fn begin_rows(&mut self) {
        self.step = NextPacket::Rows;
        if self.results == 1 {
            let fields = self.columns.as_ref().map(|it| Rc::clone(&it.names));
            self.answer.table = Some(Table {
                fields: fields.unwrap_or_default(),
                rows: Vec::new(),
            });
        }
    }

    fn row(&mut self, payload: &[u8]) -> Result<(), MysqlFault> {
        self.rows_seen += 1;
        if self.rows_seen > ROWS_MAX {
            return Err(MysqlFault::Rows);
        }
        let (1, Some(columns)) = (self.results, &self.columns) else {
            // Procedures have further results, whose rows nobody asked for.
            return self.weigh(payload.len());
        };
        let row = match self.question {
            MysqlQuestion::Execute(_) => binary_row(payload, &columns.types),
            MysqlQuestion::Text | MysqlQuestion::Prepare => text_row(payload, &columns.types),
        };
        let row = row.ok_or(MysqlFault::Unknown)?;
        self.weigh(row.iter().map(weight).sum())?;
        self.rows.push(row);
        Ok(())
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), MysqlFault> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > VALUE_BYTES_MAX {
            true => Err(MysqlFault::Bytes),
            false => Ok(()),
        }
    }

    fn end(&mut self, payload: &[u8]) -> Result<Option<MysqlReply>, MysqlFault> {
        let status = match self.dialect {
            Dialect::Old => ended(payload),
            Dialect::Plain | Dialect::Short => done(payload).map(|(_, _, status)| status),
        };
        let status = status.ok_or(MysqlFault::Unknown)?;
        Ok(self.after_result(status))
    }

    fn after_result(&mut self, status: u16) -> Option<MysqlReply> {
        self.status = Some(status);
        if let (1, Some(table)) = (self.results, &mut self.answer.table) {
            table.rows = std::mem::take(&mut self.rows);
        }
        if status & STATUS_MORE_RESULTS != 0 {
            self.step = NextPacket::Head;
            return None;
        }
        let columns = self.columns.take().filter(|_| self.results == 1);
        Some(MysqlReply::Done(std::mem::take(&mut self.answer), columns))
    }
}

fn bounded(columns: u64) -> Result<usize, MysqlFault> {
    let count = usize::try_from(columns).ok();
    let count = count.filter(|count| *count <= COLUMNS_MAX);
    count.ok_or(MysqlFault::Columns)
}

/// The end of a statement: rows changed, the number given, and the status.
fn done(payload: &[u8]) -> Option<(u64, u64, u16)> {
    let mut fields = Fields(payload);
    fields.u8()?;
    Some((fields.number()?, fields.number()?, fields.u16()?))
}

/// The status at the end of rows, of servers that end columns likewise.
fn ended(payload: &[u8]) -> Option<u16> {
    let mut fields = Fields(payload);
    fields.u8()?;
    fields.u16()?;
    fields.u16()
}

/// The name and the type of a column.
fn column(payload: &[u8]) -> Option<(&[u8], Type)> {
    let mut fields = Fields(payload);
    // The catalog, the database, and the table by both its names.
    for _ in 0..4 {
        fields.string()?;
    }
    let name = fields.string()?;
    fields.string()?;
    // The length of what follows, the character set, the width.
    fields.number()?;
    fields.u16()?;
    fields.u32()?;
    let code = fields.u8()?;
    let unsigned = fields.u16()? & UNSIGNED != 0;
    Some((name, Type { code, unsigned }))
}

/// The server's no, in the words its own clients show.
pub(super) fn refusal(payload: &[u8]) -> Option<Refusal> {
    let mut fields = Fields(payload);
    fields.u8()?;
    let code = fields.u16()?;
    let state = match fields.0.split_first() {
        Some((b'#', rest)) => {
            fields.0 = rest;
            fields.bytes(5)?
        }
        _ => b"HY000",
    };
    let words = fields.0.get(..WORDS_BYTES_MAX).unwrap_or(fields.0);
    let (state, words) = (
        String::from_utf8_lossy(state),
        String::from_utf8_lossy(words),
    );
    let is_of_text = state.starts_with("42");
    let text = format!("ERROR {code} ({state}): {words}");
    Some(Refusal {
        code,
        is_of_text,
        text,
    })
}

#[cfg(test)]
mod tests;
