//! `%{NAME}`: what rules and expressions may ask of a request, and what a request is meanwhile.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;

use crate::evaluation::Asker;
use crate::pattern::{Groups, Pattern};
use crate::reply::ReplyTables;
use crate::request::{RequestFacts, Stop, Variables};
use crate::work::steps_of;

/// Fields of the request that one condition, or a reply, may depend on.
pub(crate) const VARY_MAX: usize = 64;

/// A request on its way through its files.
pub(crate) struct Scope<'a> {
    pub(crate) request: &'a RequestFacts<'a>,
    pub(crate) asker: Asker,
    pub(crate) variables: RefCell<Variables>,
    /// The path as it is rewritten so far.
    pub(crate) filename: RefCell<Vec<u8>>,
    pub(crate) path_info: RefCell<Vec<u8>>,
    pub(crate) query: RefCell<Option<Vec<u8>>>,
    pub(crate) user: RefCell<Option<Vec<u8>>>,
    /// Where the blocks of the sections lie that hold.
    pub(crate) sections: RefCell<Vec<usize>>,
    /// Fields of the request that the condition at hand has looked at.
    pub(crate) looked_at: RefCell<Vec<Vec<u8>>>,
    /// What the last pattern that matched in an expression had.
    pub(crate) groups: RefCell<Groups>,
    /// The reply, where there is one already.
    pub(crate) reply: RefCell<Option<ReplyTables>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(request: &'a RequestFacts<'a>, asker: Asker) -> Self {
        Self {
            request,
            asker,
            variables: RefCell::new(request.variables.clone()),
            filename: RefCell::new(request.filename.to_vec()),
            path_info: RefCell::new(request.path_info.to_vec()),
            query: RefCell::new(request.query.map(<[u8]>::to_vec)),
            user: RefCell::default(),
            sections: RefCell::default(),
            looked_at: RefCell::default(),
            groups: RefCell::default(),
            reply: RefCell::default(),
        }
    }

    /// A field of the request, which the reply then depends on.
    pub(crate) fn field(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let value = self.field_apart(name)?;
        let mut looked_at = self.looked_at.borrow_mut();
        let counts = value.is_some() && !name.eq_ignore_ascii_case(b"Host");
        if counts && !looked_at.iter().any(|have| have == name) {
            looked_at.push(name.to_vec());
        }
        match looked_at.len() <= VARY_MAX {
            true => Ok(value),
            false => Err(Stop::new(500, "htaccess_loop")),
        }
    }

    /// A field of the request, whatever the reply depends on.
    pub(crate) fn field_apart(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        self.asker.spend(4 + self.request.fields.len() / 4)?;
        let value = self.request.field(name).map(Cow::into_owned);
        self.asker
            .spend(steps_of(value.as_ref().map_or(0, Vec::len)))?;
        Ok(value)
    }

    pub(crate) fn variable(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let variables = self.variables.borrow();
        self.asker.spend(2 + variables.len() / 4)?;
        let value = variables.get(name).map(<[u8]>::to_vec);
        self.asker
            .spend(steps_of(value.as_ref().map_or(0, Vec::len)))?;
        Ok(value)
    }

    pub(crate) fn has_variable(&self, name: &[u8]) -> Result<bool, Stop> {
        let variables = self.variables.borrow();
        self.asker.spend(2 + variables.len() / 4)?;
        Ok(variables.get(name).is_some())
    }

    /// Sets a variable, or takes it away.
    pub(crate) fn set_variable(&self, name: &[u8], value: Option<&[u8]>) -> Result<(), Stop> {
        let mut variables = self.variables.borrow_mut();
        let bytes = value.map_or(0, <[u8]>::len);
        self.asker.spend(steps_of(bytes) + variables.len() / 4)?;
        match value {
            Some(value) => variables.set(name, value),
            None => {
                variables.unset(name);
                Ok(())
            }
        }
    }

    /// Sets a variable whatever is asked.
    pub(crate) fn set_for_programs(&self, name: &[u8], value: &[u8]) -> Result<(), Stop> {
        let mut variables = self.variables.borrow_mut();
        self.asker
            .spend(steps_of(value.len()) + variables.len() / 4)?;
        variables.set_for_programs(name, value)
    }

    /// Matches a text, and counts the work.
    pub(crate) fn is_match(&self, pattern: &Pattern, text: &[u8]) -> Result<bool, Stop> {
        Ok(self.matched(pattern, text)?.is_some())
    }

    /// Matches a text for its groups, and counts the work.
    pub(crate) fn matched(&self, pattern: &Pattern, text: &[u8]) -> Result<Option<Groups>, Stop> {
        self.asker.spend(steps_of(text.len()))?;
        pattern.groups(text, self.asker.work())
    }
}

/// What a name in `%{ }` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Variable {
    /// A field of the request: `HTTP:Name` and `HTTP_NAME`.
    Field(Box<[u8]>),
    /// A variable: `ENV:Name`.
    Env(Box<[u8]>),
    Fact(Fact),
    /// What Apache does not know is empty.
    Nothing,
    /// What needs a lookup, or a client's certificate.
    Unsupported,
}

/// A fact of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    ApiVersion,
    AuthType,
    ConnRemoteAddr,
    ContentType,
    ContextDocumentRoot,
    ContextPrefix,
    DocumentRoot,
    Https,
    Ipv6,
    IsSubreq,
    PathInfo,
    Protocol,
    ProtocolVersion,
    QueryString,
    RemoteAddr,
    RemotePort,
    RemoteUser,
    RequestFilename,
    RequestLine,
    RequestMethod,
    RequestScheme,
    RequestStatus,
    RequestUri,
    ServerAddr,
    ServerAdmin,
    ServerName,
    ServerPort,
    ServerSoftware,
    Time(Part),
    /// Empty while files are asked.
    Unset,
}

/// A part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Weekday,
}

/// What Apache 2.4 calls the interface of its modules.
const MODULE_MAGIC_NUMBER: &str = "20120211";

const FACTS: [(&str, Fact); 41] = [
    ("API_VERSION", Fact::ApiVersion),
    ("AUTH_TYPE", Fact::AuthType),
    ("CONN_REMOTE_ADDR", Fact::ConnRemoteAddr),
    ("CONTENT_TYPE", Fact::ContentType),
    ("CONTEXT_DOCUMENT_ROOT", Fact::ContextDocumentRoot),
    ("CONTEXT_PREFIX", Fact::ContextPrefix),
    ("DOCUMENT_ROOT", Fact::DocumentRoot),
    ("DOCUMENT_URI", Fact::RequestUri),
    ("HANDLER", Fact::Unset),
    ("HTTPS", Fact::Https),
    ("IPV6", Fact::Ipv6),
    ("IS_SUBREQ", Fact::IsSubreq),
    ("PATH_INFO", Fact::PathInfo),
    ("QUERY_STRING", Fact::QueryString),
    ("REMOTE_ADDR", Fact::RemoteAddr),
    ("REMOTE_HOST", Fact::RemoteAddr),
    ("REMOTE_IDENT", Fact::Unset),
    ("REQUEST_LOG_ID", Fact::Unset),
    ("REMOTE_PORT", Fact::RemotePort),
    ("REMOTE_USER", Fact::RemoteUser),
    ("REQUEST_FILENAME", Fact::RequestFilename),
    ("REQUEST_METHOD", Fact::RequestMethod),
    ("REQUEST_SCHEME", Fact::RequestScheme),
    ("REQUEST_STATUS", Fact::RequestStatus),
    ("REQUEST_URI", Fact::RequestUri),
    ("SCRIPT_FILENAME", Fact::RequestFilename),
    ("SERVER_ADDR", Fact::ServerAddr),
    ("SERVER_ADMIN", Fact::ServerAdmin),
    ("SERVER_NAME", Fact::ServerName),
    ("SERVER_PORT", Fact::ServerPort),
    ("SERVER_PROTOCOL", Fact::Protocol),
    ("SERVER_PROTOCOL_VERSION", Fact::ProtocolVersion),
    ("SERVER_SOFTWARE", Fact::ServerSoftware),
    ("THE_REQUEST", Fact::RequestLine),
    ("TIME", Fact::Time(Part::Whole)),
    ("TIME_DAY", Fact::Time(Part::Day)),
    ("TIME_HOUR", Fact::Time(Part::Hour)),
    ("TIME_MIN", Fact::Time(Part::Minute)),
    ("TIME_MON", Fact::Time(Part::Month)),
    ("TIME_SEC", Fact::Time(Part::Second)),
    ("TIME_WDAY", Fact::Time(Part::Weekday)),
];
const FIELDS: [(&str, &str); 7] = [
    ("HTTP_ACCEPT", "Accept"),
    ("HTTP_COOKIE", "Cookie"),
    ("HTTP_FORWARDED", "Forwarded"),
    ("HTTP_HOST", "Host"),
    ("HTTP_PROXY_CONNECTION", "Proxy-Connection"),
    ("HTTP_REFERER", "Referer"),
    ("HTTP_USER_AGENT", "User-Agent"),
];

impl Variable {
    /// What a name means, in whatever case.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        if let Some(colon) = name.iter().position(|byte| *byte == b':') {
            let (kind, rest) = name.split_at(colon);
            let rest = rest.get(1..).unwrap_or_default();
            return match kind.to_ascii_uppercase().as_slice() {
                b"HTTP" => Self::Field(rest.into()),
                b"ENV" => Self::Env(rest.into()),
                b"SSL" if rest.eq_ignore_ascii_case(b"HTTPS") => Self::Fact(Fact::Https),
                b"SSL" | b"LA-U" | b"LA-F" => Self::Unsupported,
                _ => Self::Nothing,
            };
        }
        let name = name.to_ascii_uppercase();
        if name == b"TIME_YEAR" {
            return Self::Fact(Fact::Time(Part::Year));
        }
        if let Some((_, field)) = FIELDS.iter().find(|(have, _)| have.as_bytes() == name) {
            return Self::Field(field.as_bytes().into());
        }
        let fact = FACTS.iter().find(|(have, _)| have.as_bytes() == name);
        fact.map_or(Self::Nothing, |(_, fact)| Self::Fact(*fact))
    }

    /// The value; empty where there is none.
    pub(crate) fn value(&self, scope: &Scope<'_>) -> Result<Vec<u8>, Stop> {
        let value = match self {
            Self::Field(name) => return Ok(scope.field(name)?.unwrap_or_default()),
            Self::Env(name) => return Ok(scope.variable(name)?.unwrap_or_default()),
            Self::Fact(fact) => fact.value(scope),
            Self::Nothing | Self::Unsupported => Vec::new(),
        };
        scope.asker.spend(steps_of(value.len()))?;
        Ok(value)
    }
}

impl Fact {
    fn value(self, scope: &Scope<'_>) -> Vec<u8> {
        let request = scope.request;
        let text = match self {
            Self::ApiVersion => MODULE_MAGIC_NUMBER,
            Self::AuthType => match *scope.user.borrow() {
                Some(_) => "Basic",
                None => "",
            },
            Self::Https if request.is_tls => "on",
            Self::Https => "off",
            Self::Ipv6 if matches!(request.client.to_canonical(), IpAddr::V6(_)) => "on",
            Self::Ipv6 => "off",
            Self::IsSubreq if request.is_subrequest => "true",
            Self::IsSubreq => "false",
            Self::Protocol => request.protocol,
            Self::RequestScheme => request.scheme(),
            Self::ServerAdmin => request.admin,
            Self::ServerSoftware => request.software,
            Self::Unset => "",
            other => return other.bytes(scope),
        };
        text.as_bytes().to_vec()
    }

    fn bytes(self, scope: &Scope<'_>) -> Vec<u8> {
        let request = scope.request;
        match self {
            Self::ContextDocumentRoot => {
                request.context.map_or(request.root, |it| it.root).to_vec()
            }
            Self::ContextPrefix => request.context.map_or(&b""[..], |it| it.prefix).to_vec(),
            Self::DocumentRoot => request.root.to_vec(),
            Self::PathInfo => scope.path_info.borrow().clone(),
            Self::QueryString => scope.query.borrow().clone().unwrap_or_default(),
            Self::RemoteUser => scope.user.borrow().clone().unwrap_or_default(),
            Self::RequestFilename => scope.filename.borrow().clone(),
            Self::RequestLine => request.request_line.to_vec(),
            Self::RequestMethod => request.method.to_vec(),
            Self::RequestUri => request.uri.to_vec(),
            Self::ServerName => request.host.to_vec(),
            Self::ContentType => request.media_type.unwrap_or_default().into(),
            other => other.written(scope).into_bytes(),
        }
    }

    fn written(self, scope: &Scope<'_>) -> String {
        let request = scope.request;
        match self {
            Self::ConnRemoteAddr => request.peer.to_canonical().to_string(),
            Self::RemoteAddr => request.client.to_canonical().to_string(),
            Self::RemotePort => request.client_port.to_string(),
            Self::ServerAddr => request.server.to_canonical().to_string(),
            Self::ServerPort => request.port.to_string(),
            Self::ProtocolVersion => match request.protocol.strip_prefix("HTTP/") {
                Some("1.0") => "1000".to_owned(),
                Some("1.1") => "1001".to_owned(),
                Some("2.0") => "2000".to_owned(),
                _ => String::new(),
            },
            Self::RequestStatus => {
                let status = scope.reply.borrow().as_ref().map(|reply| reply.status);
                status.map_or_else(String::new, |status| status.to_string())
            }
            Self::Time(part) => self::time(scope, part),
            _ => String::new(),
        }
    }
}

fn time(scope: &Scope<'_>, part: Part) -> String {
    let now = scope.request.now;
    match part {
        Part::Whole => format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}",
            now.year, now.month, now.day, now.hour, now.minute, now.second
        ),
        Part::Year => format!("{:04}", now.year),
        Part::Month => format!("{:02}", now.month),
        Part::Day => format!("{:02}", now.day),
        Part::Hour => format!("{:02}", now.hour),
        Part::Minute => format!("{:02}", now.minute),
        Part::Second => format!("{:02}", now.second),
        Part::Weekday => now.weekday.to_string(),
    }
}
