//! `nagaya import`: moving in from another server, as sites made of its configuration and an account
//! of every line; `verify` asks both servers the same.
//!
//! The idea: what is written is what `check` takes. A site that it does not take on this machine, as
//! a file is missing, is left out and told, like a line that cannot be carried.

mod written;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use config::{Diagnostics, Naming, reason};
use import::{BYTES_MAX, ImportOptions, Imported, Listening, PoolFile, SHARED, Unreadable};
use supervisor::load::load;

use crate::certificates;
use crate::outcome::{Outcome, complain, print};
use crate::verify::{self, VerifyOptions};
use written::ImportSource;

/// Which server's configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// What nginx has in force: nagaya import nginx, or nginx -T | nagaya import nginx -
    Nginx(ImportArguments),
    /// What Apache has in force (needs mod_info), or files: nagaya import apache sites-enabled/a.conf
    Apache(ImportArguments),
    /// Ask both servers what an access log says people asked, and tell where they differ
    ///
    /// Only GET and HEAD are asked, and nothing that may do something (--list says what is left out).
    /// What differs between two replies of the old server is noise. The configuration (-c) is read
    /// to tell the line of the rule that answered, where --record is given.
    Verify(Box<VerifyOptions>),
}

/// A server whose configuration is read.
struct ImportedServer {
    name: &'static str,
    /// How it prints its configuration.
    line: &'static [&'static str],
    read: fn(&[u8], &ImportOptions) -> Result<Imported, Unreadable>,
    help: &'static str,
    /// What to do where nothing was printed.
    lacks: &'static str,
}

const NGINX: ImportedServer = ImportedServer {
    name: "nginx",
    line: &["nginx", "-T"],
    read: import::nginx,
    help: "give what `nginx -T` prints, or a file of such a configuration",
    lacks: "give what `nginx -T` prints, as root, or a file of the configuration",
};
const APACHE: ImportedServer = ImportedServer {
    name: "apache",
    line: &["apache2ctl", "-t", "-D", "DUMP_CONFIG"],
    read: import::apache,
    help: "give what `apache2ctl -t -D DUMP_CONFIG` prints (after `a2enmod info`), or a file of such a configuration",
    lacks: "mod_info prints it: run `a2enmod info`, then import again; or give a file of the configuration",
};

/// What Apache says, and says alone, where nothing prints its configuration.
const VERDICT: &str = "Syntax OK";

/// Options of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// What is read, `-` for standard input; left out: the server's program is asked
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Directory that the sites are written to, each in a file of its own
    #[arg(long, value_name = "DIRECTORY", default_value = "sites.d")]
    out: PathBuf,
    /// Serve this address instead of those that were read; `none`: the main configuration says them
    #[arg(long, value_name = "ADDRESS", value_parser = address_or_none)]
    listen: Vec<String>,
    /// The same, with TLS
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen_tls: Vec<String>,
    /// Give sites no logs of their own, for as long as the other server writes those: the main
    /// configuration's `log` has all requests
    #[arg(long)]
    without_logs: bool,
    /// Run PHP in pools of the gateway's and no longer in those of php-fpm
    #[arg(long)]
    own_pools: bool,
    /// Directory of php-fpm's pools (pool.d): with --own-pools, sites take over the user and settings
    /// of the pool that runs their PHP
    #[arg(long, value_name = "DIRECTORY", requires = "own_pools")]
    pools: Option<PathBuf>,
    /// Write the account there too, every line in it, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the account as JSON
    #[arg(long)]
    json: bool,
}

/// Makes sites, and says what became of each line.
pub(crate) fn run(config: &Path, command: &ImportCommand) -> Outcome {
    let (server, arguments) = match command {
        ImportCommand::Nginx(arguments) => (NGINX, arguments),
        ImportCommand::Apache(arguments) => (APACHE, arguments),
        ImportCommand::Verify(options) => return verify::run(config, options),
    };
    let text = match arguments.file.as_deref() {
        None => output_of(server.line),
        Some(file) => content_of(file).map(|bytes| (bytes, file.display().to_string())),
    };
    let (bytes, name) = match text {
        Ok(text) => text,
        Err(why) => {
            complain(&format!("nagaya: {why}\n"));
            return Outcome::Wrong;
        }
    };
    let pools = match arguments.pools.as_deref().map_or(Ok(Vec::new()), pools_in) {
        Ok(pools) => pools,
        Err(why) => {
            complain(&format!("nagaya: {why}\n"));
            return Outcome::Wrong;
        }
    };
    let options = ImportOptions {
        name,
        pools,
        own_pools: arguments.own_pools,
        listening: listening(arguments),
        without_logs: arguments.without_logs,
    };
    match (server.read)(&bytes, &options) {
        Ok(imported) if imported.lines.iter().all(|line| line.text == VERDICT) => {
            complain(&format!(
                "nagaya: {}: there is no line of configuration: nothing is written, and nothing removed\n  = help: {}\n",
                options.name, server.lacks
            ));
            Outcome::Wrong
        }
        Ok(imported) => write(imported, &source_of(server.name, arguments), arguments),
        Err(unreadable) => {
            complain(&format!(
                "nagaya: {unreadable}\n  = help: {}\n",
                server.help
            ));
            Outcome::Wrong
        }
    }
}

/// What is read, as files that are written of it tell it.
fn source_of(server: &str, arguments: &ImportArguments) -> ImportSource {
    let file = arguments.file.as_deref();
    let place = file.map(|file| match file.canonicalize() {
        Ok(whole) if file != Path::new("-") => whole.display().to_string(),
        _ => file.display().to_string(),
    });
    let name = place.map_or_else(|| server.to_owned(), |place| format!("{server} {place}"));
    ImportSource {
        name: name.replace(char::is_control, " "),
        is_one: file != Some(Path::new("-")),
    }
}

/// The files of pools in a directory.
fn pools_in(directory: &Path) -> Result<Vec<PoolFile>, String> {
    let failed =
        |error: &std::io::Error| format!("read {}: {}", directory.display(), reason(error));
    let entries = std::fs::read_dir(directory).map_err(|error| failed(&error))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "conf"))
        .collect();
    paths.sort();
    let mut left = BYTES_MAX;
    let mut files = Vec::new();
    for path in paths {
        let bytes = content_of(&path)?;
        let rest = left.checked_sub(bytes.len());
        left = rest.ok_or_else(|| format!("{}: it is too large", directory.display()))?;
        files.push(PoolFile {
            name: path.display().to_string(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        });
    }
    Ok(files)
}

fn address_or_none(text: &str) -> Result<String, String> {
    match text {
        "none" => Ok(text.to_owned()),
        _ => address(text),
    }
}

/// An address as `[[listen]]` has it.
fn address(text: &str) -> Result<String, String> {
    let is_one = text.starts_with("unix:/") || text.parse::<SocketAddr>().is_ok();
    let told = "it is no address with a port, such as 127.0.0.1:8080 or [::1]:8080";
    is_one
        .then(|| text.to_owned())
        .ok_or_else(|| told.to_owned())
}

fn listening(arguments: &ImportArguments) -> Listening {
    let is_none = |address: &String| address == "none";
    if arguments.listen.iter().any(is_none) {
        return Listening::Unsaid;
    }
    let plain = arguments.listen.iter().map(|it| (it.clone(), false));
    let tls = arguments.listen_tls.iter().map(|it| (it.clone(), true));
    let all: Vec<(String, bool)> = plain.chain(tls).collect();
    match all.is_empty() {
        true => Listening::AsRead,
        false => Listening::At(all),
    }
}

fn content_of(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let limit = BYTES_MAX as u64 + 1;
    let read = match file == Path::new("-") {
        true => std::io::stdin().lock().take(limit).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|it| it.take(limit).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("read {}: {}", file.display(), reason(&error))),
    }
}

/// What a program of the other server prints of its configuration.
fn output_of(words: &[&str]) -> Result<(Vec<u8>, String), String> {
    let line = words.join(" ");
    let (program, arguments) = words
        .split_first()
        .map_or(("", words), |(first, rest)| (*first, rest));
    let output = Command::new(program).args(arguments).output();
    let output =
        output.map_err(|error| format!("run `{line}`: {}; name a file instead", reason(&error)))?;
    match output.status.success() {
        true => Ok((output.stdout, line)),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("`{line}` failed:\n{}", said.trim_end()))
        }
    }
}

/// Writes what passes, and tells what became of each line.
fn write(mut imported: Imported, source: &ImportSource, arguments: &ImportArguments) -> Outcome {
    let failed = |what: &str, error: &std::io::Error| {
        complain(&format!("nagaya: {what}: {}\n", reason(error)));
        Outcome::Failed
    };
    let out = &arguments.out;
    if let Err(error) = std::fs::create_dir_all(out) {
        return failed(&format!("make directory {}", out.display()), &error);
    }
    let left_out = match keep_what_passes(&mut imported, out) {
        Ok(Ok(left_out)) => left_out,
        Ok(Err(problems)) => {
            complain(&problems);
            complain("nagaya: what all sites share does not pass `check`: nothing was written\n");
            return Outcome::Wrong;
        }
        Err(error) => return failed(&format!("try the sites in {}", out.display()), &error),
    };
    let told = match written::write_all(&imported, &left_out, source, out) {
        Ok(told) => told,
        Err(error) => return failed(&format!("write to {}", out.display()), &error),
    };
    if let Some(report) = &arguments.report
        && let Err(error) = std::fs::write(report, imported.json())
    {
        return failed(&format!("write {}", report.display()), &error);
    }
    let page = match arguments.json {
        true => imported.json(),
        false => format!("{}\n{told}", imported.page()),
    };
    match print(page.as_bytes()) {
        Outcome::Fine if imported.asks_for_a_look() => Outcome::Failed,
        outcome => outcome,
    }
}

/// Leaves out the sites that `check` would refuse on this machine, and tells their names; what is
/// wrong with what all share, if something is.
fn keep_what_passes(
    imported: &mut Imported,
    out: &Path,
) -> std::io::Result<Result<Vec<String>, String>> {
    let trial = written::Trial::open(out)?;
    let all: Vec<_> = imported.files.iter().collect();
    if trial.judge(&all)?.is_none() {
        return Ok(Ok(Vec::new()));
    }
    let mut left_out = BTreeMap::new();
    for file in imported.files.iter().filter(|file| file.name != SHARED) {
        let shared = imported.files.iter().filter(|file| file.name == SHARED);
        let alone: Vec<_> = shared.chain([file]).collect();
        if let Some(problems) = trial.judge(&alone)? {
            let first = problems.lines().next().unwrap_or_default();
            let why = format!("its site is left out: {first}");
            let name = &file.name;
            complain(&format!(
                "{name} is left out, for `check` would refuse it (a file of it that was written before stays):\n{problems}\n"
            ));
            left_out.insert(name.clone(), why);
        }
    }
    imported.leave_out(&left_out);
    let rest: Vec<_> = imported.files.iter().collect();
    let problems = match rest.iter().any(|file| file.name != SHARED) {
        true => trial.judge(&rest)?,
        false => None,
    };
    let names = left_out.into_keys().collect();
    Ok(problems.map_or(Ok(names), Err))
}

/// What `check` says of a configuration; nothing where it is fine.
fn problems_of(config: &Path) -> Option<String> {
    let loaded = match load(config) {
        Ok(loaded) => loaded,
        Err(problems) => return Some(problems.to_string()),
    };
    let naming = Naming::of(&loaded.sources);
    let certificates = certificates::judge(&loaded.model, &naming, None);
    let problems = certificates.problems;
    (!problems.is_empty()).then(|| Diagnostics::errors(problems).to_string())
}
