//! The sending half: a head, then DATA, on one stream.
//!
//! A head waits for what follows it, so that a reply without a body is one frame and a short one leaves in one go.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderName, HeaderValue, Response};
use wire::{FieldId, Fields, Method};

use super::super::memory::block_of;
use super::super::outgoing::{BodySize, Outgoing};
use super::super::pace::{Patience, Terms};
use super::{H2Shared, SEND_BYTES_MAX, as_io};
use crate::clock::Clock;
use crate::deadline::Deadlines;
use crate::error::{Error, Kind, Result};

/// So much may wait of a body that is made piece by piece.
const BACKED_UP_BYTES: usize = 16 * 1024;
/// What a frame adds to its payload.
const FRAME_HEAD_BYTES: u64 = 9;

/// Sends a reply.
#[derive(Debug)]
pub struct H2Reply {
    way: Way,
    clock: Rc<Clock>,
    patience: Patience,
    /// Made and not sent yet.
    head: Option<Response<()>>,
    out: BytesMut,
    coding: Coding,
    is_head_only: bool,
    status: u16,
    terms: Terms,
    body_bytes: u64,
    sent_bytes: u64,
    /// Whether it asks for a tunnel: a status of success would grant one.
    is_connect: bool,
    shared: Rc<H2Shared>,
}

/// The stream as the crate has it.
#[derive(Debug)]
enum Way {
    /// None, or one that is over.
    Over,
    /// No head was sent.
    Respond(SendResponse<Bytes>),
    /// A head was.
    Stream(SendStream<Bytes>),
}

/// What of the body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// No head was made yet.
    NoHead,
    /// There is no body.
    Nothing,
    /// So many bytes.
    Length(u64),
    /// Nobody knows.
    Unknown,
    /// The stream is a tunnel from here on.
    Tunnel,
    /// The reply ended.
    Ended,
}

impl H2Reply {
    /// A half without a stream.
    pub(crate) fn new(deadlines: &Rc<Deadlines>, clock: &Rc<Clock>) -> Self {
        Self {
            way: Way::Over,
            clock: Rc::clone(clock),
            patience: Patience::new(deadlines),
            head: None,
            out: BytesMut::new(),
            coding: Coding::NoHead,
            is_head_only: false,
            status: 0,
            terms: Terms::default(),
            body_bytes: 0,
            sent_bytes: 0,
            is_connect: false,
            shared: Rc::default(),
        }
    }

    /// Gets ready for the reply to a request, which may be a CONNECT for a tunnel.
    pub(crate) fn begin(
        &mut self,
        respond: SendResponse<Bytes>,
        method: Method,
        is_connect: bool,
        terms: Terms,
        shared: &Rc<H2Shared>,
    ) {
        self.way = Way::Respond(respond);
        self.is_head_only = method == Method::Head;
        self.is_connect = is_connect;
        self.shared = Rc::clone(shared);
        self.set_terms(terms);
        self.patience.begin();
        (self.coding, self.status) = (Coding::NoHead, 0);
        (self.body_bytes, self.sent_bytes) = (0, 0);
    }

    /// Lets go of the stream; the client hears of a reply that has not come to its end.
    pub(in crate::exchange) fn detach(&mut self) {
        self.abort();
        self.out = BytesMut::new();
        self.shared = Rc::default();
        self.patience.rest();
    }

    /// The stream, for a tunnel.
    pub(in crate::exchange) fn take(&mut self) -> Option<SendStream<Bytes>> {
        match std::mem::replace(&mut self.way, Way::Over) {
            Way::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.shared.allow(terms.pace);
        self.terms = terms;
    }

    pub(crate) fn close_after(&mut self) {
        self.shared.is_last.set(true);
    }

    pub(crate) fn start(&mut self, outgoing: &Outgoing, size: BodySize) {
        debug_assert_eq!(self.coding, Coding::NoHead);
        if self.terms.is_last {
            self.close_after();
        }
        if self.is_connect && (200..300).contains(&outgoing.status) {
            return self.start_refused();
        }
        let bodiless = outgoing.status == 204 || outgoing.status == 304;
        self.coding = match size {
            _ if outgoing.status == 101 => Coding::Tunnel,
            _ if self.is_head_only || bodiless => Coding::Nothing,
            BodySize::None => Coding::Nothing,
            BodySize::Length(length) => Coding::Length(length),
            BodySize::Unknown => Coding::Unknown,
        };
        // A tunnel is granted as any request is (RFC 8441, 4).
        self.status = match self.coding {
            Coding::Tunnel => 200,
            _ => outgoing.status,
        };
        let mut head = response(self.status, &outgoing.fields);
        let fields = head.headers_mut();
        if !outgoing.fields.contains(FieldId::Date)
            && let Ok(date) = HeaderValue::from_bytes(&self.clock.date())
        {
            fields.insert(http::header::DATE, date);
        }
        if let BodySize::Length(length) = size
            && !bodiless
        {
            fields.insert(http::header::CONTENT_LENGTH, length.into());
        }
        self.head = Some(head);
    }

    /// Who was asked for a tunnel has answered with a page: there is none.
    fn start_refused(&mut self) {
        (self.coding, self.status) = (Coding::Nothing, 501);
        self.head = Some(response(501, &Fields::default()));
    }

    /// Sends a head that goes before the reply's own.
    pub(crate) fn push_interim(&mut self, status: u16, fields: &Fields) {
        if let (Way::Respond(respond), Coding::NoHead) = (&mut self.way, self.coding) {
            // Whoever is gone misses nothing.
            let _ = respond.send_informational(response(status, fields));
        }
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        let count = self.owed(data.len());
        self.out
            .extend_from_slice(data.get(..count).unwrap_or(data));
        self.note_body(count);
    }

    /// How much of so many bytes belongs to the body.
    fn owed(&self, count: usize) -> usize {
        match self.coding {
            Coding::Length(owed) => count.min(usize::try_from(owed).unwrap_or(usize::MAX)),
            Coding::Unknown => count,
            _ => 0,
        }
    }

    fn note_body(&mut self, count: usize) {
        self.body_bytes += count as u64;
        if let Coding::Length(owed) = &mut self.coding {
            *owed -= count as u64;
        }
    }

    pub(crate) fn is_backed_up(&self) -> bool {
        self.out.len() >= BACKED_UP_BYTES
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        let count = match self.coding {
            Coding::Length(0) if !data.is_empty() => return Poll::Ready(Err(too_long())),
            Coding::Length(_) | Coding::Unknown => self.owed(data.len()),
            // Bytes of a body nobody wants are taken and forgotten.
            _ => return Poll::Ready(Ok(data.len())),
        };
        let room = ready!(self.poll_room(cx, count))?;
        let data = data.get(..room).unwrap_or(data);
        self.note_body(data.len());
        let sent = self.send(Bytes::copy_from_slice(data));
        Poll::Ready(sent.map(|()| data.len()))
    }

    pub(crate) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: u64,
    ) -> Poll<Result<usize>> {
        let owed = match self.coding {
            Coding::Length(owed) => owed,
            Coding::Nothing => {
                return Poll::Ready(Ok(usize::try_from(count).unwrap_or(usize::MAX)));
            }
            _ => {
                let reason = "sendfile_without_length";
                return Poll::Ready(Err(Error::new(Kind::Internal, reason, String::new())));
            }
        };
        let count = usize::try_from(count.min(owed)).unwrap_or(usize::MAX);
        let room = ready!(self.poll_room(cx, count))?;
        let block = block_of(file, offset, room as u64)?;
        let read = block.len();
        if read > 0 {
            self.note_body(read);
            self.send(block.into())?;
        }
        Poll::Ready(Ok(read))
    }

    /// Waits until some of so many bytes may be sent, behind whatever waits; says how many.
    fn poll_room(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<Result<usize>> {
        ready!(self.poll_sent(cx))?;
        match self.poll_window(cx, count) {
            Poll::Ready(room) => Poll::Ready(room.map_err(|error| Error::client_write(&error))),
            Poll::Pending => self.poll_stalled(cx).map(Err),
        }
    }

    fn poll_window(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<io::Result<usize>> {
        match &mut self.way {
            Way::Stream(stream) => poll_room(stream, cx, count.min(SEND_BYTES_MAX)),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// The client takes nothing just now: how long may that go on?
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let pace = self.terms.pace;
        let over = self.shared.poll_stalled(cx, &mut self.patience, pace);
        over.map(|error| Error::client_write(&error))
    }

    /// Gives the crate what has a window, and the reply's end with its last byte.
    fn send(&mut self, data: Bytes) -> Result<()> {
        let count = data.len();
        let is_all =
            self.out.is_empty() && matches!(self.coding, Coding::Length(0) | Coding::Ended);
        let Way::Stream(stream) = &mut self.way else {
            return Err(gone());
        };
        let sent = stream.send_data(data, is_all);
        sent.map_err(|error| Error::client_write(&as_io(error)))?;
        if is_all {
            self.way = Way::Over;
            self.coding = Coding::Ended;
        }
        self.patience.note_moved(count, self.terms.pace);
        self.sent_bytes += FRAME_HEAD_BYTES + count as u64;
        Ok(())
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_sent(cx))?;
        // It ended without having said how long it would be.
        match self.way {
            Way::Stream(_) if self.coding == Coding::Ended => Poll::Ready(self.send(Bytes::new())),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Sends head and bytes that wait.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.send_head()?;
        while !self.out.is_empty() {
            let room = match self.poll_window(cx, self.out.len()) {
                Poll::Ready(room) => room.map_err(|error| Error::client_write(&error))?,
                Poll::Pending => return self.poll_stalled(cx).map(Err),
            };
            let data = self.out.split_to(room.min(self.out.len())).freeze();
            self.send(data)?;
        }
        Poll::Ready(Ok(()))
    }

    fn send_head(&mut self) -> Result<()> {
        let Some(head) = self.head.take() else {
            return Ok(());
        };
        let is_all = self.out.is_empty()
            && matches!(
                self.coding,
                Coding::Nothing | Coding::Length(0) | Coding::Ended
            );
        let Way::Respond(respond) = &mut self.way else {
            return Err(gone());
        };
        let lengths = head.headers().iter();
        let lengths = lengths.map(|(name, value)| name.as_str().len() + value.len());
        self.sent_bytes += FRAME_HEAD_BYTES + lengths.sum::<usize>() as u64;
        let stream = respond.send_response(head, is_all);
        let stream = stream.map_err(|error| Error::client_write(&as_io(error)))?;
        self.way = match is_all {
            true => Way::Over,
            false => Way::Stream(stream),
        };
        if is_all {
            self.coding = Coding::Ended;
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) {
        match self.coding {
            // Less came than was promised: only a reset can tell the client.
            Coding::NoHead | Coding::Length(1..) => self.abort(),
            Coding::Nothing | Coding::Length(0) | Coding::Unknown | Coding::Ended => {
                self.coding = Coding::Ended;
            }
            Coding::Tunnel => {}
        }
    }

    pub(crate) fn abort(&mut self) {
        match std::mem::replace(&mut self.way, Way::Over) {
            Way::Respond(mut respond) => respond.send_reset(Reason::INTERNAL_ERROR),
            Way::Stream(mut stream) => stream.send_reset(Reason::INTERNAL_ERROR),
            Way::Over => {}
        }
        self.head = None;
        self.body_bytes -= self.out.len() as u64;
        self.out.clear();
        self.coding = Coding::Ended;
    }

    /// Ready when the client has reset the stream, or its connection is over.
    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.way {
            Way::Over => Poll::Pending,
            Way::Respond(respond) => respond.poll_reset(cx).map(drop),
            Way::Stream(stream) => stream.poll_reset(cx).map(drop),
        }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.coding != Coding::NoHead
    }

    pub(crate) fn is_head_only(&self) -> bool {
        self.is_head_only
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes - self.out.len() as u64
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }
}

/// How many bytes, at most so many, the window and what waits for the socket have room for.
pub(super) fn poll_room(
    stream: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    count: usize,
) -> Poll<io::Result<usize>> {
    stream.reserve_capacity(count);
    loop {
        match stream.capacity() {
            0 => {}
            room => return Poll::Ready(Ok(room.min(count))),
        }
        match ready!(stream.poll_capacity(cx)) {
            Some(room) => drop(room.map_err(as_io)?),
            None => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

/// A head as the crate has it, without fields that concern a connection (RFC 9113, 8.2.2).
fn response(status: u16, fields: &Fields) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    let map = head.headers_mut();
    map.reserve(fields.len() + 2);
    for field in fields.iter() {
        let is_of_connection = matches!(
            field.id,
            FieldId::Connection
                | FieldId::KeepAlive
                | FieldId::ProxyConnection
                | FieldId::TransferEncoding
                | FieldId::Upgrade
                | FieldId::Te
                | FieldId::ContentLength
        );
        let name = HeaderName::from_bytes(field.name);
        let value = HeaderValue::from_bytes(field.value);
        if let (false, Ok(name), Ok(value)) = (is_of_connection, name, value) {
            // A map has room for more than a head may have.
            let _ = map.try_append(name, value);
        }
    }
    head
}

fn too_long() -> Error {
    Error::new(Kind::Internal, "reply_too_long", String::new())
}

fn gone() -> Error {
    Error::client_write(&io::ErrorKind::ConnectionReset.into())
}
