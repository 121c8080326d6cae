//! A body set aside: in memory while it is short, then in a file without a name.
//!
//! Bytes go in at one end and come out at the other, in order. Those in the middle lie in the
//! file, written and read a block at a time on the helper pool, so a body of any length costs
//! [`crate::buffer::BLOCK_BYTES`] and twice the memory cap. All files of the process share one
//! allowance on disk, of which each owner has his share ([`crate::shares`]). How much may be set aside, and what happens when it can't, is the caller's
//! decision: a spool without room just says so.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use tokio::task::JoinHandle;

use crate::buffer::BLOCK_BYTES;
use crate::error::{Error, Kind, Result};
use crate::helper::{Helpers, Lane};
use crate::shares::{Owner, Shares};

/// How much a spool may take.
#[derive(Debug, Clone, Copy)]
pub struct SpoolCaps {
    /// Bytes kept in memory before they go to the file.
    pub memory_bytes: usize,
    /// Bytes of all files of the process.
    pub disk_bytes: u64,
}

/// Room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// So many bytes may be pushed.
    Bytes(usize),
    /// None, until others have given some back or what is here was used.
    None,
}

/// Bytes set aside.
#[derive(Debug)]
pub struct Spool {
    caps: SpoolCaps,
    purse: Purse,
    helpers: Helpers,
    /// The oldest bytes, of which `used` have been used.
    front: Vec<u8>,
    used: usize,
    /// The bytes after them, from `read_at` to `written_at`.
    file: Option<Arc<File>>,
    read_at: u64,
    written_at: u64,
    /// The newest bytes.
    back: Vec<u8>,
    /// What a helper does just now.
    work: Option<JoinHandle<Result<Done>>>,
    /// The disk failed; it isn't asked again.
    is_broken: bool,
    /// A helper had to be given up, and bytes with it.
    is_lost: bool,
    len: u64,
}

/// What all temporary files of the process take together, and who pays for one of them.
#[derive(Debug, Clone)]
struct Purse {
    disk: Arc<Shares>,
    owner: Owner,
}

/// A file without a name; its room on the disk is given back with it.
#[derive(Debug)]
struct File {
    content: OwnedFd,
    purse: Purse,
    reserved_bytes: AtomicU64,
}

/// Room on the disk for what is about to be written.
struct Reserved {
    purse: Purse,
    bytes: u64,
}

impl Reserved {
    /// Leaves the room to a file.
    fn keep(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.purse.give_back(self.bytes);
    }
}

/// What a helper has done.
#[derive(Debug)]
enum Done {
    Wrote(Vec<u8>, io::Result<Arc<File>>),
    Read(io::Result<Vec<u8>>),
}

impl Purse {
    fn reserve(&self, bytes: u64, cap: u64) -> Option<Reserved> {
        let taken = self.disk.acquire(&self.owner, bytes, cap);
        taken.ok().map(|()| Reserved {
            purse: self.clone(),
            bytes,
        })
    }

    fn give_back(&self, bytes: u64) {
        self.disk.give_back(&self.owner, bytes);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let reserved_bytes = *self.reserved_bytes.get_mut();
        self.purse.give_back(reserved_bytes);
    }
}

impl Spool {
    /// Makes an empty spool, whose file counts as its owner's share of the disk.
    pub fn new(caps: SpoolCaps, disk: &Arc<Shares>, owner: Owner, helpers: &Helpers) -> Self {
        let disk = Arc::clone(disk);
        Self {
            caps,
            purse: Purse { disk, owner },
            helpers: helpers.clone(),
            front: Vec::new(),
            used: 0,
            file: None,
            read_at: 0,
            written_at: 0,
            back: Vec::new(),
            work: None,
            is_broken: false,
            is_lost: false,
            len: 0,
        }
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        self.purse.owner.clone()
    }

    /// Bytes pushed and not yet consumed.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether every byte pushed was consumed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Says how much may be pushed; waits where a helper is about to make room.
    ///
    /// # Errors
    /// When the disk failed or did not answer in time: bytes are lost.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<Room>> {
        loop {
            self.check()?;
            let room = self.caps.memory_bytes.saturating_sub(self.back.len());
            if room > 0 {
                return Poll::Ready(Ok(Room::Bytes(room)));
            }
            if self.work.is_some() {
                ready!(self.poll_work(cx))?;
            } else if !self.start_writing() {
                return Poll::Ready(Ok(Room::None));
            }
        }
    }

    /// Adds bytes, as many as [`Self::poll_room`] allowed.
    pub fn push(&mut self, data: &[u8]) {
        debug_assert!(self.back.len() + data.len() <= self.caps.memory_bytes);
        self.back.extend_from_slice(data);
        self.len += data.len() as u64;
    }

    /// Ready when [`Self::data`] holds bytes or the spool is empty.
    ///
    /// # Errors
    /// As [`Self::poll_room`].
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.data().is_empty() && !self.is_empty() {
            self.check()?;
            if self.work.is_some() {
                ready!(self.poll_work(cx))?;
            } else if self.read_at < self.written_at {
                self.start_reading();
            } else {
                // The file was used up: what comes next starts it anew.
                (self.read_at, self.written_at) = (0, 0);
                self.front.clear();
                self.used = 0;
                std::mem::swap(&mut self.front, &mut self.back);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The oldest bytes, once [`Self::poll_fill`] was ready.
    pub fn data(&self) -> &[u8] {
        self.front.get(self.used..).unwrap_or_default()
    }

    /// Forgets the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.data().len());
        self.used += count;
        self.len -= count as u64;
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(Ok(()));
        };
        let done = ready!(Pin::new(work).poll(cx));
        self.work = None;
        let done = done.unwrap_or_else(|error| Err(failed(&error.to_string())));
        self.is_lost = done.is_err();
        Poll::Ready(done.and_then(|done| self.end(done)))
    }

    fn end(&mut self, done: Done) -> Result<()> {
        match done {
            Done::Wrote(bytes, Ok(file)) => {
                self.file = Some(file);
                self.written_at += bytes.len() as u64;
            }
            Done::Wrote(mut bytes, Err(error)) => {
                let error = config::reason(&error);
                tracing::warn!(error, "temporary file not written");
                self.is_broken = true;
                bytes.append(&mut self.back);
                self.back = bytes;
            }
            Done::Read(read) => {
                let read = read.map_err(|error| failed(&config::reason(&error)))?;
                self.read_at += read.len() as u64;
                self.front = read;
                self.used = 0;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        match self.is_lost {
            true => Err(failed("bytes were lost")),
            false => Ok(()),
        }
    }

    fn begin(&mut self, work: impl FnOnce() -> Done + Send + 'static) {
        let helpers = self.helpers.clone();
        // A task of its own: the exchange may look elsewhere when its turn comes.
        self.work = Some(tokio::spawn(
            async move { helpers.run(Lane::Spool, work).await },
        ));
    }

    /// Has the newest bytes written; `false` where the disk takes no more.
    fn start_writing(&mut self) -> bool {
        if self.is_broken || self.back.is_empty() {
            return false;
        }
        let end = self.written_at + self.back.len() as u64;
        let before = self
            .file
            .as_ref()
            .map_or(0, |file| file.reserved_bytes.load(Relaxed));
        let more = end.saturating_sub(before);
        let Some(more) = self.purse.reserve(more, self.caps.disk_bytes) else {
            return false;
        };
        let bytes = std::mem::take(&mut self.back);
        let (file, at) = (self.file.clone(), self.written_at);
        self.begin(move || {
            let written = File::or_new(file, more).and_then(|file| {
                os::file::write_at(file.content.as_fd(), &bytes, at).map(|()| file)
            });
            Done::Wrote(bytes, written)
        });
        true
    }

    fn start_reading(&mut self) {
        let Some(file) = self.file.clone() else {
            return;
        };
        let left = usize::try_from(self.written_at - self.read_at).unwrap_or(BLOCK_BYTES);
        let (at, mut block) = (self.read_at, std::mem::take(&mut self.front));
        self.used = 0;
        self.begin(move || {
            block.resize(left.min(BLOCK_BYTES), 0);
            let read = match os::file::read_at(file.content.as_fd(), &mut block, at) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                other => other,
            };
            Done::Read(read.map(|count| {
                block.truncate(count);
                block
            }))
        });
    }
}

impl File {
    /// The file with `more` bytes reserved, or a fresh one.
    fn or_new(file: Option<Arc<Self>>, more: Reserved) -> io::Result<Arc<Self>> {
        if let Some(file) = file {
            file.reserved_bytes.fetch_add(more.keep(), Relaxed);
            return Ok(file);
        }
        let content = os::file::temporary(&std::env::temp_dir())?;
        Ok(Arc::new(Self {
            content,
            purse: more.purse.clone(),
            reserved_bytes: AtomicU64::new(more.keep()),
        }))
    }
}

fn failed(detail: &str) -> Error {
    Error::new(Kind::Internal, "spool_failed", detail)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::fixture::block_on;

    const CAPS: SpoolCaps = SpoolCaps {
        memory_bytes: 1_000,
        disk_bytes: 1 << 20,
    };

    fn pattern(count: usize) -> Vec<u8> {
        (0..count)
            .map(|at| (at.wrapping_mul(31) >> 3) as u8)
            .collect()
    }

    /// Pushes as much as there is room for; says how much that was.
    async fn push(spool: &mut Spool, mut bytes: &[u8]) -> usize {
        let before = bytes.len();
        while !bytes.is_empty()
            && let Ok(Room::Bytes(room)) = poll_fn(|cx| spool.poll_room(cx)).await
        {
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            spool.push(now);
            bytes = later;
        }
        before - bytes.len()
    }

    /// Takes `count` bytes out, in pieces of at most `piece`.
    async fn take(spool: &mut Spool, count: usize, piece: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        while taken.len() < count {
            poll_fn(|cx| spool.poll_fill(cx)).await.expect("bytes");
            let data = spool.data();
            let now = data.len().min(piece).min(count - taken.len());
            assert!(now > 0, "the spool ran dry after {} bytes", taken.len());
            taken.extend_from_slice(data.get(..now).unwrap_or_default());
            spool.consume(now);
        }
        taken
    }

    fn spool(caps: SpoolCaps, disk: &Arc<Shares>) -> Spool {
        let owner = Owner::test("a", "192.0.2.1");
        Spool::new(caps, disk, owner, &Helpers::default())
    }

    #[test]
    fn bytes_come_out_as_they_went_in_however_both_take_turns() {
        for (pushed, taken, piece) in [
            (700, 700, 700),
            (5_000, 1_000, 300),
            (100_000, 99_999, 70_000),
            (3_000, 10, 7),
        ] {
            block_on(async {
                let disk = Arc::default();
                let mut spool = spool(CAPS, &disk);
                let all = pattern(8 * pushed);
                let mut out = Vec::new();
                for round in all.chunks(pushed) {
                    assert_eq!(push(&mut spool, round).await, pushed);
                    out.extend(take(&mut spool, taken, piece).await);
                }
                let rest = usize::try_from(spool.len()).expect("small");
                out.extend(take(&mut spool, rest, piece).await);
                assert!(out == all, "{pushed} {taken} {piece}");
                assert!(spool.is_empty());
                drop(spool);
                assert_eq!(disk.held(), 0);
            });
        }
    }

    #[test]
    fn a_short_body_touches_no_disk() {
        block_on(async {
            let disk = Arc::default();
            let mut spool = spool(CAPS, &disk);
            push(&mut spool, &pattern(1_000)).await;
            assert_eq!(disk.held(), 0);
            assert_eq!(take(&mut spool, 1_000, 1_000).await, pattern(1_000));
        });
    }

    #[test]
    fn all_spools_share_the_disk() {
        block_on(async {
            let caps = SpoolCaps {
                disk_bytes: 32_000,
                ..CAPS
            };
            let disk = Arc::default();
            let mut first = spool(caps, &disk);
            let mut second = spool(caps, &disk);
            let all = pattern(40_000);
            assert_eq!(push(&mut first, &all).await, 22_000);
            assert_eq!(push(&mut second, &all).await, 1_000);
            assert_eq!(disk.held(), 21_000);
            let other = Owner::test("a", "198.51.100.1");
            let mut other = Spool::new(caps, &disk, other, &Helpers::default());
            assert_eq!(push(&mut other, &all).await, 4_000);
            drop(other);
            assert_eq!(take(&mut first, 22_000, 512).await, all[..22_000]);
            drop(first);
            assert_eq!(push(&mut second, &all[1_000..]).await, 21_000);
            assert_eq!(take(&mut second, 22_000, 512).await, all[..22_000]);
        });
    }

    #[test]
    fn a_used_up_file_is_filled_again_from_its_start() {
        block_on(async {
            let disk = Arc::default();
            let mut spool = spool(CAPS, &disk);
            for _ in 0..50 {
                push(&mut spool, &pattern(5_000)).await;
                assert_eq!(take(&mut spool, 5_000, 5_000).await, pattern(5_000));
            }
            assert!(disk.held() <= 5_000, "{}", disk.held());
        });
    }

    #[test]
    fn a_disk_that_does_not_answer_ends_the_wait_and_the_body() {
        let helpers = Helpers::patient_for(std::time::Duration::from_millis(20));
        block_on(async {
            let disk = Arc::default();
            let answers = helpers.hang(Lane::Spool);
            let owner = Owner::test("a", "192.0.2.1");
            let mut spool = Spool::new(CAPS, &disk, owner, &helpers);
            let kept = push(&mut spool, &pattern(2_000)).await;
            assert_eq!(kept, 2_000, "half in memory, half on its way");
            let late = poll_fn(|cx| spool.poll_room(cx)).await;
            assert_eq!(late.expect_err("a full lane").reason, "helpers_late");
            let lost = poll_fn(|cx| spool.poll_fill(cx)).await;
            assert_eq!(lost.expect_err("half a body").reason, "spool_failed");
            assert_eq!(disk.held(), 0, "nothing was written");
            // A machine that stands still may be late for it, too, but not for ever.
            let mut answered = false;
            for _ in 0..1_000 {
                answered = answered || helpers.run(Lane::Local, || ()).await.is_ok();
            }
            assert!(answered, "another lane");
            drop(answers);
        });
    }
}
