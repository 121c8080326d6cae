//! The variables a program sees: RFC 3875's, and those nginx and Apache send beside them.
//!
//! Written from what was parsed and resolved, never worked out anew. A variable cannot be made by
//! accident or by trick: names that CGI would fold into others are left out, fields sent twice
//! become one value, `Proxy` (which would become `HTTP_PROXY`) is never passed on, and no value
//! made of a request holds CR, LF or NUL. Fields that say who the client is count only from a
//! trusted proxy.

use std::net::IpAddr;

use wire::{Field, FieldId, Fields, Refusal};

/// Bytes a variable costs beside its name and value.
const OVERHEAD_BYTES: usize = 2;
/// Most variables: fields have a cap of their own, and configured ones are few.
const VARIABLES_MAX: usize = 1_024;

/// A request as a program is to see it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method as sent.
    pub method: &'a [u8],
    /// The canonical path of what the client asked for, escaped, whatever a script made of it.
    pub sent_path_wire: &'a [u8],
    /// What followed the `?` there; `None` where there was none.
    pub sent_query: Option<&'a [u8]>,
    /// The query as it is now.
    pub query: Option<&'a [u8]>,
    /// The client's version.
    pub version: wire::Version,
    /// The fields, without those that concern the connection only.
    pub fields: &'a Fields,
    /// `host[:port]` the request is for; empty where the client named none.
    pub authority: &'a [u8],
    /// Length of the body; `None` where there is none.
    pub body_bytes: Option<u64>,
    /// The name of the request in our logs.
    pub id: &'a [u8],
    /// Whether fields that name the client may be believed.
    pub peer: Trust,
    /// What the program stands for.
    pub script: Script<'a>,
    /// Our end.
    pub server: Server<'a>,
    /// The client's end.
    pub client: Client<'a>,
}

/// Whether the peer is a proxy of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// What it says of the client holds.
    Trusted,
    /// It may be anybody.
    Untrusted,
}

/// The program, as resolve found it.
#[derive(Debug, Clone, Copy)]
pub struct Script<'a> {
    /// What paths begin with that lead to the root: empty, or beginning with a slash and without one at
    /// its end.
    pub prefix: &'a [u8],
    /// The root as the program sees it, without a slash at its end.
    pub root: &'a [u8],
    /// The file below the root, without a slash at its start.
    pub relative: &'a [u8],
    /// What followed the file in the path; empty or beginning with a slash.
    pub path_info: &'a [u8],
}

/// Our end of the connection.
#[derive(Debug, Clone, Copy)]
pub struct Server<'a> {
    /// The host the request is for.
    pub name: &'a [u8],
    /// The address that was connected to; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// The port the client connected to.
    pub port: u16,
    /// How the client speaks to us or to our proxy.
    pub scheme: Scheme,
    /// How we call ourselves.
    pub software: &'a [u8],
}

/// How the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum Scheme {
    Http,
    Https,
}

/// The client.
#[derive(Debug, Clone, Copy)]
pub struct Client<'a> {
    /// Its address; `None` behind a Unix socket.
    pub address: Option<IpAddr>,
    /// Its port, where it is known.
    pub port: Option<u16>,
    /// Its name, where our own Basic authentication has checked it.
    pub user: Option<&'a [u8]>,
}

/// Variables in the order they were set, each name once.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    used_bytes: usize,
    bytes_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Environment {
    /// Makes an empty one that may hold so many bytes: names, values and two more for each.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// Makes the variables of a request.
    ///
    /// # Errors
    /// 431 where they are too long together, 400 where a value holds CR, LF or NUL.
    pub fn of(request: &Request<'_>, bytes_max: usize) -> Result<Self, Refusal> {
        let mut environment = Self::new(bytes_max);
        // What most requests need: growing to it bit by bit would cost more than the rest.
        environment.bytes.reserve(2_048);
        environment.spans.reserve(48);
        environment.script(request)?;
        environment.request(request)?;
        environment.ends(request)?;
        environment.fields(request)?;
        Ok(environment)
    }

    /// Every variable: name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let piece = |from: usize, to: usize| self.bytes.get(from..to).unwrap_or_default();
        self.spans.iter().map(move |span| {
            (
                piece(span.start, span.name_end),
                piece(span.name_end, span.end),
            )
        })
    }

    /// The value of a variable.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Sets a variable to what the operator says, whatever it was before. Such a value may have
    /// several lines: php-fpm's `PHP_VALUE` has a setting in each.
    ///
    /// # Errors
    /// 431 as [`Self::of`], 400 where the value holds NUL, 500 for a name no variable may have.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if !variable_name_ok(name) {
            return Err(Refusal::new(500, "variable_name"));
        }
        self.remove(name);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.end_of(start, name_end, |byte| byte == 0)
    }

    /// Leaves a variable out.
    pub fn remove(&mut self, name: &[u8]) {
        let (bytes, used_bytes) = (&self.bytes, &mut self.used_bytes);
        self.spans.retain(|span| {
            let kept = bytes.get(span.start..span.name_end) != Some(name);
            if !kept {
                *used_bytes -= span.cost();
            }
            kept
        });
    }

    /// Appends a variable that was not set before.
    fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.push_parts(name, &[value])
    }

    fn push_parts(&mut self, name: &[u8], value: &[&[u8]]) -> Result<(), Refusal> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        for part in value {
            self.bytes.extend_from_slice(part);
        }
        self.end(start, name_end)
    }

    fn push_number(&mut self, name: &[u8], value: u64) -> Result<(), Refusal> {
        self.push(name, itoa::Buffer::new().format(value).as_bytes())
    }

    fn push_address(&mut self, name: &[u8], address: IpAddr) -> Result<(), Refusal> {
        self.push(name, address.to_canonical().to_string().as_bytes())
    }

    /// Takes what was appended since `start` as one variable, of one line.
    fn end(&mut self, start: usize, name_end: usize) -> Result<(), Refusal> {
        self.end_of(start, name_end, |byte| matches!(byte, 0 | b'\r' | b'\n'))
    }

    fn end_of(
        &mut self,
        start: usize,
        name_end: usize,
        refused: fn(u8) -> bool,
    ) -> Result<(), Refusal> {
        let span = Span {
            start,
            name_end,
            end: self.bytes.len(),
        };
        let value = self.bytes.get(name_end..).unwrap_or_default();
        if value.iter().copied().any(refused) {
            self.bytes.truncate(start);
            return Err(Refusal::new(400, "control_in_variable"));
        }
        self.used_bytes += span.cost();
        if self.used_bytes > self.bytes_max || self.spans.len() >= VARIABLES_MAX {
            self.used_bytes -= span.cost();
            self.bytes.truncate(start);
            return Err(Refusal::new(431, "environment_too_long"));
        }
        self.spans.push(span);
        Ok(())
    }

    fn script(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let Script {
            prefix,
            root,
            relative,
            path_info,
        } = request.script;
        self.push_parts(b"SCRIPT_FILENAME", &[root, b"/", relative])?;
        self.push_parts(b"SCRIPT_NAME", &[prefix, b"/", relative])?;
        self.push(b"DOCUMENT_ROOT", root)?;
        self.push_parts(b"DOCUMENT_URI", &[prefix, b"/", relative, path_info])?;
        if !path_info.is_empty() {
            self.push(b"PATH_INFO", path_info)?;
            self.push_parts(b"PATH_TRANSLATED", &[root, path_info])?;
        }
        Ok(())
    }

    fn request(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let query = request.sent_query.unwrap_or_default();
        let mark: &[u8] = if request.sent_query.is_some() {
            b"?"
        } else {
            b""
        };
        self.push_parts(b"REQUEST_URI", &[request.sent_path_wire, mark, query])?;
        self.push(b"QUERY_STRING", request.query.unwrap_or_default())?;
        self.push(b"REQUEST_METHOD", request.method)?;
        // Both are always there, as nginx has it: a program need not ask whether they are.
        let content_type = request.fields.get(FieldId::ContentType);
        self.push(b"CONTENT_TYPE", content_type.unwrap_or_default())?;
        match request.body_bytes {
            Some(bytes) => self.push_number(b"CONTENT_LENGTH", bytes)?,
            None => self.push(b"CONTENT_LENGTH", b"")?,
        }
        self.push(b"GATEWAY_INTERFACE", b"CGI/1.1")?;
        self.push(
            b"SERVER_PROTOCOL",
            match request.version {
                wire::Version::Http10 => b"HTTP/1.0",
                wire::Version::Http11 => b"HTTP/1.1",
                wire::Version::Http2 => b"HTTP/2.0",
            },
        )?;
        // A php-cgi built to be careful answers nothing without it.
        self.push(b"REDIRECT_STATUS", b"200")
    }

    fn ends(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let Server {
            name,
            address,
            port,
            scheme,
            software,
        } = request.server;
        self.push(b"SERVER_SOFTWARE", software)?;
        self.push(b"SERVER_NAME", name)?;
        self.push_number(b"SERVER_PORT", port.into())?;
        if let Some(address) = address {
            self.push_address(b"SERVER_ADDR", address)?;
        }
        match scheme {
            Scheme::Http => self.push(b"REQUEST_SCHEME", b"http")?,
            Scheme::Https => {
                self.push(b"REQUEST_SCHEME", b"https")?;
                self.push(b"HTTPS", b"on")?;
            }
        }
        match request.client.address {
            Some(address) => self.push_address(b"REMOTE_ADDR", address)?,
            None => self.push(b"REMOTE_ADDR", b"unix:")?,
        }
        if let Some(port) = request.client.port {
            self.push_number(b"REMOTE_PORT", port.into())?;
        }
        if let Some(user) = request.client.user {
            self.push(b"AUTH_TYPE", b"Basic")?;
            self.push(b"REMOTE_USER", user)?;
        }
        Ok(())
    }

    fn fields(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        if !request.authority.is_empty() {
            self.push(b"HTTP_HOST", request.authority)?;
        }
        self.push(b"HTTP_X_REQUEST_ID", request.id)?;
        for (index, field) in request.fields.iter().enumerate() {
            if !passes(field, request) {
                continue;
            }
            let is_same = |other: &Field<'_>| {
                other.id == field.id
                    && (field.id != FieldId::Other || other.name.eq_ignore_ascii_case(field.name))
            };
            // The first of its name speaks for all.
            if request
                .fields
                .iter()
                .take(index)
                .any(|other| is_same(&other))
            {
                continue;
            }
            let start = self.bytes.len();
            push_folded(field.name, &mut self.bytes);
            let name_end = self.bytes.len();
            self.bytes.extend_from_slice(field.value);
            let separator: &[u8] = match field.id {
                FieldId::Cookie => b"; ",
                _ => b", ",
            };
            let rest = request.fields.iter().skip(index + 1);
            for other in rest.filter(is_same) {
                self.bytes.extend_from_slice(separator);
                self.bytes.extend_from_slice(other.value);
            }
            self.end(start, name_end)?;
        }
        Ok(())
    }
}

impl Span {
    fn cost(self) -> usize {
        self.end - self.start + OVERHEAD_BYTES
    }
}

/// Whether a variable may have this name: letters, digits and `_`, not beginning with a digit, and
/// not `HTTP_PROXY`, which programs would take for their own proxy.
pub fn variable_name_ok(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit())
        && name.iter().all(plain)
        && !name.eq_ignore_ascii_case(b"HTTP_PROXY")
}

/// Whether a field becomes a variable `HTTP_…`.
fn passes(field: Field<'_>, request: &Request<'_>) -> bool {
    match field.id {
        // They have variables of their own.
        FieldId::Host | FieldId::ContentType | FieldId::ContentLength | FieldId::XRequestId => {
            false
        }
        // They concern one connection, ours.
        FieldId::Connection
        | FieldId::KeepAlive
        | FieldId::ProxyConnection
        | FieldId::ProxyAuthorization
        | FieldId::Te
        | FieldId::Trailer
        | FieldId::TransferEncoding
        | FieldId::Upgrade
        | FieldId::Http2Settings
        | FieldId::Expect => false,
        // A password that was ours to check is none of the program's business (RFC 3875 §4.1.18).
        FieldId::Authorization => request.client.user.is_none(),
        FieldId::XForwardedFor
        | FieldId::XForwardedHost
        | FieldId::XForwardedProto
        | FieldId::XRealIp
        | FieldId::Forwarded
        | FieldId::Via => request.peer == Trust::Trusted,
        FieldId::Other => {
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            field.name.iter().all(plain) && !field.name.eq_ignore_ascii_case(b"Proxy")
        }
        _ => true,
    }
}

/// Spells a field's name as CGI does.
fn push_folded(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP_");
    out.extend(name.iter().map(|byte| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_uppercase(),
    }));
}
