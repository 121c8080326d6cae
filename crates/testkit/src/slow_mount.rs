//! A file system that takes its time: one large file of zeros, every question answered late.
//!
//! Speaks the kernel's FUSE protocol on `/dev/fuse` itself (`linux/fuse.h`, version 7.31), as far
//! as reading one file needs it. Questions are answered one after the other, so that a slow one
//! holds up the next, as on a hung server.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The name of its file.
pub const FILE: &str = "big";

const ROOT: u64 = 1;
const BIG: u64 = 2;
/// Errors as the protocol wants them.
const ENOENT: i32 = -2;
const ENOSYS: i32 = -38;

/// A mounted slow file system; unmounted when dropped.
#[derive(Debug)]
pub struct SlowMount {
    at: PathBuf,
}

impl SlowMount {
    /// Mounts at an existing directory a file of `size` bytes whose every operation takes `delay`.
    ///
    /// # Errors
    /// When the machine has no FUSE or the caller no right to mount.
    pub fn at(directory: &Path, size: u64, delay: Duration) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0",
            device.as_raw_fd()
        );
        let options =
            std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).map_err(io::Error::other)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount("slow", directory, "fuse.slow", flags, Some(options))?;
        let server = Server {
            device,
            size,
            delay,
        };
        // Ends when the file system is unmounted.
        std::thread::spawn(move || server.run());
        Ok(Self {
            at: directory.to_owned(),
        })
    }
}

impl Drop for SlowMount {
    fn drop(&mut self) {
        // Detached: whoever still reads holds up nobody.
        let _ = unmount(&self.at, UnmountFlags::DETACH | UnmountFlags::FORCE);
    }
}

struct Server {
    device: File,
    size: u64,
    delay: Duration,
}

impl Server {
    fn run(mut self) {
        let mut request = vec![0; 256 * 1024];
        while let Ok(count) = self.device.read(&mut request) {
            if self.answer(&request[..count]).is_err() {
                return;
            }
        }
    }

    /// Answers one request: a header of 40 bytes, then what its kind brings.
    fn answer(&mut self, request: &[u8]) -> io::Result<()> {
        let kind = number(request, 4, 4);
        if kind != Kind::INIT {
            std::thread::sleep(self.delay);
        }
        let node = number(request, 16, 8);
        let result = match kind {
            Kind::FORGET | Kind::BATCH_FORGET | Kind::INTERRUPT => return Ok(()),
            Kind::INIT => Ok(init()),
            Kind::LOOKUP if request.get(40..).is_some_and(|name| name == b"big\0") => {
                Ok(self.entry(BIG))
            }
            Kind::LOOKUP => Err(ENOENT),
            Kind::GETATTR => Ok([words(&[1, 0]), self.attributes(node)].concat()),
            Kind::OPEN | Kind::OPENDIR => Ok(words(&[0, 0])),
            Kind::READ => Ok(self.read(number(request, 48, 8), number(request, 56, 4))),
            Kind::STATFS => Ok(vec![0; 80]),
            Kind::FLUSH | Kind::RELEASE | Kind::RELEASEDIR => Ok(Vec::new()),
            _ => Err(ENOSYS),
        };
        let unique = number(request, 8, 8);
        self.reply(unique, &result)
    }

    fn reply(&mut self, unique: u64, result: &Result<Vec<u8>, i32>) -> io::Result<()> {
        let (error, body) = match result {
            Ok(body) => (0, body.as_slice()),
            Err(error) => (*error, &[][..]),
        };
        let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
        let mut reply = Vec::with_capacity(16 + body.len());
        reply.extend(length.to_ne_bytes());
        reply.extend(error.to_ne_bytes());
        reply.extend(unique.to_ne_bytes());
        reply.extend(body);
        match self.device.write_all(&reply) {
            // The question was withdrawn meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    /// `fuse_entry_out`: node, generation, two validities of 1 s, their fractions, attributes.
    fn entry(&self, node: u64) -> Vec<u8> {
        [words(&[node, 0, 1, 1, 0]), self.attributes(node)].concat()
    }

    /// `fuse_attr`.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) = match node {
            ROOT => (0, 0o040_755_u32),
            _ => (self.size, 0o100_644),
        };
        let long = words(&[node, size, size / 512, 1_000_000, 1_000_000, 1_000_000]);
        // Fractions of three times, mode, links, user, group, device, block size, flags.
        let short = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
        let short = short.iter().flat_map(|word: &u32| word.to_ne_bytes());
        long.into_iter().chain(short).collect()
    }

    fn read(&self, offset: u64, count: u64) -> Vec<u8> {
        let count = count.min(self.size.saturating_sub(offset));
        vec![0; usize::try_from(count).unwrap_or(0)]
    }
}

/// The kinds of request.
struct Kind;

impl Kind {
    const LOOKUP: u64 = 1;
    const FORGET: u64 = 2;
    const GETATTR: u64 = 3;
    const OPEN: u64 = 14;
    const READ: u64 = 15;
    const STATFS: u64 = 17;
    const RELEASE: u64 = 18;
    const FLUSH: u64 = 25;
    const INIT: u64 = 26;
    const OPENDIR: u64 = 27;
    const RELEASEDIR: u64 = 29;
    const INTERRUPT: u64 = 36;
    const BATCH_FORGET: u64 = 42;
}

/// `fuse_init_out` of version 7.31: no features, 64 KiB to write at once.
fn init() -> Vec<u8> {
    let mut body = Vec::with_capacity(64);
    for word in [7_u32, 31, 128 * 1024, 0, 0, 64 * 1024, 1] {
        body.extend(word.to_ne_bytes());
    }
    body.resize(64, 0);
    body
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A number of 4 or 8 bytes; 0 where the request is too short.
fn number(request: &[u8], at: usize, length: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(found) = request.get(at..at + length) {
        bytes[..length].copy_from_slice(found);
    }
    u64::from_ne_bytes(bytes)
}
