//! Packets of MySQL's protocol (dev.mysql.com, "MySQL Client/Server Protocol"; mariadb.com,
//! "Client/Server Protocol"), and the numbers and strings in them: bytes in, values out.
//!
//! A packet is three bytes of length, a number in the order of packets, and so many bytes. Longer
//! ones than those three bytes can say come in parts; none of ours is, and none is taken.

use super::reply::MysqlFault;

/// What comes before each packet's bytes.
pub(super) const HEADER_BYTES: usize = 4;

/// What bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Front<'a> {
    /// A whole packet.
    Whole { sequence: u8, payload: &'a [u8] },
    /// A part of one; so many bytes are missing at least.
    Partial(usize),
}

/// The packet that bytes begin with.
pub(super) fn front(bytes: &[u8], bytes_max: usize) -> Result<Front<'_>, MysqlFault> {
    let Some((&[low, middle, high, sequence], rest)) = bytes.split_first_chunk::<HEADER_BYTES>()
    else {
        return Ok(Front::Partial(HEADER_BYTES - bytes.len()));
    };
    let length = u32::from_le_bytes([low, middle, high, 0]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > bytes_max {
        return Err(MysqlFault::Bytes);
    }
    match rest.get(..length) {
        Some(payload) => Ok(Front::Whole { sequence, payload }),
        None => Ok(Front::Partial(length - rest.len())),
    }
}

/// Begins a packet behind what is there; [`seal`] takes what this gives.
pub(super) fn begin(out: &mut Vec<u8>) -> usize {
    let place = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    place
}

/// Ends the packet that was begun last.
///
/// Its bytes are fewer than a packet may have: see what is refused before anything is sent.
pub(super) fn seal(out: &mut [u8], place: usize, sequence: u8) {
    let length = out.len().saturating_sub(place + HEADER_BYTES);
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let header = [length[0], length[1], length[2], sequence];
    if let Some(place) = out.get_mut(place..place + HEADER_BYTES) {
        place.copy_from_slice(&header);
    }
}

/// Writes a number of any length.
pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=250 => out.push(u8::try_from(number).unwrap_or_default()),
        251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&u16::try_from(number).unwrap_or_default().to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(number.to_le_bytes().get(..3).unwrap_or_default());
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Writes a string with its length before it.
pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a string that ends with a NUL. What comes behind one within it is left out.
pub(super) fn put_name(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes.iter().take_while(|byte| **byte != 0));
    out.push(0);
}

/// Takes a packet's values from its front; `None` where it is too short for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of any length.
    pub(super) fn number(&mut self) -> Option<u64> {
        match self.u8()? {
            byte @ 0..=0xfa => Some(byte.into()),
            0xfc => self.u16().map(u64::from),
            0xfd => {
                let [low, middle, high] = self.array()?;
                Some(u32::from_le_bytes([low, middle, high, 0]).into())
            }
            0xfe => self.u64(),
            0xfb | 0xff => None,
        }
    }

    /// A string with its length before it.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.bytes(length)
    }

    /// A string that ends with a NUL, or with the packet.
    pub(super) fn name(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.unwrap_or(self.0.len());
        let name = self.0.get(..end).unwrap_or_default();
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_and_come_back_as_they_were() {
        let numbers = [
            0,
            250,
            251,
            0xffff,
            0x1_0000,
            0xff_ffff,
            0x100_0000,
            u64::MAX,
        ];
        for number in numbers {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(Fields(&out).number(), Some(number), "{out:?}");
            let cut = out.len() - 1;
            assert_eq!(Fields(&out[..cut]).number(), None, "{out:?}");
        }
        assert_eq!(Fields(b"\xfb").number(), None);
        assert_eq!(Fields(b"\xff").number(), None);
    }

    #[test]
    fn a_packet_is_found_when_it_is_whole_and_refused_when_it_would_be_too_long() {
        let mut out = Vec::new();
        let place = begin(&mut out);
        put_string(&mut out, b"ab");
        seal(&mut out, place, 7);
        assert_eq!(out, b"\x03\0\0\x07\x02ab");
        for end in 0..out.len() {
            let missing = if end < 4 { 4 - end } else { out.len() - end };
            assert_eq!(front(&out[..end], 3), Ok(Front::Partial(missing)));
        }
        let payload = &b"\x02ab"[..];
        let whole = Front::Whole {
            sequence: 7,
            payload,
        };
        assert_eq!(front(&out, 3), Ok(whole));
        assert_eq!(front(&out, 2), Err(MysqlFault::Bytes));
        assert_eq!(Fields(payload).string(), Some(&b"ab"[..]));
    }

    #[test]
    fn a_name_ends_with_a_nul_or_with_its_packet() {
        let mut out = Vec::new();
        put_name(&mut out, b"a\0b");
        assert_eq!(out, b"a\0");
        let mut fields = Fields(b"ab\0c");
        assert_eq!((fields.name(), fields.name()), (&b"ab"[..], &b"c"[..]));
        assert_eq!(fields.name(), b"");
    }
}
