//! A second in words, kept until the next one comes.

/// The two ways records name the second a request came in. Both are UTC.
#[derive(Debug)]
pub(super) struct Times {
    second: u64,
    common: [u8; 28],
    iso: [u8; 19],
}

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

impl Default for Times {
    fn default() -> Self {
        let mut times = Self {
            second: 0,
            common: *b"[00/Jan/0000:00:00:00 +0000]",
            iso: *b"0000-01-00T00:00:00",
        };
        times.write();
        times
    }
}

impl Times {
    /// Moves to a second, counted from 1970.
    pub(super) fn read(&mut self, second: u64) {
        if second != self.second {
            self.second = second;
            self.write();
        }
    }

    /// `[21/Nov/2026:20:45:00 +0000]`, as Apache's `%t`.
    pub(super) fn common(&self) -> &[u8] {
        &self.common
    }

    /// `2026-11-21T20:45:00`.
    pub(super) fn iso(&self) -> &[u8] {
        &self.iso
    }

    fn write(&mut self) {
        // "Sat, 21 Nov 2026 20:45:00 GMT"
        let date = wire::date::format(self.second);
        let (day, month, year, clock) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        self.common[1..3].copy_from_slice(day);
        self.common[4..7].copy_from_slice(month);
        self.common[8..12].copy_from_slice(year);
        self.common[13..21].copy_from_slice(clock);
        let number = MONTHS.iter().position(|name| **name == *month).unwrap_or(0) + 1;
        // A month has at most two digits.
        let number = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        self.iso[0..4].copy_from_slice(year);
        self.iso[5..7].copy_from_slice(&number);
        self.iso[8..10].copy_from_slice(day);
        self.iso[11..19].copy_from_slice(clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_two_names() {
        for (second, common, iso) in [
            (0, "[01/Jan/1970:00:00:00 +0000]", "1970-01-01T00:00:00"),
            (
                951_782_400,
                "[29/Feb/2000:00:00:00 +0000]",
                "2000-02-29T00:00:00",
            ),
            (
                1_795_293_900,
                "[21/Nov/2026:20:45:00 +0000]",
                "2026-11-21T20:45:00",
            ),
            (
                1_798_761_599,
                "[31/Dec/2026:23:59:59 +0000]",
                "2026-12-31T23:59:59",
            ),
        ] {
            let mut times = Times::default();
            times.read(second);
            assert_eq!(times.common(), common.as_bytes());
            assert_eq!(times.iso(), iso.as_bytes());
        }
    }
}
