//! How long a group waits for what it needs, as the kernel tells by group in version 2 (PSI).

use super::interface::read;
use super::layout::{Layout, Version};

/// The files of it.
const FILES: [&str; 3] = ["cpu.pressure", "memory.pressure", "io.pressure"];

/// The part of the last ten seconds in which some process of the group at `path` waited for a
/// processor, memory, devices: parts of ten thousand, where the kernel tells.
pub fn pressure(layout: &Layout, path: &[String]) -> [Option<u32>; 3] {
    let mut hierarchies = layout.hierarchies.iter();
    let Some(hierarchy) = hierarchies.find(|it| it.version == Version::V2) else {
        return [None; 3];
    };
    let group = hierarchy.group(path);
    FILES.map(|file| some_avg10(&read(&group.join(file)).ok()?))
}

/// Of the first line, `some avg10=2.03 avg60=…`.
fn some_avg10(text: &str) -> Option<u32> {
    let rest = text.strip_prefix("some avg10=")?;
    let (percent, hundredths) = rest.split(' ').next()?.split_once('.')?;
    let hundredths = hundredths.parse::<u32>().ok().filter(|it| *it < 100)?;
    percent
        .parse::<u32>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_seconds_are_read_in_parts_of_ten_thousand() {
        for (text, expected) in [
            (
                "some avg10=2.03 avg60=3.20 avg300=25.42 total=12\nfull avg10=9.00",
                Some(203),
            ),
            ("some avg10=100.00 avg60=1", Some(10_000)),
            ("full avg10=2.03", None),
            ("some avg10=2 avg60=1", None),
            ("", None),
        ] {
            assert_eq!(some_avg10(text), expected, "{text}");
        }
        assert_eq!(pressure(&Layout::default(), &[]), [None; 3]);
    }
}
