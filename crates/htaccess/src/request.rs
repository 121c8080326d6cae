//! What is asked, as whoever resolved it knows it, and what a request gathers on its way.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::chain::AccessGround;
use crate::options::AllowedOptions;

/// Bytes that the variables of a request may have together, names and values.
pub const ENV_BYTES_MAX: usize = 64 * 1024;
/// Variables of a request, and names of variables that one place sets or takes away.
pub(crate) const VARIABLES_MAX: usize = 512;

/// A time of the day, as the machine's zone has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Civil {
    /// The year.
    pub year: i32,
    /// The month, from 1.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
    /// The hour.
    pub hour: u8,
    /// The minute.
    pub minute: u8,
    /// The second.
    pub second: u8,
    /// The day of the week, 0 for Sunday.
    pub weekday: u8,
    /// Seconds since 1970.
    pub epoch_s: i64,
}

/// Where a part of the paths leads elsewhere than below the root: a mount.
#[derive(Debug, Clone, Copy)]
pub struct ContextPrefix<'a> {
    /// The beginning of paths.
    pub prefix: &'a [u8],
    /// The directory it leads to.
    pub root: &'a [u8],
}

/// What is asked, and what it has been resolved to.
///
/// Behind trusted proxies `client`, `is_tls`, `host` and `port` are those of the client's own
/// connection, so that rules which force TLS do not loop.
#[derive(Debug, Clone)]
pub struct RequestFacts<'a> {
    /// The method, in capitals.
    pub method: &'a [u8],
    /// The canonical path, decoded.
    pub uri: &'a [u8],
    /// What follows the first `?` of the target.
    pub query: Option<&'a [u8]>,
    /// The request line as it came, or as HTTP/1.1 would have it.
    pub request_line: &'a [u8],
    /// `HTTP/1.1` and its like.
    pub protocol: &'a str,
    /// Names and values, in the order they came.
    pub fields: &'a [(&'a [u8], &'a [u8])],
    /// The file that is meant, absolute; a directory with a slash where the path has one. Of
    /// nothing that is there it ends with the first part that is missing.
    pub filename: &'a [u8],
    /// Whether that is a directory.
    pub is_directory: bool,
    /// What of the path follows that.
    pub path_info: &'a [u8],
    /// The site's root, without a slash at its end.
    pub root: &'a [u8],
    /// The mount it lies in.
    pub context: Option<ContextPrefix<'a>>,
    /// Whether the client speaks TLS.
    pub is_tls: bool,
    /// The name of the site that the client asked for.
    pub host: &'a [u8],
    /// All names of the site.
    pub own_hosts: &'a [&'a [u8]],
    /// The port that the client's URL has.
    pub port: u16,
    /// The port that was listened on.
    pub listener_port: u16,
    /// The client's address.
    pub client: IpAddr,
    /// The client's port.
    pub client_port: u16,
    /// The address that the connection came from.
    pub peer: IpAddr,
    /// The address that was asked.
    pub server: IpAddr,
    /// What the server calls itself.
    pub software: &'a str,
    /// Who is written to about the site.
    pub admin: &'a str,
    /// The media type of the file, as far as the site's own table knows it.
    pub media_type: Option<&'a str>,
    /// Whether a rule with `END` was met before, in this request.
    pub has_ended: bool,
    /// Whether this path is what the rules of the virtual host have made of another.
    pub is_translated: bool,
    /// Whether it is looked at as the page of another path, for which Apache makes a subrequest.
    pub is_subrequest: bool,
    /// By what access was decided for the path before this one, and who asked for that.
    pub decided: Option<(&'a AccessGround, Option<&'a [u8]>)>,
    /// Variables that hold already: of the site, and `REDIRECT_…` of what led here.
    pub variables: &'a Variables,
    /// The options that hold where no file says otherwise.
    pub options: AllowedOptions,
    /// When the request came.
    pub now: Civil,
    /// Steps that were taken for it before, of [`crate::STEPS_MAX`].
    pub spent: u64,
}

impl RequestFacts<'_> {
    /// The values of a field, joined.
    pub(crate) fn field(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let mut values = self
            .fields
            .iter()
            .filter(|(have, _)| have.eq_ignore_ascii_case(name));
        let first = values.next()?.1;
        let mut joined = Cow::Borrowed(first);
        for (_, value) in values {
            let joined = joined.to_mut();
            joined.extend_from_slice(b", ");
            joined.extend_from_slice(value);
        }
        Some(joined)
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The site as the beginning of a URL: `https://example.jp:8443`.
    pub(crate) fn origin(&self) -> Vec<u8> {
        let mut origin = format!("{}://", self.scheme()).into_bytes();
        origin.extend_from_slice(self.host);
        if self.port != self.usual_port() {
            origin.extend_from_slice(format!(":{}", self.port).as_bytes());
        }
        origin
    }

    pub(crate) fn usual_port(&self) -> u16 {
        if self.is_tls { 443 } else { 80 }
    }
}

/// Why an evaluation ends before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The status of the reply.
    pub status: u16,
    /// The stable word for it.
    pub reason: &'static str,
    /// The directory of the file it came of; none where it is none, or nobody knows.
    pub directory: Option<Arc<[u8]>>,
    /// The line it came of; 0 where it is none.
    pub line: u32,
    /// What was wrong there, for the log.
    pub text: String,
}

impl Stop {
    pub(crate) fn new(status: u16, reason: &'static str) -> Self {
        Self {
            status,
            reason,
            directory: None,
            line: 0,
            text: String::new(),
        }
    }

    /// The same, of a line.
    pub(crate) fn at(mut self, line: u32, text: &str) -> Self {
        if self.line == 0 {
            self.line = line;
            self.text = text.to_owned();
        }
        self
    }

    /// The same, of a line in the file of this directory.
    pub(crate) fn below(mut self, directory: Option<&Arc<[u8]>>) -> Self {
        if self.line > 0 && self.directory.is_none() {
            self.directory = directory.cloned();
        }
        self
    }
}

/// Variables of a request: what `SetEnv` and its like set, and programs are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// As programs are told.
    told: Vec<(Vec<u8>, Vec<u8>)>,
    /// What was said before of those that are set whatever is asked: files read this of them.
    before: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Beginnings of names that a file may not set: what a server itself says to programs.
const RESERVED: [&[u8]; 15] = [
    b"BASH_ENV",
    b"PHPRC",
    b"PHP_INI_",
    b"HTTP_PROXY",
    b"LD_",
    b"SCRIPT_",
    b"PHP_VALUE",
    b"PHP_FLAG",
    b"PHP_ADMIN_",
    b"GATEWAY_INTERFACE",
    b"DOCUMENT_ROOT",
    b"CONTENT_LENGTH",
    b"PATH_TRANSLATED",
    b"REMOTE_ADDR",
    b"REMOTE_USER",
];

impl Variables {
    /// Whether files may set a variable of this name, which programs are told with `_` for whatever is
    /// no letter or digit.
    pub fn may_be_set(name: &[u8]) -> bool {
        let is_name = !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'=' | 0..=31));
        let told = |byte: &u8| match byte.is_ascii_alphanumeric() {
            true => byte.to_ascii_uppercase(),
            false => b'_',
        };
        let told: Vec<u8> = name.iter().map(told).collect();
        is_name && !RESERVED.iter().any(|begin| told.starts_with(begin))
    }

    /// The value of a variable, as files read it.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let mut all = self.before.iter().chain(&self.told);
        let found = all.find(|(have, _)| have == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.told.len()
    }

    /// All of them, in the order they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.told
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// Sets a variable; one that may not be set is left alone.
    ///
    /// # Errors
    /// Beyond [`ENV_BYTES_MAX`], or too many of them.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Stop> {
        if !Self::may_be_set(name) {
            return Ok(());
        }
        self.before.retain(|(have, _)| have != name);
        match self.told.iter_mut().find(|(have, _)| have == name) {
            Some((_, have)) => value.clone_into(have),
            None => self.told.push((name.to_vec(), value.to_vec())),
        }
        let bytes: usize = self
            .told
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        match bytes <= ENV_BYTES_MAX && self.told.len() <= VARIABLES_MAX {
            true => Ok(()),
            false => Err(Stop::new(500, "htaccess_env")),
        }
    }

    /// Sets a variable whatever is asked: programs are told this, and files go on to read what it was.
    ///
    /// # Errors
    /// As [`Variables::set`].
    pub(crate) fn set_for_programs(&mut self, name: &[u8], value: &[u8]) -> Result<(), Stop> {
        let before = self.get(name).map(<[u8]>::to_vec);
        self.set(name, value)?;
        if let Some(before) = before {
            self.before.push((name.to_vec(), before));
        }
        Ok(())
    }

    /// A program was told them: files read the same from now on.
    pub fn note_told(&mut self) {
        self.before.clear();
    }

    /// Takes a variable away.
    pub fn unset(&mut self, name: &[u8]) {
        self.told.retain(|(have, _)| have != name);
        self.before.retain(|(have, _)| have != name);
    }

    /// What these are for the request that an internal redirect makes: each with `REDIRECT_`
    /// before it, and with the path that was asked and the query that has come of it.
    ///
    /// # Errors
    /// Beyond [`ENV_BYTES_MAX`].
    pub fn redirected(&self, uri: &[u8], query: Option<&[u8]>) -> Result<Self, Stop> {
        let mut after = Self::default();
        for (name, value) in self.iter() {
            after.set(&[&b"REDIRECT_"[..], name].concat(), value)?;
        }
        after.set(b"REDIRECT_URL", uri)?;
        after.set(b"REDIRECT_STATUS", b"200")?;
        match query {
            Some(query) => after.set(b"REDIRECT_QUERY_STRING", query)?,
            None => after.unset(b"REDIRECT_QUERY_STRING"),
        }
        Ok(after)
    }
}
