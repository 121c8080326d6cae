//! Logging in: the server's greeting, our answer, and what is said until the server is content.
//!
//! Without I/O: packets in, packets out. Accounts log in with `mysql_native_password` or
//! `caching_sha2_password`, whatever the server names first. A password goes out as it is over a
//! Unix socket alone, and sealed with the server's key over TCP.

use std::fmt;

use sha1::{Digest, Sha1};
use sha2::Sha256;

use super::key::PublicKey;
use super::packet::{Fields, put_name};
use super::reply::{Dialect, Refusal, refusal};

/// The longest packet of a server while logging in.
pub(super) const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Packets of a server until it is content; four are the most that are of use.
const TURNS_MAX: u8 = 8;
const NONCE_BYTES: usize = 20;
/// `utf8mb4_general_ci`.
const CHARACTER_SET: u8 = 45;
/// What we say is the longest packet we take.
const LONGEST_BYTES: u32 = 16 * 1024 * 1024;

/// What either side can (`CLIENT_…`; from bit 32 on `MARIADB_CLIENT_…`).
mod can {
    /// MySQL's own servers; MariaDB leaves it out and says more elsewhere.
    pub(super) const BE_MYSQL: u64 = 1;
    pub(super) const BEGIN_IN_DATABASE: u64 = 1 << 3;
    pub(super) const PROTOCOL_41: u64 = 1 << 9;
    /// Said by whoever asks for it.
    pub(super) const TLS: u64 = 1 << 11;
    pub(super) const TRANSACTIONS: u64 = 1 << 13;
    pub(super) const SECURE_CONNECTION: u64 = 1 << 15;
    pub(super) const MULTI_RESULTS: u64 = 1 << 17;
    pub(super) const PREPARED_MULTI_RESULTS: u64 = 1 << 18;
    pub(super) const PLUGINS: u64 = 1 << 19;
    pub(super) const NO_ENDS_OF_COLUMNS: u64 = 1 << 24;
    pub(super) const LEAVE_OUT_COLUMNS: u64 = 1 << 36;

    /// What a server must.
    pub(super) const NEEDED: u64 = PROTOCOL_41 | SECURE_CONNECTION | PLUGINS;
    /// What we can.
    pub(super) const OURS: u64 = BE_MYSQL
        | NEEDED
        | BEGIN_IN_DATABASE
        | TLS
        | TRANSACTIONS
        | MULTI_RESULTS
        | PREPARED_MULTI_RESULTS
        | NO_ENDS_OF_COLUMNS
        | LEAVE_OUT_COLUMNS;
}

/// Who logs in, and to which database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
    /// Empty for none.
    pub(super) database: String,
}

/// Who can listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// Nobody: a Unix socket.
    Private,
    /// Whoever is on the way.
    Open,
}

/// Why nobody is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server said no.
    Refused(Refusal),
    /// Nothing of MySQL's protocol.
    Unknown,
    /// Before 4.1, or something that knows no plugins.
    Ancient,
    /// Another way to log in than ours.
    Plugin(String),
    /// The server's key is none, or too short for the password.
    Key,
    /// No TLS, where it is wanted.
    NoTls,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(formatter),
            Self::Unknown => {
                formatter.write_str("the greeting is none of MySQL's: what listens there?")
            }
            Self::Ancient => formatter.write_str(
                "the server does not know the protocol of MySQL 5.5 and later: upgrade it",
            ),
            Self::Plugin(name) => write!(
                formatter,
                "the account logs in with {name}, which scripts cannot: give it \
                 mysql_native_password or caching_sha2_password"
            ),
            Self::NoTls => formatter.write_str("the server has no TLS: give it a certificate"),
            Self::Key => formatter.write_str(
                "the server's RSA key cannot be used for the password: \
                 connect over its Unix socket, or give the account mysql_native_password",
            ),
        }
    }
}

/// A way to show that one knows the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plugin {
    Native,
    Sha2,
}

impl Plugin {
    fn of_name(name: &[u8]) -> Option<Self> {
        match name {
            b"mysql_native_password" => Some(Self::Native),
            b"caching_sha2_password" => Some(Self::Sha2),
            _ => None,
        }
    }

    fn name(self) -> &'static [u8] {
        match self {
            Self::Native => b"mysql_native_password",
            Self::Sha2 => b"caching_sha2_password",
        }
    }

    /// The password mixed with what the server made up for this time; empty for none.
    fn proof(self, password: &[u8], nonce: &[u8]) -> Vec<u8> {
        match self {
            _ if password.is_empty() => Vec::new(),
            Self::Native => {
                let once = Sha1::digest(password);
                let twice = Sha1::digest(&once[..]);
                let nonced = Sha1::new().chain_update(nonce).chain_update(twice);
                mixed(&once, &nonced.finalize())
            }
            Self::Sha2 => {
                let once = Sha256::digest(password);
                let twice = Sha256::digest(&once[..]);
                // Here the nonce comes last.
                let nonced = Sha256::new().chain_update(twice).chain_update(nonce);
                mixed(&once, &nonced.finalize())
            }
        }
    }
}

fn mixed(one: &[u8], other: &[u8]) -> Vec<u8> {
    let pairs = one.iter().zip(other.iter().cycle());
    pairs.map(|(one, other)| one ^ other).collect()
}

/// What the server wants next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing; we are logged in.
    Done,
    /// Another packet of its own comes.
    Wait,
    /// This.
    Say(Vec<u8>),
}

/// What is remembered of logging in, also for doing so anew on the same connection.
#[derive(Debug)]
pub(super) struct Handshake {
    plugin: Plugin,
    nonce: [u8; NONCE_BYTES],
    /// What both sides can, and are to do.
    abilities: u64,
    has_tls: bool,
    secrecy: Secrecy,
    turns: u8,
    awaits_key: bool,
}

impl Handshake {
    /// Reads the server's greeting.
    pub(super) fn greeted(payload: &[u8], secrecy: Secrecy) -> Result<Self, Failure> {
        match payload.first() {
            Some(0xff) => Err(refused(payload)),
            Some(10) => Self::read(payload, secrecy).ok_or(Failure::Unknown)?,
            Some(0..10) => Err(Failure::Ancient),
            _ => Err(Failure::Unknown),
        }
    }

    fn read(payload: &[u8], secrecy: Secrecy) -> Option<Result<Self, Failure>> {
        let mut fields = Fields(payload);
        fields.u8()?;
        // The version and the connection's number.
        fields.name();
        fields.u32()?;
        let mut nonce = [0; NONCE_BYTES];
        let (begin, end) = nonce.split_at_mut(8);
        begin.copy_from_slice(fields.bytes(8)?);
        fields.u8()?;
        let low = fields.u16()?;
        // The character set and the status.
        fields.u8()?;
        fields.u16()?;
        let high = fields.u16()?;
        let nonce_bytes = fields.u8()?;
        fields.bytes(6)?;
        let of_mariadb = fields.u32()?;
        let mut abilities = u64::from(low) | u64::from(high) << 16;
        if abilities & can::BE_MYSQL == 0 {
            abilities |= u64::from(of_mariadb) << 32;
        }
        let has_tls = abilities & can::TLS != 0;
        let abilities = abilities & can::OURS & !can::TLS;
        if abilities & can::NEEDED != can::NEEDED {
            return Some(Err(Failure::Ancient));
        }
        let rest = usize::from(nonce_bytes).saturating_sub(8).max(13);
        end.copy_from_slice(fields.bytes(rest)?.get(..NONCE_BYTES - 8)?);
        Some(Ok(Self {
            plugin: Plugin::of_name(fields.name()).unwrap_or(Plugin::Native),
            nonce,
            abilities,
            has_tls,
            secrecy,
            turns: 0,
            awaits_key: false,
        }))
    }

    /// How the server will put its answers.
    pub(super) fn dialect(&self) -> Dialect {
        let can = |ability| self.abilities & ability != 0;
        match (can(can::NO_ENDS_OF_COLUMNS), can(can::LEAVE_OUT_COLUMNS)) {
            (false, _) => Dialect::Old,
            (true, false) => Dialect::Plain,
            (true, true) => Dialect::Short,
        }
    }

    /// What is said before TLS begins: of the answer what names nobody.
    pub(super) fn ask_for_tls(&mut self) -> Result<Vec<u8>, Failure> {
        if !self.has_tls {
            return Err(Failure::NoTls);
        }
        self.abilities |= can::TLS;
        Ok(self.preamble(self.abilities))
    }

    /// The answer to the greeting.
    pub(super) fn answer(&mut self, who: &Credentials) -> Vec<u8> {
        self.turns = 0;
        let mut abilities = self.abilities;
        if who.database.is_empty() {
            abilities &= !can::BEGIN_IN_DATABASE;
        }
        let mut out = self.preamble(abilities);
        put_name(&mut out, who.user.as_bytes());
        self.put_proof(&mut out, who);
        if !who.database.is_empty() {
            put_name(&mut out, who.database.as_bytes());
        }
        put_name(&mut out, self.plugin.name());
        out
    }

    /// What we can, and how much we take.
    fn preamble(&self, mut abilities: u64) -> Vec<u8> {
        if self.dialect() != Dialect::Short {
            abilities &= !can::LEAVE_OUT_COLUMNS;
        }
        let abilities = abilities.to_le_bytes();
        let (plain, of_mariadb) = abilities.split_at(4);
        let mut out = plain.to_vec();
        out.extend_from_slice(&LONGEST_BYTES.to_le_bytes());
        out.push(CHARACTER_SET);
        out.extend_from_slice(&[0; 19]);
        out.extend_from_slice(of_mariadb);
        out
    }

    /// The command that logs in anew.
    pub(super) fn again(&mut self, who: &Credentials) -> Vec<u8> {
        const COM_CHANGE_USER: u8 = 0x11;
        (self.turns, self.awaits_key) = (0, false);
        let mut out = vec![COM_CHANGE_USER];
        put_name(&mut out, who.user.as_bytes());
        self.put_proof(&mut out, who);
        put_name(&mut out, who.database.as_bytes());
        out.extend_from_slice(&u16::from(CHARACTER_SET).to_le_bytes());
        put_name(&mut out, self.plugin.name());
        out
    }

    fn put_proof(&self, out: &mut Vec<u8>, who: &Credentials) {
        let proof = self.plugin.proof(who.password.as_bytes(), &self.nonce);
        out.push(u8::try_from(proof.len()).unwrap_or_default());
        out.extend(proof);
    }

    /// Takes in a packet that is no greeting.
    pub(super) fn hear(&mut self, payload: &[u8], who: &Credentials) -> Result<Turn, Failure> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            return Err(Failure::Unknown);
        }
        match payload.split_first() {
            Some((0, _)) => Ok(Turn::Done),
            Some((0xff, _)) => Err(refused(payload)),
            Some((0xfe, [])) => Err(Failure::Plugin("mysql_old_password".to_owned())),
            Some((0xfe, rest)) => self.switch(rest, who),
            Some((1, rest)) => self.more(rest, who),
            _ => Err(Failure::Unknown),
        }
    }

    fn switch(&mut self, rest: &[u8], who: &Credentials) -> Result<Turn, Failure> {
        let mut fields = Fields(rest);
        let name = fields.name();
        let Some(plugin) = Plugin::of_name(name) else {
            let shown = name.iter().take(64).filter(|byte| byte.is_ascii_graphic());
            return Err(Failure::Plugin(
                shown.map(|byte| char::from(*byte)).collect(),
            ));
        };
        (self.plugin, self.awaits_key) = (plugin, false);
        self.nonce = [0; NONCE_BYTES];
        for (place, byte) in self.nonce.iter_mut().zip(fields.0) {
            *place = *byte;
        }
        let proof = plugin.proof(who.password.as_bytes(), &self.nonce);
        Ok(Turn::Say(proof))
    }

    /// What `caching_sha2_password` says beside yes and no.
    fn more(&mut self, rest: &[u8], who: &Credentials) -> Result<Turn, Failure> {
        const SEND_KEY: u8 = 2;
        let whole = || [who.password.as_bytes(), b"\0"].concat();
        match (self.plugin, rest, self.secrecy) {
            (Plugin::Native, _, _) => Err(Failure::Unknown),
            (_, key, Secrecy::Open) if self.awaits_key => {
                self.awaits_key = false;
                let key = PublicKey::read(key).ok_or(Failure::Key)?;
                let sealed = key.seal(&mixed(&whole(), &self.nonce));
                sealed.map(Turn::Say).ok_or(Failure::Key)
            }
            (_, [3], _) => Ok(Turn::Wait),
            (_, [4], Secrecy::Private) => Ok(Turn::Say(whole())),
            (_, [4], Secrecy::Open) => {
                self.awaits_key = true;
                Ok(Turn::Say(vec![SEND_KEY]))
            }
            _ => Err(Failure::Unknown),
        }
    }
}

fn refused(payload: &[u8]) -> Failure {
    refusal(payload).map_or(Failure::Unknown, Failure::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Credentials {
        Credentials {
            user: "u".to_owned(),
            password: "p".to_owned(),
            database: "d".to_owned(),
        }
    }

    /// A greeting with these abilities and this plugin.
    fn greeting(abilities: u64, plugin: &str) -> Vec<u8> {
        let bytes = abilities.to_le_bytes();
        let mut out = b"\x0a5.5.5\0\x07\0\0\0".to_vec();
        out.extend_from_slice(b"12345678\0");
        out.extend_from_slice(&bytes[..2]);
        out.extend_from_slice(b"\x2d\x02\0");
        out.extend_from_slice(&bytes[2..4]);
        out.extend_from_slice(b"\x15\0\0\0\0\0\0");
        out.extend_from_slice(&bytes[4..]);
        out.extend_from_slice(b"901234567890\0");
        out.extend_from_slice(plugin.as_bytes());
        out.push(0);
        out
    }

    fn login(plugin: &str, secrecy: Secrecy) -> Handshake {
        let greeting = greeting(can::OURS, plugin);
        Handshake::greeted(&greeting, secrecy).expect("a greeting")
    }

    #[test]
    fn a_greeting_is_answered_with_what_both_can() {
        let cases = [
            (can::OURS, Dialect::Plain),
            (can::OURS & !can::BE_MYSQL, Dialect::Short),
            (can::OURS & !can::NO_ENDS_OF_COLUMNS, Dialect::Old),
            (can::NEEDED, Dialect::Old),
        ];
        for (abilities, dialect) in cases {
            let greeting = greeting(abilities, "mysql_native_password");
            let mut login = Handshake::greeted(&greeting, Secrecy::Open).expect("a greeting");
            assert_eq!(login.dialect(), dialect);
            assert_eq!(&login.nonce, b"12345678901234567890");
            let answer = login.answer(&who());
            let said = u32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]]);
            assert_eq!(u64::from(said) & !abilities, 0);
            assert_eq!(&answer[32..35], b"u\0\x14");
            assert!(answer.ends_with(b"mysql_native_password\0"));
        }
        let short = greeting(can::PROTOCOL_41, "");
        let ancient = Handshake::greeted(&short, Secrecy::Open);
        assert_eq!(ancient.expect_err("too old"), Failure::Ancient);
    }

    #[test]
    fn a_password_is_proved_as_the_servers_want_it() {
        let nonce = b"12345678901234567890";
        // As a server does it, which has the password hashed twice.
        let hash = |bytes: &[u8]| Sha1::digest(bytes).to_vec();
        let native = Plugin::Native.proof(b"p", nonce);
        let stored = hash(&hash(b"p"));
        let back = mixed(&native, &hash(&[&nonce[..], &stored].concat()));
        assert_eq!(hash(&back), stored);
        let hash = |bytes: &[u8]| Sha256::digest(bytes).to_vec();
        let sha2 = Plugin::Sha2.proof(b"p", nonce);
        let stored = hash(&hash(b"p"));
        let back = mixed(&sha2, &hash(&[&stored[..], nonce].concat()));
        assert_eq!(hash(&back), stored);
        assert_eq!(Plugin::Native.proof(b"", nonce), b"");
        assert_eq!(Plugin::Sha2.proof(b"", nonce), b"");
    }

    #[test]
    fn a_server_may_want_another_plugin_and_the_whole_password() {
        let mut by_socket = login("mysql_native_password", Secrecy::Private);
        let switch = b"\xfecaching_sha2_password\0abcdefghijabcdefghij\0";
        let said = by_socket.hear(switch, &who()).expect("a turn");
        let proof = Plugin::Sha2.proof(b"p", b"abcdefghijabcdefghij");
        assert_eq!(said, Turn::Say(proof));
        let whole = Turn::Say(b"p\0".to_vec());
        assert_eq!(by_socket.hear(b"\x01\x04", &who()), Ok(whole));
        assert_eq!(by_socket.hear(b"\x01\x03", &who()), Ok(Turn::Wait));
        assert_eq!(by_socket.hear(b"\0\0\0\x02\0\0\0", &who()), Ok(Turn::Done));

        let mut by_tcp = login("caching_sha2_password", Secrecy::Open);
        let wanted = by_tcp.hear(b"\x01\x04", &who());
        assert_eq!(wanted, Ok(Turn::Say(vec![2])));
        assert_eq!(by_tcp.hear(b"\x01no key", &who()), Err(Failure::Key));
    }

    #[test]
    fn no_other_plugin_is_taken_and_no_talk_goes_on_for_ever() {
        for plugin in ["mysql_clear_password", "client_ed25519", ""] {
            let mut login = login("mysql_native_password", Secrecy::Private);
            let switch = [b"\xfe", plugin.as_bytes(), b"\0nonce"].concat();
            let error = login.hear(&switch, &who()).expect_err(plugin);
            assert_eq!(error, Failure::Plugin(plugin.to_owned()));
        }
        let mut patient = login("caching_sha2_password", Secrecy::Private);
        for _ in 0..TURNS_MAX {
            assert_eq!(patient.hear(b"\x01\x03", &who()), Ok(Turn::Wait));
        }
        assert_eq!(patient.hear(b"\x01\x03", &who()), Err(Failure::Unknown));
    }

    #[test]
    fn whatever_a_server_says_instead_of_a_greeting_is_none() {
        let whole = greeting(can::OURS, "");
        for end in 0..whole.len() - 1 {
            // A name that is cut off is a name.
            let cut = Handshake::greeted(&whole[..end], Secrecy::Open);
            assert!(cut.is_err(), "{end}");
        }
        let refused = Handshake::greeted(b"\xff\x10\x04Too many connections", Secrecy::Open);
        let text = refused.expect_err("a refusal").to_string();
        assert_eq!(text, "ERROR 1040 (HY000): Too many connections");
    }
}
