//! What holds for any bytes whatever; shared by tests, the fuzz target and its corpus.

use super::{Ended, HEAD_BYTES_MAX, Notes, Scan, Scanner};
use crate::client::plan::ReplyTo;

/// Replies are taken for the same however their bytes are cut, never count more than there was,
/// and what is broken stays broken. The first bytes of a case say how it is cut.
///
/// # Panics
/// Where that does not hold.
pub fn replies_are_the_same_however_cut(case: &[u8]) {
    let (cuts, bytes) = case.split_at(case.len().min(4));
    let to = match cuts.first().is_some_and(|byte| byte % 7 == 0) {
        true => ReplyTo::Head,
        false => ReplyTo::Other,
    };
    let whole = all(to, &mut std::iter::once(bytes));
    assert_eq!(all(to, &mut bytes.chunks(1)), whole, "byte by byte");
    let mut rest = bytes;
    let mut sizes = cuts.iter().cycle();
    let mut pieces = std::iter::from_fn(|| {
        let size = sizes.next().map_or(1, |size| usize::from(*size) + 1);
        let (piece, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    });
    assert_eq!(all(to, &mut pieces), whole, "cut by {cuts:?}");
}

/// Every reply in the bytes, one after the other, and how the last one ended.
fn all(to: ReplyTo, pieces: &mut dyn Iterator<Item = &'_ [u8]>) -> (Vec<(u16, u64, bool)>, String) {
    let mut scanner = Scanner::new();
    let mut replies = Vec::new();
    let mut fed = 0;
    scanner.expect(to, Notes::Keep);
    for mut piece in pieces {
        loop {
            fed += piece.len() as u64;
            match scanner.feed(piece) {
                Scan::More => break,
                Scan::Whole(used) => {
                    assert!(used <= piece.len(), "more used than there was");
                    fed -= (piece.len() - used) as u64;
                    assert!(scanner.body_bytes() < fed, "more body than bytes");
                    replies.push((scanner.status(), scanner.body_bytes(), scanner.keep()));
                    scanner.expect(to, Notes::Keep);
                    piece = piece.get(used..).unwrap_or_default();
                }
                Scan::Broken(fault) => {
                    assert_eq!(scanner.feed(b"HTTP/1.1 200"), Scan::Broken(fault));
                    return (replies, fault.to_owned());
                }
            }
            if piece.is_empty() {
                break;
            }
        }
        assert!(scanner.part.len() <= HEAD_BYTES_MAX + 1, "too much is held");
    }
    let end = match scanner.end() {
        Ended::Before => "before".to_owned(),
        Ended::Within => format!("within {}", scanner.body_bytes()),
        Ended::Whole => format!("whole {}", scanner.body_bytes()),
    };
    (replies, end)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// Pieces replies are made of, right and wrong.
    const PARTS: [&str; 24] = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 204 No Content\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Server: x\r\n",
        " folded\r\n",
        "no colon\r\n",
        "\r\n",
        "\n",
        "\r",
        "hello",
        "5\r\nhello\r\n",
        "3;x=y\r\nabc\r\n",
        "0\r\n\r\n",
        "0\r\nTrailer: x\r\n\r\n",
        "fffffffffffffff\r\n",
        "\0",
        "HTTP/2 200\r\n",
    ];

    proptest! {
        #[test]
        fn cuts_make_no_difference_to_replies(
            cuts in any::<[u8; 4]>(),
            parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..12),
        ) {
            let mut case = cuts.to_vec();
            case.extend(parts.concat().bytes());
            replies_are_the_same_however_cut(&case);
        }

        #[test]
        fn cuts_make_no_difference_to_garbage(
            garbage in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut case = b"abcdHTTP/1.1 ".to_vec();
            case.extend(&garbage);
            replies_are_the_same_however_cut(&case);
            replies_are_the_same_however_cut(&garbage);
        }
    }

    #[test]
    fn the_corpus_holds() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/bench_reply");
        let mut replayed = 0;
        for file in std::fs::read_dir(&corpus).expect("the corpus is committed") {
            let path = file.expect("a file of the corpus").path();
            replies_are_the_same_however_cut(&std::fs::read(path).expect("a case"));
            replayed += 1;
        }
        assert!(replayed > 0, "the corpus is empty");
    }
}
