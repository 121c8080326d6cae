//! The command line of `nagaya bench URL`: long options, each with its default.
//!
//! What is said here is only read; whether it goes together is judged in `order`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};

use super::{target::Target, units};
use crate::search::Goals;

/// Measure a web server: load it, and say what its figures are worth
#[derive(Debug, Clone, Parser)]
#[command(
    name = "nagaya bench",
    bin_name = "nagaya bench",
    disable_version_flag = true,
    after_help = AFTER_HELP,
    override_usage = "nagaya bench URL… [--connections 50] [--duration 10s | --requests N] [--rate 5k]"
)]
pub(crate) struct Options {
    /// What to ask for: http, https or unix:/path.sock:/path. Several are asked for in random
    /// order, each as often as the others; 3@URL three times as often
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<Target>,
    /// More of them, one a line; # begins a comment
    #[arg(long = "urls", value_name = "FILE")]
    pub(crate) urls_file: Option<PathBuf>,

    /// Connections, all URLs together
    #[arg(long, value_name = "N", default_value = "50", value_parser = units::count, help_heading = "Load")]
    pub(crate) connections: u64,
    /// How long to send, warm-up included [default: 10s, or no end with --requests]
    #[arg(long, value_name = "TIME", value_parser = units::some_time, help_heading = "Load")]
    pub(crate) duration: Option<Duration>,
    /// How many requests to send, warm-up included
    #[arg(long, value_name = "N", value_parser = units::count, help_heading = "Load")]
    pub(crate) requests: Option<u64>,
    /// Requests a second, sent when due whether or not the server keeps up (open loop). Without
    /// it each connection asks again when it has its reply (closed loop)
    #[arg(long, value_name = "PER-SECOND", value_parser = units::rate, help_heading = "Load")]
    pub(crate) rate: Option<f64>,
    /// How requests of --rate follow each other: at random as from many people, or evenly
    /// [default: poisson]
    #[arg(long, value_name = "HOW", help_heading = "Load")]
    pub(crate) arrivals: Option<ArrivalsWord>,
    /// Time over which --rate grows from nothing [default: at once]
    #[arg(long, value_name = "TIME", value_parser = units::some_time, help_heading = "Load")]
    pub(crate) ramp: Option<Duration>,
    /// Time over which the connections are opened [default: all at once]
    #[arg(long, value_name = "TIME", value_parser = units::some_time, help_heading = "Load")]
    pub(crate) open_over: Option<Duration>,
    /// What to leave out at the start: auto (until the rate stands still, at most a quarter of
    /// the time and 5s), none, or a time [default: auto, or none with --requests]
    #[arg(long, value_name = "TIME", value_parser = warm_up, help_heading = "Load")]
    pub(crate) warm_up: Option<WarmUpWord>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Load")]
    pub(crate) seed: u64,

    /// Method [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD", help_heading = "Request")]
    pub(crate) method: Option<String>,
    /// A field of the head, 'Name: value'; may be given several times
    #[arg(long = "header", value_name = "FIELD", action = ArgAction::Append, help_heading = "Request")]
    pub(crate) headers: Vec<String>,
    /// Body
    #[arg(long, value_name = "TEXT", help_heading = "Request")]
    pub(crate) body: Option<String>,
    /// Body, from a file
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub(crate) body_file: Option<PathBuf>,
    /// Name and password for Basic authentication
    #[arg(long, value_name = "NAME:PASSWORD", help_heading = "Request")]
    pub(crate) user: Option<String>,
    /// Version of HTTP. 2 is agreed on by ALPN over https; over http the server must know (h2c)
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "1.1",
        help_heading = "Request"
    )]
    pub(crate) http: HttpWord,

    /// Open a connection for each request [default: keep them]
    #[arg(long, help_heading = "Connections")]
    pub(crate) no_keep_alive: bool,
    /// Open a fresh connection after so many requests
    #[arg(long, value_name = "N", value_parser = units::count, help_heading = "Connections")]
    pub(crate) requests_per_connection: Option<u64>,
    /// Requests at a time on each connection of --http 2: without --rate each of them asks again
    /// when it has its reply [default: 32, or 1 with --no-keep-alive]
    #[arg(long, value_name = "N", value_parser = units::count, help_heading = "Connections")]
    pub(crate) streams: Option<u64>,
    /// Longest wait for a connection, or for the next byte of a reply
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::some_time, help_heading = "Connections")]
    pub(crate) timeout: Duration,
    /// Address to connect from [default: the kernel's choice]
    #[arg(long, value_name = "ADDRESS", help_heading = "Connections")]
    pub(crate) from: Option<IpAddr>,
    /// Send and receive buffer of each socket [default: the kernel's choice]
    #[arg(long, value_name = "SIZE", value_parser = units::size, help_heading = "Connections")]
    pub(crate) socket_buffer: Option<usize>,

    /// Certificates are not checked, with or without this: a load goes to one's own servers
    #[arg(long, help_heading = "TLS")]
    pub(crate) insecure: bool,
    /// Only this version: 1.2 or 1.3 [default: what the server likes best]
    #[arg(long, value_name = "VERSION", help_heading = "TLS")]
    pub(crate) tls_version: Option<TlsWord>,
    /// Cipher suites by their standard names, with commas [default: all]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "TLS"
    )]
    pub(crate) tls_suites: Vec<String>,
    /// Groups of the key exchange by their standard names, with commas: X25519MLKEM768, X25519,
    /// secp256r1, secp384r1 [default: all]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "TLS"
    )]
    pub(crate) tls_groups: Vec<String>,
    /// Name to ask for (SNI) [default: the URL's host]
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub(crate) tls_name: Option<String>,
    /// Send no name
    #[arg(long, help_heading = "TLS")]
    pub(crate) no_tls_name: bool,
    /// PEM file with a client's certificate and key
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(crate) tls_identity: Option<PathBuf>,
    /// Whether new connections take up the session of one before them: with --no-keep-alive
    /// full handshakes are measured, or resumed ones
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "never",
        help_heading = "TLS"
    )]
    pub(crate) tls_resume: ResumeWord,

    /// Threads that send, each with its share of the connections
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count, help_heading = "Generator")]
    pub(crate) threads: u64,
    /// Cores to pin them to, such as 1 or 2-3,6 [default: the kernel's choice]
    #[arg(long, value_name = "LIST", value_parser = cores, help_heading = "Generator")]
    pub(crate) cores: Option<Cores>,

    /// Watch the server meanwhile: this process and all that it started. With --vs it is
    /// A's, and given twice B's [default for B: A's, or who listens on B's port]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), action = ArgAction::Append, help_heading = "Server")]
    pub(crate) pid: Vec<u32>,
    /// Watch the server that listens on this port of this machine. With --vs as --pid
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), action = ArgAction::Append, help_heading = "Server")]
    pub(crate) listen: Vec<u16>,
    /// Go on watching so long after the load, to see memory come back
    #[arg(long, value_name = "TIME", value_parser = units::some_time, help_heading = "Server")]
    pub(crate) cooldown: Option<Duration>,

    /// Compare with this URL, in blocks of both in random order, until the difference is known
    #[arg(long, value_name = "URL-B", help_heading = "Compare and search")]
    pub(crate) vs: Option<Target>,
    /// Blocks of --vs at most [default: 60]
    #[arg(long, value_name = "N", value_parser = units::count, help_heading = "Compare and search")]
    pub(crate) blocks: Option<u64>,
    /// How long each slice of a block is: 1s to 3s are good [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = units::some_time, help_heading = "Compare and search")]
    pub(crate) block: Option<Duration>,
    /// Differences below this are none [default: 1%]
    #[arg(long, value_name = "SHARE", value_parser = units::share, help_heading = "Compare and search")]
    pub(crate) margin: Option<f64>,
    /// Find the highest rate that holds these: 'p99<50ms', 'p99<50ms,errors<0.1%'
    #[arg(long, value_name = "GOALS", help_heading = "Compare and search")]
    pub(crate) until: Option<Goals>,

    /// Count replies of any status as good [default: 200 to 399 are]
    #[arg(long, help_heading = "Report")]
    pub(crate) accept_any_status: bool,
    /// Write everything as JSON; - writes it to standard output in place of the report
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with charts, all in one file
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) html: Option<PathBuf>,
    /// Show no progress
    #[arg(long, help_heading = "Report")]
    pub(crate) quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  How fast can it go?      nagaya bench http://127.0.0.1:8080/ --connections 100 --duration 30s
  What do people wait?     nagaya bench http://127.0.0.1:8080/ --rate 2k --duration 60s
  What does it cost?       nagaya bench http://127.0.0.1:8080/ --listen 8080 --cooldown 30s
  Is B faster than A?      nagaya bench http://127.0.0.1:8080/ --vs http://127.0.0.1:8081/ --listen 8080 --listen 8081
  How much is too much?    nagaya bench http://127.0.0.1:8080/ --until 'p99<50ms,errors<0.1%'
  What do handshakes cost? nagaya bench https://127.0.0.1:8443/ --no-keep-alive --listen 8443
  And by HTTP/2?           nagaya bench https://127.0.0.1:8443/ --http 2 --connections 10 --streams 32
  A mix                    nagaya bench 9@http://127.0.0.1:8080/ http://127.0.0.1:8080/search?q=a
  For a program to read    nagaya bench http://127.0.0.1:8080/ --quiet --json -

Times take us, ms, s, m or h; counts and rates take k or M.
Ctrl-C ends the load and prints what was measured; a second one ends at once.

ApacheBench's flags and the long options do not mix, but for --json, --html, --pid and --listen.
A link named `ab` to this program takes ApacheBench's flags alone: ln -s /usr/bin/nagaya ab

Exit status: 0 fine, 1 failed while running, cut short, or not one whole reply, 2 wrong use.
With --vs: 0 B is the same or faster, 1 B is slower or the run failed, 2 wrong use, 3 cannot tell.
With --until: 0 a rate was found, 1 none holds or the run failed, 2 wrong use, 3 cannot tell.
With ApacheBench's flags as there: 22 wrong use, else the number of the system's error.";

/// `--arrivals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsWord {
    /// At random, as from many independent people
    Poisson,
    /// Evenly
    Constant,
}

/// `--http`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HttpWord {
    /// HTTP/1.0
    #[value(name = "1.0")]
    V10,
    /// HTTP/1.1
    #[value(name = "1.1")]
    V11,
    /// HTTP/2
    #[value(name = "2")]
    V2,
}

/// Streams of a connection, without `--streams`: what browsers and other generators come to.
const STREAMS: u64 = 32;

impl Options {
    /// Requests at a time on each connection of HTTP/2; `None` in HTTP/1.
    pub(crate) fn streams(&self) -> Option<u64> {
        let most = match self.no_keep_alive {
            true => 1,
            false => STREAMS,
        };
        (self.http == HttpWord::V2).then(|| self.streams.unwrap_or(most))
    }
}

/// `--tls-version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsWord {
    /// TLS 1.2
    #[value(name = "1.2")]
    V12,
    /// TLS 1.3
    #[value(name = "1.3")]
    V13,
}

/// `--tls-resume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResumeWord {
    /// Every handshake is a full one
    Never,
    /// Where the server has given a ticket
    Always,
}

/// `--warm-up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmUpWord {
    /// Until the rate stands still.
    Auto,
    /// Nothing is left out.
    None,
    /// So long.
    For(Duration),
}

/// `--cores`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

/// Highest core that can be named: `CPU_SETSIZE` of the kernel's interface, less one.
const CORE_MAX: usize = 1023;

fn warm_up(text: &str) -> Result<WarmUpWord, String> {
    match text {
        "auto" => Ok(WarmUpWord::Auto),
        "none" => Ok(WarmUpWord::None),
        text => match units::time(text) {
            Ok(Duration::ZERO) => Ok(WarmUpWord::None),
            Ok(time) => Ok(WarmUpWord::For(time)),
            Err(reason) => Err(format!("auto, none or a time: {reason}")),
        },
    }
}

fn cores(text: &str) -> Result<Cores, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| match text.parse::<usize>() {
            Ok(core) if core <= CORE_MAX => Ok(core),
            _ => Err(format!("`{part}` is no core: write 1 or 0,2-3")),
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("`{part}` runs backwards"));
        }
        cores.extend(first..=last);
    }
    Ok(Cores(cores))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound_and_its_help_is_grouped() {
        Options::command().debug_assert();
        let help = Options::command().render_help().to_string();
        for heading in [
            "Load:",
            "Request:",
            "Connections:",
            "TLS:",
            "Generator:",
            "Server:",
            "Compare and search:",
            "Report:",
            "Examples:",
        ] {
            assert!(help.contains(heading), "{heading}\n{help}");
        }
    }

    #[test]
    fn every_option_is_long_only() {
        for argument in Options::command().get_arguments() {
            assert!(
                argument.get_short().is_none() || argument.get_id() == "help",
                "{argument:?}"
            );
        }
    }

    #[test]
    fn cores_and_warm_up_are_read() {
        assert_eq!(cores("1"), Ok(Cores(vec![1])));
        assert_eq!(cores("0,2-4"), Ok(Cores(vec![0, 2, 3, 4])));
        for text in ["", "a", "3-1", "1,", "-1", "0-99999999"] {
            assert!(cores(text).is_err(), "{text}");
        }
        assert_eq!(warm_up("auto"), Ok(WarmUpWord::Auto));
        assert_eq!(warm_up("none"), Ok(WarmUpWord::None));
        assert_eq!(warm_up("0s"), Ok(WarmUpWord::None));
        assert_eq!(warm_up("2s"), Ok(WarmUpWord::For(Duration::from_secs(2))));
        assert!(warm_up("2").is_err_and(|text| text.contains("2s")));
    }
}
