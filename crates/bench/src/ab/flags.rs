//! ApacheBench's flags: what each is called, read as `getopt` reads them, and the usage.
//!
//! The idea: one table names the flags, for reading, usage and telling the two languages of
//! `nagaya bench` apart. Order matters where it does in ApacheBench: `-t` sets `-n`, the last `-C`
//! wins, `-m` takes the place of `-i` and not the other way round.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use load::client::{CONNECTIONS_MAX, THREADS_MAX};

use super::refusal::{INVALID, Refusal, refuse, refuse_plainly};

/// Requests where there is a time limit and no number after it.
const TIMED_REQUESTS: u64 = 50_000;

/// Most requests: as many as ApacheBench can count.
const REQUESTS_MAX: u64 = i32::MAX as u64;

/// A flag: its letter, what its value is called where it takes one, and its help.
type Flag = (&'static str, &'static str, &'static str);

/// All of them: ApacheBench's of 2.4, and three of its trunk.
#[rustfmt::skip]
const FLAGS: [Flag; 38] = [
    ("n", "requests", "how many requests, 1 unless said"),
    ("c", "connections", "how many at a time, 1 unless said"),
    ("t", "seconds", "end after so long; also sets -n 50000, so a larger -n comes after it"),
    ("s", "seconds", "longest wait for a server that says nothing, 30 unless said"),
    ("k", "", "keep connections for the next request"),
    ("l", "", "bodies may differ in length: for pages that are made anew each time"),
    ("i", "", "HEAD instead of GET"),
    ("p", "file", "POST what is in the file; see -T"),
    ("u", "file", "PUT what is in the file; see -T"),
    ("m", "method", "any method; with a body: -p file -m PATCH, in this order"),
    ("T", "type", "Content-type of that body (text/plain)"),
    ("H", "field", "a field of the request, 'Name: value'; may be repeated"),
    ("C", "cookie", "a cookie, name=value; the last one is sent"),
    ("A", "user:password", "Basic authentication"),
    ("P", "user:password", "Basic authentication to the proxy"),
    ("X", "proxy[:port]", "ask through a proxy"),
    ("B", "address", "the address connections come from"),
    ("b", "bytes", "send and receive buffers of the sockets"),
    ("r", "", "go on when a connection is refused or reset"),
    ("q", "", "no progress"),
    ("v", "level", "2: the request and answers outside 2xx, 3: every status"),
    ("d", "", "no table of percentages"),
    ("S", "", "no median, no deviation, no warnings"),
    ("w", "", "print HTML tables"),
    ("x", "attributes", "of <table>; implies -w"),
    ("y", "attributes", "of <tr>; implies -w"),
    ("z", "attributes", "of <td> and <th>; implies -w"),
    ("g", "file", "write every request's times, tab separated"),
    ("e", "file", "write the time of each percentage as CSV"),
    ("Z", "suites", "TLS cipher suites, a colon between them"),
    ("f", "protocol", "TLS1.2, TLS1.3 or ALL"),
    ("E", "file", "client certificate, its chain and its key, PEM"),
    ("I", "", "do not tell the server's name in TLS (no SNI)"),
    ("W", "threads", "threads that send, 1 unless said"),
    ("R", "ms", "milliseconds between new connections at the start"),
    ("Q", "", "no banner"),
    ("V", "", "print the version"),
    ("h", "", "print this"),
];

/// Heading of the flags in the help of `nagaya bench`.
const HEADING: &str = "ApacheBench's flags; its report is printed then";

/// The flags as the help, completions and man page of `nagaya bench` know them. `-h` is theirs.
pub(crate) fn arguments() -> impl Iterator<Item = clap::Arg> {
    let told = FLAGS.iter().filter(|(letter, ..)| *letter != "h");
    told.map(|(letter, value, help)| {
        let argument = clap::Arg::new(*letter)
            .short(letter.chars().next())
            .help(*help)
            .help_heading(HEADING);
        match *value {
            "" => argument.action(clap::ArgAction::SetTrue),
            name => argument.value_name(name),
        }
    })
}

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Wish {
    /// A load.
    Load(Box<Flags>),
    /// The usage.
    Usage,
    /// The version.
    Version,
}

/// What the flags of a load say.
#[derive(Debug, Clone)]
pub(crate) struct Flags {
    pub(crate) url: String,
    pub(crate) requests: u64,
    pub(crate) connections: usize,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) timeout: Duration,
    pub(crate) keep_alive: bool,
    pub(crate) any_length: bool,
    pub(crate) method: Option<String>,
    pub(crate) body: Option<PathBuf>,
    pub(crate) body_type: Option<String>,
    /// As given, each a line.
    pub(crate) fields: Vec<String>,
    pub(crate) cookie: Option<String>,
    /// In the order given: it is that of the request.
    pub(crate) credentials: Vec<(Credentials, String)>,
    pub(crate) proxy: Option<String>,
    pub(crate) local: Option<String>,
    pub(crate) buffer_bytes: Option<usize>,
    pub(crate) goes_on: bool,
    pub(crate) progress: bool,
    pub(crate) verbosity: u32,
    pub(crate) percentages: bool,
    pub(crate) confidence: bool,
    pub(crate) html: Option<Attributes>,
    pub(crate) each_file: Option<PathBuf>,
    pub(crate) percentages_file: Option<PathBuf>,
    pub(crate) suites: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) identity: Option<PathBuf>,
    pub(crate) sni: bool,
    pub(crate) threads: usize,
    pub(crate) ramp_ms: Option<u64>,
    pub(crate) banner: bool,
    pub(crate) extras: Extras,
}

/// Whom a password is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    Server,
    Proxy,
}

/// Attributes of HTML elements.
#[derive(Debug, Clone)]
pub(crate) struct Attributes {
    pub(crate) table: String,
    pub(crate) row: String,
    pub(crate) cell: String,
}

/// Long options that go with ApacheBench's flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    pub(crate) json: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) pid: Option<u32>,
    pub(crate) listen: Option<u16>,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            url: String::new(),
            requests: 1,
            connections: 1,
            time_limit: None,
            timeout: Duration::from_secs(30),
            keep_alive: false,
            any_length: false,
            method: None,
            body: None,
            body_type: None,
            fields: Vec::new(),
            cookie: None,
            credentials: Vec::new(),
            proxy: None,
            local: None,
            buffer_bytes: None,
            goes_on: false,
            progress: true,
            verbosity: 0,
            percentages: true,
            confidence: true,
            html: None,
            each_file: None,
            percentages_file: None,
            suites: None,
            protocol: None,
            identity: None,
            sni: true,
            threads: 1,
            ramp_ms: None,
            banner: true,
            extras: Extras::default(),
        }
    }
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes {
            table: String::new(),
            row: String::new(),
            cell: "bgcolor=white".into(),
        }
    }
}

/// Whether a letter is one of ApacheBench's flags.
pub(crate) fn is_flag(letter: char) -> bool {
    find(letter).is_some()
}

/// Whether the value of the last of these clustered flags is the next word.
pub(crate) fn takes_next_word(cluster: &[u8]) -> bool {
    let takes = |byte: &u8| find(char::from(*byte)).is_some_and(|name| !name.is_empty());
    cluster.iter().position(takes) == cluster.len().checked_sub(1) && !cluster.is_empty()
}

/// What the value of a flag is called; nothing where it takes none.
fn find(letter: char) -> Option<&'static str> {
    let found = FLAGS.iter().find(|(known, ..)| known.chars().eq([letter]));
    found.map(|(_, name, _)| *name)
}

/// The usage.
pub(crate) fn usage(program: &str) -> String {
    let mut out =
        format!("Usage: {program} [options] [http[s]://]hostname[:port]/path\nOptions:\n");
    for (letter, value, help) in &FLAGS {
        // Writing to memory does not fail, here and below.
        let _ = writeln!(out, "    -{letter} {value:<14} {help}");
    }
    out.push_str(
        "    --json FILE, --html FILE    write the results as well\n    \
         --pid PID, --listen PORT    tell what that server's processes spent\n",
    );
    out
}

/// Reads a command line. Unlike ApacheBench it takes flags after the URL, too.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Wish, Refusal> {
    let mut flags = Flags::default();
    let mut urls = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => urls.extend(words.by_ref().cloned()),
            b"--help" => return Ok(Wish::Usage),
            b"--version" => return Ok(Wish::Version),
            [b'-', b'-', option @ ..] => flags.extras.take(option, &mut words)?,
            [b'-', cluster @ ..] if !cluster.is_empty() => {
                if let Some(wish) = flags.take_cluster(cluster, &mut words)? {
                    return Ok(wish);
                }
            }
            _ => urls.push(word.clone()),
        }
    }
    flags.url = the_url(urls)?;
    flags.check()?;
    Ok(Wish::Load(Box::new(flags)))
}

fn the_url(urls: Vec<OsString>) -> Result<String, Refusal> {
    let count = urls.len();
    match <[OsString; 1]>::try_from(urls) {
        Ok([url]) => text(&url, "the URL").map(str::to_owned),
        Err(_) if count == 0 => refuse("no URL is given: name one, such as http://127.0.0.1/"),
        Err(urls) => {
            let first = urls.iter().map(|url| url.to_string_lossy());
            let named: Vec<_> = first.take(3).collect();
            refuse(format!(
                "{count} URLs are given and one is taken: {}; put a value with spaces in quotes",
                named.join(", ")
            ))
        }
    }
}

impl Flags {
    /// Reads flags written together, the last perhaps with its value.
    fn take_cluster<'a>(
        &mut self,
        cluster: &[u8],
        words: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<Option<Wish>, Refusal> {
        for (at, letter) in cluster.iter().map(|byte| char::from(*byte)).enumerate() {
            let Some(name) = find(letter) else {
                return refuse(format!("-{letter} is no flag of ApacheBench's: see -h"));
            };
            if name.is_empty() {
                match letter {
                    'h' => return Ok(Some(Wish::Usage)),
                    'V' => return Ok(Some(Wish::Version)),
                    _ => self.turn_on(letter)?,
                }
                continue;
            }
            let attached = cluster.get(at + 1..).unwrap_or_default();
            let value = if attached.is_empty() {
                words.next().cloned()
            } else {
                Some(OsString::from_vec(attached.to_vec()))
            };
            let Some(value) = value else {
                return refuse(format!("-{letter} wants a value: -{letter} {name}"));
            };
            self.set(letter, &value)?;
            return Ok(None);
        }
        Ok(None)
    }

    fn turn_on(&mut self, letter: char) -> Result<(), Refusal> {
        match letter {
            'k' => self.keep_alive = true,
            'l' => self.any_length = true,
            'i' => self.set_method("HEAD", letter)?,
            'r' => self.goes_on = true,
            'q' => self.progress = false,
            'd' => self.percentages = false,
            'S' => self.confidence = false,
            'w' => drop(self.html.get_or_insert_default()),
            'I' => self.sni = false,
            _ => self.banner = false,
        }
        Ok(())
    }

    fn set(&mut self, letter: char, value: &OsStr) -> Result<(), Refusal> {
        match letter {
            'p' | 'u' => {
                self.set_method(if letter == 'p' { "POST" } else { "PUT" }, letter)?;
                self.body = Some(value.into());
            }
            'g' => self.each_file = Some(value.into()),
            'e' => self.percentages_file = Some(value.into()),
            'E' => self.identity = Some(value.into()),
            'n' | 'c' | 't' | 's' | 'b' | 'v' | 'W' | 'R' => {
                self.set_number(letter, whole_number(letter, value)?)?;
            }
            _ => self.set_text(letter, text(value, &format!("the value of -{letter}"))?),
        }
        Ok(())
    }

    /// As ApacheBench: a method that the flag implies, unless there is one.
    fn set_method(&mut self, method: &str, letter: char) -> Result<(), Refusal> {
        if let Some(there) = &self.method {
            return refuse_plainly(
                1,
                format!(
                    "-{letter} means {method}, and {there} was asked for before: leave one out \
                     (a body with a method of your own: -p file -m METHOD, in this order)"
                ),
            );
        }
        self.method = Some(method.into());
        Ok(())
    }

    fn set_number(&mut self, letter: char, number: u64) -> Result<(), Refusal> {
        // Cannot be cut: this is 64 bits wide wherever this runs, and if not, the caps below say no.
        let size = usize::try_from(number).unwrap_or(usize::MAX);
        match letter {
            'n' if number == 0 || number > REQUESTS_MAX => {
                return refuse_plainly(
                    1,
                    format!("-n {number}: a number of requests from 1 to {REQUESTS_MAX}"),
                );
            }
            'n' => self.requests = number,
            'c' => self.connections = size,
            't' => {
                self.time_limit = (number > 0).then(|| Duration::from_secs(number));
                self.requests = TIMED_REQUESTS;
            }
            's' if number == 0 => return refuse("-s 0: a wait of at least a second"),
            's' => self.timeout = Duration::from_secs(number),
            'b' => self.buffer_bytes = (size > 0).then_some(size),
            'v' => self.verbosity = u32::try_from(number).unwrap_or(u32::MAX),
            'W' if size == 0 || size > THREADS_MAX => {
                return refuse(format!(
                    "-W {number}: a number of threads from 1 to {THREADS_MAX}"
                ));
            }
            'W' => self.threads = size,
            _ => self.ramp_ms = (number > 0).then_some(number),
        }
        Ok(())
    }

    fn set_text(&mut self, letter: char, value: &str) {
        let html = |flags: &mut Self, set: fn(&mut Attributes, String)| {
            set(flags.html.get_or_insert_default(), value.to_owned());
        };
        let secret = value.trim_start_matches(|c: char| c.is_ascii_whitespace());
        match letter {
            'm' => self.method = Some(value.into()),
            'T' => self.body_type = Some(value.into()),
            'H' => self.fields.push(value.into()),
            'C' => self.cookie = Some(value.into()),
            'A' => self.credentials.push((Credentials::Server, secret.into())),
            'P' => self.credentials.push((Credentials::Proxy, secret.into())),
            'X' => self.proxy = Some(value.into()),
            'B' => self.local = Some(value.into()),
            'x' => html(self, |html, value| html.table = value),
            'y' => html(self, |html, value| html.row = value),
            'z' => html(self, |html, value| html.cell = value),
            'Z' => self.suites = Some(value.into()),
            _ => self.protocol = Some(value.into()),
        }
    }

    /// What only the whole line shows.
    fn check(&self) -> Result<(), Refusal> {
        let Flags {
            connections,
            requests,
            ..
        } = self;
        if !(1..=CONNECTIONS_MAX).contains(connections) {
            return refuse(format!(
                "-c {connections}: a number of connections from 1 to {CONNECTIONS_MAX}"
            ));
        }
        if *connections as u64 > *requests {
            return refuse(format!(
                "-c {connections} is more than the {requests} requests in all: a larger -n (after -t, \
                 which sets it), or a smaller -c"
            ));
        }
        Ok(())
    }
}

impl Extras {
    fn take<'a>(
        &mut self,
        option: &[u8],
        words: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), Refusal> {
        let mut halves = option.splitn(2, |byte| *byte == b'=');
        let name = String::from_utf8_lossy(halves.next().unwrap_or_default()).into_owned();
        if !["json", "html", "pid", "listen"].contains(&name.as_str()) {
            return refuse(format!(
                "--{name} does not go with ApacheBench's flags; it may be one of `nagaya bench` with \
                 long options alone (nagaya bench --help)"
            ));
        }
        let value = match halves.next() {
            Some(value) => Some(OsStr::from_bytes(value)),
            None => words.next().map(OsString::as_os_str),
        };
        let Some(value) = value else {
            return refuse(format!("--{name} wants a value"));
        };
        let number = |what: &str| {
            let text = value.to_string_lossy();
            text.parse::<u32>()
                .map_err(|_| Refusal::usage(format!("--{name} takes {what}, and `{text}` is none")))
        };
        match name.as_str() {
            "json" => self.json = Some(value.into()),
            "html" => self.html = Some(value.into()),
            "pid" => self.pid = Some(number("the number of a process")?),
            _ => {
                let port = number("a port")?;
                let port = u16::try_from(port)
                    .map_err(|_| Refusal::usage(format!("--listen {port}: ports end at 65535")))?;
                self.listen = Some(port);
            }
        }
        Ok(())
    }
}

fn text<'a>(value: &'a OsStr, what: &str) -> Result<&'a str, Refusal> {
    value
        .to_str()
        .ok_or_else(|| Refusal::usage(format!("{what} is not UTF-8: {}", value.to_string_lossy())))
}

fn whole_number(letter: char, value: &OsStr) -> Result<u64, Refusal> {
    let text = value.to_string_lossy();
    text.trim_ascii().parse().or_else(|_| {
        let said = format!("-{letter} takes a whole number, and `{text}` is none");
        // ApacheBench has two statuses for this, too.
        refuse_plainly(if letter == 'n' { 1 } else { INVALID }, said)
    })
}

/// Prints the usage where ApacheBench does.
pub(crate) fn print_usage(program: &str) -> ExitCode {
    eprint!("{}", usage(program));
    ExitCode::from(INVALID)
}

#[cfg(test)]
mod tests;
