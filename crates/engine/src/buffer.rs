//! The buffer bytes are read into: taken from the worker when bytes are there, given back when they are used.
//!
//! One size for all, initialised once. Because a block goes back as soon as it is empty, a worker
//! needs hardly more blocks than it has connections in mid-request, the same few stay warm in the
//! processor's cache, and a connection that waits holds none.

use std::cell::RefCell;
use std::rc::Rc;

/// Size of a block: the most that is buffered of one side of a connection.
pub(crate) const BLOCK_BYTES: usize = 128 * 1024;
/// Blocks a worker keeps for later.
const POOLED_MAX: usize = 64;

/// Blocks a worker keeps for its connections.
#[derive(Debug, Clone, Default)]
pub struct BufferPool {
    blocks: Rc<RefCell<Vec<Box<[u8]>>>>,
}

impl BufferPool {
    /// A block, whatever stands in it.
    pub(crate) fn acquire(&self) -> Box<[u8]> {
        let pooled = self.blocks.borrow_mut().pop();
        pooled.unwrap_or_else(|| vec![0; BLOCK_BYTES].into_boxed_slice())
    }

    /// Takes a block back.
    pub(crate) fn give(&self, block: Box<[u8]>) {
        let mut blocks = self.blocks.borrow_mut();
        if blocks.len() < POOLED_MAX {
            blocks.push(block);
        }
    }
}

/// Bytes read and not yet used.
#[derive(Debug)]
pub struct ReadBuffer {
    /// `None` while nothing is buffered.
    block: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    pool: BufferPool,
}

impl ReadBuffer {
    /// Makes an empty buffer.
    pub fn new(pool: &BufferPool) -> Self {
        Self {
            block: None,
            start: 0,
            end: 0,
            pool: pool.clone(),
        }
    }

    /// Takes it as it is and leaves an empty one.
    pub fn take(&mut self) -> Self {
        let empty = Self::new(&self.pool);
        std::mem::replace(self, empty)
    }

    /// The bytes read and not yet consumed.
    pub fn data(&self) -> &[u8] {
        let block = self.block.as_deref().unwrap_or_default();
        block.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start = (self.start + count).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            if let Some(block) = self.block.take() {
                self.pool.give(block);
            }
        }
    }

    /// Room to read into, behind what is buffered; empty when a whole block is.
    ///
    /// Follow it with [`Self::filled`], even if nothing came.
    pub fn room(&mut self) -> &mut [u8] {
        let block = self.block.get_or_insert_with(|| self.pool.acquire());
        if self.end == block.len() && self.start > 0 {
            block.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        block.get_mut(self.end..).unwrap_or_default()
    }

    /// Says that `count` bytes of [`Self::room`] were filled.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(BLOCK_BYTES);
        self.consume(0);
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.give(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_holds_no_block() {
        let pool = BufferPool::default();
        let mut buffer = ReadBuffer::new(&pool);
        buffer.room()[..3].copy_from_slice(b"abc");
        buffer.filled(3);
        assert_eq!(
            (buffer.data(), pool.blocks.borrow().len()),
            (&b"abc"[..], 0)
        );
        buffer.consume(3);
        assert_eq!((buffer.data(), pool.blocks.borrow().len()), (&b""[..], 1));
        buffer.room();
        buffer.filled(0);
        assert_eq!(pool.blocks.borrow().len(), 1);
    }

    #[test]
    fn unused_bytes_move_to_the_front_when_the_block_is_full() {
        let mut buffer = ReadBuffer::new(&BufferPool::default());
        let room = buffer.room();
        room.fill(b'x');
        let count = room.len();
        buffer.filled(count);
        assert!(buffer.room().is_empty());
        buffer.consume(count - 2);
        assert_eq!(buffer.room().len(), BLOCK_BYTES - 2);
        assert_eq!(buffer.data(), b"xx");
    }
}
