//! Load averages: `/proc/loadavg`.

/// The means over 1, 5 and 15 minutes in the text of `/proc/loadavg`.
pub fn load_averages(text: &str) -> Option<[f64; 3]> {
    let mut words = text.split_ascii_whitespace();
    let mut next = || {
        let value: f64 = words.next()?.parse().ok()?;
        // A number can be spelled `inf`, `nan` or `-0`: none of them is a load.
        (value.is_finite() && value.is_sign_positive()).then_some(value)
    };
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_means_are_found_or_none() {
        for (text, expected) in [
            ("1.44 1.50 1.70 2/102 27753\n", Some([1.44, 1.5, 1.7])),
            ("0.00 0.01 123456.78 1/1 1", Some([0.0, 0.01, 123_456.78])),
            ("1 2 3", Some([1.0, 2.0, 3.0])),
            ("1.44 1.50", None),
            ("1,44 1,50 1,70 2/102 27753", None),
            ("nan 1 1 1/1 1", None),
            ("1 inf 1 1/1 1", None),
            ("1 1 -1 1/1 1", None),
            ("1e999 1 1 1/1 1", None),
            ("\0\0\0", None),
            ("", None),
        ] {
            assert_eq!(load_averages(text), expected, "{text:?}");
        }
    }
}
