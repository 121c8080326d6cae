//! What a statement gives back: rows read whole, under caps, as plain values.

use std::sync::Arc;

use mysql_async::consts::ColumnType;
use mysql_async::prelude::Protocol;
use mysql_async::{Column, QueryResult, Row, Value};

use super::fault::Fault;
use crate::store::VALUE_BYTES_MAX;

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
    /// Names of columns, in order.
    pub fields: Vec<String>,
    /// Rows, each as long as `fields`.
    pub rows: Vec<Vec<Cell>>,
}

/// Reads a result to its end.
pub(super) async fn read<P: Protocol>(
    mut result: QueryResult<'_, 'static, P>,
) -> Result<Answer, Fault> {
    let mut answer = Answer {
        table: None,
        affected: result.affected_rows(),
        last_insert_id: result.last_insert_id().unwrap_or(0),
    };
    if let Some(columns) = result.columns().filter(|columns| !columns.is_empty()) {
        answer.table = Some(read_rows(&mut result, columns).await?);
    }
    // Procedures have further results, whose rows nobody asked for.
    result.drop_result().await?;
    Ok(answer)
}

async fn read_rows<P: Protocol>(
    result: &mut QueryResult<'_, 'static, P>,
    columns: Arc<[Column]>,
) -> Result<Table, Fault> {
    let fields = columns
        .iter()
        .map(|column| column.name_str().into_owned())
        .collect();
    let mut table = Table {
        fields,
        rows: Vec::new(),
    };
    let mut bytes = 0_usize;
    while let Some(row) = result.next().await? {
        if table.rows.len() >= ROWS_MAX {
            return Err(Fault::Rows);
        }
        let row = cells(row, &columns);
        bytes = row.iter().map(weight).fold(bytes, usize::saturating_add);
        if bytes > VALUE_BYTES_MAX {
            return Err(Fault::Bytes);
        }
        table.rows.push(row);
    }
    Ok(table)
}

fn cells(row: Row, columns: &[Column]) -> Vec<Cell> {
    let values = row.unwrap_raw().into_iter();
    let cells = values.zip(columns).map(|(value, column)| match value {
        Some(Value::Bytes(bytes)) => typed(bytes, column),
        Some(value) => value.into(),
        None => Cell::Nil,
    });
    cells.collect()
}

/// A value that came as text gets its column's type, as far as numbers go.
fn typed(bytes: Vec<u8>, column: &Column) -> Cell {
    use ColumnType::{
        MYSQL_TYPE_DOUBLE, MYSQL_TYPE_FLOAT, MYSQL_TYPE_INT24, MYSQL_TYPE_LONG,
        MYSQL_TYPE_LONGLONG, MYSQL_TYPE_SHORT, MYSQL_TYPE_TINY, MYSQL_TYPE_YEAR,
    };
    let text = || std::str::from_utf8(&bytes).ok();
    let cell = match column.column_type() {
        MYSQL_TYPE_TINY | MYSQL_TYPE_SHORT | MYSQL_TYPE_INT24 | MYSQL_TYPE_LONG
        | MYSQL_TYPE_LONGLONG | MYSQL_TYPE_YEAR => {
            text().and_then(|text| text.parse().ok()).map(Cell::Int)
        }
        MYSQL_TYPE_FLOAT | MYSQL_TYPE_DOUBLE => {
            text().and_then(|text| text.parse().ok()).map(Cell::Float)
        }
        _ => None,
    };
    cell.unwrap_or(Cell::Bytes(bytes))
}

/// The memory a value takes, about.
pub(super) fn weight(cell: &Cell) -> usize {
    match cell {
        Cell::Bytes(bytes) => CELL_BYTES.saturating_add(bytes.len()),
        _ => CELL_BYTES,
    }
}

impl From<Value> for Cell {
    fn from(value: Value) -> Self {
        match value {
            Value::NULL => Self::Nil,
            Value::Bytes(bytes) => Self::Bytes(bytes),
            Value::Int(number) => Self::Int(number),
            Value::UInt(number) => match i64::try_from(number) {
                Ok(number) => Self::Int(number),
                Err(_) => Self::Bytes(number.to_string().into_bytes()),
            },
            Value::Float(number) => Self::Float(f64::from(number)),
            Value::Double(number) => Self::Float(number),
            Value::Date(year, month, day, hour, minute, second, micros) => Self::Time(Moment {
                year,
                month,
                day,
                hour,
                minute,
                second,
                micros,
            }),
            Value::Time(negative, days, hours, minutes, seconds, micros) => Self::Span(Span {
                negative,
                seconds: u64::from(days) * 86_400
                    + u64::from(hours) * 3_600
                    + u64::from(minutes) * 60
                    + u64::from(seconds),
                micros,
            }),
        }
    }
}

impl From<Cell> for Value {
    fn from(cell: Cell) -> Self {
        match cell {
            Cell::Nil => Self::NULL,
            Cell::Int(number) => Self::Int(number),
            Cell::Float(number) => Self::Double(number),
            Cell::Bytes(bytes) => Self::Bytes(bytes),
            Cell::Time(at) => Self::Date(
                at.year, at.month, at.day, at.hour, at.minute, at.second, at.micros,
            ),
            Cell::Span(span) => {
                let part = |seconds: u64| u8::try_from(seconds).unwrap_or(u8::MAX);
                let days = u32::try_from(span.seconds / 86_400).unwrap_or(u32::MAX);
                let (hours, minutes) = (span.seconds / 3_600 % 24, span.seconds / 60 % 60);
                let (hours, minutes, seconds) =
                    (part(hours), part(minutes), part(span.seconds % 60));
                Self::Time(span.negative, days, hours, minutes, seconds, span.micros)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsigned_number_above_ours_comes_as_its_digits() {
        assert_eq!(Cell::from(Value::UInt(7)), Cell::Int(7));
        let digits = Cell::Bytes(b"18446744073709551615".to_vec());
        assert_eq!(Cell::from(Value::UInt(u64::MAX)), digits);
    }

    #[test]
    fn values_go_and_come_back_as_they_were() {
        let moment = Moment {
            year: 2016,
            month: 7,
            day: 15,
            hour: 11,
            minute: 12,
            second: 13,
            micros: 14,
        };
        let span = Span {
            negative: true,
            seconds: 838 * 3_600 + 59 * 60 + 58,
            micros: 7,
        };
        let cells = [
            Cell::Nil,
            Cell::Int(i64::MIN),
            Cell::Float(0.5),
            Cell::Bytes(b"\0".to_vec()),
            Cell::Time(moment),
            Cell::Span(span),
        ];
        for cell in cells {
            assert_eq!(Cell::from(Value::from(cell.clone())), cell);
        }
    }
}
