//! A file of `/proc` that stays open and is read again and again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of such a file; of a longer one the rest is left out.
const BYTES_MAX: usize = 256 * 1024;
/// Room made at a time.
const ROOM_BYTES: usize = 8 * 1024;

/// A file of `/proc`, kept open.
#[derive(Debug)]
pub struct KeptFile {
    file: File,
}

impl KeptFile {
    /// Opens it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { file })
    }

    /// Reads a short file of one piece as it is now: in one call, and no more than 8 KiB.
    pub fn read_short<'a>(&self, room: &'a mut Vec<u8>) -> io::Result<&'a str> {
        if room.len() < ROOM_BYTES {
            room.resize(ROOM_BYTES, 0);
        }
        let read = self.file.read_at(room, 0)?;
        understood(room.get(..read).unwrap_or_default())
    }

    /// Reads the whole file as it is now. `room` is the caller's, to be lent again.
    pub fn read<'a>(&self, room: &'a mut Vec<u8>) -> io::Result<&'a str> {
        let mut filled = 0;
        loop {
            if room.len() < filled + ROOM_BYTES {
                room.resize(filled + ROOM_BYTES, 0);
            }
            let Some(free) = room.get_mut(filled..) else {
                break;
            };
            // Such files come in pieces of a kernel's choosing: a short one is not the last.
            match self.file.read_at(free, filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if filled >= BYTES_MAX {
                break;
            }
        }
        understood(room.get(..filled).unwrap_or_default())
    }
}

fn understood(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_is_now() {
        let path = std::env::temp_dir().join(format!("nagaya-kept-{}", std::process::id()));
        std::fs::write(&path, "one\n").expect("a file");
        let kept = KeptFile::open(&path).expect("it opens");
        let mut room = Vec::new();
        assert_eq!(kept.read(&mut room).ok(), Some("one\n"));
        let long = "x".repeat(BYTES_MAX + ROOM_BYTES * 2);
        for (text, read) in [("", 0), ("zwei\n", 5), (&long, BYTES_MAX), ("3", 1)] {
            std::fs::write(&path, text).expect("a file");
            let found = kept.read(&mut room).expect("text");
            assert!(found.len() >= read && found.len() < read + ROOM_BYTES);
            assert!(text.starts_with(found));
            let short = kept.read_short(&mut room).expect("text");
            assert!(text.starts_with(short) && short.is_empty() == text.is_empty());
        }
        std::fs::write(&path, b"\xff\xfe").expect("a file");
        assert!(kept.read(&mut room).is_err());
        std::fs::remove_file(&path).expect("the file");
        assert!(KeptFile::open(&path).is_err());
    }
}
