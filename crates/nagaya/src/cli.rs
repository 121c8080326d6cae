//! The command line: the one definition behind parsing, `--help`, completions and man page.
//!
//! Help is written for somebody woken at three in the morning: what it does, what to type.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::agent::AgentOptions;
use crate::capacity::CapacityOptions;
use crate::certs::CertsOptions;
use crate::control::Where;
use crate::directory::DirectoryOptions;
use crate::fleet::FleetOptions;
use crate::htaccess::HtaccessCommand;
use crate::import::ImportCommand;
use crate::limits::{Limits, WhyOptions};
use crate::man;
use crate::outcome::{Outcome, complain, print};
use crate::pools::PoolsOptions;
use crate::recorder::{RecorderCommand, ReportOptions};
use crate::reload::ReloadOptions;
use crate::script::ScriptCommand;
use crate::sendmail::{self, SendmailOptions};
use crate::sensors::SensorsOptions;
use crate::tenant::TenantCommand;
use crate::top::TenantsOptions;

/// The general option that names the configuration.
const CONFIGURATION: &str = "config";
/// The configuration where none is named.
pub(crate) const CONFIG: &str = "nagaya.toml";
/// The configuration of the installed service.
pub(crate) const CONFIG_INSTALLED: &str = "/etc/nagaya/nagaya.toml";

/// Web gateway for machines that many sites share.
#[derive(Debug, Parser)]
#[command(name = "nagaya", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Configuration file [default: nagaya.toml; all but serve look for that here, then in /etc/nagaya]
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Signals to the process of `nagaya serve`:
  TERM, INT  finish what is under way, then end; a second one ends at once
  QUIT       finish what is under way, then end; a second one changes nothing
  HUP        read the configuration again; if anything is wrong with it, the old one serves on
  USR1       open the log files again (after moving them away)
  USR2       run the program that is installed now; if it cannot serve, this one serves on

Is it running, and what is it doing?   nagaya status
Is my configuration right?             nagaya check
Put it in force                        nagaya reload
Run the version installed now          nagaya upgrade
Is the machine overloaded, and how?    nagaya sensors
Which limit is full, and for whom?     nagaya limits top
Why was this request refused?          nagaya why REQUEST-ID
Which pools run, and what do they take? nagaya pools
Which tenant takes the machine now?    nagaya top
Which certificate ends when?           nagaya certs
How are the other machines?            nagaya fleet
What does this machine lack?           nagaya doctor
What does my .htaccess do to this URL? nagaya htaccess explain URL
What does my script do, and how fast?  nagaya script run FILE
What would become of my nginx, Apache? nagaya import nginx
Who visited my site, and how?          nagaya report SITE
How fast is it, and is that so?        nagaya bench http://127.0.0.1/
Errors go to standard error (under systemd: journalctl -u nagaya).
Exit status: 0 fine, 1 failed while running, 2 wrong use or wrong configuration.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until told to stop
    #[command(after_help = AFTER_HELP)]
    Serve,
    /// Read the configuration and list everything wrong with it; change nothing
    ///
    /// No socket is opened and no log: whether an address is free shows when it starts. A broken file
    /// that would be set aside (`broken = "keep"`) is wrong as well: the exit status is 2.
    Check(CheckOptions),
    /// Say what this machine lacks for what Nagaya can do, and the command that would grant it
    ///
    /// Nothing is changed. With a configuration (-c, or nagaya.toml here or in /etc/nagaya), what it
    /// needs is told, too, and the exit status is 1 if any of that is not to be had. Ask where the gateway is
    /// started: what a process may do with control groups depends on the group it is in.
    Doctor,
    /// Have the running gateway read its configuration again, and say what came of it
    ///
    /// Waits until the new configuration is in force (exit status 0) or refused: 2 if it is wrong, 1
    /// if the machine is in the way or no gateway runs. What is wrong is told as `check` does. Files that are
    /// set aside are told, too, and do not count: the rest is in force.
    Reload(ReloadOptions),
    /// Have the running gateway give way to the program that is installed now; no request is lost
    ///
    /// The new program reads the configuration and starts beside the old one, which serves until the
    /// new one does, and then finishes what is under way. Waits for that (exit status 0), or says
    /// why the old program serves on: 2 if the configuration is wrong for the new one, 1 otherwise.
    Upgrade(ReloadOptions),
    /// Ask the running gateway how it is
    Status(StatusOptions),
    /// Every certificate: where it comes from, until when it is valid, how its next order goes
    ///
    /// Those with a problem come first, then those that end first.
    Certs(CertsOptions),
    /// What is measured of the machine, the gateway and its back ends, and what can be raised
    ///
    /// Asks the running gateway; where none answers, reads this machine for a second.
    Sensors(SensorsOptions),
    /// Limits: what they hold now, and changing them
    #[command(subcommand)]
    Limits(Limits),
    /// Say why a request was refused by a limit, or shed, and what would have admitted it; or why TLS
    /// handshakes failed
    Why(WhyOptions),
    /// .htaccess files: what they say of a request
    #[command(subcommand)]
    Htaccess(HtaccessCommand),
    /// Scripts: whether they are Ruby, and what they do for a made-up request
    #[command(subcommand)]
    Script(ScriptCommand),
    /// Pools of processes: how each stands and what it takes; starting, ending and clearing them
    Pools(PoolsOptions),
    /// Which tenants take most just now, again every second until Ctrl-C; once where it is no terminal
    ///
    /// Processor time, memory and what is read and written are those of control groups: tenants without
    /// one have a dash. What is `refused` was refused by a limit or a cap, for want of a pool, or shed.
    Top(TenantsOptions),
    /// A tenant: suspended, resumed, or all that runs of it killed
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Answer beside an application: how this machine is, for upstreams with `agent` and for HAProxy
    ///
    /// Whoever connects is answered one line, as HAProxy's agent-check wants it: `up ready 75%`, or
    /// `drain`; behind a `#` stands what the sensors say. A GET over HTTP is answered in JSON. The
    /// percentage is what is left beside the time lost for want of processors or memory.
    #[command(arg = without_configuration())]
    Agent(AgentOptions),
    /// Hand a message to a mail server, as sendmail does: what PHP's `mail()` runs in a pool
    ///
    /// The message is read from standard input. It is in nobody's queue: the exit status is 0 once the server has
    /// accepted it. Else it says why and is 64 to 76, as sysexits.h has them, and never 75.
    #[command(arg = without_configuration())]
    Sendmail(Box<SendmailOptions>),
    /// Moving in from another server: sites made of its configuration, and whether this one answers as it does
    ///
    /// Each site is a file that `nagaya check` takes, with the lines it was made of. Run again, it changes
    /// and removes only files that it wrote and nobody has changed. Where a line about access is known not to
    /// be carried, what it covers is `deny = "all"`. It is a beginning, to be read before it serves strangers: what
    /// may come out more open than it was stands in the guides from nginx and from Apache. The exit status is 0 if all
    /// lines were carried or are not needed, 1 if some want a look, 2 if nothing could be read.
    #[command(subcommand)]
    Import(ImportCommand),
    /// The tables that say which sites there are: how they stand, what is known of a host, what is wrong in them
    Directory(DirectoryOptions),
    /// The machines that share limits: how each is, where its configuration differs, what all have leased
    ///
    /// As the store knows them that `[fleet]` names, asked by the running gateway of any of them.
    Fleet(FleetOptions),
    /// Figures of what sites were asked for: access logs read into them, and sites forgotten
    #[command(subcommand)]
    Recorder(RecorderCommand),
    /// What was recorded of a site: visits, pages, where people came from, bots, errors, times
    ///
    /// Of days that `nagaya recorder import` has read logs of. Without --from and --to: the last 28 days.
    Report(ReportOptions),
    /// How full each resource of this machine is, when it will be, by whom, and what would help
    ///
    /// Of what the recorder has seen of its sensors. Nothing is foretold from less than two weeks.
    Capacity(CapacityOptions),
    /// Measure a web server: load it, and say what its figures are worth
    Bench(Elsewhere),
    /// Experiments are a program of their own, which is not in the package
    #[command(hide = true)]
    Lab(Elsewhere),
    /// Print a completion script for a shell: bash, zsh, fish and others
    #[command(arg = without_configuration())]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page: nagaya man | man -l -
    #[command(arg = without_configuration())]
    Man,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// Print the configuration as it takes effect, every default filled in
    #[arg(long)]
    pub(crate) dump: bool,
    /// Judge certificates as of this day, such as 2027-01-31, instead of today
    #[arg(long, value_name = "DATE")]
    pub(crate) at: Option<jiff::civil::Date>,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Where,
}

/// Words of a command that reads its own.
#[derive(Debug, Args)]
pub(crate) struct Elsewhere {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Arguments {
    /// The configuration that is meant.
    pub(crate) fn config(&self) -> PathBuf {
        config_of(self.config.as_deref(), &self.command, Path::exists)
    }

    /// Reads the command line; where it cannot be understood, says so and ends the process.
    pub(crate) fn read() -> Arguments {
        let matches = Arguments::command().try_get_matches();
        let read = matches.and_then(|matches| Arguments::understand(&matches));
        read.unwrap_or_else(|mut error| {
            let stray = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(word)) if !word.starts_with('-') => Some(word.clone()),
                _ => None,
            };
            if let Some(word) = stray.filter(|_| error.kind() == ErrorKind::UnknownArgument) {
                let tip = format!("a configuration file is named by `-c {word}`").into();
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            }
            let called = std::env::args_os().nth(1);
            if called.is_some_and(|it| it == "sendmail") && error.use_stderr() {
                let _ = error.print();
                sendmail::refuse_words();
            }
            error.exit()
        })
    }

    fn understand(matches: &ArgMatches) -> Result<Arguments, clap::Error> {
        let mut command = Arguments::command();
        if let Some(called) = given_needlessly(matches) {
            let message = format!("`{called}` reads no configuration: leave `-c` out");
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        Arguments::from_arg_matches(matches).map_err(|error| error.format(&mut command))
    }
}

/// Takes the place of the general `-c`, where that would do nothing.
pub(crate) fn without_configuration() -> Arg {
    Arg::new(CONFIGURATION)
        .short('c')
        .long(CONFIGURATION)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .hide(true)
}

/// The command that was given a configuration although it reads none.
fn given_needlessly(matches: &ArgMatches) -> Option<String> {
    let (outer, matches) = matches.subcommand()?;
    let is_given =
        |of: &ArgMatches| of.value_source(CONFIGURATION) == Some(ValueSource::CommandLine);
    if matches!(outer, "agent" | "sendmail" | "completions" | "man") {
        return is_given(matches).then(|| format!("nagaya {outer}"));
    }
    let (command, matches) = matches.subcommand()?;
    let reads_none = match outer {
        "limits" => matches!(command, "simulate" | "propose"),
        "script" => true,
        "import" => matches!(command, "nginx" | "apache"),
        _ => false,
    };
    (reads_none && is_given(matches)).then(|| format!("nagaya {outer} {command}"))
}

/// Which configuration is meant. What is served is named, or lies here; who asks about one mostly
/// means that of the installed service, wherever they are.
fn config_of(named: Option<&Path>, command: &Command, is_there: impl Fn(&Path) -> bool) -> PathBuf {
    let installed = Path::new(CONFIG_INSTALLED);
    let is_looked_for = !matches!(command, Command::Serve);
    match named {
        Some(named) => named.to_owned(),
        None if is_looked_for && !is_there(Path::new(CONFIG)) && is_there(installed) => {
            installed.to_owned()
        }
        None => PathBuf::from(CONFIG),
    }
}

/// The definition that people see. What reads its own words says itself what these are.
pub(crate) fn definition() -> clap::Command {
    Arguments::command().mut_subcommand("bench", |_| {
        // The general `-c FILE` stays out: what takes its place is ApacheBench's `-c`.
        bench::definition().mut_arg("c", |connections| connections.id("config"))
    })
}

/// Says that nothing may stand before `bench`, which reads its own words.
pub(crate) fn refuse_configuration(elsewhere: &Elsewhere) -> Outcome {
    let words = elsewhere.words.join(std::ffi::OsStr::new(" "));
    complain(&format!(
        "nagaya: `nagaya bench` reads no configuration: write `nagaya bench {}`\n",
        words.to_string_lossy()
    ));
    Outcome::Wrong
}

/// Says where experiments are.
pub(crate) fn name_the_lab() -> Outcome {
    complain(
        "nagaya: experiments are the program nagaya-lab of Nagaya's sources: cargo run --release -p lab, or make lab\n",
    );
    Outcome::Wrong
}

/// Prints what makes a shell complete our command lines.
pub(crate) fn print_completions(shell: Shell) -> Outcome {
    print(&completions(shell))
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut built = definition();
    built.build();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(&built), "nagaya", &mut script);
    script
}

/// A command less what it hides: scripts for shells offer that, too.
fn shown(command: &clap::Command) -> clap::Command {
    // Names are to live as long as the process, which ends when they are printed.
    let name: &'static str = Box::leak(command.get_name().into());
    let arguments = command.get_arguments().filter(|it| !it.is_hide_set());
    let commands = command.get_subcommands().filter(|it| !it.is_hide_set());
    clap::Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args(arguments.map(|it| it.clone().global(false)))
        .subcommands(commands.map(shown))
}

/// Prints `nagaya(1)`.
pub(crate) fn print_man_page() -> Outcome {
    print(man::page(definition()).as_bytes())
}

/// Who else is meant, before anything is parsed: `bench` has flags that mean something else here.
pub(crate) struct Measuring {
    /// The name we were called by, if it is another's; else the command.
    pub(crate) called_as: String,
    /// What follows it.
    pub(crate) words: Vec<OsString>,
}

/// Whether something is to be measured: `nagaya bench …`, or a link named `ab`.
pub(crate) fn measuring() -> Option<Measuring> {
    measuring_in(std::env::args_os())
}

fn measuring_in(mut words: impl Iterator<Item = OsString>) -> Option<Measuring> {
    let program = words.next()?;
    let called_as = Path::new(&program).file_name()?.to_str()?.to_owned();
    if called_as == bench::APACHE_BENCH {
        let words = words.collect();
        return Some(Measuring { called_as, words });
    }
    let command = words.next()?.into_string().ok()?;
    (command == "bench").then(|| Measuring {
        called_as: command,
        words: words.collect(),
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        definition().debug_assert();
    }

    #[test]
    fn the_configuration_may_stand_before_or_after_the_command() {
        for line in [
            "nagaya -c a.toml check",
            "nagaya check -c a.toml",
            "nagaya check --config a.toml",
        ] {
            let arguments = Arguments::parse_from(line.split(' '));
            assert_eq!(arguments.config(), PathBuf::from("a.toml"));
        }
        assert_eq!(
            Arguments::parse_from(["nagaya", "serve"]).config(),
            PathBuf::from("nagaya.toml")
        );
    }

    #[test]
    fn commands_that_ask_about_a_gateway_find_the_installed_configuration() {
        let installed = CONFIG_INSTALLED;
        for (line, there, meant) in [
            ("status", vec![installed], installed),
            ("why 1", vec![installed], installed),
            ("certs renew a.example", vec![installed], installed),
            ("sensors --watch", vec![installed], installed),
            ("pools restart a.example", vec![installed], installed),
            ("top --by memory -n 5", vec![installed], installed),
            ("tenant suspend a", vec![installed], installed),
            ("report a.jp", vec![installed], installed),
            ("capacity", vec![CONFIG, installed], CONFIG),
            ("recorder forget a.jp", vec![installed], installed),
            ("limits list", vec![installed], installed),
            ("limits top", vec![CONFIG, installed], CONFIG),
            ("limits top", vec![], CONFIG),
            ("status -c a.toml", vec![installed], "a.toml"),
            ("status -c nagaya.toml", vec![installed], CONFIG),
            ("serve", vec![installed], CONFIG),
            ("check", vec![installed], installed),
            ("check", vec![CONFIG, installed], CONFIG),
            ("doctor", vec![installed], installed),
        ] {
            let words = ["nagaya"].into_iter().chain(line.split(' '));
            let Arguments { config, command } = Arguments::parse_from(words);
            let is_there = |path: &Path| there.iter().any(|it| Path::new(it) == path);
            let found = config_of(config.as_deref(), &command, is_there);
            assert_eq!(found, Path::new(meant), "{line}, {there:?}");
        }
    }

    #[test]
    fn a_configuration_is_refused_and_not_offered_where_it_would_mean_nothing() {
        let mut built = definition();
        built.build();
        let mut offers = |command: &str| {
            let command = built.find_subcommand_mut(command).expect("there is one");
            command.render_long_help().to_string().contains("--config")
        };
        assert!(offers("check"));
        for words in ["agent", "sendmail a@b.jp", "completions bash", "man"] {
            let command = words.split(' ').next().unwrap_or_default();
            assert!(!offers(command), "{command}");
            for line in [
                format!("nagaya -c a {words}"),
                format!("nagaya {words} -c a"),
            ] {
                let matches = Arguments::command().try_get_matches_from(line.split(' '));
                let read = matches.and_then(|matches| Arguments::understand(&matches));
                let told = read.expect_err("it reads none").to_string();
                assert!(told.contains("reads no configuration"), "{line}: {told}");
            }
        }
    }

    #[test]
    fn completions_offer_what_help_shows_and_nothing_else() {
        for shell in Shell::value_variants() {
            assert!(!completions(*shell).is_empty(), "{shell}");
        }
        let script = String::from_utf8(completions(Shell::Bash)).expect("text");
        let offered = |command: &str| {
            let case = format!("nagaya__subcmd__{command})\n");
            let (_, rest) = script.split_once(&case).expect("it is a command");
            rest.lines().next().unwrap_or_default().to_owned()
        };
        for word in ["--config", "--dump", "--help"] {
            assert!(offered("check").contains(word), "{}", offered("check"));
        }
        assert!(offered("limits").contains(" top"), "{}", offered("limits"));
        for command in ["agent", "sendmail", "completions", "man"] {
            let offered = offered(command);
            assert!(offered.contains("--help"), "{command}: {offered}");
            assert!(!offered.contains("--config"), "{command}: {offered}");
        }
        assert!(!script.contains("__subcmd__lab"), "it is hidden");
    }

    #[test]
    fn help_shows_what_people_use_and_hides_the_rest() {
        let help = definition().render_long_help().to_string();
        for shown in [
            "serve",
            "check",
            "doctor",
            "status",
            "certs",
            "sensors",
            "limits",
            "why",
            "script",
            "pools",
            "top",
            "tenant",
            "agent",
            "sendmail",
            "import",
            "recorder",
            "directory",
            "report",
            "bench",
            "completions",
            "man",
            "HUP",
            "USR1",
            "Exit status",
        ] {
            assert!(help.contains(shown), "{shown} is missing in:\n{help}");
        }
        assert!(
            !["  server", "  lab", "spawner"]
                .iter()
                .any(|hidden| help.contains(hidden))
        );
    }

    #[test]
    fn measuring_is_told_by_the_first_word_or_by_our_name() {
        for (line, expected) in [
            (
                "nagaya bench -c 5 http://a/",
                Some(("bench", "-c 5 http://a/")),
            ),
            ("/usr/bin/nagaya bench", Some(("bench", ""))),
            ("/tmp/ab -n 5 http://a/", Some(("ab", "-n 5 http://a/"))),
            ("ab bench", Some(("ab", "bench"))),
            ("ab/nagaya serve", None),
            ("nagaya -c a.toml bench", None),
            ("nagaya", None),
            ("", None),
        ] {
            let words = line.split_whitespace().map(OsString::from);
            let found = measuring_in(words).map(|Measuring { called_as, words }| {
                (called_as, words.join(std::ffi::OsStr::new(" ")))
            });
            let expected = expected.map(|(name, words)| (name.to_owned(), words.into()));
            assert_eq!(found, expected, "{line}");
        }
    }
}
