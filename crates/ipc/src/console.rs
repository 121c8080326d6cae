//! What a server and the recorder say to each other: the figures of now, and what people at the console ask.
//!
//! The idea: a message goes in packets, each of which says whether more of it follow, so that one of
//! megabytes passes a socket and nobody waits: who sends keeps what found no room ([`Outgoing`]), who reads
//! puts together what has come ([`Incoming`]), both up to a bound. Each end takes the other as hostile.
//!
//! Not here: what is answered (`recorder`), and who may ask (the server's configuration).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::codec::{self, BadMessage};

/// Bytes of a message: the machine's state, or the body of an answer.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a question.
pub const QUESTION_BYTES_MAX: usize = 1 << 20;
/// Bytes that wait for room; what comes then is refused.
pub const WAITING_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// Tenants whose rows are told of together.
pub const LOOKED_AT_MAX: usize = 256;
/// Fields of an answer's head, and the bytes of each.
pub const FIELDS_MAX: usize = 16;
const FIELD_BYTES_MAX: usize = 8 * 1024;
/// Figures in one message: the text of each has at most 400 bytes.
pub const FIGURES_MAX: usize = 4_096;
/// Requests that are told of one incident, the oldest of those that are known.
pub const INCIDENT_REQUESTS_MAX: usize = 16;
/// Seconds between two looks at what tenants take: a figure of theirs stands for so long, unless it says for how many
/// of these.
pub const TENANT_LOOK_S: u64 = 9;
/// The one script that pages run, as a policy names it: the recorder draws it into them, and the server
/// lets a browser run nothing else, whatever the recorder says.
pub const SCRIPT_HASH: &str = "sha256-MtP7ZsmjC5pq9qZ1Fb6eKHb+40OYsm7zxT68iXmi7a0=";
/// Bytes of a packet, the first of which says whether more follow.
const PACKET_BYTES_MAX: usize = 60 * 1024;
/// Packets that are read at once: some more than the largest message has.
const PACKETS_AT_ONCE: usize = 300;
/// Between the identity of a limit and whose part of it is meant: neither has one.
const PART: char = '\t';
/// Stands in a key that was shortened for what was left out of it.
const CUT: char = '…';
const LAST: u8 = 0;
const MORE: u8 = 1;

/// What the server says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToConsole {
    /// What there is at this moment, by the names that alerts know.
    Figures {
        /// Seconds after 1970.
        at_s: i64,
        /// How many looks each stands for, where one is late or missing: what is told each second for one.
        looks: f64,
        /// At most [`FIGURES_MAX`]; more come in further messages.
        values: Vec<(String, f64)>,
    },
    /// Whose sites there are, of those that are recorded; said when that changes.
    Tenants(Vec<TenantSites>),
    /// Somebody asks; answered by `Answer`.
    Question(ConsoleQuestion),
    /// Everything the server counts (`control::Snapshot`), as JSON; said when it was asked for.
    Live(String),
    /// Something went wrong.
    Incident(Incident),
}

/// What the recorder says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromConsole {
    /// Somebody looks at what goes on now: answered by `Live`, with the rows of these tenants, a name a line.
    Look(String),
    /// A question's answer.
    Answer(ConsoleAnswer),
    /// Why the archive cannot be sent to; empty where it can, or nothing is sent. Said when that changes.
    Unsent(String),
}

/// What somebody asks of the console.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConsoleQuestion {
    /// The server's number for it.
    pub id: u64,
    /// What may be seen.
    pub scope: ConsoleScope,
    /// The path below which the console stands, with a slash at its end.
    pub base: String,
    /// What follows that in the path, decoded.
    pub path: String,
    /// The query, as it was sent.
    pub query: String,
    /// What the client wants to read, as it was sent.
    pub accept_language: String,
}

/// Whose figures are shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConsoleScope {
    /// Everybody's, and the machine's.
    All,
    /// Those of these tenants.
    Tenants(Vec<TenantSites>),
}

/// A tenant with its sites.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TenantSites {
    /// Its name.
    pub tenant: String,
    /// The names of its sites.
    pub sites: Vec<String>,
}

/// Something that went wrong, and how it was just then.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// Seconds after 1970.
    pub at_s: i64,
    /// What kind of thing it was.
    pub kind: IncidentKind,
    /// What the limit's state is kept by, the rule that shed, whose programs were killed (spelt as states of
    /// limits are), or the upstream.
    pub what: String,
    /// The limit's reason, the rule's sensor, the bound that was hit and by what, or the upstream's server.
    pub why: String,
    /// How often it happened since it was last told, at least.
    pub times: u64,
    /// Requests under way in all.
    pub in_flight: u64,
    /// Who held places of limits, or waited for them, those with most first.
    pub held: Vec<HeldPlace>,
    /// The oldest requests that did, of this limit where one refused, at most [`INCIDENT_REQUESTS_MAX`].
    pub requests: Vec<RequestInFlight>,
}

/// A request under way.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestInFlight {
    /// Its site.
    pub site: String,
    /// What was asked for, without query.
    pub path: String,
    /// How long ago it came.
    pub age_ms: u64,
    /// How far it is.
    pub state: RequestState,
}

/// How far a request is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestState {
    /// It waits for a place.
    #[default]
    Waiting,
    /// It has one, and no reply yet.
    Answering,
    /// Its reply is being sent.
    Sending,
    /// Nobody waits for it any more.
    Abandoned,
}

/// What went wrong.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum IncidentKind {
    /// A limit refused requests.
    #[default]
    Limit,
    /// A rule shed some.
    Shedding,
    /// Programs were killed at a bound of their group.
    Program,
    /// A server of an upstream fell.
    Upstream,
}

/// Who holds places of a limit.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldPlace {
    /// What the limit's state is kept by.
    pub limit: String,
    /// The key; empty where the limit has one alone, and where keys say who a client is.
    pub key: String,
    /// Requests that hold a place.
    pub in_flight: u32,
    /// Requests that wait for one.
    pub queued: u32,
}

/// What is answered.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleAnswer {
    /// The question's number.
    pub id: u64,
    /// The status.
    pub status: u16,
    /// What the body is.
    pub content_type: String,
    /// Other fields of the head, at most [`FIELDS_MAX`].
    #[serde(deserialize_with = "few")]
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// Nobody's.
impl Default for ConsoleScope {
    fn default() -> ConsoleScope {
        ConsoleScope::Tenants(Vec::new())
    }
}

impl ConsoleScope {
    /// Whether a tenant is in it.
    #[must_use]
    pub fn has_tenant(&self, name: &str) -> bool {
        match self {
            ConsoleScope::All => true,
            ConsoleScope::Tenants(tenants) => tenants.iter().any(|it| it.tenant == name),
        }
    }

    /// Whether what a limit stands on is in it, as its identity says that ([`LimitOwner`]).
    #[must_use]
    pub fn has_limit(&self, identity: &str) -> bool {
        match (self, LimitOwner::of(identity)) {
            (ConsoleScope::All, _) => true,
            (_, Some(LimitOwner::Tenant(name))) => self.has_tenant(name),
            (_, Some(LimitOwner::Site(name))) => self.has_site(name),
            (_, None) => false,
        }
    }

    /// Whether a figure that is followed over time is in it: `tenant.NAME.WHAT` is a tenant's.
    #[must_use]
    pub fn has_figure(&self, figure: &str) -> bool {
        match self {
            ConsoleScope::All => true,
            ConsoleScope::Tenants(tenants) => tenants.iter().any(|it| {
                let rest = figure.strip_prefix("tenant.");
                let rest = rest.and_then(|rest| rest.strip_prefix(it.tenant.as_str()));
                // A tenant's name may have a dot in it; what is measured has none.
                let what = rest.and_then(|rest| rest.strip_prefix('.'));
                what.is_some_and(|what| !what.contains('.'))
            }),
        }
    }

    /// Whether a site is in it.
    #[must_use]
    pub fn has_site(&self, name: &str) -> bool {
        match self {
            ConsoleScope::All => true,
            ConsoleScope::Tenants(tenants) => {
                let mut sites = tenants.iter().flat_map(|it| &it.sites);
                sites.any(|site| site == name)
            }
        }
    }
}

/// Whose a limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOwner<'a> {
    /// This tenant's.
    Tenant(&'a str),
    /// This site's.
    Site(&'a str),
}

impl<'a> LimitOwner<'a> {
    /// By what the limit's state is kept by: `tenant example/file`, `rule a.example/2/file`. One of a plan, or of the site of
    /// all rows, is nobody's, but for what [`of_key`](Self::of_key) makes of it.
    #[must_use]
    pub fn of(identity: &'a str) -> Option<LimitOwner<'a>> {
        let (limit, part) = match identity.split_once(PART) {
            Some((limit, part)) => (limit, Some(part)),
            None => (identity, None),
        };
        let (level, rest) = limit.split_once(' ')?;
        let name = rest.split('/').next()?;
        match (level, part) {
            ("plan", part) => part.map(LimitOwner::Tenant),
            ("tenant", _) => Some(LimitOwner::Tenant(name)),
            ("site" | "rule", part) => Some(LimitOwner::Site(part.unwrap_or(name))),
            _ => None,
        }
    }

    /// What of a limit is this key's owner's: all of it, unless it is of a plan or of the site of all rows, whose keys say
    /// first whose they are.
    #[must_use]
    pub fn of_key(identity: &'a str, key: &str) -> Cow<'a, str> {
        match Self::part(identity, key) {
            Some(part) => format!("{identity}{PART}{part}").into(),
            None => identity.into(),
        }
    }

    /// Whether only an owner's part of a limit is meant.
    #[must_use]
    pub fn is_part(identity: &str) -> bool {
        identity.contains(PART)
    }

    /// Whose a key of such a limit is; nobody's where the key was shortened so much that this is not in it: what is left there
    /// may be a client's.
    #[must_use]
    pub fn part<'k>(identity: &str, key: &'k str) -> Option<&'k str> {
        let mut apart = ["plan ", "site directory:", "rule directory:"].into_iter();
        let is_apart = apart.any(|begin| identity.starts_with(begin));
        let owner = key.split(' ').next().filter(|it| !it.contains(CUT));
        is_apart.then(|| owner.unwrap_or_default())
    }
}

impl ConsoleQuestion {
    /// Whether it is short enough to be asked.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.bytes() <= QUESTION_BYTES_MAX
    }

    /// The memory it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tenants = match &self.scope {
            ConsoleScope::All => &[][..],
            ConsoleScope::Tenants(tenants) => tenants,
        };
        let sites = tenants.iter().flat_map(|it| &it.sites);
        let texts = [&self.base, &self.path, &self.query, &self.accept_language];
        let texts = texts.into_iter().chain(sites);
        let texts = texts.chain(tenants.iter().map(|it| &it.tenant));
        texts.map(|text| size_of::<String>() + text.len()).sum()
    }
}

/// Reads a few fields, and takes no memory for more.
fn few<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a few fields")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some((name, value)) = seq.next_element::<(String, String)>()? {
                let is_short = name.len() + value.len() <= FIELD_BYTES_MAX;
                if fields.len() == FIELDS_MAX || !is_short {
                    return Err(A::Error::custom("too many fields"));
                }
                fields.push((name, value));
            }
            Ok(fields)
        }
    }
    from.deserialize_seq(Few)
}

/// What one end has to say, as far as the socket (`os::fdpass::packet_pair`) had no room for it.
#[derive(Debug, Default)]
pub struct Outgoing {
    packets: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Outgoing {
    /// Has a message sent; says whether there was room for it.
    ///
    /// # Errors
    /// What cannot be written down: none of ours.
    pub fn put(&mut self, message: &impl Serialize) -> io::Result<bool> {
        let bytes = codec::encode(message)?;
        if bytes.len() > MESSAGE_BYTES_MAX || self.bytes + bytes.len() > WAITING_BYTES_MAX {
            return Ok(false);
        }
        let mut pieces = bytes.chunks(PACKET_BYTES_MAX - 1).peekable();
        while let Some(piece) = pieces.next() {
            let head = if pieces.peek().is_some() { MORE } else { LAST };
            let packet = [&[head], piece].concat();
            self.bytes += packet.len();
            self.packets.push_back(packet.into());
        }
        Ok(true)
    }

    /// Whether all has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// When the other end has gone.
    pub fn send(&mut self, link: BorrowedFd<'_>) -> io::Result<()> {
        while let Some(packet) = self.packets.front() {
            match os::fdpass::try_send(link, packet, &[]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            self.bytes -= packet.len();
            self.packets.pop_front();
        }
        Ok(())
    }
}

/// What has come of a message.
#[derive(Debug)]
pub struct Incoming<T> {
    message: Vec<u8>,
    packet: Box<[u8]>,
    of: PhantomData<T>,
}

impl<T> Default for Incoming<T> {
    fn default() -> Incoming<T> {
        Incoming {
            message: Vec::new(),
            packet: vec![0; PACKET_BYTES_MAX].into(),
            of: PhantomData,
        }
    }
}

impl<T: DeserializeOwned> Incoming<T> {
    /// Reads the next message; `None` while its end has not come.
    ///
    /// # Errors
    /// When the other end has gone (`UnexpectedEof`), or says what cannot be understood.
    pub fn receive(&mut self, link: BorrowedFd<'_>) -> io::Result<Option<T>> {
        for _ in 0..PACKETS_AT_ONCE {
            let (bytes, beside) = match os::fdpass::try_recv(link, &mut self.packet) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                received => received?,
            };
            if beside.is_none_or(|beside| !beside.is_empty()) {
                return Err(BadMessage::new("descriptors that nobody asked for").into());
            }
            let packet = self.packet.get(..bytes).unwrap_or_default();
            if let Some(message) = take(&mut self.message, packet)? {
                return Ok(Some(message));
            }
        }
        Err(BadMessage::new("a message in too many packets").into())
    }

    /// Bytes that have come of a message that is not all there yet.
    pub(crate) fn bytes_come(&self) -> usize {
        self.message.len()
    }
}

/// Adds a packet to what has come of a message; the message, where that is its end.
fn take<T: DeserializeOwned>(
    message: &mut Vec<u8>,
    packet: &[u8],
) -> Result<Option<T>, BadMessage> {
    let (head, piece) = packet
        .split_first()
        .ok_or_else(|| BadMessage::new("empty"))?;
    if message.len() + piece.len() > MESSAGE_BYTES_MAX {
        return Err(BadMessage::new("a message without end"));
    }
    message.extend_from_slice(piece);
    match *head {
        MORE if piece.is_empty() => Err(BadMessage::new("a packet with nothing in it")),
        MORE => Ok(None),
        LAST => codec::decode(&std::mem::take(message), Vec::new()).map(Some),
        _ => Err(BadMessage::new("neither the last packet nor one before it")),
    }
}

/// Puts messages together out of packets, one after the other, for who tests that: each packet is
/// preceded by its length in two bytes.
///
/// # Errors
/// As [`Incoming::receive`] has them.
pub fn of_packets<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<Vec<T>, BadMessage> {
    let (mut message, mut messages) = (Vec::new(), Vec::new());
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (packet, rest) = rest.split_at(length);
        messages.extend(take(&mut message, packet)?);
        bytes = rest;
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::tests::mangled;

    fn question(path: &str) -> ToConsole {
        ToConsole::Question(ConsoleQuestion {
            id: 7,
            scope: ConsoleScope::Tenants(vec![TenantSites {
                tenant: "a".into(),
                sites: vec!["a.example".into()],
            }]),
            path: path.into(),
            ..ConsoleQuestion::default()
        })
    }

    fn answer(body: String, fields: usize) -> FromConsole {
        FromConsole::Answer(ConsoleAnswer {
            id: 7,
            status: 200,
            fields: vec![("a".into(), "b".into()); fields],
            body,
            ..ConsoleAnswer::default()
        })
    }

    #[test]
    fn messages_of_any_length_arrive_in_order_though_the_socket_is_small() {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        let said = [
            question("sites"),
            ToConsole::Live("x".repeat(MESSAGE_BYTES_MAX - 100)),
            ToConsole::Figures {
                at_s: 60,
                looks: 1.0,
                values: vec![("load1".into(), 0.5)],
            },
        ];
        let (mut outgoing, mut incoming) = (Outgoing::default(), Incoming::<ToConsole>::default());
        for message in &said {
            assert!(outgoing.put(message).unwrap());
        }
        let mut heard = Vec::new();
        while heard.len() < said.len() {
            outgoing.send(here.as_fd()).unwrap();
            heard.extend(incoming.receive(there.as_fd()).unwrap());
        }
        assert!(heard == said && outgoing.is_empty());
        assert!(incoming.receive(there.as_fd()).unwrap().is_none());
        drop(here);
        let ended = incoming.receive(there.as_fd()).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_finds_no_room_is_refused_and_what_has_begun_goes_on() {
        let mut outgoing = Outgoing::default();
        let half = ToConsole::Live("x".repeat(MESSAGE_BYTES_MAX - 10_000));
        assert!(outgoing.put(&half).unwrap() && outgoing.put(&half).unwrap());
        assert!(!outgoing.put(&half).unwrap());
        assert!(
            outgoing.put(&FromConsole::Look(String::new())).unwrap(),
            "a little is left"
        );
        let long = ToConsole::Live("x".repeat(MESSAGE_BYTES_MAX));
        assert!(!Outgoing::default().put(&long).unwrap());
    }

    #[test]
    fn a_message_without_end_or_with_many_fields_or_descriptors_is_an_error() {
        let refused = |packets: &[&[u8]]| {
            let (here, there) = os::fdpass::packet_pair().unwrap();
            for packet in packets {
                os::fdpass::try_send(here.as_fd(), packet, &[]).unwrap();
            }
            let mut incoming = Incoming::<FromConsole>::default();
            incoming.receive(there.as_fd()).unwrap_err().to_string()
        };
        let many = codec::encode(&answer(String::new(), FIELDS_MAX + 1)).unwrap();
        assert!(refused(&[&[&[LAST], &*many].concat()]).contains("bad message"));
        assert!(refused(&[&[2, 0]]).contains("neither"));
        assert!(refused(&[&[LAST, 0, 0, 0]]).contains("too long"));
        let mut message = vec![0; MESSAGE_BYTES_MAX];
        let endless = take::<FromConsole>(&mut message, &[MORE, 1]).unwrap_err();
        assert!(endless.to_string().contains("without end"));
        let (here, there) = os::fdpass::packet_pair().unwrap();
        os::fdpass::try_send(here.as_fd(), &[LAST, 0], &[here.as_fd()]).unwrap();
        let beside = Incoming::<FromConsole>::default().receive(there.as_fd());
        assert!(beside.unwrap_err().to_string().contains("descriptors"));
    }

    #[test]
    fn mangled_messages_are_refused_or_bounded() {
        let sound = codec::encode(&answer("body".into(), 3)).unwrap();
        mangled(&sound, |bytes| {
            let packet = [&[LAST], bytes].concat();
            if let Ok(Some(FromConsole::Answer(it))) = take(&mut Vec::new(), &packet) {
                assert!(it.fields.len() <= FIELDS_MAX && it.body.len() <= bytes.len());
            }
        });
        let sound = codec::encode(&question("sites")).unwrap();
        mangled(&sound, |bytes| {
            let _ = take::<ToConsole>(&mut Vec::new(), &[&[LAST], bytes].concat());
        });
    }

    #[test]
    fn limits_of_plans_and_of_all_rows_are_whose_their_keys_are() {
        use LimitOwner as Owner;
        for (limit, key, owner) in [
            ("tenant a/pages", "", Some(Owner::Tenant("a"))),
            (
                "rule a.example/2/path",
                "/x y",
                Some(Owner::Site("a.example")),
            ),
            ("plan small/file 2", "a", Some(Owner::Tenant("a"))),
            ("plan small/path", "a /x%20y", Some(Owner::Tenant("a"))),
            ("plan small/path", "", Some(Owner::Tenant(""))),
            (
                "site directory:d/path",
                "a.example /x",
                Some(Owner::Site("a.example")),
            ),
            (
                "rule directory:d/1/site",
                "a.example",
                Some(Owner::Site("a.example")),
            ),
            ("process/client", "a", None),
            ("upstream app/1", "a", None),
            // Of what was shortened within its first word nothing is told.
            (
                "rule directory:d/1/cookie",
                "www.example-shop.j…SESSION=6f1e9a",
                Some(Owner::Site("")),
            ),
            (
                "site directory:d/path",
                "www.example-shop.jp /a…z",
                Some(Owner::Site("www.example-shop.jp")),
            ),
            ("plan small/cookie", "someb…secret", Some(Owner::Tenant(""))),
        ] {
            let of_key = Owner::of_key(limit, key);
            assert_eq!(Owner::of(&of_key), owner, "{limit} {key}");
        }
        assert_eq!(
            Owner::of("plan small/pages"),
            None,
            "it is of all its tenants"
        );
        let ToConsole::Question(ConsoleQuestion { scope, .. }) = question("") else {
            unreachable!("it is one");
        };
        for (limit, is_its_own) in [
            ("plan small/pages\ta", true),
            ("plan small/pages\tab", false),
            ("plan small/pages", false),
            ("plan a/pages", false),
            ("site directory:d/path\ta.example", true),
            ("site directory:d/path\tb.example", false),
            ("site directory:d/path", false),
        ] {
            assert_eq!(scope.has_limit(limit), is_its_own, "{limit}");
        }
    }

    #[test]
    fn a_scope_has_what_is_its_tenants() {
        let ToConsole::Question(ConsoleQuestion { scope, .. }) = question("") else {
            unreachable!("it is one");
        };
        assert!(scope.has_tenant("a") && scope.has_site("a.example"));
        assert!(scope.has_figure("tenant.a.cpu") && !scope.has_figure("load1"));
        for other in ["tenant.ab.cpu", "tenant.a.b.cpu", "tenant.a"] {
            assert!(!scope.has_figure(other), "{other}");
        }
        assert!(ConsoleScope::All.has_figure("load1"));
        assert!(!ConsoleScope::default().has_tenant(""));
    }

    proptest! {
        #[test]
        fn cutting_and_joining_give_the_same(length in 0_usize..200_000) {
            let said = answer("x".repeat(length), 1);
            let mut outgoing = Outgoing::default();
            prop_assert!(outgoing.put(&said).unwrap());
            let lengths = outgoing.packets.iter().map(|it| it.len());
            prop_assert!(lengths.into_iter().all(|it| it <= PACKET_BYTES_MAX));
            let mut message = Vec::new();
            let mut heard = Vec::new();
            for packet in &outgoing.packets {
                heard.extend(take::<FromConsole>(&mut message, packet).unwrap());
            }
            prop_assert_eq!(heard, [said]);
        }
    }
}
