//! Our ends of a program's pipes, as a worker reads and writes them: without waiting.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::buffer::ReadBuffer;
use crate::io::register;

/// The end a program's output comes from.
#[derive(Debug)]
pub(crate) struct PipeReader(AsyncFd<OwnedFd>);

/// The end a program's input goes into; dropped, it tells the program that there is no more.
#[derive(Debug)]
pub(crate) struct PipeWriter(AsyncFd<OwnedFd>);

/// Our ends of a program's standard streams.
pub(crate) struct Pipes {
    pub(crate) stdin: PipeWriter,
    pub(crate) stdout: PipeReader,
    pub(crate) stderr: PipeReader,
}

impl Pipes {
    /// Opens them; the program's ends come besides: standard input, output and error.
    ///
    /// # Errors
    /// When there are no descriptors left for them.
    pub(crate) fn open() -> io::Result<(Self, [OwnedFd; 3])> {
        let (stdin, its_stdin) = os::pipe::to_program()?;
        let (stdout, its_stdout) = os::pipe::from_program()?;
        let (stderr, its_stderr) = os::pipe::from_program()?;
        let pipes = Self {
            stdin: PipeWriter::new(stdin)?,
            stdout: PipeReader::new(stdout)?,
            stderr: PipeReader::new(stderr)?,
        };
        Ok((pipes, [its_stdin, its_stdout, its_stderr]))
    }
}

impl PipeReader {
    /// Registers a non-blocking end with this worker.
    ///
    /// # Errors
    /// When epoll takes no more descriptors.
    pub(crate) fn new(end: OwnedFd) -> io::Result<Self> {
        register(end, Interest::READABLE).map(Self)
    }

    /// Reads what is there into a buffer, which takes its block only once there is something to
    /// read. `Ok(0)` is the end. A full buffer is an error: whoever reads on must use what came
    /// before.
    pub(crate) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuffer,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let room = buffer.room();
            if room.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            let (read, wanted) = (os::net::read(self.0.as_fd(), room), room.len());
            buffer.filled(*read.as_ref().unwrap_or(&0));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok(count) => {
                    // A short read emptied the pipe: the next one waits instead of asking in vain.
                    if count > 0 && count < wanted {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl PipeWriter {
    /// Registers a non-blocking end with this worker.
    ///
    /// # Errors
    /// When epoll takes no more descriptors.
    pub(crate) fn new(end: OwnedFd) -> io::Result<Self> {
        register(end, Interest::WRITABLE).map(Self)
    }

    /// Writes as much as the pipe takes. `BrokenPipe` says that nobody will read it.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match os::net::write(self.0.as_fd(), data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
            ready!(self.0.poll_write_ready(cx))?.clear_ready();
            // Registers for the next change; one that came meanwhile is ready at once.
            drop(ready!(self.0.poll_write_ready(cx))?);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::buffer::BufferPool;
    use crate::fixture::block_on;

    #[test]
    fn bytes_pass_both_ways_and_ends_are_seen() {
        block_on(async {
            let (ours, theirs) = os::pipe::to_program().expect("a pipe");
            let writer = PipeWriter::new(ours).expect("registered");
            let mut sent = 0;
            let full = poll_fn(|cx| {
                loop {
                    match writer.poll_write(cx, &[7; 4096]) {
                        Poll::Ready(count) => sent += count.expect("a reader"),
                        Poll::Pending => return Poll::Ready(sent),
                    }
                }
            });
            let full = full.await;
            let mut room = vec![0; full];
            assert_eq!(
                os::net::read(theirs.as_fd(), &mut room).expect("bytes"),
                full
            );
            poll_fn(|cx| writer.poll_write(cx, b"more"))
                .await
                .expect("room again");
            drop(theirs);
            let broken = poll_fn(|cx| writer.poll_write(cx, b"lost")).await;
            assert_eq!(
                broken.expect_err("nobody").kind(),
                io::ErrorKind::BrokenPipe
            );

            let (ours, theirs) = os::pipe::from_program().expect("a pipe");
            let reader = PipeReader::new(ours).expect("registered");
            let mut buffer = ReadBuffer::new(&BufferPool::default());
            let nothing = poll_fn(|cx| Poll::Ready(reader.poll_fill(cx, &mut buffer).is_pending()));
            assert!(nothing.await && buffer.is_empty());
            os::net::write(theirs.as_fd(), b"words").expect("a reader");
            let read = poll_fn(|cx| reader.poll_fill(cx, &mut buffer)).await;
            assert_eq!((read.expect("bytes"), buffer.data()), (5, &b"words"[..]));
            drop(theirs);
            let end = poll_fn(|cx| reader.poll_fill(cx, &mut buffer)).await;
            assert_eq!(end.expect("an end"), 0);
        });
    }
}
