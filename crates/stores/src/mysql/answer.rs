//! What a statement gives back: rows read whole, under caps, as plain values.

use std::rc::Rc;

/// Rows of one result.
pub const ROWS_MAX: usize = 10_000;
/// What a value counts beside its bytes.
const CELL_BYTES: usize = size_of::<Cell>();

/// A value of a row, or one bound to a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// `NULL`.
    Nil,
    /// Any whole number that fits; larger unsigned ones come as [`Cell::Bytes`] of their digits.
    Int(i64),
    /// `FLOAT` and `DOUBLE`.
    Float(f64),
    /// Text, binary data, `DECIMAL`, `JSON` and the rest.
    Bytes(Vec<u8>),
    /// `DATE`, `DATETIME` and `TIMESTAMP`, as the server's clock says it.
    Time(Moment),
    /// `TIME`, which is a span and may be negative.
    Span(Span),
}

/// A point in time without a zone; all parts are 0 for MySQL's zero date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// 0 to 9999.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// 0 to 999,999.
    pub micros: u32,
}

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Whether it goes backwards.
    pub negative: bool,
    /// Whole seconds.
    pub seconds: u64,
    /// 0 to 999,999.
    pub micros: u32,
}

/// What a statement gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The rows, for a statement that has a result; the first set only, if it has several.
    pub table: Option<Table>,
    /// Rows changed, for a statement that changes some.
    pub affected: u64,
    /// The `AUTO_INCREMENT` value given, 0 for none.
    pub last_insert_id: u64,
}

/// Rows with the names of their columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Resolver of columns, in order; those of one statement are kept once.
    pub fields: Rc<[String]>,
    /// Rows, each as long as `fields`.
    pub rows: Vec<Vec<Cell>>,
}

/// The memory a value takes, about.
pub(super) fn weight(cell: &Cell) -> usize {
    match cell {
        Cell::Bytes(bytes) => CELL_BYTES.saturating_add(bytes.len()),
        _ => CELL_BYTES,
    }
}
