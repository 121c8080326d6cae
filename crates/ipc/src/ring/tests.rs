//! Rings as their two ends see them, in any order, with an honest other side and a lying one.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use proptest::prelude::*;

use super::*;

/// A ring and its reader's page: for their writers, and to be read.
struct Memory {
    ring: (OwnedFd, OwnedFd),
    cursor: (OwnedFd, OwnedFd),
}

impl Memory {
    fn new() -> Memory {
        Memory {
            ring: os::shared::memory("ring", RING_WORDS).unwrap(),
            cursor: os::shared::memory("cursor", CURSOR_WORDS).unwrap(),
        }
    }

    fn writer(&self) -> RingWriter {
        RingWriter::new(self.ring.0.as_fd(), self.cursor.1.as_fd()).unwrap()
    }

    fn reader(&self) -> RingReader {
        RingReader::new(self.ring.1.as_fd(), self.cursor.0.as_fd()).unwrap()
    }

    /// The reader's page, in the hands of somebody who lies.
    fn liar(&self) -> SharedWriter {
        SharedWriter::map(self.cursor.0.as_fd(), CURSOR_WORDS).unwrap()
    }
}

fn keys(number: u64) -> RingKeys {
    RingKeys {
        names: [number, 1],
        salt: [number, 2],
    }
}

fn record(writer: &mut RingWriter, number: u64, path: &str) -> Result<RingRecord, Dropped> {
    writer.begin()?;
    let record = RingRecord {
        at_us: -1,
        site: writer.text(TextOf::Site, b"a.example"),
        path: writer.text(TextOf::Path, path.as_bytes()),
        bytes_out: number,
        total_us: 7,
        queue_us: UNKNOWN_US,
        upstream_us: 9,
        program_us: 1 << 31,
        status: 404,
        stands_for: 100,
        country: *b"JP",
        is_look: number.is_multiple_of(2),
        is_after_handshake: number.is_multiple_of(3),
        ..RingRecord::default()
    };
    writer.push(&record);
    Ok(record)
}

#[test]
fn what_is_written_is_read_once_with_its_texts_told_before_it() {
    let memory = Memory::new();
    let (mut writer, mut reader) = (memory.writer(), memory.reader());
    assert_eq!(record(&mut writer, 0, "/"), Err(Dropped::NoReader));
    reader.tell_anew(&keys(5));
    let long = "x".repeat(2 * TEXT_BYTES_MAX);
    let written = ["/", "/a", "/", &long, &long].map(|path| record(&mut writer, 8, path).unwrap());
    let (mut texts, mut read) = (Vec::new(), Vec::new());
    let counts = reader.read(
        |text| texts.push((text.hash, text.of, text.bytes.to_vec())),
        |record| read.push(*record),
    );
    assert_eq!(read, written);
    assert_eq!(
        (counts.records, counts.texts, counts.was_broken),
        (5, 4, false)
    );
    let told: Vec<_> = texts
        .iter()
        .map(|(_, of, bytes)| (*of, bytes.len()))
        .collect();
    let expected = [
        (TextOf::Site, 9),
        (TextOf::Path, 1),
        (TextOf::Path, 2),
        (TextOf::Path, TEXT_BYTES_MAX),
    ];
    assert_eq!(told, expected);
    assert_eq!(texts[0].0, keys(5).site("a.example"));
    assert_eq!(
        reader.read(|_| panic!(), |_| panic!()),
        ReadCounts::default()
    );
}

#[test]
fn a_reader_that_stands_still_costs_what_finds_no_room_and_nothing_else() {
    let memory = Memory::new();
    let (mut writer, mut reader) = (memory.writer(), memory.reader());
    reader.tell_anew(&keys(1));
    for number in 0..RECORDS_MAX as u64 {
        record(&mut writer, number, "/").unwrap();
    }
    assert_eq!(record(&mut writer, 0, "/"), Err(Dropped::Full));
    let mut next = 0;
    let counts = reader.read(
        |_| {},
        |record| {
            assert_eq!(record.bytes_out, next);
            next += 1;
        },
    );
    assert_eq!(counts.records, RECORDS_MAX as u64);
    record(&mut writer, 0, "/").unwrap();
    // More texts than there is room for: records go on without.
    let mut full = 0;
    for number in 0..8_000 {
        let path = format!("/{number:0>100}");
        full += u64::from(record(&mut writer, number, &path).is_err());
    }
    assert_eq!(full, 0);
    assert!(writer.untold() > 1_000, "{}", writer.untold());
    reader.read(|_| {}, |_| {});
    let before = writer.untold();
    record(&mut writer, 0, &format!("/{:0>100}", 7_999)).unwrap();
    assert_eq!(writer.untold(), before);
    let mut told = 0;
    reader.read(|_| told += 1, |_| {});
    assert_eq!(
        told, 1,
        "what had not been told is told when it comes again"
    );
}

#[test]
fn texts_of_a_thousand_sites_are_told_once() {
    let memory = Memory::new();
    let (mut writer, mut reader) = (memory.writer(), memory.reader());
    reader.tell_anew(&keys(1));
    let mut told = 0;
    for number in 0..5_000_u64 {
        writer.begin().unwrap();
        let site = number % 1_000;
        for of in [TextOf::Site, TextOf::Path, TextOf::Agent] {
            writer.text(of, format!("{site}.example").as_bytes());
        }
        reader.read(|_| told += 1, |_| {});
    }
    assert_eq!(told, 3_000);
}

#[test]
fn the_next_reader_goes_on_where_the_last_one_was_and_is_told_everything_again() {
    let memory = Memory::new();
    let (mut writer, mut reader) = (memory.writer(), memory.reader());
    reader.tell_anew(&keys(1));
    record(&mut writer, 1, "/").unwrap();
    reader.read(|_| {}, |_| {});
    record(&mut writer, 2, "/").unwrap();
    drop(reader);
    let mut reader = memory.reader();
    reader.tell_anew(&keys(2));
    record(&mut writer, 3, "/").unwrap();
    let (mut texts, mut read) = (Vec::new(), Vec::new());
    reader.read(
        |text| texts.push(text.bytes.to_vec()),
        |record| read.push(record.bytes_out),
    );
    assert_eq!(read, [2, 3]);
    assert_eq!(texts, [&b"a.example"[..], b"/"]);
    let said = ReaderState {
        seen_us: 1,
        written_us: 2,
        cpu_us: 3,
        sent: SentState {
            standing: 1,
            lag_s: 4,
            waiting: 5,
            lost: 6,
        },
    };
    reader.say(&said);
    assert_eq!(writer.reader(), said);
}

#[test]
fn visitors_are_told_apart_by_site_address_agent_and_salt() {
    let memory = Memory::new();
    let (mut writer, reader) = (memory.writer(), memory.reader());
    let mut seen = std::collections::HashSet::new();
    let addresses = ["192.0.2.1", "2001:db8::1", "2001:db8::2", "::1"];
    for number in 1..3 {
        reader.tell_anew(&keys(number));
        writer.begin().unwrap();
        for agent in [&b""[..], b"a", b"b"] {
            let agent = writer.text(TextOf::Agent, agent);
            for (site, address) in (1..3).flat_map(|site| addresses.map(|it| (site, it))) {
                let address = address.parse().unwrap();
                assert!(seen.insert(writer.visitor(site, address, agent)));
            }
        }
    }
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    let plain = "192.0.2.1".parse().unwrap();
    assert_eq!(writer.visitor(1, mapped, 0), writer.visitor(1, plain, 0));
}

#[derive(Debug, Clone)]
enum Move {
    Write {
        path: u8,
        times: u16,
    },
    Read,
    /// Another reader takes over, which knows no texts.
    Restart,
}

fn one_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (any::<u8>(), 1..3_000_u16).prop_map(|(path, times)| Move::Write { path, times }),
        4 => Just(Move::Read),
        1 => Just(Move::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn in_whatever_order_records_are_read_as_they_were_written_and_named_as_they_were(
        steps in prop::collection::vec(one_move(), 1..60)
    ) {
        let memory = Memory::new();
        let (mut writer, mut reader) = (memory.writer(), memory.reader());
        let mut telling = 1;
        reader.tell_anew(&keys(telling));
        let mut waiting = VecDeque::new();
        let mut known: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut number = 0;
        for step in steps {
            match step {
                Move::Write { path, times } => for _ in 0..times {
                    number += 1;
                    let path = format!("/{path}/{}", number % 5);
                    match record(&mut writer, number, &path) {
                        Ok(record) => waiting.push_back((telling, record, path)),
                        Err(why) => {
                            prop_assert_eq!(why, Dropped::Full);
                            prop_assert_eq!(waiting.len(), RECORDS_MAX);
                        }
                    }
                },
                Move::Restart => {
                    reader = memory.reader();
                    telling += 1;
                    reader.tell_anew(&keys(telling));
                    known.clear();
                }
                Move::Read => {
                    let mut read = Vec::new();
                    let counts = reader.read(
                        |text| drop(known.insert(text.hash, text.bytes.to_vec())),
                        |record| read.push(*record),
                    );
                    prop_assert!(!counts.was_broken);
                    prop_assert_eq!(read.len(), waiting.len());
                    for (found, (of, written, path)) in read.iter().zip(waiting.drain(..)) {
                        prop_assert_eq!(*found, written);
                        if of == telling && writer.untold() == 0 {
                            prop_assert_eq!(known.get(&found.path).unwrap(), path.as_bytes());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn whatever_the_readers_page_says_the_writer_goes_on_and_overwrites_nothing_unread(
        lies in prop::collection::vec((0..12_usize, any::<u64>(), 0..20_usize), 1..40)
    ) {
        let memory = Memory::new();
        let (mut writer, liar) = (memory.writer(), memory.liar());
        for (at, lie, records) in lies {
            liar.set(at, lie);
            for number in 0..records {
                let _ = record(&mut writer, number as u64, "/");
            }
        }
        // Who tells the truth again is told the truth.
        let mut reader = memory.reader();
        reader.read(|_| {}, |_| {});
        reader.tell_anew(&keys(3));
        let record = record(&mut writer, 1, "/here");
        let mut read = Vec::new();
        reader.read(|_| {}, |record| read.push(*record));
        prop_assert_eq!(read, [record.unwrap()]);
    }
}
