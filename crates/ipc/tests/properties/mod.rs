//! What holds for any bytes whatever that come over a link: the bodies shared by property tests, fuzz targets and corpora.
//!
//! Each function takes the bytes of one case and panics where a promise is broken.

use std::os::fd::{AsFd, OwnedFd};

use ipc::acme::{FromAcme, ToAcme};
use ipc::archive::question::{ArchiveAnswer, ArchiveQuestion};
use ipc::archive::{BATCH_ROWS_MAX, ToArchive};
use ipc::certificates::CertificateSet;
use ipc::console::{FIELDS_MAX, FromConsole, ToConsole, of_packets};
use ipc::directory::{DirectoryMessage, FromDirectory, ToDirectory};
use ipc::keeper::{FromKeeper, Judged, ToKeeper};
use ipc::message::Message;
use ipc::ring::{
    CURSOR_WORDS, RECORDS_MAX, RING_WORDS, RingReader, RingRecord, RingWriter, TEXT_BYTES_MAX,
    TextOf,
};
use ipc::signing::{Answer, Asked, Question};
use os::shared::SharedWriter;

/// What the keeper is told and says is bounded, and nothing is a question that TLS does not sign.
pub(crate) fn keeper_messages(bytes: &[u8]) {
    if let Ok(question) = Question::decode(bytes) {
        assert!(bytes.len() <= 512);
        if let Asked::Sign(sign) = question.what {
            let message = sign.parts.message().expect("what TLS signs");
            assert!(message.len() <= 64 + 34 + 97 + 4);
        }
    }
    if let Ok((_, Answer::Signature { bytes, .. })) = Answer::decode(bytes) {
        assert!(bytes.len() <= 2_048);
    }
    let _ = ToKeeper::decode(bytes);
    match FromKeeper::decode(bytes) {
        Ok(FromKeeper::Judged { verdicts }) => {
            assert!(verdicts.iter().flatten().all(is_bounded));
            assert!(
                verdicts
                    .iter()
                    .all(|it| it.as_ref().err().is_none_or(|it| it.len() < 10_000))
            );
        }
        Ok(FromKeeper::Local { result: Ok(local) }) => assert!(is_bounded(&local.certificate)),
        Ok(FromKeeper::Challenge { result: Ok(judged) }) => assert!(is_bounded(&judged)),
        _ => {}
    }
    if let Ok(set) = CertificateSet::of_bytes(bytes) {
        let places = set.certificates.iter().flat_map(|it| &it.chain);
        assert!(
            places
                .into_iter()
                .all(|place| (*place as usize) < set.blobs.len())
        );
    }
}

fn is_bounded(judged: &Judged) -> bool {
    (1..=10).contains(&judged.chain.len()) && judged.names.iter().all(|name| name.len() <= 300)
}

/// What the acme process is told and says is bounded.
pub(crate) fn acme_messages(bytes: &[u8]) {
    let _ = ToAcme::decode(bytes);
    if let Ok(FromAcme::Request { names, .. }) = FromAcme::decode(bytes) {
        assert!(names.len() <= 100 && names.iter().all(|name| name.len() <= 300));
    }
}

/// Whatever a worker has put into a ring, the recorder reads texts and records of bounded size and number, and goes on.
pub(crate) fn arbitrary_ring(bytes: &[u8]) {
    let (memory, page) = ring();
    let ring = SharedWriter::map(memory.0.as_fd(), RING_WORDS).expect("memory");
    let mut reader = RingReader::new(memory.1.as_fd(), page.0.as_fd()).expect("a reader");
    for words in numbers(bytes).chunks(3) {
        match *words {
            // Its own numbers first, then what they make visible.
            [at, value, ..] if at % 4 < 2 => ring.publish(8 * (at as usize % 4), value),
            [at, value, ..] => ring.set(at as usize % RING_WORDS, value),
            _ => {}
        }
        let mut records = 0;
        let counts = reader.read(
            |text| assert!((1..=TEXT_BYTES_MAX).contains(&text.bytes.len())),
            |_| records += 1,
        );
        assert!(records <= RECORDS_MAX && counts.records == records as u64);
        let again = reader.read(|_| panic!("a text twice"), |_| panic!("a record twice"));
        assert!(!again.was_broken);
    }
}

/// Whatever the recorder's page says, a worker writes its records or drops them, and who reads then reads what was written.
pub(crate) fn arbitrary_cursor(bytes: &[u8]) {
    let (memory, page) = ring();
    let liar = SharedWriter::map(page.0.as_fd(), CURSOR_WORDS).expect("memory");
    let mut writer = RingWriter::new(memory.0.as_fd(), page.1.as_fd()).expect("a writer");
    for words in numbers(bytes).chunks(2) {
        if let [at, value] = *words {
            liar.set(at as usize % 12, value);
        }
        for number in 0..3 {
            if writer.begin().is_ok() {
                let path = writer.text(TextOf::Path, bytes);
                writer.push(&RingRecord {
                    path,
                    bytes_in: number,
                    ..RingRecord::default()
                });
            }
        }
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .copied()
        .map(u64::from_le_bytes)
        .collect()
}

fn ring() -> ((OwnedFd, OwnedFd), (OwnedFd, OwnedFd)) {
    let memory = |words| os::shared::memory("ring", words).expect("memory");
    (memory(RING_WORDS), memory(CURSOR_WORDS))
}

/// What a server and the recorder say to each other is bounded, however it is cut into packets.
pub(crate) fn console_messages(bytes: &[u8]) {
    let _ = of_packets::<ToConsole>(bytes);
    for said in of_packets::<FromConsole>(bytes).unwrap_or_default() {
        if let FromConsole::Answer(answer) = said {
            assert!(answer.fields.len() <= FIELDS_MAX && answer.body.len() <= bytes.len());
        }
    }
}

/// What the recorder and the directory process say to each other of the archive can be judged, and rows go in batches
/// until none is left.
pub(crate) fn archive_messages(bytes: &[u8]) {
    for asked in of_packets::<ArchiveQuestion>(bytes).unwrap_or_default() {
        let _ = asked.is_bounded();
    }
    for answer in of_packets::<ArchiveAnswer>(bytes).unwrap_or_default() {
        let _ = answer.said.bounded();
    }
    for mut sent in of_packets::<ToArchive>(bytes).unwrap_or_default() {
        while !sent.rows.is_empty() {
            let batch = sent.rows.split_batch(BATCH_ROWS_MAX);
            assert!((1..=BATCH_ROWS_MAX).contains(&batch.len()));
        }
    }
}

/// What a server and the directory process say to each other is bounded.
pub(crate) fn directory_messages(bytes: &[u8]) {
    if let Ok(asked) = ToDirectory::of_packet(bytes) {
        assert!(asked.is_bounded());
    }
    if let Ok(said) = FromDirectory::of_packet(bytes) {
        assert!(said.is_bounded());
    }
}
