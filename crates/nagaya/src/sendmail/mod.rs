//! `nagaya sendmail`: takes a message as sendmail does, and hands it to a mail server.
//!
//! The idea: behind the walls of a pool no setuid program works, so PHP's `mail()` runs this one. It
//! keeps no queue: a message is the server's, or who sends it hears that it is not. What comes after
//! the first of `--server`, `--pool`, `--tenant`, `--sites` and `--user` may come from a page
//! (`mail()` adds words of its own), and does not count.

mod address;
mod message;
mod smtp;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use config::reason;
use ipc::codec::cut;

use crate::outcome::complain;
use message::Message;
use smtp::{Delivery, Envelope};

/// Bytes of a message.
const MESSAGE_BYTES_MAX: u64 = 32 << 20;
/// Recipients of a message.
const RECIPIENTS_MAX: usize = 1_000;
/// Bytes of the line that tells what became of a message.
const LINE_BYTES_MAX: usize = 900;
/// Bytes of a word or a reply in it.
const WORD_BYTES_MAX: usize = 200;
/// Exit status where the words make no sense (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

/// Options of `sendmail`, named as sendmail's are.
#[derive(Debug, Args)]
pub(crate) struct SendmailOptions {
    /// The mail server [default: 127.0.0.1:25]
    #[arg(long, value_name = "HOST:PORT")]
    server: Vec<String>,
    /// How long all of it may take, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 120,
        overrides_with = "patience"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600))]
    patience: u64,
    /// Send to those named in To, Cc and Bcc as well
    #[arg(short = 't', overrides_with = "reads_recipients")]
    reads_recipients: bool,
    /// A line with a dot alone does not end the message; -oi is the same
    #[arg(short = 'i', overrides_with = "ignores_dots")]
    ignores_dots: bool,
    /// Where what cannot be delivered goes back to; -r is the same
    #[arg(
        short = 'f',
        value_name = "ADDRESS",
        short_alias = 'r',
        overrides_with = "sender"
    )]
    sender: Option<String>,
    /// The sender's name, where the message has no From
    #[arg(short = 'F', value_name = "NAME", overrides_with = "full_name")]
    full_name: Option<String>,
    /// The pool, tenant, sites (NAME=ROOT,…) and user it comes from
    #[arg(long, hide = true)]
    pool: Vec<String>,
    #[arg(long, hide = true)]
    tenant: Vec<String>,
    #[arg(long, hide = true)]
    sites: Vec<String>,
    #[arg(long, hide = true)]
    user: Vec<String>,
    /// An option of sendmail's; but for `i` none has an effect
    #[arg(short = 'o', hide = true)]
    option: Vec<String>,
    /// What to do: `m`, sending, is all that is done
    #[arg(short = 'b', hide = true, value_parser = ["m"], overrides_with = "mode")]
    mode: Option<String>,
    /// Taken as sendmail takes them, without effect
    #[arg(short = 'v', hide = true, overrides_with = "verbose")]
    verbose: bool,
    #[arg(short = 'B', hide = true)]
    body_type: Vec<String>,
    #[arg(short = 'N', hide = true)]
    notify: Vec<String>,
    #[arg(short = 'R', hide = true)]
    returned: Vec<String>,
    /// Whom it is for
    recipients: Vec<String>,
}

/// Why a message was not sent, as sysexits.h has it. `EX_TEMPFAIL` is not among them: it stands for
/// a message that was kept to be sent later, and so `mail()` takes it for success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Usage = USAGE as isize,
    /// The message or an address in it is wrong.
    Data = 65,
    /// The server refuses a recipient.
    NoUser = 67,
    /// The server cannot be had, or refuses the message.
    Unavailable = 69,
    /// The message cannot be read.
    Io = 74,
    /// What answers is no mail server.
    Protocol = 76,
}

/// A message that was not sent.
#[derive(Debug)]
struct Unsent {
    cause: Cause,
    why: String,
}

impl Unsent {
    fn new(cause: Cause, why: impl Into<String>) -> Unsent {
        Unsent {
            cause,
            why: why.into(),
        }
    }
}

/// Ends the process as sendmail does when its words make no sense, which has been told.
#[allow(
    clippy::disallowed_methods,
    reason = "clap would exit with another status"
)]
pub(crate) fn refuse_words() -> ! {
    std::process::exit(USAGE.into())
}

/// Sends what comes on standard input.
pub(crate) fn run(options: &SendmailOptions) -> ExitCode {
    let mut told = format!("mail{}", origin(options));
    let (words, code) = match send(options, &mut told) {
        Ok(delivery) => outcome(&delivery),
        Err(failure) => (format!("not sent: {}", failure.why), failure.cause as u8),
    };
    let mut line = format!("nagaya sendmail: {told}: {words}");
    cut(&mut line, LINE_BYTES_MAX);
    complain(&(line + "\n"));
    ExitCode::from(code)
}

/// What the server made of it, and the exit status for that.
fn outcome(delivery: &Delivery) -> (String, u8) {
    let said = shown(&delivery.said);
    let Some((address, reply)) = delivery.refused.first() else {
        return (format!("accepted: {said}"), 0);
    };
    let (accepted, refused) = (delivery.accepted, delivery.refused.len());
    let code = match reply.is_final() {
        true => Cause::NoUser,
        false => Cause::Unavailable,
    };
    let (first, why) = (shown(address), shown(&reply.text()));
    let words = match accepted {
        0 => format!("not sent: {first}: {why}"),
        _ => format!(
            "accepted for {accepted} recipients: {said}; not for {refused}, the first {first}: {why}"
        ),
    };
    (words, code as u8)
}

/// Reads the message and hands it over; `told` is what is known of it so far.
fn send(options: &SendmailOptions, told: &mut String) -> Result<Delivery, Unsent> {
    let mut bytes = Vec::new();
    let mut input = std::io::stdin().lock().take(MESSAGE_BYTES_MAX + 1);
    input
        .read_to_end(&mut bytes)
        .map_err(|error| Unsent::new(Cause::Io, format!("read the message: {}", reason(&error))))?;
    if bytes.len() as u64 > MESSAGE_BYTES_MAX {
        let why = format!("it has more than {} MiB", MESSAGE_BYTES_MAX >> 20);
        return Err(Unsent::new(Cause::Data, why));
    }
    let ends_at_dot = !options.ignores_dots && !options.option.iter().any(|it| it == "i");
    let message = Message::parse(&bytes, ends_at_dot)?;
    let domain = domain();
    let sender = sender(options, &domain)?;
    told.push_str(&format!(" from <{}>", shown(&sender)));
    let mut recipients = Vec::new();
    if options.reads_recipients {
        message.recipients(&domain, &mut recipients)?;
    }
    for text in &options.recipients {
        address::read(text, &domain, &mut recipients)?;
    }
    let Some(first) = recipients.first() else {
        return Err(Unsent::new(Cause::Usage, "it is for nobody"));
    };
    told.push_str(&format!(" to <{}>", shown(first)));
    if let more @ 1.. = recipients.len() - 1 {
        told.push_str(&format!(" and {more} more"));
    }
    told.push_str(&format!(", {} bytes", bytes.len()));
    if recipients.len() > RECIPIENTS_MAX {
        let why = format!("it has more than {RECIPIENTS_MAX} recipients");
        return Err(Unsent::new(Cause::Data, why));
    }
    let full_name = options.full_name.as_deref();
    let header = message.header(&stamps(options), (full_name, &sender, &domain));
    let envelope = Envelope {
        sender: &sender,
        recipients: &recipients,
        bytes: bytes.len(),
        is_eight_bit: !bytes.is_ascii(),
        own_name: &domain,
    };
    let server = options.server.first().map_or("127.0.0.1:25", |it| it);
    let patience = Duration::from_secs(options.patience);
    smtp::deliver(server, patience, &envelope, |out| {
        message.write(&header, out)
    })
}

/// Where what cannot be delivered goes back to.
fn sender(options: &SendmailOptions, domain: &str) -> Result<String, Unsent> {
    match options.sender.as_deref() {
        Some("" | "<>") => Ok(String::new()),
        Some(text) => address::one(text, domain),
        None => {
            let user = options.user.first().cloned();
            let user = user.unwrap_or_else(|| format!("uid-{}", os::process::user_id()));
            address::one(&user, domain)
        }
    }
}

/// The domain of addresses without one, and this machine's name.
fn domain() -> String {
    let files = ["/etc/mailname", "/etc/hostname"].iter();
    let lines = files.filter_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        Some(text.lines().next()?.trim().to_owned())
    });
    let is_name = |name: &String| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        (1..=253).contains(&name.len()) && name.bytes().all(fits)
    };
    let found = lines.into_iter().find(is_name);
    found.unwrap_or_else(|| "localhost".to_owned())
}

/// The fields that say where a message comes from.
fn stamps(options: &SendmailOptions) -> Vec<(&'static str, String)> {
    let site = site(options);
    let known = [
        ("Tenant", options.tenant.first()),
        ("Site", site.as_ref()),
        ("Pool", options.pool.first()),
    ];
    let known = known
        .into_iter()
        .filter_map(|(name, value)| Some((name, readable(value?))));
    known.collect()
}

/// Whose page sends: the only site of its pool, or the one that it runs in the root of.
fn site(options: &SendmailOptions) -> Option<String> {
    let sites = options.sites.first()?.split(',');
    let sites: Vec<_> = sites
        .map(|it| it.split_once('=').unwrap_or((it, "")))
        .collect();
    if let [(name, _)] = sites[..] {
        return Some(name.to_owned());
    }
    let directory = std::env::current_dir().ok()?;
    let within = |root: &str| {
        let root = std::fs::canonicalize(read_back(root)).ok()?;
        let is_within = directory.starts_with(&root);
        is_within.then(|| root.components().count())
    };
    let found = sites
        .iter()
        .filter_map(|(name, root)| Some((within(root)?, name)));
    found
        .max_by_key(|(depth, _)| *depth)
        .map(|(_, name)| (*name).to_owned())
}

/// A name as it was before it was spelt with `%2A` and the like, where it can stand in a field.
fn readable(spelt: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_graphic();
    let name = read_back(spelt).into_os_string().into_string();
    let name = name.ok().filter(|name| name.chars().all(is_plain));
    name.unwrap_or_else(|| spelt.escape_default().to_string())
}

/// What was spelt with `%2B` and the like.
fn read_back(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let pair = after.first_chunk::<2>().filter(|_| *first == b'%');
        let pair = pair.and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = after
            .get(if byte.is_some() { 2 } else { 0 }..)
            .unwrap_or(&[]);
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Where it comes from, for the log.
fn origin(options: &SendmailOptions) -> String {
    let site = site(options).or_else(|| options.tenant.first().cloned());
    let site = site.map_or_else(String::new, |site| format!(" of {}", readable(&site)));
    let directory = std::env::current_dir().ok();
    let directory = directory.as_deref().map(Path::to_string_lossy);
    let directory = directory.map_or_else(String::new, |it| format!(" in {}", shown(&it)));
    site + &directory
}

/// A text as it may stand in a line of a log.
fn shown(text: &str) -> String {
    let mut shown = text.escape_debug().to_string();
    cut(&mut shown, WORD_BYTES_MAX);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spelt_is_read_back() {
        for (spelt, path, name) in [
            ("/srv/a", "/srv/a", "/srv/a"),
            ("%2A.a.test", "*.a.test", "*.a.test"),
            ("a%20b", "a b", "a%20b"),
            ("%0d%0Ax", "\r\nx", "%0d%0Ax"),
            ("%", "%", "%"),
            ("%2", "%2", "%2"),
            ("%zz%2", "%zz%2", "%zz%2"),
            ("\n", "\n", "\\n"),
        ] {
            assert_eq!(read_back(spelt), Path::new(path), "{spelt}");
            assert_eq!(readable(spelt), name, "{spelt}");
        }
    }
}
