//! One connection's TLS as bytes: records that arrived go in, what they say comes out, and the other way.
//!
//! The idea: rustls' machine without buffers of its own is driven to its next rest, with the bytes that are there. So
//! a connection at rest holds its keys and nothing else. No socket and no wait is known here; a handshake's step is
//! the same call as a record's, made on another thread where it costs.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, CommonState, Error, HandshakeKind, InvalidMessage,
    ProtocolVersion, ServerConfig,
};

use super::policy::H2;

/// Most plaintext that is sealed at once: six records.
pub(crate) const SEAL_MAX: usize = 6 * RECORD_BYTES;
/// Plaintext of a record (RFC 8446, 5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// More than what a record adds to its plaintext.
const RECORD_OVERHEAD: usize = 64;
/// Most bytes that one message of a handshake takes on its way out; a chain of certificates is the largest.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Most bytes that may lie there before more are taken: a message of 64 KiB in records of a usual size. In records of a
/// byte each it would be twenty times as much.
const UNOPENED_MAX: usize = 128 * 1024;

/// The TLS of one connection.
pub(crate) struct Session {
    side: Side,
    /// Opened and not yet taken, from `taken` on.
    opened: Vec<u8>,
    taken: usize,
    /// A part of a record that has arrived, from `discarded` on.
    unopened: Vec<u8>,
    discarded: usize,
    end: SessionEnd,
}

/// Which end of the connection this is. Both do the same once they have begun.
enum Side {
    /// A client has come to us.
    Server(UnbufferedServerConnection),
    /// We have come to a server.
    Client(UnbufferedClientConnection),
}

/// How far the two have come to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionEnd {
    /// Nobody has said so.
    Open,
    /// The other end sends no more, as it has said.
    Told,
    /// There is nothing more to say or to hear.
    Broken,
}

/// Where a session rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The handshake goes on with what comes next.
    Handshake,
    /// Both ends may speak.
    Open,
}

/// What comes next from a client whose handshake goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitedFlight {
    /// A hello again, which is still to be signed for.
    Hello,
    /// Its part of the keys in TLS 1.2.
    Keys,
    /// Its last word in TLS 1.3, perhaps with a certificate before it.
    Finished,
}

/// Why a session cannot go on.
#[derive(Debug)]
pub(crate) struct SessionFailure {
    /// The stable word for it.
    pub(crate) reason: &'static str,
    /// The alert with which the other end ended it (RFC 8446, 6.2).
    pub(crate) alert: Option<u8>,
    /// More, for the log.
    pub(crate) detail: String,
}

/// What a handshake has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The version, as OpenSSL and programs call it: `TLSv1.3`.
    pub(crate) version: &'static str,
    /// The cipher suite, as IANA calls it.
    pub(crate) cipher: &'static str,
    /// The group of the key exchange, as IANA calls it; empty where there was none.
    pub(crate) group: &'static str,
    /// Whether it stands on an earlier one.
    pub(crate) is_resumed: bool,
    /// Whether it was agreed to speak HTTP/2.
    pub(crate) is_h2: bool,
    /// The certificate the client has shown, in DER.
    pub(crate) client_certificate: Option<Box<[u8]>>,
}

enum SessionStep {
    Again,
    Rest(Rest),
    Told,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.end)
    }
}

impl Session {
    /// A session that clients begin.
    ///
    /// # Errors
    /// A configuration that rustls does not take.
    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, SessionFailure> {
        let connection = UnbufferedServerConnection::new(config);
        let connection = connection.map_err(|error| SessionFailure::of(&error))?;
        Ok(Self::at(Side::Server(connection)))
    }

    /// A session with a server that has to be `name`; it begins with what is put behind `out`.
    ///
    /// # Errors
    /// A configuration that rustls does not take.
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        out: &mut Vec<u8>,
    ) -> Result<Self, SessionFailure> {
        let connection = UnbufferedClientConnection::new(config, name);
        let connection = connection.map_err(|error| SessionFailure::of_server(&error))?;
        let mut session = Self::at(Side::Client(connection));
        session.rest(out)?;
        Ok(session)
    }

    fn at(side: Side) -> Self {
        Self {
            side,
            opened: Vec::new(),
            taken: 0,
            unopened: Vec::new(),
            discarded: 0,
            end: SessionEnd::Open,
        }
    }

    /// Opens what has arrived. What is to be sent for it is put behind `out`, also where it fails: an alert.
    ///
    /// # Errors
    /// Why there is no going on.
    pub(crate) fn receive(
        &mut self,
        arrived: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Rest, SessionFailure> {
        if self.is_broken() {
            return Err(SessionFailure::of(&Error::HandshakeNotComplete));
        }
        if self.unopened.len() > UNOPENED_MAX {
            let error = Error::General("a message in too many records".to_owned());
            return Err(self.fail(&error, out));
        }
        self.unopened.extend_from_slice(arrived);
        self.rest(out)
    }

    /// Goes on until it rests.
    fn rest(&mut self, out: &mut Vec<u8>) -> Result<Rest, SessionFailure> {
        loop {
            match self.step(out) {
                Ok(SessionStep::Again) => {}
                Ok(SessionStep::Told) => self.end = SessionEnd::Told,
                Ok(SessionStep::Rest(rest)) => {
                    self.forget_discarded();
                    return Ok(rest);
                }
                Err(error) => return Err(self.fail(&error, out)),
            }
        }
    }

    /// Keeps no more than what has to be seen again: once at each rest, as there may be thousands of small records.
    fn forget_discarded(&mut self) {
        let discarded = std::mem::take(&mut self.discarded);
        if discarded > 0 {
            self.unopened.drain(..discarded.min(self.unopened.len()));
            self.unopened.shrink_to_fit();
        }
    }

    /// Ends a session that cannot go on; what it has to say of that is put behind `out`.
    fn fail(&mut self, error: &Error, out: &mut Vec<u8>) -> SessionFailure {
        self.end = SessionEnd::Broken;
        // What came behind the mistake is not looked at: rustls has said its last word, and panics where it finds another
        // mistake.
        while self.state().wants_write() && matches!(self.step(out), Ok(SessionStep::Again)) {}
        match self.side {
            Side::Server(_) => SessionFailure::of(error),
            Side::Client(_) => SessionFailure::of_server(error),
        }
    }

    /// One step of the machine. It is always given what was kept: it remembers how far in that it has come.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<SessionStep, Error> {
        let unopened = self.unopened.get_mut(self.discarded..).unwrap_or_default();
        let opened = &mut self.opened;
        let (discard, step) = match &mut self.side {
            Side::Server(it) => walk(it.process_tls_records(unopened), opened, out),
            Side::Client(it) => walk(it.process_tls_records(unopened), opened, out),
        };
        self.discarded += discard;
        step
    }

    /// What was opened and not yet taken.
    pub(crate) fn opened(&self) -> &[u8] {
        self.opened.get(self.taken..).unwrap_or_default()
    }

    /// Takes `count` bytes of [`Self::opened`].
    pub(crate) fn take(&mut self, count: usize) {
        self.taken += count;
        if self.opened().is_empty() {
            (self.opened, self.taken) = (Vec::new(), 0);
        }
    }

    /// Whether the other end has said that it sends no more.
    pub(crate) fn is_told_of_end(&self) -> bool {
        self.end == SessionEnd::Told
    }

    /// Whether nothing can be said or heard any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.end == SessionEnd::Broken
    }

    /// Gives up: nothing more is said or heard.
    pub(crate) fn break_off(&mut self) {
        self.end = SessionEnd::Broken;
    }

    /// Seals at most [`SEAL_MAX`] bytes into `room`, which is larger by some records; says how many bytes that are. What
    /// has to be sent before them is put behind `first`.
    ///
    /// # Errors
    /// Why there is no going on.
    pub(crate) fn seal(
        &mut self,
        plain: &[u8],
        first: &mut Vec<u8>,
        room: &mut [u8],
    ) -> io::Result<usize> {
        if self.is_broken() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.rest(first)?;
        let unopened = &mut self.unopened;
        match &mut self.side {
            Side::Server(it) => sealed(it.process_tls_records(unopened), plain, room),
            Side::Client(it) => sealed(it.process_tls_records(unopened), plain, room),
        }
    }

    /// Says that nothing more will be sent; the word is put behind `out`.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) {
        if self.is_broken() || self.rest(out).is_err() {
            return;
        }
        let unopened = &mut self.unopened;
        match &mut self.side {
            Side::Server(it) => closed(it.process_tls_records(unopened), out),
            Side::Client(it) => closed(it.process_tls_records(unopened), out),
        }
    }

    /// What the end of the stream means that comes without TLS's word for it. Browsers often leave that out, and what
    /// they ask for says itself how long it is; of a server's reply it may be a part.
    ///
    /// # Errors
    /// Somebody may have cut the stream.
    pub(crate) fn end_without_word(&self) -> io::Result<()> {
        match self.side {
            Side::Server(_) => Ok(()),
            Side::Client(_) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended without TLS's word for it (close_notify)",
            )),
        }
    }

    fn state(&self) -> &CommonState {
        match &self.side {
            Side::Server(connection) => connection,
            Side::Client(connection) => connection,
        }
    }

    /// What the handshake has come to.
    pub(crate) fn agreed(&self) -> Agreed {
        let state = self.state();
        let suite = state.negotiated_cipher_suite().map(|suite| suite.suite());
        let group = state.negotiated_key_exchange_group();
        let certificates = state.peer_certificates();
        Agreed {
            version: match state.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: suite.map_or("", cipher_name),
            group: group
                .and_then(|group| group.name().as_str())
                .unwrap_or_default(),
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
            is_h2: state.alpn_protocol() == Some(H2),
            client_certificate: certificates
                .and_then(|chain| chain.first())
                .map(|certificate| Box::from(&certificate[..])),
        }
    }

    /// What the handshake waits for.
    pub(crate) fn awaited(&self) -> AwaitedFlight {
        let is_tls13 = self.state().protocol_version() == Some(ProtocolVersion::TLSv1_3);
        match self.state().negotiated_key_exchange_group() {
            _ if !is_tls13 => AwaitedFlight::Keys,
            // It was asked for a key of another group (RFC 8446, 4.1.4): nothing is signed yet.
            None => AwaitedFlight::Hello,
            Some(_) => AwaitedFlight::Finished,
        }
    }

    /// Whether it stands on an earlier session, as far as is known.
    pub(crate) fn is_resumed(&self) -> bool {
        self.state().handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

/// What IANA calls a suite: rustls marks those of TLS 1.3 in its own way.
fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        suite => suite.as_str().unwrap_or_default(),
    }
}

/// Room that is enough for so much plaintext.
pub(crate) const fn sealed_bytes(plain: usize) -> usize {
    plain + (plain / RECORD_BYTES + 1) * RECORD_OVERHEAD
}

/// Does what a machine wants done; says how much of what has arrived it has done with.
fn walk<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    opened: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> (usize, Result<SessionStep, Error>) {
    let step = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => opened.extend_from_slice(record.payload),
                Some(Err(error)) => break Err(error),
                None => break Ok(SessionStep::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            encode(out, |room| match message.encode(room) {
                Ok(count) => Ok(count),
                Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                Err(EncodeError::AlreadyEncoded) => Err(None),
            })
            .map(|()| SessionStep::Again)
        }
        Ok(ConnectionState::TransmitTlsData(sent)) => {
            sent.done();
            Ok(SessionStep::Again)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(SessionStep::Rest(Rest::Handshake)),
        Ok(ConnectionState::WriteTraffic(_) | ConnectionState::Closed) => {
            Ok(SessionStep::Rest(Rest::Open))
        }
        Ok(ConnectionState::PeerClosed) => Ok(SessionStep::Told),
        // Early data is never asked for.
        Ok(_) => Err(Error::HandshakeNotComplete),
    };
    (status.discard, step)
}

/// Seals into `room` what a machine at rest lets be said.
fn sealed<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &[u8],
    room: &mut [u8],
) -> io::Result<usize> {
    match status.state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let broken = |_: EncryptError| io::Error::from(io::ErrorKind::BrokenPipe);
            traffic.encrypt(plain, room).map_err(broken)
        }
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Puts the last word behind `out`, where a machine at rest has one.
fn closed<Data>(status: UnbufferedStatus<'_, '_, Data>, out: &mut Vec<u8>) {
    if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
        let closed = encode(out, |room| match traffic.queue_close_notify(room) {
            Ok(count) => Ok(count),
            Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
            Err(_) => Err(None),
        });
        // Without the word, the end of the stream says it.
        drop(closed);
    }
}

/// Writes a message behind `out`, whatever room it needs.
fn encode(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), Error> {
    let begin = out.len();
    let mut room = 512;
    for _ in 0..2 {
        out.resize(begin + room, 0);
        match write(out.get_mut(begin..).unwrap_or_default()) {
            Ok(count) => {
                out.truncate(begin + count);
                return Ok(());
            }
            Err(Some(needed)) if needed <= MESSAGE_BYTES_MAX => room = needed,
            Err(_) => break,
        }
    }
    out.truncate(begin);
    Err(Error::General("a message that is too large".to_owned()))
}

impl SessionFailure {
    /// Why a server that we have come to is not spoken with.
    fn of_server(error: &Error) -> Self {
        use CertificateError as Wrong;
        let (reason, detail) = match error {
            Error::InvalidCertificate(wrong) => {
                let detail = match wrong {
                    Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired",
                    Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                        "its certificate is not valid yet"
                    }
                    Wrong::UnknownIssuer => "nobody who is believed vouches for its certificate",
                    Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                        "its certificate is another's"
                    }
                    _ => "its certificate is no good",
                };
                ("upstream_certificate", format!("{detail} ({error})"))
            }
            Error::AlertReceived(alert) => {
                let detail = format!("it ended the handshake with the alert {alert:?}");
                ("upstream_handshake", detail)
            }
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                ("upstream_handshake", "it does not speak TLS".to_owned())
            }
            _ => ("upstream_handshake", error.to_string()),
        };
        Self {
            reason,
            alert: None,
            detail,
        }
    }

    fn of(error: &Error) -> Self {
        use rustls::PeerIncompatible as Odd;
        let alert = match error {
            Error::AlertReceived(alert) => Some(u8::from(*alert)),
            _ => None,
        };
        let reason = match error {
            Error::AlertReceived(_) => "client_alert",
            Error::NoCertificatesPresented => "client_certificate_missing",
            Error::InvalidCertificate(_) => "client_certificate_refused",
            Error::PeerIncompatible(
                Odd::ServerDoesNotSupportTls12Or13
                | Odd::SupportedVersionsExtensionRequired
                | Odd::Tls12NotOffered
                | Odd::Tls12NotOfferedOrEnabled
                | Odd::Tls13RequiredForQuic,
            ) => "no_shared_version",
            Error::PeerIncompatible(_) => "no_shared_cipher",
            _ => "bad_hello",
        };
        Self {
            reason,
            alert,
            detail: error.to_string(),
        }
    }
}

impl From<SessionFailure> for io::Error {
    fn from(failure: SessionFailure) -> Self {
        Self::new(io::ErrorKind::InvalidData, failure.detail)
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::server::ResolvesServerCertUsingSni;

    use super::*;

    fn session() -> Session {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_no_client_auth();
        let nobody = Arc::new(ResolvesServerCertUsingSni::new());
        Session::server(Arc::new(builder.with_cert_resolver(nobody))).expect("a session")
    }

    /// A hello of 65,280 bytes, of which its head has come.
    const BEGUN: [u8; 9] = [22, 3, 1, 0, 4, 1, 0, 0xff, 0];

    #[test]
    fn a_part_of_a_message_is_kept_while_something_is_said() {
        let (mut session, mut out) = (session(), Vec::new());
        let rest = session.receive(&BEGUN, &mut out).expect("a part");
        assert_eq!(rest, Rest::Handshake);
        let mut room = [0; 512];
        assert!(session.seal(b"early", &mut out, &mut room).is_err());
        session.close(&mut out);
        assert_eq!(session.unopened, BEGUN);
    }

    #[test]
    fn behind_one_mistake_no_other_is_looked_at() {
        let (mut session, mut out) = (session(), Vec::new());
        let mistakes = [22, 3, 1, 0, 4, 2, 0, 0, 0].repeat(3);
        let failed = session.receive(&mistakes, &mut out);
        assert!(failed.is_err());
        assert_eq!((out[0], out.len()), (21, 7), "one alert: {out:?}");
        let mut room = [0; 512];
        assert!(session.seal(b"late", &mut out, &mut room).is_err());
        assert!(session.receive(&mistakes, &mut out).is_err());
        session.close(&mut out);
        assert_eq!(out.len(), 7);
    }

    #[test]
    fn a_message_in_records_of_a_byte_each_is_refused_before_it_is_whole() {
        let (mut session, mut out) = (session(), Vec::new());
        session.receive(&BEGUN, &mut out).expect("a part");
        let pieces = [22, 3, 3, 0, 1, 0].repeat(512);
        let failed = (0..127).find_map(|_| session.receive(&pieces, &mut out).err());
        let failed = failed.expect("refused");
        assert_eq!(
            failed.detail,
            "unexpected error: a message in too many records"
        );
        assert!(session.unopened.len() < UNOPENED_MAX + 2 * pieces.len());
    }

    fn server_name() -> ServerName<'static> {
        ServerName::try_from("a.test").expect("a name")
    }

    fn client() -> (Session, Vec<u8>) {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let nobody = rustls::RootCertStore::empty();
        let config = builder.expect("versions").with_root_certificates(nobody);
        let config = Arc::new(config.with_no_client_auth());
        let mut hello = Vec::new();
        let session = Session::client(config, server_name(), &mut hello);
        (session.expect("a session"), hello)
    }

    #[test]
    fn a_server_that_speaks_no_tls_is_told_so_once() {
        for (said, detail) in [
            (
                &b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..],
                "it does not speak TLS",
            ),
            (
                b"\x15\x03\x03\x00\x02\x02\x28",
                "it ended the handshake with the alert HandshakeFailure",
            ),
        ] {
            let (mut session, hello) = client();
            assert!(hello.starts_with(&[22, 3, 1]), "a hello comes first");
            let mut out = Vec::new();
            let failed = session.receive(said, &mut out).expect_err("no hello");
            assert_eq!(failed.reason, "upstream_handshake");
            assert_eq!(failed.detail, detail);
            assert!(out.len() <= 7, "at most an alert: {out:?}");
            assert!(session.is_broken() && session.opened().is_empty());
        }
    }

    #[test]
    fn an_end_without_a_word_may_be_a_cut_where_a_server_speaks() {
        assert!(session().end_without_word().is_ok());
        assert!(client().0.end_without_word().is_err());
    }
}
