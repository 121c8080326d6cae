//! The buffer bytes are read into: initialised once, reused for every request of a worker.
//!
//! A window `start..end` slides over a fixed block; it moves to the front only when the tail is
//! full. Blocks come from a worker's [`BufferPool`], so an idle connection holds none.

use std::cell::RefCell;
use std::rc::Rc;

/// Size of a pooled block, enough for nearly every request head.
pub const BLOCK_BYTES: usize = 8 * 1024;
/// Size a block grows to while a body passes through it.
pub const BODY_BYTES: usize = 64 * 1024;
/// Blocks of each size a worker keeps for later.
const POOLED_MAX: usize = 256;

/// Blocks a worker keeps for its connections.
#[derive(Debug, Clone, Default)]
pub struct BufferPool {
    small: Rc<RefCell<Vec<Vec<u8>>>>,
    large: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl BufferPool {
    fn take(&self, bytes: usize) -> Vec<u8> {
        let (shelf, size) = if bytes <= BLOCK_BYTES {
            (&self.small, BLOCK_BYTES)
        } else {
            (&self.large, BODY_BYTES.max(bytes))
        };
        match shelf.borrow_mut().pop() {
            Some(block) if block.len() >= size => block,
            _ => vec![0; size],
        }
    }

    fn give(&self, block: Vec<u8>) {
        let shelf = match block.len() {
            BLOCK_BYTES => &self.small,
            BODY_BYTES => &self.large,
            _ => return,
        };
        let mut shelf = shelf.borrow_mut();
        if shelf.len() < POOLED_MAX {
            shelf.push(block);
        }
    }
}

/// Bytes read and not yet used.
#[derive(Debug)]
pub struct ReadBuffer {
    block: Vec<u8>,
    start: usize,
    end: usize,
    pool: BufferPool,
}

impl ReadBuffer {
    /// Makes an empty buffer that takes its block on first use.
    pub fn new(pool: &BufferPool) -> Self {
        Self {
            block: Vec::new(),
            start: 0,
            end: 0,
            pool: pool.clone(),
        }
    }

    /// The bytes read and not yet consumed.
    pub fn data(&self) -> &[u8] {
        self.block.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets the first `count` bytes of [`Self::data`].
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room to read into. Moves or grows the block as needed, never beyond `bytes_max`;
    /// empty when `bytes_max` bytes are buffered already.
    pub fn room(&mut self, bytes_max: usize) -> &mut [u8] {
        if self.end == self.block.len() || (self.is_empty() && self.block.len() < bytes_max) {
            self.make_room(bytes_max);
        }
        self.block.get_mut(self.end..).unwrap_or_default()
    }

    /// Says that `count` bytes of [`Self::room`] were filled.
    pub fn filled(&mut self, count: usize) {
        debug_assert!(count <= self.block.len() - self.end);
        self.end = (self.end + count).min(self.block.len());
    }

    /// Appends bytes that were read elsewhere.
    pub fn put_back(&mut self, bytes: &[u8]) {
        let need = self.data().len() + bytes.len();
        let mut block = self.pool.take(need);
        let kept = self.data().len();
        block[..kept].copy_from_slice(self.data());
        block[kept..need].copy_from_slice(bytes);
        self.replace(block, need);
    }

    /// Gives the block back; only meant for an empty buffer.
    pub fn release(&mut self) {
        debug_assert!(self.is_empty());
        (self.start, self.end) = (0, 0);
        let block = std::mem::take(&mut self.block);
        self.pool.give(block);
    }

    fn make_room(&mut self, bytes_max: usize) {
        let used = self.end - self.start;
        if self.block.len() < bytes_max && (used == self.block.len() || used == 0) {
            let mut block = self.pool.take(
                bytes_max
                    .min((self.block.len() * 2).max(BLOCK_BYTES))
                    .max(used + 1),
            );
            block[..used].copy_from_slice(self.data());
            self.replace(block, used);
        } else if self.start > 0 {
            self.block.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, used);
        }
    }

    fn replace(&mut self, block: Vec<u8>, used: usize) {
        let old = std::mem::replace(&mut self.block, block);
        (self.start, self.end) = (0, used);
        self.pool.give(old);
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.block));
    }
}
