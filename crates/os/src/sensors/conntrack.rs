//! The kernel's table of connections: how full, how much it refused.

/// Kernel memory of an entry in use, at most: the entry itself (256 to 320 bytes by version) and
/// what is noted beside it.
pub const ENTRY_BYTES: u64 = 448;

/// The number in `nf_conntrack_count`, `nf_conntrack_max` or `nf_conntrack_buckets`.
pub fn conntrack_number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// What was refused or forgotten because the table was full, all processors together, in the text
/// of `/proc/net/stat/nf_conntrack`: a line of names, then one of hexadecimal numbers each.
///
/// `drop` counts packets for whose connection there was no entry; `early_drop` connections that
/// were forgotten to make room. `insert_failed` is none of these: two packets of one flow met.
pub fn conntrack_refused(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let column = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (dropped, early) = (column("drop")?, column("early_drop")?);
    let mut sum = 0_u64;
    for line in lines {
        let number = |column: usize| {
            let word = line.split_ascii_whitespace().nth(column)?;
            u64::from_str_radix(word, 16).ok()
        };
        sum = sum
            .wrapping_add(number(dropped)?)
            .wrapping_add(number(early)?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new\n";
    /// As kernels before 5.2 had it.
    const NAMES_OLD: &str = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop icmp_error\n";

    #[test]
    fn drops_of_all_processors_are_added_up() {
        for (text, expected) in [
            (
                format!("{NAMES}00000003 0 0 0 0 0 0 0 0 000000ff 0000000a 00000002 00000000 0\n"),
                Some(12),
            ),
            (
                format!("{NAMES}3 0 0 0 0 0 0 0 0 9 1 2 0 0\n3 0 0 0 0 0 0 0 0 9 10 20 0 0\n"),
                Some(51),
            ),
            (
                format!("{NAMES_OLD}3 0 0 0 0 0 0 0 0 9 ffffffff 1 0\n"),
                Some(0x1_0000_0000),
            ),
            (NAMES.to_owned(), Some(0)),
            (format!("{NAMES}3 0 0 0 0 0 0 0 0 9 1\n"), None),
            (format!("{NAMES}3 0 0 0 0 0 0 0 0 9 -1 0 0\n"), None),
            (format!("{NAMES}\n"), None),
            ("drop\n1\n".to_owned(), None),
            ("early_drop drop\n1 2\n".to_owned(), Some(3)),
            (String::new(), None),
        ] {
            assert_eq!(conntrack_refused(&text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_number_is_a_whole_one() {
        for (text, expected) in [
            ("262144\n", Some(262_144)),
            ("0", Some(0)),
            ("-1\n", None),
            ("1 2\n", None),
            ("18446744073709551616\n", None),
            ("", None),
        ] {
            assert_eq!(conntrack_number(text), expected, "{text:?}");
        }
    }
}
