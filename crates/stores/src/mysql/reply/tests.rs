//! Answers made by hand, whole and in pieces, sound and not.

use super::super::packet::{begin, put_number, put_string, seal};
use super::*;

/// Packets one after another, numbered as a server does.
#[derive(Default)]
struct Said {
    bytes: Vec<u8>,
    packets: u8,
}

impl Said {
    fn packet(mut self, payload: &[u8]) -> Self {
        let place = begin(&mut self.bytes);
        self.bytes.extend_from_slice(payload);
        self.packets = self.packets.wrapping_add(1);
        seal(&mut self.bytes, place, self.packets);
        self
    }

    fn column(self, name: &str, code: u8) -> Self {
        let mut out = Vec::new();
        for word in ["def", "d", "t", "t", name, name] {
            put_string(&mut out, word.as_bytes());
        }
        put_number(&mut out, 12);
        out.extend_from_slice(b"\x2d\0\xff\0\0\0");
        out.extend_from_slice(&[code, 0, 0, 0, 0, 0]);
        self.packet(&out)
    }

    /// The end of rows, or of a statement without: with these flags of the server's status.
    fn end(self, first: u8, status: u16) -> Self {
        let status = status.to_le_bytes();
        self.packet(&[first, 3, 7, status[0], status[1], 0, 0])
    }

    fn old_end(self, status: u16) -> Self {
        let status = status.to_le_bytes();
        self.packet(&[END, 0, 0, status[0], status[1]])
    }
}

const TEXT: u8 = 253;
const NUMBER: u8 = 8;

/// What bytes come to, in pieces of this size, and what the server said of transactions.
fn taken(
    dialect: Dialect,
    question: &MysqlQuestion,
    bytes: &[u8],
    piece: usize,
) -> Result<(MysqlReply, Option<TransactionState>), MysqlFault> {
    let mut decoder = MysqlDecoder::new(dialect, question.clone());
    let (mut from, mut to) = (0, 0);
    loop {
        match decoder.decode(&bytes[from..to])? {
            Progress::Done(reply, used) => {
                assert_eq!(from + used, bytes.len(), "all was taken in");
                return Ok((reply, decoder.transaction()));
            }
            Progress::More { used, awaited } => {
                assert!(awaited >= 1 && to < bytes.len(), "{awaited} more");
                from += used;
                to = bytes.len().min(to + piece);
            }
        }
    }
}

/// The same, which is the same in any pieces.
fn reply(
    dialect: Dialect,
    question: &MysqlQuestion,
    said: &Said,
) -> Result<(MysqlReply, Option<TransactionState>), MysqlFault> {
    let whole = taken(dialect, question, &said.bytes, usize::MAX / 2);
    for piece in [1, 2, 5] {
        assert_eq!(taken(dialect, question, &said.bytes, piece), whole);
    }
    whole
}

fn table(answer: &Answer) -> (Vec<&str>, &[Vec<Cell>]) {
    let table = answer.table.as_ref().expect("rows");
    let fields = table.fields.iter().map(String::as_str).collect();
    (fields, &table.rows)
}

fn rows(dialect: Dialect, question: &MysqlQuestion, said: &Said) -> (Answer, Option<Rc<Columns>>) {
    match reply(dialect, question, said) {
        Ok((MysqlReply::Done(answer, columns), _)) => (answer, columns),
        other => panic!("{other:?}"),
    }
}

fn binary(number: u8) -> Vec<u8> {
    [&[0, 0, number][..], &[0; 7], b"\x01a"].concat()
}

#[test]
fn a_statement_is_prepared_in_each_dialect() {
    let head = b"\0\x09\0\0\0\x01\0\x01\0\0\0\0";
    let new = Said::default().packet(head).column("?", TEXT);
    let new = new.column("host", TEXT);
    let old = Said::default().packet(head).column("?", TEXT).old_end(2);
    let old = old.column("host", TEXT).old_end(2);
    for (dialect, said) in [
        (Dialect::Plain, &new),
        (Dialect::Short, &new),
        (Dialect::Old, &old),
    ] {
        let prepared = match reply(dialect, &MysqlQuestion::Prepare, said) {
            Ok((MysqlReply::Prepared(prepared), None)) => prepared,
            other => panic!("{other:?}"),
        };
        assert_eq!((prepared.id, prepared.binds), (9, 1));
        let columns = prepared.columns.expect("a column");
        assert_eq!(&*columns.names, ["host"]);
    }
    let none = Said::default().packet(b"\0\x09\0\0\0\0\0\0\0\0\0\0");
    let prepared = reply(Dialect::Old, &MysqlQuestion::Prepare, &none);
    assert!(matches!(prepared, Ok((MysqlReply::Prepared(it), _)) if it.columns.is_none()));
}

#[test]
fn rows_come_with_their_columns_or_with_those_known_from_before() {
    let begun = |head: &[u8]| Said::default().packet(head);
    let plain = begun(b"\x02").column("n", NUMBER).column("s", TEXT);
    let plain = plain.packet(&binary(7)).packet(&binary(8)).end(END, 2);
    let old = begun(b"\x02").column("n", NUMBER).column("s", TEXT);
    let old = old
        .old_end(2)
        .packet(&binary(7))
        .packet(&binary(8))
        .old_end(2);
    let row = |number| vec![Cell::Int(number), Cell::Bytes(b"a".to_vec())];
    let mut known = None;
    for (dialect, said) in [(Dialect::Old, &old), (Dialect::Plain, &plain)] {
        let (answer, columns) = rows(dialect, &MysqlQuestion::Execute(known.clone()), said);
        assert_eq!(table(&answer), (vec!["n", "s"], &[row(7), row(8)][..]));
        let columns = columns.expect("columns");
        if let Some(known) = &known {
            assert!(Rc::ptr_eq(known, &columns), "they are kept once");
        }
        known = Some(columns);
    }
    let short = begun(b"\x02\0").packet(&binary(9)).end(END, 2);
    let (answer, _) = rows(
        Dialect::Short,
        &MysqlQuestion::Execute(known.clone()),
        &short,
    );
    assert_eq!(table(&answer), (vec!["n", "s"], &[row(9)][..]));
    let unknown = reply(Dialect::Short, &MysqlQuestion::Execute(None), &short);
    assert_eq!(unknown, Err(MysqlFault::Unknown));
    let other = begun(b"\x02\x01").column("n", NUMBER).column("z", TEXT);
    let other = other.packet(&binary(9)).end(END, 2);
    let (answer, _) = rows(
        Dialect::Short,
        &MysqlQuestion::Execute(known.clone()),
        &other,
    );
    assert_eq!(table(&answer), (vec!["n", "z"], &[row(9)][..]));
    let fewer = begun(b"\x01").column("n", NUMBER).end(END, 2);
    let (answer, columns) = rows(Dialect::Plain, &MysqlQuestion::Execute(known), &fewer);
    assert_eq!(table(&answer), (vec!["n"], &[][..]));
    assert_eq!(columns.expect("columns").types.len(), 1);
}

#[test]
fn what_the_server_says_of_transactions_and_of_itself_is_heard() {
    let standings = [
        (2, TransactionState::Free),
        (3, TransactionState::InTransaction),
        (0, TransactionState::InTransaction),
    ];
    for (status, expected) in standings {
        let said = Said::default().end(OK, status);
        let (reply, transaction) =
            reply(Dialect::Plain, &MysqlQuestion::Text, &said).expect("an answer");
        let answer = Answer {
            affected: 3,
            last_insert_id: 7,
            table: None,
        };
        assert_eq!(reply, MysqlReply::Done(answer, None));
        assert_eq!(transaction, Some(expected));
    }
    let refused = Said::default().packet(b"\xff\x28\x04#42000You have an error");
    let (reply, transaction) =
        reply(Dialect::Plain, &MysqlQuestion::Prepare, &refused).expect("a no");
    let MysqlReply::Refused(refusal) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!((refusal.code, transaction), (1064, None));
    let words = "ERROR 1064 (42000): You have an error";
    assert_eq!(refusal.to_string(), words);
}

#[test]
fn of_several_results_the_first_is_kept() {
    let more = STATUS_MORE_RESULTS | STATUS_AUTOCOMMIT;
    let said = Said::default().packet(b"\x01").column("a", TEXT);
    let said = said.packet(b"\x01x").end(END, more);
    let said = said.packet(b"\x01").column("b", TEXT);
    let said = said.packet(b"\x01y").end(END, more).end(OK, 2);
    let (answer, _) = rows(Dialect::Plain, &MysqlQuestion::Text, &said);
    let row = vec![Cell::Bytes(b"x".to_vec())];
    assert_eq!(table(&answer), (vec!["a"], &[row][..]));
    let mut endless = Said::default();
    for _ in 0..=RESULTS_MAX {
        endless = endless.end(OK, more);
    }
    let found = taken(
        Dialect::Plain,
        &MysqlQuestion::Text,
        &endless.bytes,
        endless.bytes.len(),
    );
    assert_eq!(found, Err(MysqlFault::Results));
}

#[test]
fn what_is_no_answer_is_a_fault_and_so_is_too_much_of_one() {
    let execute = MysqlQuestion::Execute(None);
    let cases: [(&MysqlQuestion, Said, MysqlFault); 9] = [
        (&execute, Said::default().packet(b""), MysqlFault::Unknown),
        // The server would have a file of ours.
        (
            &execute,
            Said::default().packet(b"\xfbfile"),
            MysqlFault::Unknown,
        ),
        (&execute, Said::default().old_end(2), MysqlFault::Unknown),
        (
            &execute,
            Said::default().packet(b"\xfc\x01\x10"),
            MysqlFault::Columns,
        ),
        (
            &execute,
            Said::default().packet(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff"),
            MysqlFault::Unknown,
        ),
        (
            &MysqlQuestion::Prepare,
            Said::default().packet(b"\0\x01"),
            MysqlFault::Unknown,
        ),
        (
            &MysqlQuestion::Prepare,
            Said::default().packet(b"\0\x01\0\0\0\xff\xff\0\0\0\0\0"),
            MysqlFault::Columns,
        ),
        (
            &execute,
            Said::default().packet(b"\x01").packet(b"\x03def"),
            MysqlFault::Unknown,
        ),
        (
            &execute,
            Said::default()
                .packet(b"\x01")
                .column("a", TEXT)
                .packet(b"\0\0\x05a"),
            MysqlFault::Unknown,
        ),
    ];
    for (question, said, fault) in cases {
        let found = reply(Dialect::Plain, question, &said);
        assert_eq!(found, Err(fault), "{}", said.bytes.escape_ascii());
    }
    let unordered = b"\x01\0\0\x07\x01";
    let found = taken(Dialect::Plain, &execute, unordered, 5);
    assert_eq!(found, Err(MysqlFault::Unknown));
    let found = taken(Dialect::Plain, &execute, b"\xff\xff\xff\x01", 4);
    assert_eq!(found, Err(MysqlFault::Bytes), "it is not waited for");
}

#[test]
fn rows_have_a_bound_in_number_and_in_bytes() {
    let begun = || Said::default().packet(b"\x01").column("a", TEXT);
    let mut many = begun();
    for _ in 0..=ROWS_MAX {
        many = many.packet(b"\x01x");
    }
    let take = |said: &Said| {
        let bytes = &said.bytes;
        taken(Dialect::Plain, &MysqlQuestion::Text, bytes, bytes.len())
    };
    assert_eq!(take(&many), Err(MysqlFault::Rows));
    let mut large = Vec::new();
    put_string(&mut large, &vec![b'x'; VALUE_BYTES_MAX / 2]);
    let large = begun().packet(&large).packet(&large);
    assert_eq!(take(&large), Err(MysqlFault::Bytes));
}
