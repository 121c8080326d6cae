//! The fields of a head.
//!
//! One byte buffer and spans into it: a head's lines are copied once, as they came, and every name
//! and value is a pair of offsets. Both are cleared and reused, so a connection in steady state
//! allocates nothing. A set of bits answers "is it there at all?" without a look at the spans.
//! Removed bytes stay in the buffer until [`Fields::clear`]. A field that lies there just as a head
//! would spell it is copied with its neighbours in one go when a head is written.

use std::{fmt, ops::Range};

use crate::{
    field_id::FieldId,
    octets::{field_name_ok, field_value_ok},
};

/// Fields in the order they came, names in the spelling they came in.
#[derive(Clone, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Bits of the ids that occur.
    present: u64,
}

/// One field of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name by number.
    pub id: FieldId,
    /// The name as it was spelt.
    pub name: &'a [u8],
    /// The value, without blanks around it.
    pub value: &'a [u8],
}

/// Between name and value.
const SEPARATOR: &[u8] = b": ";
/// After a line.
const LINE_END: &[u8] = b"\r\n";

/// Appends a field's line to a head (RFC 9112 §5). The caller vouches for name and value.
pub fn encode_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + SEPARATOR.len() + value.len() + LINE_END.len());
    out.extend_from_slice(name);
    out.extend_from_slice(SEPARATOR);
    out.extend_from_slice(value);
    out.extend_from_slice(LINE_END);
}

impl Fields {
    /// Forgets every field and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.present = 0;
    }

    /// How many fields there are; one name may count several times.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether a known field occurs.
    pub fn contains(&self, id: FieldId) -> bool {
        self.present & id.bit() != 0
    }

    /// The first value of a known field; `None` for [`FieldId::Other`], which is no field.
    pub fn get(&self, id: FieldId) -> Option<&[u8]> {
        self.get_all(id).next()
    }

    /// All values of a known field, in order.
    pub fn get_all(&self, id: FieldId) -> impl Iterator<Item = &[u8]> {
        let known = id != FieldId::Other && self.contains(id);
        let spans = if known { self.spans.as_slice() } else { &[] };
        spans
            .iter()
            .filter(move |span| span.id == id)
            .map(|span| span.value(&self.bytes))
    }

    /// The first value of a field named in any case.
    pub fn get_named(&self, name: &[u8]) -> Option<&[u8]> {
        self.all_named(name).next()
    }

    /// All values of a field named in any case, in order.
    pub fn all_named<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.spans
            .iter()
            .filter(|span| span.is_named(name, &self.bytes))
            .map(|span| span.value(&self.bytes))
    }

    /// All fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.spans.iter().map(|span| span.field(&self.bytes))
    }

    /// Appends a field. The caller vouches for name and value ([`field_name_ok`], [`field_value_ok`]).
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_as(FieldId::of(name), name, value);
    }

    /// Appends a known field in its usual spelling. The caller vouches for the value.
    pub fn push_known(&mut self, id: FieldId, value: &[u8]) {
        self.push_as(id, id.name().as_bytes(), value);
    }

    fn push_as(&mut self, id: FieldId, name: &[u8], value: &[u8]) {
        debug_assert!(
            field_name_ok(name) && field_value_ok(value),
            "a field was pushed unchecked"
        );
        let span = Span::pushed(id, name, value, &mut self.bytes);
        self.present |= id.bit();
        self.spans.push(span);
    }

    /// Gives fields of a known name the values that `other` has for theirs, each in its place. The
    /// caller vouches for them.
    pub fn replace(&mut self, id: FieldId, mut other: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        let Fields { bytes, spans, .. } = self;
        for span in spans.iter_mut().filter(|span| span.id == id) {
            if let Some(value) = other(span.value(bytes)) {
                debug_assert!(field_value_ok(&value), "a value was replaced unchecked");
                let name = span.name(bytes).to_vec();
                *span = Span::pushed(id, &name, &value, bytes);
            }
        }
    }

    /// Appends the lines of the fields whose names pass.
    pub fn encode(&self, out: &mut Vec<u8>, mut passes: impl FnMut(FieldId) -> bool) {
        let mut run = 0..0;
        for span in self.spans.iter().filter(|span| passes(span.id)) {
            let line = span.line();
            if !span.is_line || line.start != run.end {
                out.extend_from_slice(self.bytes.get(run).unwrap_or_default());
                run = line.clone();
            }
            if span.is_line {
                run.end = line.end;
            } else {
                encode_field(span.name(&self.bytes), span.value(&self.bytes), out);
                run = 0..0;
            }
        }
        out.extend_from_slice(self.bytes.get(run).unwrap_or_default());
    }

    /// Appends all of another set, which was checked when it was made.
    pub fn append(&mut self, other: &Fields) {
        let shift = place(self.bytes.len());
        self.bytes.extend_from_slice(&other.bytes);
        self.spans
            .extend(other.spans.iter().map(|span| span.shifted(shift)));
        self.present |= other.present;
    }

    /// Leaves exactly one field of this name, at the end. The caller vouches for name and value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.remove_named(name);
        self.push(name, value);
    }

    /// Removes every field of a known name; [`FieldId::Other`] removes nothing.
    pub fn remove(&mut self, id: FieldId) {
        if id != FieldId::Other && self.contains(id) {
            self.spans.retain(|span| span.id != id);
            self.present &= !id.bit();
        }
    }

    /// Removes every field of a set of known names.
    pub(crate) fn remove_all(&mut self, bits: u64) {
        if self.contains_any(bits) {
            self.spans.retain(|span| span.id.bit() & bits == 0);
            self.present &= !bits;
        }
    }

    /// Removes every field of a name given in any case.
    pub fn remove_named(&mut self, name: &[u8]) {
        match FieldId::of(name) {
            FieldId::Other => self.retain(|field| !field.name.eq_ignore_ascii_case(name)),
            id => self.remove(id),
        }
    }

    /// Keeps the fields for which `keep` holds, in order.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) {
        let Fields {
            bytes,
            spans,
            present,
        } = self;
        *present = 0;
        spans.retain(|span| {
            let kept = keep(span.field(bytes));
            *present |= if kept { span.id.bit() } else { 0 };
            kept
        });
    }

    /// Whether any of a set of known fields occurs.
    pub(crate) fn contains_any(&self, bits: u64) -> bool {
        self.present & bits != 0
    }

    /// Names this crate does not know, as they were spelt.
    pub(crate) fn unknown_names(&self) -> impl Iterator<Item = &[u8]> {
        let unknown = self.spans.iter().filter(|span| span.id == FieldId::Other);
        unknown.map(|span| span.name(&self.bytes))
    }

    /// Replaces everything by the lines of a head, with fields at these places: name, then value.
    pub(crate) fn load(
        &mut self,
        lines: &[u8],
        places: impl Iterator<Item = (FieldId, Range<usize>, Range<usize>)>,
    ) {
        self.clear();
        self.bytes.extend_from_slice(lines);
        let present = &mut self.present;
        self.spans.extend(places.map(|(id, name, value)| {
            *present |= id.bit();
            Span::new(id, name, value, lines)
        }));
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        f.debug_map()
            .entries(
                self.iter()
                    .map(|field| (text(field.name), text(field.value))),
            )
            .finish()
    }
}

/// Where one field lies in the buffer.
#[derive(Debug, Clone, Copy)]
struct Span {
    id: FieldId,
    /// The bytes from its name on are the line a head would have: `name: value`, CR LF.
    is_line: bool,
    name_start: u32,
    name_end: u32,
    value_start: u32,
    value_end: u32,
}

impl Span {
    fn new(id: FieldId, name: Range<usize>, value: Range<usize>, bytes: &[u8]) -> Span {
        let between = bytes.get(name.end..value.start).unwrap_or_default();
        let after = bytes.get(value.end..value.end + LINE_END.len());
        Span {
            id,
            is_line: between == SEPARATOR && after == Some(LINE_END),
            name_start: place(name.start),
            name_end: place(name.end),
            value_start: place(value.start),
            value_end: place(value.end),
        }
    }

    /// Appends a line and says where it lies.
    fn pushed(id: FieldId, name: &[u8], value: &[u8], bytes: &mut Vec<u8>) -> Span {
        let start = bytes.len();
        encode_field(name, value, bytes);
        let name_end = start + name.len();
        Span {
            id,
            is_line: true,
            name_start: place(start),
            name_end: place(name_end),
            value_start: place(name_end + SEPARATOR.len()),
            value_end: place(bytes.len() - LINE_END.len()),
        }
    }

    fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes
            .get(self.name_start as usize..self.name_end as usize)
            .unwrap_or_default()
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes
            .get(self.value_start as usize..self.value_end as usize)
            .unwrap_or_default()
    }

    /// Where its line lies, if it lies there as one.
    fn line(&self) -> Range<usize> {
        self.name_start as usize..self.value_end as usize + LINE_END.len()
    }

    fn field<'a>(&self, bytes: &'a [u8]) -> Field<'a> {
        Field {
            id: self.id,
            name: self.name(bytes),
            value: self.value(bytes),
        }
    }

    fn shifted(&self, by: u32) -> Span {
        Span {
            id: self.id,
            is_line: self.is_line,
            name_start: self.name_start.saturating_add(by),
            name_end: self.name_end.saturating_add(by),
            value_start: self.value_start.saturating_add(by),
            value_end: self.value_end.saturating_add(by),
        }
    }

    fn is_named(&self, name: &[u8], bytes: &[u8]) -> bool {
        self.name(bytes).eq_ignore_ascii_case(name)
    }
}

/// An offset into the buffer. One past 4 GiB would read as empty; caps keep heads far below.
fn place(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Fields {
        let mut fields = Fields::default();
        fields.push(b"Host", b"a.example");
        fields.push(b"X-One", b"1");
        fields.push(b"accept", b"text/html");
        fields.push(b"x-one", b"2");
        fields
    }

    fn names(fields: &Fields) -> Vec<String> {
        fields
            .iter()
            .map(|field| field.name.escape_ascii().to_string())
            .collect()
    }

    #[test]
    fn values_are_found_by_id_and_by_name_in_any_case() {
        let fields = sample();
        assert_eq!(fields.get(FieldId::Host), Some(&b"a.example"[..]));
        assert_eq!(fields.get(FieldId::Cookie), None);
        assert_eq!(fields.get_named(b"ACCEPT"), Some(&b"text/html"[..]));
        assert_eq!(fields.all_named(b"X-ONE").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(
            fields.get_all(FieldId::Other).count(),
            0,
            "Other is no field"
        );
    }

    #[test]
    fn removal_forgets_the_field_and_its_bit() {
        let mut fields = sample();
        fields.remove(FieldId::Host);
        fields.remove_named(b"X-oNe");
        fields.remove(FieldId::Other);
        assert_eq!(names(&fields), ["accept"]);
        assert!(!fields.contains(FieldId::Host));
        fields.retain(|field| field.id != FieldId::Accept);
        assert!(fields.is_empty() && fields.get(FieldId::Accept).is_none());
    }

    #[test]
    fn set_leaves_one_of_a_name() {
        let mut fields = sample();
        fields.set(b"X-ONE", b"3");
        fields.set(b"Host", b"b.example");
        assert_eq!(names(&fields), ["accept", "X-ONE", "Host"]);
        assert_eq!(fields.get(FieldId::Host), Some(&b"b.example"[..]));
    }

    #[test]
    fn an_appended_set_is_found_behind_what_was_there() {
        let mut fields = Fields::default();
        fields.push(b"Via", b"1.1 x");
        fields.append(&sample());
        assert_eq!(names(&fields), ["Via", "Host", "X-One", "accept", "x-one"]);
        assert_eq!(fields.get(FieldId::Accept), Some(&b"text/html"[..]));
        assert_eq!(fields.get(FieldId::Via), Some(&b"1.1 x"[..]));
    }

    #[test]
    fn lines_are_written_as_a_head_spells_them_whatever_way_the_fields_came() {
        let head = b"Host: a\r\nX-Odd:  two blanks \r\nAccept: b\r\nTE:\r\n\r\n";
        let mut fields = Fields::default();
        let places = [
            (FieldId::Host, 0..4, 6..7),
            (FieldId::Other, 9..14, 17..27),
            (FieldId::Accept, 30..36, 38..39),
            (FieldId::Te, 41..43, 44..44),
        ];
        fields.load(head, places.into_iter());
        fields.push(b"X-New", b"1");
        fields.push_known(FieldId::Vary, b"2");
        let encoded = |passes: fn(FieldId) -> bool| {
            let mut out = b"> ".to_vec();
            fields.encode(&mut out, passes);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(
            encoded(|_| true),
            "> Host: a\r\nX-Odd: two blanks\r\nAccept: b\r\nTE: \r\nX-New: 1\r\nVary: 2\r\n"
        );
        assert_eq!(
            encoded(|id| !matches!(id, FieldId::Host | FieldId::Te)),
            "> X-Odd: two blanks\r\nAccept: b\r\nX-New: 1\r\nVary: 2\r\n"
        );
        assert_eq!(encoded(|id| id == FieldId::Vary), "> Vary: 2\r\n");
        assert_eq!(encoded(|_| false), "> ");
    }

    #[test]
    fn a_replaced_value_stays_in_its_place() {
        let mut fields = sample();
        fields.push(b"host", b"b");
        fields.push(b"Via", b"c");
        fields.replace(FieldId::Host, |value| {
            (value == b"a.example").then(|| b"longer.example".to_vec())
        });
        let mut out = Vec::new();
        fields.encode(&mut out, |_| true);
        assert_eq!(
            String::from_utf8_lossy(&out),
            "Host: longer.example\r\nX-One: 1\r\naccept: text/html\r\nx-one: 2\r\nhost: b\r\nVia: c\r\n"
        );
    }

    #[test]
    fn a_cleared_set_is_as_new() {
        let mut fields = sample();
        fields.clear();
        assert!(fields.is_empty() && fields.get(FieldId::Host).is_none());
        fields.push(b"Via", b"1.1 x");
        assert_eq!(fields.get(FieldId::Via), Some(&b"1.1 x"[..]));
        assert_eq!(fields.len(), 1);
    }
}
