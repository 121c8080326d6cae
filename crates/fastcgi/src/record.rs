//! FastCGI records, as a gateway writes and reads them (FastCGI 1.0).
//!
//! One request at a time on a connection, always under the same id: whatever speaks of another one
//! is a fault. The writer makes records of our own bytes only; the reader hands out content as it
//! arrives, never waits for a whole record, and refuses what no responder may say to a request of
//! ours. After a refusal nothing more of the connection is to be read.

use wire::Refusal;

/// The id all requests have.
pub(crate) const REQUEST_ID: u16 = 1;
/// Most bytes of content in a record.
pub const CONTENT_BYTES_MAX: usize = 65_535;
/// Bytes before the content.
pub(crate) const HEADER_BYTES: usize = 8;

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const ROLE_RESPONDER: u16 = 1;
const FLAG_KEEP_CONNECTION: u8 = 1;
/// Bytes in the content of an end.
const END_BYTES: usize = 8;
/// The longest name or value there can be.
const LENGTH_MAX: usize = (1 << 31) - 1;

/// What becomes of a connection after its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// It stays open for the next one.
    Keep,
    /// The responder closes it.
    Close,
}

/// Begins a request.
pub fn begin(connection: Connection, out: &mut Vec<u8>) {
    let flags = match connection {
        Connection::Keep => FLAG_KEEP_CONNECTION,
        Connection::Close => 0,
    };
    let [high, low] = ROLE_RESPONDER.to_be_bytes();
    header(BEGIN_REQUEST, 8, out);
    out.extend_from_slice(&[high, low, flags, 0, 0, 0, 0, 0]);
}

/// Writes all variables and the end of them.
///
/// A variable is never split where it fits into a record: php reads each record by itself.
///
/// # Errors
/// 431 for a name or value of 2 GiB.
pub fn params<'a>(
    variables: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let mut record = Record::open(PARAMS, out);
    for (name, value) in variables {
        let before = record.out.len();
        length(name.len(), record.out)?;
        length(value.len(), record.out)?;
        record.out.extend_from_slice(name);
        record.out.extend_from_slice(value);
        if record.content_bytes() > CONTENT_BYTES_MAX {
            let pair = record.out.split_off(before);
            record = record.close_and_open();
            for piece in pair.chunks(CONTENT_BYTES_MAX) {
                if record.content_bytes() > 0 {
                    record = record.close_and_open();
                }
                record.out.extend_from_slice(piece);
            }
        }
    }
    let out = record.close();
    header(PARAMS, 0, out);
    Ok(())
}

/// Writes the header of a piece of the body; says how many of `bytes` belong to it.
pub fn stdin_header(bytes: usize, out: &mut Vec<u8>) -> usize {
    let bytes = bytes.min(CONTENT_BYTES_MAX);
    header(STDIN, u16::try_from(bytes).unwrap_or(u16::MAX), out);
    bytes
}

/// Ends the body.
pub fn stdin_end(out: &mut Vec<u8>) {
    header(STDIN, 0, out);
}

/// Writes the length of a name or value: one byte up to 127, four beyond.
///
/// # Errors
/// 431 for one that no length can say.
pub fn length(bytes: usize, out: &mut Vec<u8>) -> Result<(), Refusal> {
    match (u8::try_from(bytes), u32::try_from(bytes)) {
        (Ok(short @ 0..=127), _) => out.push(short),
        (_, Ok(long)) if bytes <= LENGTH_MAX => {
            out.extend_from_slice(&(long | 1 << 31).to_be_bytes());
        }
        _ => return Err(Refusal::new(431, "variable_too_long")),
    }
    Ok(())
}

fn header(kind: u8, content_bytes: u16, out: &mut Vec<u8>) {
    let [id_high, id_low] = REQUEST_ID.to_be_bytes();
    let [high, low] = content_bytes.to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, high, low, 0, 0]);
}

/// A record whose length is not known yet.
struct Record<'a> {
    out: &'a mut Vec<u8>,
    kind: u8,
    start: usize,
}

impl<'a> Record<'a> {
    fn open(kind: u8, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        header(kind, 0, out);
        Self { out, kind, start }
    }

    fn content_bytes(&self) -> usize {
        self.out.len() - self.start - HEADER_BYTES
    }

    /// Writes its length; a record without content was never there: it would end the stream.
    fn close(self) -> &'a mut Vec<u8> {
        let content_bytes = self.content_bytes();
        debug_assert!(content_bytes <= CONTENT_BYTES_MAX);
        let length = u16::try_from(content_bytes)
            .unwrap_or(u16::MAX)
            .to_be_bytes();
        let at = self.start + 4;
        if content_bytes == 0 {
            self.out.truncate(self.start);
        } else if let Some(place) = self.out.get_mut(at..at + 2) {
            place.copy_from_slice(&length);
        }
        self.out
    }

    fn close_and_open(self) -> Self {
        let kind = self.kind;
        Self::open(kind, self.close())
    }
}

/// How a request ended, as the responder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// What the program's `exit` said.
    pub application: u32,
    /// Whether it ran at all.
    pub protocol: ProtocolStatus,
}

/// Whether a request was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// It was, and has ended.
    Complete,
    /// Not beside another one on the same connection.
    CannotMultiplex,
    /// There is no room for it.
    Overloaded,
    /// The responder is none.
    UnknownRole,
}

/// What a responder said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing yet: more bytes are needed.
    More,
    /// A piece of the reply.
    Stdout(&'a [u8]),
    /// A piece of what goes to the error log.
    Stderr(&'a [u8]),
    /// It has ended. What follows belongs to nothing.
    End(End),
}

/// An event, and how many bytes of the input it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Bytes that are done with, the event's own included.
    pub consumed: usize,
    /// What they were.
    pub event: Event<'a>,
}

/// Reads one reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct Decoder {
    state: RecordState,
    /// A header or an end whose last bytes have not come.
    partial: [u8; 8],
    partial_bytes: usize,
    stdout_ended: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RecordState {
    #[default]
    Header,
    Content {
        stream: Stream,
        left: u16,
        padding: u8,
    },
    End {
        padding: u8,
    },
    /// Padding, before a header or the very end.
    Padding {
        left: u8,
        end: Option<End>,
    },
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

impl Decoder {
    /// Whether the reply has ended.
    pub fn is_over(&self) -> bool {
        self.state == RecordState::Over
    }

    /// Reads up to the next event.
    ///
    /// # Errors
    /// 502 for what a responder may not say.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, Refusal> {
        let mut consumed = 0;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let (taken, event) = self.step(rest)?;
            consumed += taken;
            let is_last = taken == rest.len() || self.is_over();
            if event != Event::More || is_last {
                return Ok(Decoded { consumed, event });
            }
        }
    }

    /// How many bytes of the reply `input` holds, if it holds all that is left of it.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn rest_of(&self, input: &[u8]) -> Result<Option<usize>, Refusal> {
        let (mut ahead, mut at, mut stdout_bytes) = (*self, 0, 0);
        loop {
            let decoded = ahead.decode(input.get(at..).unwrap_or_default())?;
            at += decoded.consumed;
            match decoded.event {
                Event::Stdout(data) => stdout_bytes += data.len(),
                Event::Stderr(_) => {}
                Event::End(end) => {
                    let complete = end.protocol == ProtocolStatus::Complete;
                    return Ok(complete.then_some(stdout_bytes));
                }
                Event::More => return Ok(None),
            }
        }
    }

    /// Takes what one state can use.
    fn step<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), Refusal> {
        match self.state {
            RecordState::Header => {
                let taken = self.gather(input);
                if let Some(header) = self.gathered() {
                    self.state = self.read_header(header)?;
                }
                // What needs no further byte is not to wait for one.
                Ok((taken, Event::More))
            }
            RecordState::Content {
                stream,
                left,
                padding,
            } => {
                let data = input.get(..usize::from(left)).unwrap_or(input);
                let left = left - u16::try_from(data.len()).unwrap_or(left);
                self.state = match left {
                    0 => after(padding),
                    left => RecordState::Content {
                        stream,
                        left,
                        padding,
                    },
                };
                let event = match stream {
                    _ if data.is_empty() => Event::More,
                    Stream::Stdout => Event::Stdout(data),
                    Stream::Stderr => Event::Stderr(data),
                };
                Ok((data.len(), event))
            }
            RecordState::End { padding } => {
                let taken = self.gather(input);
                let Some(body) = self.gathered() else {
                    return Ok((taken, Event::More));
                };
                let end = read_end(body)?;
                Ok((taken, self.pad(padding, Some(end))))
            }
            RecordState::Padding { left, end } => {
                let taken = input.len().min(usize::from(left));
                let left = left - u8::try_from(taken).unwrap_or(left);
                Ok((taken, self.pad(left, end)))
            }
            RecordState::Over => Ok((0, Event::More)),
        }
    }

    /// Goes on to padding, or past it.
    fn pad(&mut self, left: u8, end: Option<End>) -> Event<'static> {
        let (state, event) = match (left, end) {
            (0, None) => (RecordState::Header, Event::More),
            (0, Some(end)) => (RecordState::Over, Event::End(end)),
            (left, end) => (RecordState::Padding { left, end }, Event::More),
        };
        self.state = state;
        event
    }

    /// Collects eight bytes.
    fn gather(&mut self, input: &[u8]) -> usize {
        let free = self.partial.get_mut(self.partial_bytes..);
        let free = free.unwrap_or_default();
        let taken = input.len().min(free.len());
        for (place, byte) in free.iter_mut().zip(input) {
            *place = *byte;
        }
        self.partial_bytes += taken;
        taken
    }

    /// The eight bytes, once they are there.
    fn gathered(&mut self) -> Option<[u8; 8]> {
        (self.partial_bytes == self.partial.len()).then(|| {
            self.partial_bytes = 0;
            self.partial
        })
    }

    fn read_header(&mut self, header: [u8; 8]) -> Result<RecordState, Refusal> {
        let [version, kind, id_high, id_low, high, low, padding, _] = header;
        let left = u16::from_be_bytes([high, low]);
        if version != VERSION {
            return Err(refused("record_version"));
        }
        if u16::from_be_bytes([id_high, id_low]) != REQUEST_ID {
            return Err(refused("record_id"));
        }
        let stream = match kind {
            STDOUT if self.stdout_ended => return Err(refused("record_after_stdout")),
            STDOUT => Stream::Stdout,
            STDERR => Stream::Stderr,
            END_REQUEST if usize::from(left) == END_BYTES => {
                return Ok(RecordState::End { padding });
            }
            END_REQUEST => return Err(refused("record_end")),
            _ => return Err(refused("record_type")),
        };
        if left == 0 {
            self.stdout_ended |= stream == Stream::Stdout;
            return Ok(after(padding));
        }
        Ok(RecordState::Content {
            stream,
            left,
            padding,
        })
    }
}

fn after(padding: u8) -> RecordState {
    match padding {
        0 => RecordState::Header,
        left => RecordState::Padding { left, end: None },
    }
}

fn read_end(body: [u8; 8]) -> Result<End, Refusal> {
    let [a, b, c, d, protocol, ..] = body;
    let protocol = match protocol {
        0 => ProtocolStatus::Complete,
        1 => ProtocolStatus::CannotMultiplex,
        2 => ProtocolStatus::Overloaded,
        3 => ProtocolStatus::UnknownRole,
        _ => return Err(refused("record_end")),
    };
    Ok(End {
        application: u32::from_be_bytes([a, b, c, d]),
        protocol,
    })
}

const fn refused(reason: &'static str) -> Refusal {
    Refusal::new(502, reason)
}
