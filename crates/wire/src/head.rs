//! What request and reply heads have in common around the parser.
//!
//! `httparse` splits a head into slices of the input. It is more lenient than we are in one thing:
//! it takes a bare LF for a line end. Every slice knows its place, so that one look before each
//! line is enough to tell; whatever is not fine goes to [`crate::scan`] for a verdict.

use httparse::Header;

use crate::{caps::HeadCaps, field_id::FieldId, fields::Fields};

/// The part of the input a head may lie in.
pub(crate) fn window<'a>(input: &'a [u8], caps: &HeadCaps) -> &'a [u8] {
    input.get(..caps.head_bytes).unwrap_or(input)
}

/// Where `part`, a slice of `whole`, begins in it.
pub(crate) fn offset(whole: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize)
}

/// Copies the fields of a complete head; `false` if a line of it does not end in CR LF.
pub(crate) fn load(fields: &mut Fields, head: &[u8], headers: &[Header<'_>]) -> bool {
    let ends_before = |line: usize| line.checked_sub(2).and_then(|at| head.get(at)) == Some(&b'\r');
    let blank_line = head.len().saturating_sub(2);
    let lines = headers
        .first()
        .map_or(blank_line, |first| offset(head, first.name.as_bytes()));
    let mut strict = ends_before(blank_line) && ends_before(head.len());
    let places = headers.iter().map(|header| {
        let name = offset(head, header.name.as_bytes());
        let value = offset(head, header.value);
        strict &= ends_before(name);
        let (name, value) = (name.wrapping_sub(lines), value.wrapping_sub(lines));
        let id = FieldId::of(header.name.as_bytes());
        (
            id,
            name..name + header.name.len(),
            value..value + header.value.len(),
        )
    });
    fields.load(head.get(lines..).unwrap_or_default(), places);
    strict
}
