//! `nagaya recorder serve`: the console of figures that lie in a directory, on this machine alone.
//!
//! The idea: it is the gateway itself, with a configuration that is made for the purpose and gone with it,
//! so that figures of another machine are looked at as those of one's own.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use os::exec::Inherited;
use os::user::User;
use recorder::FigureStore;

use super::{CommandEnd, CommandFailure, FiguresPlace, ended, failed, random, wrong};
use crate::outcome::{Outcome, print};
use crate::serve;

/// Options of `recorder serve`.
#[derive(Debug, Args)]
pub(crate) struct RecorderServe {
    /// Where to listen, on this machine alone
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8617")]
    listen: SocketAddr,
    #[command(flatten)]
    place: FiguresPlace,
}

/// A configuration that is taken away when it has been served.
#[derive(Debug)]
struct MadeConfiguration {
    directory: PathBuf,
    file: PathBuf,
}

/// Serves the console until told to end.
pub(crate) fn run(
    config: &Path,
    options: &RecorderServe,
    inherited: Option<Inherited>,
) -> ExitCode {
    let made = match made(config, options) {
        Ok(made) => made,
        Err(why) => return ended(CommandEnd::Err(why)).into(),
    };
    let url = format!("the console: http://{}/\n", options.listen);
    match print(url.as_bytes()) {
        Outcome::Fine => serve::run(&made.file, inherited),
        outcome => outcome.into(),
    }
}

fn made(config: &Path, options: &RecorderServe) -> Result<MadeConfiguration, CommandFailure> {
    if !options.listen.ip().is_loopback() {
        let help = "everybody there could look: give one such as 127.0.0.1:8617, or an `[[sites]]` with `auth` a console";
        return Err(wrong(format!("--listen {}: {help}", options.listen)));
    }
    let text = configuration(&options.place.find(config)?, options)?;
    let number = u128::from_ne_bytes(random().map_err(failed)?);
    let directory = std::env::temp_dir().join(format!("nagaya-recorder-{number:032x}"));
    let file = directory.join("nagaya.toml");
    let write = || {
        DirBuilder::new().mode(0o700).create(&directory)?;
        fs::write(&file, text)
    };
    let written = write();
    // From here on it is taken away, whatever comes.
    let made = MadeConfiguration { directory, file };
    written.map_err(|why| {
        failed(format!(
            "write {}: {}",
            made.file.display(),
            config::reason(&why)
        ))
    })?;
    Ok(made)
}

/// What is served: the figures as they were begun, on a site of its own.
fn configuration(directory: &Path, options: &RecorderServe) -> Result<String, CommandFailure> {
    let mut store = FigureStore::open_existing(directory).map_err(|why| {
        failed(format!(
            "{why}; `nagaya recorder import` reads logs into a directory"
        ))
    })?;
    let mut setting = |name: &str| store.setting(name).map_err(failed);
    let salt = setting("salt")?.unwrap_or_else(|| "day".into());
    let zone = setting("zone")?;
    drop(store);
    let directory = fs::canonicalize(directory);
    let directory = directory.map_err(|why| failed(config::reason(&why)))?;
    let zone = zone.map_or(String::new(), |zone| {
        format!("time_zone = {}\n", quoted(&zone))
    });
    let user = user(&directory)?;
    let user = user.map_or(String::new(), |user| format!("user = {}\n", quoted(&user)));
    let (address, host) = (options.listen, options.listen.ip());
    let Some(directory) = directory
        .to_str()
        .filter(|it| !it.contains(char::is_control))
    else {
        return Err(wrong("the directory must have a plain name in UTF-8"));
    };
    let host = match host.is_ipv6() {
        true => format!("[{host}]"),
        false => host.to_string(),
    };
    Ok(format!(
        "workers = 1\n{zone}[log]\naccess = \"off\"\nlevel = \"warn\"\n[[listen]]\naddress = \"{address}\"\n\
         [recorder]\ndirectory = {}\nsalt = {}\n{user}\
         [[sites]]\nhosts = [\"{host}\", \"localhost\"]\nallow = [\"127.0.0.0/8\", \"::1\"]\nrecord = false\n\
         rules = [{{ handler = {{ console = true }} }}]\n",
        quoted(directory),
        quoted(&salt)
    ))
}

/// Whom the recorder becomes where root begins it: whose the figures are.
fn user(directory: &Path) -> Result<Option<String>, CommandFailure> {
    if !os::process::is_root() {
        return Ok(None);
    }
    let owner = fs::metadata(directory).and_then(|facts| match facts.uid() {
        0 => Ok(None),
        uid => User::name_of(uid),
    });
    match owner.map_err(|why| failed(config::reason(&why)))? {
        Some(name) => Ok(Some(name)),
        None => Err(wrong(format!(
            "the figures in {} are root's, and nothing that serves runs as root: give them to somebody, as by \
             `chown -R daemon`, or run this as another user",
            directory.display()
        ))),
    }
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Drop for MadeConfiguration {
    fn drop(&mut self) {
        // What cannot be taken away is in the way of nothing.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
