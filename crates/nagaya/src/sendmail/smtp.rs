//! Speaks SMTP (RFC 5321) to the one server that takes mail.
//!
//! The idea: a command, a reply, in turn; what is said by the server is bounded in bytes and in time, and
//! whoever it refuses is told to whom sends. Neither TLS nor log-in: the server is this machine's, or trusts it.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use config::reason;

use super::{Cause, Unsent, shown};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the server may take for a reply.
const REPLY: Duration = Duration::from_secs(60);
/// How long it is waited for at the end.
const GOODBYE: Duration = Duration::from_secs(1);
/// Addresses of the server that are tried.
const ADDRESSES_MAX: usize = 4;
/// Bytes of a reply.
const REPLY_BYTES_MAX: u64 = 16 << 10;
/// Recipients at once: RFC 5321, 4.5.3.1.8, has servers take as many.
const RECIPIENTS_AT_ONCE: usize = 100;

/// Whom a message is from and for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) sender: &'a str,
    pub(super) recipients: &'a [String],
    /// About how large it is.
    pub(super) bytes: usize,
    pub(super) is_eight_bit: bool,
    /// What this machine calls itself.
    pub(super) own_name: &'a str,
}

/// What the server said to a command.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    code: u16,
    lines: Vec<String>,
}

/// What became of a message.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// The recipients that it was accepted for.
    pub(super) accepted: usize,
    /// What the server said when it accepted it.
    pub(super) said: String,
    /// The others, and what was said to each.
    pub(super) refused: Vec<(String, Reply)>,
}

impl Reply {
    fn is_fine(&self) -> bool {
        self.code / 100 == 2
    }

    /// Whether trying again makes no difference.
    pub(super) fn is_final(&self) -> bool {
        self.code / 100 == 5
    }

    /// In one line.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.code, self.lines.join(" ").trim())
    }
}

/// Hands a message to the server; `write` writes it as it follows `DATA`.
///
/// # Errors
/// Where it was not accepted for anybody, or nobody knows.
pub(super) fn deliver(
    server: &str,
    patience: Duration,
    envelope: &Envelope<'_>,
    write: impl Fn(&mut BufWriter<&mut TimedStream>) -> io::Result<()>,
) -> Result<Delivery, Unsent> {
    let mut talk = Conversation::begin(server, Instant::now() + patience)?;
    let extensions = talk.greet(envelope.own_name)?;
    let mut delivery = Delivery::default();
    for recipients in envelope.recipients.chunks(RECIPIENTS_AT_ONCE) {
        let some = Envelope {
            recipients,
            ..*envelope
        };
        if let Err(mut failure) = talk.hand_over(&some, &extensions, &write, &mut delivery) {
            if let accepted @ 1.. = delivery.accepted {
                let before = format!(", but it was accepted for {accepted} recipients before");
                failure.why.push_str(&before);
            }
            return Err(failure);
        }
    }
    talk.end();
    Ok(delivery)
}

/// A connection on which everything ends in time.
#[derive(Debug)]
pub(super) struct TimedStream {
    stream: TcpStream,
    /// When what is under way has to be done.
    until: Instant,
}

impl TimedStream {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for TimedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection to a server.
struct Conversation<'a> {
    server: &'a str,
    line: BufReader<TimedStream>,
    /// When all of it has to be done.
    until: Instant,
}

impl<'a> Conversation<'a> {
    fn begin(server: &'a str, until: Instant) -> Result<Conversation<'a>, Unsent> {
        let unreached = |error: &io::Error| {
            let why = format!("connect to {server}: {}", reason(error));
            Unsent::new(Cause::Unavailable, why)
        };
        let addresses = server.to_socket_addrs().map_err(|it| unreached(&it))?;
        let mut problem = io::ErrorKind::NotFound.into();
        for address in addresses.take(ADDRESSES_MAX) {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    let line = BufReader::new(TimedStream { stream, until });
                    return Ok(Conversation {
                        server,
                        line,
                        until,
                    });
                }
                Err(error) => problem = error,
            }
        }
        Err(unreached(&problem))
    }

    /// Hears who it is, and says who we are; what it can beside the usual.
    fn greet(&mut self, own_name: &str) -> Result<Vec<String>, Unsent> {
        self.allow(REPLY);
        let greeting = self.reply("greeting")?;
        self.expect("greeting", greeting, |reply| reply.code == 220)?;
        let answer = self.ask(&format!("EHLO {own_name}"))?;
        if answer.is_final() {
            let answer = self.ask(&format!("HELO {own_name}"))?;
            return self
                .expect("HELO", answer, Reply::is_fine)
                .map(|_| Vec::new());
        }
        let answer = self.expect("EHLO", answer, Reply::is_fine)?;
        let names = answer.lines.iter().skip(1);
        let names = names.filter_map(|line| line.split_ascii_whitespace().next());
        Ok(names.map(str::to_ascii_uppercase).collect())
    }

    /// Hands the message over for some recipients.
    fn hand_over(
        &mut self,
        envelope: &Envelope<'_>,
        extensions: &[String],
        write: impl Fn(&mut BufWriter<&mut TimedStream>) -> io::Result<()>,
        delivery: &mut Delivery,
    ) -> Result<(), Unsent> {
        let mail = mail(envelope, extensions)?;
        let answer = self.ask(&mail)?;
        self.expect("MAIL", answer, Reply::is_fine)?;
        let mut accepted = 0;
        for recipient in envelope.recipients {
            let answer = self.ask(&format!("RCPT TO:<{recipient}>"))?;
            match answer.is_fine() {
                true => accepted += 1,
                false => delivery.refused.push((recipient.clone(), answer)),
            }
        }
        if accepted == 0 {
            return self.ask("RSET").map(drop);
        }
        let answer = self.ask("DATA")?;
        self.expect("DATA", answer, |reply| reply.code == 354)?;
        // As long as all may take: it is large, and the server may be far.
        self.allow(Duration::MAX);
        let mut out = BufWriter::with_capacity(64 << 10, self.line.get_mut());
        let written = write(&mut out).and_then(|()| out.flush());
        drop(out.into_parts());
        written.map_err(|error| self.failed("the message", &error))?;
        self.allow(REPLY);
        let answer = self.reply("the message")?;
        let answer = self.expect("the message", answer, Reply::is_fine)?;
        delivery.accepted += accepted;
        delivery.said = answer.text();
        Ok(())
    }

    /// Takes leave; what is said to that changes nothing.
    fn end(mut self) {
        self.until = self.until.min(Instant::now() + GOODBYE);
        let _ = self.ask("QUIT");
    }

    /// Gives what comes next so much time.
    fn allow(&mut self, time: Duration) {
        let until = Instant::now().checked_add(time);
        let until = until.map_or(self.until, |until| until.min(self.until));
        self.line.get_mut().until = until;
    }

    fn ask(&mut self, command: &str) -> Result<Reply, Unsent> {
        self.allow(REPLY);
        let what = command.split([' ', ':']).next().unwrap_or_default();
        let line = format!("{command}\r\n");
        let sent = self.line.get_mut().write_all(line.as_bytes());
        sent.map_err(|error| self.failed(what, &error))?;
        self.reply(what)
    }

    fn expect(
        &self,
        what: &str,
        reply: Reply,
        fits: impl Fn(&Reply) -> bool,
    ) -> Result<Reply, Unsent> {
        if fits(&reply) {
            return Ok(reply);
        }
        let (server, said) = (self.server, shown(&reply.text()));
        let why = format!("{server} says to {what}: {said}");
        Err(Unsent::new(Cause::Unavailable, why))
    }

    fn failed(&self, what: &str, error: &io::Error) -> Unsent {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            _ => reason(error),
        };
        let why = format!("{what}: {}: {why}", self.server);
        Unsent::new(Cause::Unavailable, why)
    }

    /// Reads a reply to the end.
    fn reply(&mut self, what: &str) -> Result<Reply, Unsent> {
        let mut left = REPLY_BYTES_MAX;
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = (&mut self.line).take(left).read_until(b'\n', &mut line);
            let read = read.map_err(|error| self.failed(what, &error))?;
            left = left.saturating_sub(read as u64);
            if read == 0 && lines.is_empty() {
                let error = io::ErrorKind::UnexpectedEof.into();
                return Err(self.failed(what, &error));
            }
            let (code, is_last, text) = parse(&line).ok_or_else(|| {
                let (server, said) = (self.server, String::from_utf8_lossy(&line));
                let why = format!("{server} says to {what} what is no SMTP: {}", shown(&said));
                Unsent::new(Cause::Protocol, why)
            })?;
            lines.push(text);
            if is_last {
                return Ok(Reply { code, lines });
            }
        }
    }
}

/// The command that begins a message.
fn mail(envelope: &Envelope<'_>, extensions: &[String]) -> Result<String, Unsent> {
    let can = |name: &str| extensions.iter().any(|it| it == name);
    let mut mail = format!("MAIL FROM:<{}>", envelope.sender);
    if envelope.is_eight_bit && can("8BITMIME") {
        mail.push_str(" BODY=8BITMIME");
    }
    if can("SIZE") {
        mail.push_str(&format!(" SIZE={}", envelope.bytes));
    }
    let mut addresses = envelope.recipients.iter().map(String::as_str);
    let is_foreign = |address: &str| !address.is_ascii();
    if is_foreign(envelope.sender) || addresses.any(is_foreign) {
        if !can("SMTPUTF8") {
            let why = "the server takes addresses in ASCII alone";
            return Err(Unsent::new(Cause::Data, why));
        }
        mail.push_str(" SMTPUTF8");
    }
    Ok(mail)
}

/// The parts of a line of a reply: its code, whether it is the last one, and its text.
fn parse(line: &[u8]) -> Option<(u16, bool, String)> {
    let line = line.strip_suffix(b"\n")?.trim_ascii_end();
    let (code, text) = line.split_first_chunk::<3>()?;
    let code = std::str::from_utf8(code).ok()?.parse().ok()?;
    let is_last = match text.first() {
        Some(b'-') => false,
        Some(b' ') | None => true,
        Some(_) => return None,
    };
    let text = String::from_utf8_lossy(text.get(1..).unwrap_or_default());
    (200..600)
        .contains(&code)
        .then(|| (code, is_last, text.into_owned()))
}
