//! One connection to MySQL, which knows whether it may be used again.
//!
//! What goes out is gathered and sent in one piece; what comes in is understood where it lies. A
//! connection that is dropped in the middle of an answer just closes its socket; an idle one says
//! goodbye first, if the kernel takes the five bytes at once.

use std::rc::Rc;

use super::answer::{Answer, Cell};
use super::fault::StatementFault;
use super::handshake::{self, Credentials, Failure, Handshake, Secrecy, Turn};
use super::packet::{Front, HEADER_BYTES, begin, front, seal};
use super::prepared::PreparedStatements;
use super::reply::{
    Columns, Dialect, MysqlDecoder, MysqlFault, MysqlQuestion, MysqlReply, Prepared,
    TransactionState,
};
use super::value::put_binds;
use crate::channel::{Broken, Channel, Decode, Progress};
use crate::pool::Owner;
use crate::secure::ServerTls;
use crate::socket::Socket;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;

/// A connection that is logged in.
pub(crate) struct MysqlConnection {
    channel: Channel<MysqlDecoder>,
    handshake: Handshake,
    who: Rc<Credentials>,
    dialect: Dialect,
    statements: PreparedStatements,
    state: State,
    /// The object that may have left something in the session.
    stained: Option<Owner>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its last answer was read whole.
    Ready,
    /// The same, and the server holds a transaction open on it.
    InTransaction,
    /// Something was sent, and its answer not read whole.
    Timing,
}

/// The way to a server.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// A Unix socket: nobody listens.
    Private,
    /// TCP.
    Open,
    /// TCP, made secret before anything of the login is said, to a server that is this host.
    Secured(&'a ServerTls, &'a str),
}

impl MysqlConnection {
    /// Logs in on a connection just made.
    pub(super) async fn open(
        mut socket: Socket,
        way: Way<'_>,
        who: Rc<Credentials>,
    ) -> Result<Self, StatementFault> {
        let (_, greeting) = packet(&mut socket).await?;
        let secrecy = match way {
            Way::Private | Way::Secured(..) => Secrecy::Private,
            Way::Open => Secrecy::Open,
        };
        let mut handshake = Handshake::greeted(&greeting, secrecy)?;
        let dialect = handshake.dialect();
        let mut sequence = 1;
        if let Way::Secured(tls, host) = way {
            send(&mut socket, &handshake.ask_for_tls()?, sequence).await?;
            sequence += 1;
            socket.secure(tls, host).await?;
        }
        let answer = handshake.answer(&who);
        send(&mut socket, &answer, sequence).await?;
        log_in(&mut socket, &mut handshake, &who).await?;
        Ok(Self {
            channel: Channel::new(socket),
            handshake,
            who,
            dialect,
            statements: PreparedStatements::default(),
            state: State::Ready,
            stained: None,
        })
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.state == State::InTransaction
    }

    /// Whether no object can have left anything in the session.
    pub(super) fn is_clean(&self) -> bool {
        self.stained.is_none()
    }

    /// Whether no other object can have left anything in the session.
    pub(super) fn is_clean_for(&self, owner: Owner) -> bool {
        self.stained.is_none_or(|stained| stained == owner)
    }

    /// Notes that an object may leave something in the session.
    pub(super) fn stain(&mut self, owner: Owner) {
        self.stained = Some(owner);
    }

    /// Begins the session anew, as after logging in.
    ///
    /// It logs in again: `COM_RESET_CONNECTION` leaves the database that `USE` chose, and some
    /// servers forget the character set with it.
    pub(super) async fn clean(&mut self) -> Result<(), StatementFault> {
        self.state = State::Timing;
        let command = self.handshake.again(&self.who);
        let socket = self.channel.socket();
        send(socket, &command, 0).await?;
        log_in(socket, &mut self.handshake, &self.who).await?;
        self.statements.clear();
        self.channel.forget_unsent();
        (self.state, self.stained) = (State::Ready, None);
        Ok(())
    }

    /// Asks for a sign of life.
    pub(super) async fn ping(&mut self) -> Result<(), StatementFault> {
        let before = std::mem::replace(&mut self.state, State::Timing);
        let result = self.simple(COM_PING, &[]).await;
        self.settle(before, result).map(drop)
    }

    /// Runs a statement and reads all it gives.
    pub(super) async fn execute(
        &mut self,
        sql: &[u8],
        binds: &[Cell],
    ) -> Result<Answer, StatementFault> {
        let before = std::mem::replace(&mut self.state, State::Timing);
        let mut result = self.run(sql, binds).await;
        if binds.is_empty() && matches!(&result, Err(fault) if fault.wants_text()) {
            result = self.simple(COM_QUERY, sql).await;
        }
        self.settle(before, result)
    }

    /// Runs a statement of ours that gives nothing.
    pub(super) async fn command(&mut self, sql: &'static str) -> Result<(), StatementFault> {
        let before = std::mem::replace(&mut self.state, State::Timing);
        let result = self.simple(COM_QUERY, sql.as_bytes()).await;
        self.settle(before, result).map(drop)
    }

    /// Begins a batch of statements, which are all sent before the first is answered.
    pub(super) fn begin_batch(&mut self) {
        self.state = State::Timing;
    }

    pub(super) fn has_prepared(&mut self, sql: &[u8]) -> bool {
        self.statements.get(sql).is_some()
    }

    /// Sees to it that a statement is prepared, before any other of a batch is put.
    pub(super) async fn prepare(&mut self, sql: &[u8]) -> Result<(), StatementFault> {
        self.prepared(sql).await.map(drop)
    }

    /// Puts a prepared statement behind those to be sent.
    pub(super) fn push(&mut self, sql: &[u8], binds: &[Cell]) -> Result<(), StatementFault> {
        let Some(prepared) = self.statements.get(sql) else {
            // Prepared before in the same batch, of no more statements than are kept.
            return Err(StatementFault::Reply(MysqlFault::Unknown));
        };
        let prepared = prepared.clone();
        self.put_execution(&prepared, binds)
    }

    /// Notes which columns a statement has now.
    pub(super) fn learn(&mut self, sql: &[u8], columns: Option<Rc<Columns>>) {
        self.statements.learn(sql, columns);
    }

    /// The questions and answers under way.
    pub(super) fn channel(&mut self) -> &mut Channel<MysqlDecoder> {
        &mut self.channel
    }

    /// Ends a batch whose answers were all read; says whether the connection may be used again.
    pub(super) fn end_batch(
        &mut self,
        last: Option<TransactionState>,
    ) -> Result<(), StatementFault> {
        self.settled(last.unwrap_or(TransactionState::Free))
    }

    async fn run(
        &mut self,
        sql: &[u8],
        binds: &[Cell],
    ) -> Result<(Answer, Option<TransactionState>), StatementFault> {
        let prepared = self.prepared(sql).await?;
        self.put_execution(&prepared, binds)?;
        let (reply, transaction) = self.ask().await?;
        match reply {
            MysqlReply::Done(answer, columns) => {
                self.statements.learn(sql, columns);
                Ok((answer, transaction))
            }
            MysqlReply::Refused(refusal) => Err(StatementFault::Refused(refusal)),
            MysqlReply::Prepared(_) => Err(StatementFault::Reply(MysqlFault::Unknown)),
        }
    }

    async fn prepared(&mut self, sql: &[u8]) -> Result<Prepared, StatementFault> {
        if let Some(prepared) = self.statements.get(sql) {
            return Ok(prepared.clone());
        }
        self.put(COM_STMT_PREPARE, sql, MysqlQuestion::Prepare);
        match self.ask().await?.0 {
            MysqlReply::Prepared(prepared) => {
                let unsent = self.channel.unsent();
                self.statements.keep(sql, prepared.clone(), unsent);
                Ok(prepared)
            }
            MysqlReply::Refused(refusal) => Err(StatementFault::Refused(refusal)),
            MysqlReply::Done(..) => Err(StatementFault::Reply(MysqlFault::Unknown)),
        }
    }

    /// A command whose answer has rows of text, if any.
    async fn simple(
        &mut self,
        command: u8,
        bytes: &[u8],
    ) -> Result<(Answer, Option<TransactionState>), StatementFault> {
        self.put(command, bytes, MysqlQuestion::Text);
        match self.ask().await? {
            (MysqlReply::Done(answer, _), transaction) => Ok((answer, transaction)),
            (MysqlReply::Refused(refusal), _) => Err(StatementFault::Refused(refusal)),
            (MysqlReply::Prepared(_), _) => Err(StatementFault::Reply(MysqlFault::Unknown)),
        }
    }

    fn put(&mut self, command: u8, bytes: &[u8], question: MysqlQuestion) {
        let unsent = self.channel.unsent();
        let place = begin(unsent);
        unsent.push(command);
        unsent.extend_from_slice(bytes);
        seal(unsent, place, 0);
        self.channel
            .expect(MysqlDecoder::new(self.dialect, question));
    }

    fn put_execution(&mut self, prepared: &Prepared, binds: &[Cell]) -> Result<(), StatementFault> {
        const NO_CURSOR_ONE_TIME: [u8; 5] = [0, 1, 0, 0, 0];
        let (required, supplied) = (prepared.binds, binds.len());
        if required != supplied {
            return Err(StatementFault::Binds { required, supplied });
        }
        let unsent = self.channel.unsent();
        let place = begin(unsent);
        unsent.push(COM_STMT_EXECUTE);
        unsent.extend_from_slice(&prepared.id.to_le_bytes());
        unsent.extend_from_slice(&NO_CURSOR_ONE_TIME);
        put_binds(unsent, binds);
        seal(unsent, place, 0);
        let question = MysqlQuestion::Execute(prepared.columns.clone());
        self.channel
            .expect(MysqlDecoder::new(self.dialect, question));
        Ok(())
    }

    async fn ask(&mut self) -> Result<(MysqlReply, Option<TransactionState>), StatementFault> {
        let (decoder, reply) = self.channel.ask().await?;
        Ok((reply, decoder.transaction()))
    }

    fn settle<T>(
        &mut self,
        before: State,
        result: Result<(T, Option<TransactionState>), StatementFault>,
    ) -> Result<T, StatementFault> {
        match result {
            Ok((answer, Some(transaction))) => self.settled(transaction).map(|()| answer),
            Ok((answer, None)) => {
                self.state = before;
                Ok(answer)
            }
            Err(fault) => {
                if fault.leaves_connection() {
                    self.state = before;
                }
                Err(fault)
            }
        }
    }

    fn settled(&mut self, transaction: TransactionState) -> Result<(), StatementFault> {
        if self.channel.has_unasked() {
            return Err(StatementFault::Reply(MysqlFault::Unasked));
        }
        self.state = match transaction {
            TransactionState::Free => State::Ready,
            TransactionState::InTransaction => State::InTransaction,
        };
        Ok(())
    }
}

impl Decode for MysqlDecoder {
    type Reply = MysqlReply;
    type Fault = MysqlFault;
    const READ_BYTES: usize = 1;

    fn decode(&mut self, bytes: &[u8]) -> Result<Progress<MysqlReply>, MysqlFault> {
        self.decode(bytes)
    }
}

impl From<Broken<MysqlFault>> for StatementFault {
    fn from(broken: Broken<MysqlFault>) -> Self {
        match broken {
            Broken::Lost(error) => Self::Lost(error),
            Broken::Fault(fault) => Self::Reply(fault),
        }
    }
}

async fn send(socket: &mut Socket, payload: &[u8], sequence: u8) -> Result<(), StatementFault> {
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
    let place = begin(&mut out);
    out.extend_from_slice(payload);
    seal(&mut out, place, sequence);
    Ok(socket.write(&out).await?)
}

/// The next packet while logging in, with its number.
async fn packet(socket: &mut Socket) -> Result<(u8, Vec<u8>), StatementFault> {
    loop {
        let missing = match front(socket.unread(), handshake::PACKET_BYTES_MAX) {
            Ok(Front::Whole { sequence, payload }) => {
                let payload = payload.to_vec();
                socket.consume(HEADER_BYTES + payload.len());
                return Ok((sequence, payload));
            }
            Ok(Front::Partial(missing)) => missing,
            Err(_) => return Err(Failure::Unknown.into()),
        };
        socket.read_more(missing).await?;
    }
}

/// Talks until the server is content.
async fn log_in(
    socket: &mut Socket,
    handshake: &mut Handshake,
    who: &Credentials,
) -> Result<(), StatementFault> {
    // As often as [`Handshake::hear`] allows.
    loop {
        let (sequence, payload) = packet(socket).await?;
        match handshake.hear(&payload, who)? {
            Turn::Done => return Ok(()),
            Turn::Wait => (),
            Turn::Say(said) => send(socket, &said, sequence.wrapping_add(1)).await?,
        }
    }
}

impl Drop for MysqlConnection {
    fn drop(&mut self) {
        const GOODBYE: [u8; 5] = [1, 0, 0, 0, COM_QUIT];
        if self.state != State::Timing {
            self.channel.socket().try_write(&GOODBYE);
        }
    }
}
