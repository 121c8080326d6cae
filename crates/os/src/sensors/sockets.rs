//! What became of connections before a program had them: `/proc/net/netstat`.

/// Connections that found the queue of a listening socket full, in the text of
/// `/proc/net/netstat`: pairs of lines, names and numbers, each with the same word before it.
pub fn listen_overflows(text: &str) -> Option<u64> {
    const GROUP: &str = "TcpExt:";
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(GROUP));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut pairs = names
        .split_ascii_whitespace()
        .zip(numbers.split_ascii_whitespace());
    let (_, number) = pairs.find(|(name, _)| *name == "ListenOverflows")?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_are_found_by_their_name() {
        for (text, expected) in [
            (
                "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 17 19\nIpExt: InNoRoutes\nIpExt: 0\n",
                Some(17),
            ),
            (
                "IpExt: A\nIpExt: 1\nTcpExt: ListenOverflows\nTcpExt: 3\n",
                Some(3),
            ),
            ("TcpExt: A ListenOverflows\nTcpExt: 1\n", None),
            ("TcpExt: ListenOverflows\n", None),
            ("TcpExt: ListenOverflows\nTcpExt: -3\n", None),
            ("TcpExt: ListenDrops\nTcpExt: 3\n", None),
            ("TcpExt:\nTcpExt:\n", None),
            ("", None),
        ] {
            assert_eq!(listen_overflows(text), expected, "{text:?}");
        }
    }
}
