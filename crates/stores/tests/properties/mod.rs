//! What holds for any bytes a store may answer, for the replayed corpora and the fuzz targets.

use stores::Progress;
use stores::memcached::reply as memcached;
use stores::mysql::reply as mysql;
use stores::redis::reply::{RedisDecoder, RedisFault, RedisReply};

/// memcached's answers: what is not there yet is awaited, and no more than comes.
pub(crate) fn memcached_reply(bytes: &[u8]) {
    const KEY: &[u8] = b"k";
    let whole = memcached::parse(bytes, KEY);
    for end in 0..bytes.len() {
        let begun = memcached::parse(&bytes[..end], KEY);
        match (&whole, begun) {
            (Ok(Progress::Done(reply, used)), Ok(Progress::Done(same, at))) => {
                assert_eq!((reply, *used), (&same, at));
                assert!(at <= end);
            }
            (Ok(Progress::Done(_, used)), Ok(Progress::More { awaited, .. })) => {
                assert!(
                    awaited >= 1 && end + awaited <= *used,
                    "{end} + {awaited} of {used}"
                );
            }
            (Ok(Progress::More { .. }) | Err(_), Ok(Progress::More { awaited, .. })) => {
                assert!(awaited >= 1);
            }
            (Err(fault), Err(same)) => assert_eq!(*fault, same),
            (whole, begun) => panic!("{begun:?} became {whole:?} at {end}"),
        }
    }
}

/// Redis' answers: the same ones, in whatever pieces they come.
pub(crate) fn redis_reply(bytes: &[u8]) {
    let whole = redis(bytes, bytes.len().max(1));
    assert_eq!(whole, redis(bytes, 1), "byte by byte");
    assert_eq!(whole, redis(bytes, 7), "by seven");
}

fn redis(bytes: &[u8], piece: usize) -> (Vec<RedisReply>, Option<RedisFault>) {
    let (mut decoder, mut replies) = (RedisDecoder::default(), Vec::new());
    let (mut begin, mut end) = (0, 0);
    loop {
        match decoder.decode(&bytes[begin..end]) {
            Ok(Progress::Done(reply, used)) => {
                assert!(used >= 1, "progress");
                begin += used;
                replies.push(reply);
            }
            Ok(Progress::More { used, awaited }) => {
                assert!(awaited >= 1);
                begin += used;
                if end == bytes.len() {
                    return (replies, None);
                }
                end = bytes.len().min(end + piece);
            }
            Err(fault) => return (replies, Some(fault)),
        }
        assert!(begin <= end);
    }
}

/// MySQL's answers: the same ones, in whatever pieces they come. The first byte says how the server
/// puts them, and what is asked.
pub(crate) fn mysql_reply(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    // As text: a row may have a NaN, which equals nothing.
    let in_pieces_of = |piece| format!("{:?}", mysql(choice, bytes, piece));
    let whole = in_pieces_of(bytes.len().max(1));
    assert_eq!(whole, in_pieces_of(1), "byte by byte");
    assert_eq!(whole, in_pieces_of(7), "by seven");
}

fn mysql(
    choice: u8,
    bytes: &[u8],
    piece: usize,
) -> (Vec<mysql::MysqlReply>, Option<mysql::MysqlFault>) {
    let dialect = match choice % 3 {
        0 => mysql::Dialect::Old,
        1 => mysql::Dialect::Plain,
        _ => mysql::Dialect::Short,
    };
    let mut question = match choice / 3 % 3 {
        0 => mysql::MysqlQuestion::Prepare,
        1 => mysql::MysqlQuestion::Text,
        _ => mysql::MysqlQuestion::Execute(None),
    };
    let mut decoder = mysql::MysqlDecoder::new(dialect, question.clone());
    let (mut replies, mut begin, mut end) = (Vec::new(), 0, 0);
    loop {
        match decoder.decode(&bytes[begin..end]) {
            Ok(Progress::Done(reply, used)) => {
                assert!(used >= 1, "progress");
                begin += used;
                if let (mysql::MysqlQuestion::Execute(known), mysql::MysqlReply::Done(_, columns)) =
                    (&mut question, &reply)
                {
                    known.clone_from(columns);
                }
                replies.push(reply);
                decoder = mysql::MysqlDecoder::new(dialect, question.clone());
            }
            Ok(Progress::More { used, awaited }) => {
                assert!(awaited >= 1);
                begin += used;
                if end == bytes.len() {
                    return (replies, None);
                }
                end = bytes.len().min(end + piece);
            }
            Err(fault) => return (replies, Some(fault)),
        }
        assert!(begin <= end);
    }
}
