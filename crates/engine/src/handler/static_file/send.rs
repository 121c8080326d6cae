//! A file's bytes on their way to the client, at most [`TURN_BYTES`] at a time.
//!
//! What is in the page cache goes by `sendfile`; what is not is read by a helper thread into a
//! small buffer, so that a cold disk or a slow mount makes only this client wait. After each turn
//! of a long reply the others get theirs.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::representation::cannot_read;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::helper::Lane;
use crate::io::SENDFILE_MAX;
use crate::resolve::kept::{Content, OpenFile};
use crate::worker::Worker;

/// Most bytes sent before others get their turn.
const TURN_BYTES: u64 = SENDFILE_MAX as u64;
/// What a helper reads at once: each client of a cold file holds a buffer of this size.
const COPY_BYTES: usize = 64 * 1024;
/// Files up to this size are looked at as a whole, and if all of it was in memory, not again for
/// [`WARM_MS`]: what was sent just now does not leave memory first.
const WARM_BYTES_MAX: u64 = 4 << 20;
const WARM_MS: u64 = 500;
/// Bodies up to this size are copied behind their head; longer ones go straight from the cache.
const PUSH_BYTES: usize = 4 * 1024;

/// Sends `length` bytes from `first` on; the head was sent.
pub(super) async fn body(
    worker: &Worker,
    exchange: &mut Exchange,
    content: &Content,
    first: u64,
    length: u64,
) -> Result<()> {
    if exchange.reply.is_head_only() {
        return Ok(());
    }
    match content {
        Content::Memory(bytes, _) => {
            let start = usize::try_from(first).unwrap_or(usize::MAX);
            let end = usize::try_from(first + length).unwrap_or(usize::MAX);
            match bytes.get(start..end).unwrap_or_default() {
                short if short.len() <= PUSH_BYTES => {
                    exchange.reply.push(short);
                    Ok(())
                }
                long => exchange.reply.write(long).await,
            }
        }
        Content::Open(file) => {
            let download = Download { worker, file };
            download.run(exchange, first, first + length).await
        }
    }
}

struct Download<'a> {
    worker: &'a Worker,
    file: &'a OpenFile,
}

impl Download<'_> {
    async fn run(&self, exchange: &mut Exchange, first: u64, end: u64) -> Result<()> {
        let mut at = first;
        let mut buffer = Vec::new();
        while at < end {
            let turn = (end - at).min(TURN_BYTES);
            let sent = if self.is_in_memory(at, turn) {
                buffer = Vec::new();
                self.send(exchange, at, turn).await?
            } else {
                buffer = self.read(buffer, at, end - at).await?;
                exchange.reply.write(&buffer).await?;
                buffer.len() as u64
            };
            if sent == 0 {
                return Err(Error::new(
                    Kind::Internal,
                    "file_truncated",
                    "a file got shorter while it was sent",
                ));
            }
            at += sent;
            if at < end {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn is_in_memory(&self, at: u64, length: u64) -> bool {
        let now_ms = self.worker.deadlines.now_ms();
        if let Some(warm_ms) = self.file.warm_ms.get()
            && now_ms.saturating_sub(warm_ms) < WARM_MS
        {
            return true;
        }
        let is_cached = |at, length| {
            self.file.lane == Lane::Local
                && os::file::pages_cached(self.file.handle.as_fd(), at, length).unwrap_or(false)
        };
        let whole = self.file.size <= WARM_BYTES_MAX && is_cached(0, self.file.size);
        self.file.warm_ms.set(whole.then_some(now_ms));
        whole || is_cached(at, length)
    }

    /// Sends a turn's bytes, however many calls that takes; 0 if the file ended.
    async fn send(&self, exchange: &mut Exchange, at: u64, turn: u64) -> Result<u64> {
        let mut sent = 0;
        while sent < turn {
            let file = self.file.handle.as_fd();
            match exchange
                .reply
                .send_file(file, at + sent, turn - sent)
                .await?
            {
                0 => break,
                count => sent += count as u64,
            }
        }
        Ok(sent)
    }

    async fn read(&self, mut buffer: Vec<u8>, at: u64, left: u64) -> Result<Vec<u8>> {
        let handle = Arc::clone(&self.file.handle);
        let count = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let work = move || {
            buffer.resize(count, 0);
            let read = os::file::read_at(handle.as_fd(), &mut buffer, at)?;
            buffer.truncate(read);
            Ok(buffer)
        };
        let read: std::io::Result<_> = self.file.handle.run(work).await?;
        read.map_err(|error| cannot_read(&error))
    }
}
