//! The statements a connection has prepared, the one used last in front.

use std::rc::Rc;

use super::packet::{begin, seal};
use super::reply::{Columns, Prepared};

/// PreparedStatements a connection keeps prepared.
const STATEMENTS_MAX: usize = 64;
/// Bytes of their texts; one that is longer alone is kept until the next comes.
const BYTES_MAX: usize = 256 * 1024;

const COM_STMT_CLOSE: u8 = 0x19;

/// What is prepared on one connection.
#[derive(Debug, Default)]
pub(super) struct PreparedStatements {
    kept: Vec<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    sql: Vec<u8>,
    prepared: Prepared,
}

impl PreparedStatements {
    /// A statement that is prepared already.
    pub(super) fn get(&mut self, sql: &[u8]) -> Option<&Prepared> {
        let place = self.kept.iter().position(|kept| kept.sql == sql)?;
        if let Some(used) = self.kept.get_mut(..=place) {
            used.rotate_right(1);
        }
        self.kept.first().map(|kept| &kept.prepared)
    }

    /// Keeps one more; those used longest ago are closed with what is sent next.
    pub(super) fn keep(&mut self, sql: &[u8], prepared: Prepared, out: &mut Vec<u8>) {
        self.bytes += sql.len();
        let sql = sql.to_vec();
        self.kept.insert(0, Kept { sql, prepared });
        while self.kept.len() > STATEMENTS_MAX || (self.bytes > BYTES_MAX && self.kept.len() > 1) {
            let Some(gone) = self.kept.pop() else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(gone.sql.len());
            let place = begin(out);
            out.push(COM_STMT_CLOSE);
            out.extend_from_slice(&gone.prepared.id.to_le_bytes());
            seal(out, place, 0);
        }
    }

    /// Notes which columns a statement has now.
    pub(super) fn learn(&mut self, sql: &[u8], columns: Option<Rc<Columns>>) {
        let kept = self.kept.iter_mut().find(|kept| kept.sql == sql);
        if let (Some(kept), Some(columns)) = (kept, columns) {
            kept.prepared.columns = Some(columns);
        }
    }

    /// Forgets all of them, which the server has closed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(id: u32) -> Prepared {
        Prepared {
            id,
            binds: 0,
            columns: None,
        }
    }

    fn has(statements: &mut PreparedStatements, sql: &[u8]) -> bool {
        statements.get(sql).is_some()
    }

    #[test]
    fn the_statement_used_longest_ago_is_closed_for_one_too_many() {
        let (mut statements, mut out) = (PreparedStatements::default(), Vec::new());
        for id in 0..64_u8 {
            statements.keep(&[id], prepared(id.into()), &mut out);
        }
        assert!(has(&mut statements, &[0]));
        assert!(out.is_empty());
        statements.keep(b"new", prepared(7_000), &mut out);
        assert_eq!(out, b"\x05\0\0\0\x19\x01\0\0\0");
        assert!(!has(&mut statements, &[1]));
        assert!(has(&mut statements, &[0]) && has(&mut statements, &[2]));
    }

    #[test]
    fn texts_have_a_bound_and_the_last_one_stays() {
        let (mut statements, mut out) = (PreparedStatements::default(), Vec::new());
        statements.keep(b"short", prepared(1), &mut out);
        let long = vec![b' '; BYTES_MAX + 1];
        statements.keep(&long, prepared(2), &mut out);
        assert!(has(&mut statements, &long) && !has(&mut statements, b"short"));
        statements.keep(b"short", prepared(3), &mut out);
        assert!(has(&mut statements, b"short") && !has(&mut statements, &long));
        statements.clear();
        assert!(!has(&mut statements, b"short"));
        assert_eq!(statements.bytes, 0);
    }
}
