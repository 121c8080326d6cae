//! Values as MySQL sends and takes them: rows in binary and as text, and what is bound to `?`.

use super::answer::{Cell, Moment, Span};
use super::packet::{Fields, put_string};

/// A column's type, as far as values depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    /// The protocol's number of it.
    pub(super) code: u8,
    /// Whether its numbers have no sign.
    pub(super) unsigned: bool,
}

/// The protocol's numbers of types (`enum_field_types`).
mod code {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const NULL: u8 = 6;
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const DATE: u8 = 10;
    pub(super) const TIME: u8 = 11;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const YEAR: u8 = 13;
    pub(super) const VAR_STRING: u8 = 253;
}

/// A binary row's first byte.
const ROW: u8 = 0;
/// Where the bits of `NULL`s begin in a row.
const NULLS_BEGIN: usize = 2;
/// The length that stands for `NULL` in a row of text.
const NULL_TEXT: u8 = 0xfb;

/// The values of a row of a prepared statement; `None` where it is none of these columns.
pub(super) fn binary_row(payload: &[u8], types: &[Type]) -> Option<Vec<Cell>> {
    let mut fields = Fields(payload);
    if fields.u8()? != ROW {
        return None;
    }
    let nulls = fields.bytes((types.len() + NULLS_BEGIN).div_ceil(8))?;
    let mut cells = Vec::with_capacity(types.len());
    for (place, of) in types.iter().enumerate() {
        let bit = place + NULLS_BEGIN;
        let null = nulls
            .get(bit / 8)
            .is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        cells.push(match null {
            true => Cell::Nil,
            false => binary(&mut fields, *of)?,
        });
    }
    fields.0.is_empty().then_some(cells)
}

fn binary(fields: &mut Fields<'_>, of: Type) -> Option<Cell> {
    let signed = !of.unsigned;
    Some(match of.code {
        code::NULL => Cell::Nil,
        code::TINY if signed => Cell::Int(fields.u8()?.cast_signed().into()),
        code::TINY => Cell::Int(fields.u8()?.into()),
        code::SHORT if signed => Cell::Int(fields.u16()?.cast_signed().into()),
        code::SHORT | code::YEAR => Cell::Int(fields.u16()?.into()),
        code::LONG | code::INT24 if signed => Cell::Int(fields.u32()?.cast_signed().into()),
        code::LONG | code::INT24 => Cell::Int(fields.u32()?.into()),
        code::LONGLONG if signed => Cell::Int(fields.u64()?.cast_signed()),
        code::LONGLONG => whole(fields.u64()?),
        code::FLOAT => Cell::Float(f32::from_bits(fields.u32()?).into()),
        code::DOUBLE => Cell::Float(f64::from_bits(fields.u64()?)),
        code::DATE | code::DATETIME | code::TIMESTAMP => moment(fields)?,
        code::TIME => span(fields)?,
        _ => Cell::Bytes(fields.string()?.to_vec()),
    })
}

/// A number without a sign; above ours it comes as its digits.
fn whole(number: u64) -> Cell {
    match i64::try_from(number) {
        Ok(number) => Cell::Int(number),
        Err(_) => Cell::Bytes(number.to_string().into_bytes()),
    }
}

fn moment(fields: &mut Fields<'_>) -> Option<Cell> {
    let length = usize::from(fields.u8()?);
    let mut parts = Fields(fields.bytes(length)?);
    let mut at = Moment::default();
    if length > 0 {
        (at.year, at.month, at.day) = (parts.u16()?, parts.u8()?, parts.u8()?);
    }
    if length > 4 {
        (at.hour, at.minute, at.second) = (parts.u8()?, parts.u8()?, parts.u8()?);
    }
    if length > 7 {
        at.micros = parts.u32()?;
    }
    parts.0.is_empty().then_some(Cell::Time(at))
}

fn span(fields: &mut Fields<'_>) -> Option<Cell> {
    let length = usize::from(fields.u8()?);
    let mut parts = Fields(fields.bytes(length)?);
    let mut span = Span::default();
    if length > 0 {
        span.negative = parts.u8()? != 0;
        let days = u64::from(parts.u32()?) * 86_400;
        let hours = u64::from(parts.u8()?) * 3_600;
        let minutes = u64::from(parts.u8()?) * 60;
        span.seconds = days + hours + minutes + u64::from(parts.u8()?);
    }
    if length > 8 {
        span.micros = parts.u32()?;
    }
    parts.0.is_empty().then_some(Cell::Span(span))
}

/// The values of a row of a statement that was sent as text.
pub(super) fn text_row(payload: &[u8], types: &[Type]) -> Option<Vec<Cell>> {
    let mut fields = Fields(payload);
    let mut cells = Vec::with_capacity(types.len());
    for of in types {
        cells.push(match fields.0.first()? {
            &NULL_TEXT => {
                fields.u8()?;
                Cell::Nil
            }
            _ => typed(fields.string()?, *of),
        });
    }
    fields.0.is_empty().then_some(cells)
}

/// A value that came as text gets its column's type, as far as numbers go.
fn typed(bytes: &[u8], of: Type) -> Cell {
    let text = || std::str::from_utf8(bytes).ok();
    let cell = match of.code {
        code::TINY | code::SHORT | code::INT24 | code::LONG | code::LONGLONG | code::YEAR => {
            text().and_then(|text| text.parse().ok()).map(Cell::Int)
        }
        code::FLOAT | code::DOUBLE => text().and_then(|text| text.parse().ok()).map(Cell::Float),
        _ => None,
    };
    cell.unwrap_or_else(|| Cell::Bytes(bytes.to_vec()))
}

/// Writes values with their types, as the execution of a statement takes them.
pub(super) fn put_binds(out: &mut Vec<u8>, binds: &[Cell]) {
    const TYPES_FOLLOW: u8 = 1;
    if binds.is_empty() {
        return;
    }
    for eight in binds.chunks(8) {
        let bits = eight.iter().enumerate();
        let bits = bits.map(|(place, bind)| u8::from(*bind == Cell::Nil) << place);
        out.push(bits.sum());
    }
    out.push(TYPES_FOLLOW);
    for bind in binds {
        out.extend_from_slice(&[type_of(bind), 0]);
    }
    for bind in binds {
        put_bind(out, bind);
    }
}

fn type_of(bind: &Cell) -> u8 {
    match bind {
        Cell::Nil => code::NULL,
        Cell::Int(_) => code::LONGLONG,
        Cell::Float(_) => code::DOUBLE,
        Cell::Bytes(_) => code::VAR_STRING,
        Cell::Time(_) => code::DATETIME,
        Cell::Span(_) => code::TIME,
    }
}

fn put_bind(out: &mut Vec<u8>, bind: &Cell) {
    match bind {
        Cell::Nil => (),
        Cell::Int(number) => out.extend_from_slice(&number.to_le_bytes()),
        Cell::Float(number) => out.extend_from_slice(&number.to_bits().to_le_bytes()),
        Cell::Bytes(bytes) => put_string(out, bytes),
        Cell::Time(at) => {
            out.push(11);
            out.extend_from_slice(&at.year.to_le_bytes());
            out.extend_from_slice(&[at.month, at.day, at.hour, at.minute, at.second]);
            out.extend_from_slice(&at.micros.to_le_bytes());
        }
        Cell::Span(span) => {
            // Below a day, and below an hour, and below a minute: each is less than a byte.
            let part = |seconds: u64| u8::try_from(seconds).unwrap_or(u8::MAX);
            let days = u32::try_from(span.seconds / 86_400).unwrap_or(u32::MAX);
            out.extend_from_slice(&[12, u8::from(span.negative)]);
            out.extend_from_slice(&days.to_le_bytes());
            out.push(part(span.seconds / 3_600 % 24));
            out.push(part(span.seconds / 60 % 60));
            out.push(part(span.seconds % 60));
            out.extend_from_slice(&span.micros.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(codes: &[u8]) -> Vec<Type> {
        let signed = |code: &u8| Type {
            code: *code,
            unsigned: false,
        };
        codes.iter().map(signed).collect()
    }

    fn cells() -> Vec<Cell> {
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
        vec![
            Cell::Nil,
            Cell::Int(i64::MIN),
            Cell::Float(0.5),
            Cell::Bytes(b"\0".to_vec()),
            Cell::Time(moment),
            Cell::Span(span),
        ]
    }

    #[test]
    fn values_go_and_come_back_as_they_were() {
        let mut out = Vec::new();
        cells().iter().for_each(|cell| put_bind(&mut out, cell));
        let codes: Vec<_> = cells().iter().map(type_of).collect();
        // The first is `NULL` by its bit as well.
        let row = [&[ROW, 0b100][..], &out].concat();
        assert_eq!(binary_row(&row, &types(&codes)), Some(cells()));
        for end in 0..row.len() {
            assert_eq!(binary_row(&row[..end], &types(&codes)), None, "{end}");
        }
        let longer = [&row[..], b"\0"].concat();
        assert_eq!(binary_row(&longer, &types(&codes)), None);
    }

    #[test]
    fn numbers_have_the_sign_of_their_column_and_too_large_ones_come_as_digits() {
        let check = |code, unsigned, bytes: &[u8], cell| {
            let row = [&[ROW, 0][..], bytes].concat();
            let of = [Type { code, unsigned }];
            assert_eq!(binary_row(&row, &of), Some(vec![cell]), "{code}");
        };
        let all = [0xff; 8];
        check(code::TINY, false, &all[..1], Cell::Int(-1));
        check(code::TINY, true, &all[..1], Cell::Int(255));
        check(code::SHORT, true, &all[..2], Cell::Int(65_535));
        check(code::YEAR, true, b"\xe0\x07", Cell::Int(2016));
        check(code::INT24, false, &all[..4], Cell::Int(-1));
        check(code::LONG, true, &all[..4], Cell::Int(u32::MAX.into()));
        check(code::LONGLONG, false, &all, Cell::Int(-1));
        let digits = Cell::Bytes(u64::MAX.to_string().into_bytes());
        check(code::LONGLONG, true, &all, digits);
        check(code::FLOAT, false, &0.5_f32.to_le_bytes(), Cell::Float(0.5));
        check(code::DATETIME, false, b"\0", Cell::Time(Moment::default()));
        check(code::TIME, false, b"\0", Cell::Span(Span::default()));
        check(246, false, b"\x0212", Cell::Bytes(b"12".to_vec()));
    }

    #[test]
    fn text_gets_the_type_of_its_column() {
        let of = types(&[code::LONG, code::DOUBLE, code::LONGLONG, 15, code::LONG]);
        let row = b"\x02-7\x030.5\x01x\x01a\xfb";
        let cells = vec![
            Cell::Int(-7),
            Cell::Float(0.5),
            Cell::Bytes(b"x".to_vec()),
            Cell::Bytes(b"a".to_vec()),
            Cell::Nil,
        ];
        assert_eq!(text_row(row, &of), Some(cells));
        assert_eq!(text_row(b"\x02-", &of[..1]), None);
        assert_eq!(text_row(b"\x011\x012", &of[..1]), None);
    }
}
