//! One connection as questions and answers: what is asked leaves in one piece, one read may bring many
//! answers, and they come in the order of the questions.
//!
//! Under memcached, MySQL and Redis alike; how an answer is understood is [`Decode`], which goes along
//! with its question. An answer nobody waits for any more is taken in like any other, and given to
//! nobody.
//!
//! Left out: how many questions may be under way and how long one waits, which are whose the channel
//! is.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use super::socket::Socket;

/// What is kept of the room for what is sent.
const KEPT_BYTES: usize = 16 * 1024;

/// How far an answer has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<R> {
    /// So many bytes were taken in, and at least so many more are to come.
    More {
        /// Bytes that need not be shown again.
        used: usize,
        /// Bytes still to come, at least 1.
        awaited: usize,
    },
    /// The answer is whole, and how many bytes were taken in for it now.
    Done(R, usize),
}

/// A question that was asked, as far as understanding its answer is concerned.
pub(crate) trait Decode {
    /// A whole answer.
    type Reply;
    /// Why bytes are none.
    type Fault;
    /// Room made for a read at least.
    const READ_BYTES: usize;

    /// Takes in what it can of the bytes that came after those it used before.
    ///
    /// # Errors
    /// A fault, after which nothing more of the connection can be understood.
    fn decode(&mut self, bytes: &[u8]) -> Result<Progress<Self::Reply>, Self::Fault>;
}

/// Why an answer did not come.
#[derive(Debug)]
pub(crate) enum Broken<F> {
    /// The connection is gone.
    Lost(io::Error),
    /// What came is no answer.
    Fault(F),
}

/// A connection with the questions under way on it.
pub(crate) struct Channel<D> {
    socket: Socket,
    unsent: Vec<u8>,
    /// How many bytes of those were sent.
    sent: usize,
    awaited: VecDeque<D>,
    /// How many of the bytes that were read are understood.
    used: usize,
    /// Bytes known to be missing of the oldest answer.
    missing: usize,
}

impl<D: Decode> Channel<D> {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            socket,
            unsent: Vec::new(),
            sent: 0,
            awaited: VecDeque::new(),
            used: 0,
            missing: 1,
        }
    }

    /// The connection itself, while nothing is asked over it.
    pub(crate) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Whether the server has neither closed nor said anything unasked, as far as is known here.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.socket.is_quiet()
    }

    /// What is to be sent, to put something behind it.
    pub(crate) fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    /// Puts bytes behind those to be sent.
    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        match self.unsent.is_empty() {
            true => self.unsent = bytes,
            false => self.unsent.extend_from_slice(&bytes),
        }
    }

    /// Notes that an answer is to come to what was put last.
    pub(crate) fn expect(&mut self, question: D) {
        self.awaited.push_back(question);
    }

    /// Bytes that are to be sent still.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent.len().saturating_sub(self.sent)
    }

    /// Answers that are to come.
    pub(crate) fn depth(&self) -> usize {
        self.awaited.len()
    }

    /// The question that is answered next.
    pub(crate) fn oldest(&self) -> Option<&D> {
        self.awaited.front()
    }

    /// Bytes known to be missing of the answer that comes next.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// Whether the server has said more than it was asked.
    pub(crate) fn has_unasked(&self) -> bool {
        self.awaited.is_empty() && self.socket.unread().len() > self.used
    }

    /// Gives up the questions under way, the oldest first; the channel is of no use then.
    pub(crate) fn give_up(&mut self) -> VecDeque<D> {
        std::mem::take(&mut self.awaited)
    }

    /// Sends what can be sent at once; says whether that was something.
    pub(crate) fn poll_send(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let rest = self.unsent.get(self.sent..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(false);
        }
        match self.socket.poll_write(context, rest) {
            Poll::Pending => return Ok(false),
            Poll::Ready(wrote) => match wrote? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                wrote => self.sent += wrote,
            },
        }
        if self.sent >= self.unsent.len() {
            self.forget_unsent();
        }
        Ok(true)
    }

    /// Forgets what is to be sent.
    pub(crate) fn forget_unsent(&mut self) {
        self.sent = 0;
        self.unsent.clear();
        if self.unsent.capacity() > KEPT_BYTES {
            self.unsent = Vec::new();
        }
    }

    /// Sends all there is to be sent.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        poll_fn(|context| {
            while self.poll_send(context)? {}
            match self.unsent.is_empty() {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Reads what can be read at once; says whether that was something.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        match self.socket.poll_read_more(context, self.room()) {
            Poll::Ready(read) => read.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Reads some more; may be given up, and begun again.
    pub(crate) async fn read(&mut self) -> io::Result<()> {
        let room = self.room();
        self.socket.read_more(room).await
    }

    fn room(&self) -> usize {
        self.missing.max(D::READ_BYTES)
    }

    /// The oldest question with its answer, if that has come whole.
    pub(crate) fn next(&mut self) -> Result<Option<(D, D::Reply)>, D::Fault> {
        let unread = self.socket.unread().get(self.used..).unwrap_or_default();
        let progress = match self.awaited.front_mut() {
            Some(oldest) => oldest.decode(unread)?,
            None => return Ok(None),
        };
        let reply = match progress {
            Progress::Done(reply, used) => {
                self.used += used;
                self.missing = 1;
                Some(reply)
            }
            Progress::More { used, awaited } => {
                self.used += used;
                self.missing = awaited;
                None
            }
        };
        let answered = reply.and_then(|reply| Some((self.awaited.pop_front()?, reply)));
        if answered.is_none() || self.awaited.is_empty() {
            self.socket.consume(self.used);
            self.used = 0;
            if self.socket.unread().is_empty() {
                self.socket.shrink();
            }
        }
        Ok(answered)
    }

    /// The answer to the oldest question.
    pub(crate) async fn answer(&mut self) -> Result<(D, D::Reply), Broken<D::Fault>> {
        loop {
            match self.next().map_err(Broken::Fault)? {
                Some(answered) => return Ok(answered),
                None => self.read().await.map_err(Broken::Lost)?,
            }
        }
    }

    /// Sends all there is to be sent, and waits for the answer to the oldest question.
    pub(crate) async fn ask(&mut self) -> Result<(D, D::Reply), Broken<D::Fault>> {
        self.send().await.map_err(Broken::Lost)?;
        self.answer().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    /// Asks for a line of so many letters, which is answered with one.
    struct Letters(usize);

    impl Decode for Letters {
        type Reply = Vec<u8>;
        type Fault = ();
        const READ_BYTES: usize = 1;

        fn decode(&mut self, bytes: &[u8]) -> Result<Progress<Vec<u8>>, ()> {
            match bytes.get(..self.0) {
                Some(letters) if letters.contains(&b'!') => Err(()),
                Some(letters) => Ok(Progress::Done(letters.to_vec(), self.0)),
                None => Ok(Progress::More {
                    used: 0,
                    awaited: self.0 - bytes.len(),
                }),
            }
        }
    }

    fn channel() -> (Channel<Letters>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        (Channel::new(Socket::unix(ours)), theirs)
    }

    #[tokio::test]
    async fn what_is_put_leaves_in_one_piece_and_is_answered_in_order_in_whatever_pieces() {
        let (mut channel, mut server) = channel();
        for (question, letters) in [("a?", 1), ("bc?", 2), ("def?", 3)] {
            channel.put(question.into());
            channel.expect(Letters(letters));
        }
        channel.send().await.expect("it is sent");
        let mut asked = [0; 32];
        let length = server.read(&mut asked).await.expect("it is asked");
        assert_eq!(asked.get(..length), Some(&b"a?bc?def?"[..]));
        assert_eq!((channel.depth(), channel.unsent_bytes()), (3, 0));
        server.write_all(b"ABCD").await.expect("it is answered");
        for expected in ["A", "BC"] {
            let (_, letters) = channel.answer().await.expect("an answer");
            assert_eq!(letters, expected.as_bytes());
        }
        assert!(matches!(channel.next(), Ok(None)));
        assert_eq!(channel.missing(), 2);
        server.write_all(b"EF").await.expect("it is answered");
        let (_, letters) = channel.answer().await.expect("an answer");
        assert_eq!(letters, b"DEF");
        assert!(!channel.has_unasked() && channel.is_quiet());
    }

    #[tokio::test]
    async fn more_than_was_asked_is_seen_and_so_is_what_is_no_answer_and_an_end() {
        let (mut channel, mut server) = channel();
        channel.expect(Letters(1));
        server.write_all(b"AB").await.expect("it is answered");
        channel.ask().await.expect("an answer");
        assert!(channel.has_unasked());
        channel.expect(Letters(2));
        server.write_all(b"!").await.expect("it is answered");
        let broken = channel.answer().await;
        assert!(matches!(broken, Err(Broken::Fault(()))));
        assert_eq!(channel.give_up().len(), 1);
        drop(server);
        channel.expect(Letters(3));
        assert!(matches!(channel.answer().await, Err(Broken::Lost(_))));
    }
}
