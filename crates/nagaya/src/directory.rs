//! `nagaya directory`: the tables that say which sites there are, as the running gateway knows them, and asked from
//! here.
//!
//! The idea: `check` reads the configuration as `serve` would and asks each source itself, so that a wrong table is
//! known before a request meets it; all else is asked of the gateway.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::{Args, Subcommand};
use config::model::{Directory, DirectorySource, Model};
use engine::directory::row::{RowJudge, RowsMayName};
use ipc::directory::Row;
use os::user::User;
use supervisor::load::load;

use crate::control::{Where, carry_out, show};
use crate::outcome::{Outcome, complain, print, wrong_config};

/// Options of `directory`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DirectoryOptions {
    #[command(subcommand)]
    command: Option<DirectoryCommand>,
    #[command(flatten)]
    place: Where,
}

/// What is done with directories.
#[derive(Debug, Subcommand)]
enum DirectoryCommand {
    /// Connect to the source of each directory and ask it once; with --all, list every row that is wrong
    ///
    /// It asks from here, as whoever types this, and needs no running gateway. `nagaya check` and a reload never
    /// connect. The exit status is 1 where something is wrong.
    Check(DirectoryCheckOptions),
    /// Show what the running gateway knows of a host: its row, where that comes from, and how long it is good for
    Show(HostOptions),
    /// Keep nothing that is known of a host, or of all with --all: its next request waits for its row
    Forget(ForgetOptions),
}

/// Which host.
#[derive(Debug, Args)]
struct HostOptions {
    /// The host
    #[arg(value_name = "HOST")]
    host: String,
    #[command(flatten)]
    place: Where,
}

/// What is forgotten.
#[derive(Debug, Args)]
struct ForgetOptions {
    /// The host
    #[arg(value_name = "HOST", required_unless_present = "all")]
    host: Option<String>,
    /// All hosts
    #[arg(long, conflicts_with = "host")]
    all: bool,
    /// Forget where the source does not answer, too: what is forgotten is answered 503 until it does
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    place: Where,
}

/// What is looked at.
#[derive(Debug, Args)]
struct DirectoryCheckOptions {
    /// Look at every row that `all` lists, or the file has
    #[arg(long)]
    all: bool,
}

/// Runs `nagaya directory …`.
pub(crate) fn run(config: &Path, options: &DirectoryOptions) -> Outcome {
    match &options.command {
        None => show(config, &options.place, "directory"),
        Some(DirectoryCommand::Check(options)) => check(config, options),
        Some(DirectoryCommand::Show(options)) => match is_host(&options.host) {
            true => show(
                config,
                &options.place,
                &format!("directory-show {}", options.host),
            ),
            false => wrong_host(&options.host),
        },
        Some(DirectoryCommand::Forget(options)) => match options.host.as_deref() {
            Some(host) if !is_host(host) => wrong_host(host),
            host => {
                let host = host.unwrap_or("--all");
                let anyway = if options.anyway { " --anyway" } else { "" };
                let command = format!("directory-forget {host}{anyway}");
                carry_out(config, &options.place, &command)
            }
        },
    }
}

fn is_host(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(fits)
}

fn wrong_host(text: &str) -> Outcome {
    complain(&format!("nagaya: `{}` is no host\n", text.escape_debug()));
    Outcome::Wrong
}

fn check(config: &Path, options: &DirectoryCheckOptions) -> Outcome {
    let model = match load(config) {
        Ok(loaded) => loaded.model,
        Err(problems) => return wrong_config(&problems),
    };
    if model.directories.is_empty() {
        complain("nagaya: the configuration has no `[directories.NAME]`\n");
        return Outcome::Wrong;
    }
    let settings = match supervisor::directory_settings(&model) {
        Ok(settings) => settings,
        Err(why) => {
            complain(&format!("nagaya: {why}\n"));
            return Outcome::Failed;
        }
    };
    let tenants = supervisor::written_tenants(&model);
    let certificates = match supervisor::certificates::plan::certificate_names(&model) {
        Ok(certificates) => certificates,
        Err(why) => {
            complain(&format!("nagaya: tls.certificates: {why}\n"));
            return Outcome::Failed;
        }
    };
    let known = RowsMayName {
        written_tenants: &tenants,
        certificates: &certificates,
    };
    let mut outcome = Outcome::Fine;
    for settings in settings {
        let name = settings.name.clone();
        let judge = RowJudge::of(&model, &name, known);
        let judge = |host: &str, row: &Row| judge.as_ref().map_or(Ok(()), |it| it.judge(host, row));
        let mut checked = ::directory::check(settings, &tenants, options.all, &judge);
        let directory = model.directories.iter().find(|it| it.name == name);
        checked
            .wrong
            .extend(directory.into_iter().flat_map(|it| unopened(&model, it)));
        for wrong in &checked.wrong {
            complain(&format!("{name}: {wrong}\n"));
        }
        let line = match (checked.wrong.len(), checked.rows) {
            (0, _) if !options.all => format!("{name}: answers\n"),
            // No row was looked at.
            (1.., 0) => String::new(),
            (wrong, rows) => format!("{name}: rows {rows}, wrong {wrong}\n"),
        };
        let printed = print(line.as_bytes());
        if !checked.wrong.is_empty() {
            outcome = Outcome::Failed;
        } else if printed != Outcome::Fine {
            return printed;
        }
    }
    outcome
}

/// The files of a directory that root can open and the process which asks for it cannot.
fn unopened(model: &Model, directory: &Directory) -> Vec<String> {
    let name = supervisor::directory_user(model);
    let Some(user) = User::look_up(name).ok().filter(|_| os::process::is_root()) else {
        return Vec::new();
    };
    let source = match &directory.source {
        DirectorySource::Sqlite(path) | DirectorySource::File(path, _) => Some(path.as_path()),
        DirectorySource::Mysql(_) | DirectorySource::Postgres(_) => None,
    };
    let read = source.and_then(|path| {
        let opened = user.act(|| File::open(path).map(drop));
        let why = config::reason(&opened.and_then(|opened| opened).err()?);
        let path = path.display();
        Some(format!(
            "user {name}, who asks for rows, cannot read `{path}`: {why}"
        ))
    });
    let place = directory.snapshot.as_deref().and_then(Path::parent);
    let written = place.and_then(|path| {
        let facts = path.metadata();
        let is_fit = |it: &Metadata| it.uid() == user.uid && it.mode() & 0o300 == 0o300;
        let path = path.display();
        let said = format!("the snapshot's directory `{path}` is not user {name}'s to write");
        (!facts.is_ok_and(|it| is_fit(&it))).then_some(said)
    });
    read.into_iter().chain(written).collect()
}
