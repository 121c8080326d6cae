//! PostgreSQL in a directory of its own, small, and careless about what a power cut would cost.
//!
//! It refuses to run as root, so that a test that is root starts it as `nobody`.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{Store, owned};
use crate::temp::TempDir;
use crate::wait::free_port;

/// Where distributions put its programs, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// Whom it becomes where the test is root.
const UNPRIVILEGED: (u32, u32) = (65_534, 65_534);

/// What a PostgreSQL is beyond a store: the client that asks it.
#[derive(Debug)]
pub struct PostgresSql {
    client: PathBuf,
}

/// A PostgreSQL server, with a superuser [`Postgres::USER`] and its database of the same name; over TCP it wants
/// [`Postgres::PASSWORD`].
pub type Postgres = Store<PostgresSql>;

impl Store<PostgresSql> {
    /// Who may do everything, by password.
    pub const USER: &str = "tester";
    /// The password of [`Postgres::USER`].
    pub const PASSWORD: &str = "secret";
    /// A database that is there, empty.
    pub const DATABASE: &str = "postgres";

    /// Starts one; `settings` are further settings of it (`["max_connections=5"]`). `None`, and a line on
    /// stderr, when there is no PostgreSQL.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            crate::lacks_program("postgres");
            return None;
        };
        let client = programs.join("psql");
        let directory = TempDir::new();
        let (port, data) = (free_port(), directory.path().join("data"));
        give(directory.path());
        let password = directory.write("password", Self::PASSWORD);
        make(&programs.join("initdb"), &data, &password);
        let mut arguments = vec![
            "-D".to_owned(),
            data.display().to_string(),
            format!("-p{port}"),
            "-k".to_owned(),
            directory.path().display().to_string(),
        ];
        let small = [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "shared_buffers=1MB",
        ];
        for setting in small.iter().chain(settings) {
            arguments.extend(owned(&["-c", *setting]));
        }
        let is_ready = |it: &Self| it.log().contains("ready to accept connections");
        let program = programs.join("postgres");
        let (program, arguments) = as_nobody(program, arguments);
        let kind = PostgresSql { client };
        let place = (directory, port);
        let mut postgres = Self::begin(kind, program, arguments, place, is_ready);
        // Told to end otherwise it would wait for whoever is connected.
        postgres.ending = Signal::INT;
        Some(postgres)
    }

    /// Runs SQL in the database [`Postgres::DATABASE`]. Gives the rows: a line each, columns with `|` between them.
    ///
    /// # Panics
    /// When it fails; the message holds what the server said.
    pub fn sql(&self, sql: &str) -> String {
        let address = self.address();
        let output = Command::new(&self.kind.client)
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .arg(format!(
                "host=127.0.0.1 port={} user={} dbname={}",
                address.port(),
                Self::USER,
                Self::DATABASE
            ))
            .env("PGPASSWORD", Self::PASSWORD)
            .stdin(Stdio::null())
            .output()
            .expect("run the client of PostgreSQL");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{sql}` failed: {said}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }
}

/// The directory of its programs, the newest there is.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(PROGRAMS).ok()?;
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    versions.filter(|it| it.join("postgres").is_file()).max()
}

fn make(initdb: &Path, data: &Path, password: &Path) {
    let arguments = [
        format!("--pgdata={}", data.display()),
        format!("--pwfile={}", password.display()),
        format!("--username={}", Postgres::USER),
    ];
    let fixed = [
        "--no-sync",
        "--encoding=UTF8",
        "--locale=C",
        "--auth=scram-sha-256",
    ];
    let arguments = arguments.into_iter().chain(owned(&fixed)).collect();
    let (program, arguments) = as_nobody(initdb.to_owned(), arguments);
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.expect("run initdb");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "initdb made nothing: {said}");
}

fn give(directory: &Path) {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = UNPRIVILEGED;
        chown(directory, Some(uid), Some(gid)).expect("give a directory away");
    }
}

/// A program and its arguments, so that it runs without root's rights.
fn as_nobody(program: PathBuf, arguments: Vec<String>) -> (PathBuf, Vec<String>) {
    if !rustix::process::geteuid().is_root() {
        return (program, arguments);
    }
    let (uid, gid) = UNPRIVILEGED;
    let mut all = vec![
        format!("--reuid={uid}"),
        format!("--regid={gid}"),
        "--clear-groups".to_owned(),
    ];
    all.push(program.display().to_string());
    all.extend(arguments);
    ("/usr/bin/setpriv".into(), all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_keeps_its_rows_over_a_restart() {
        let Some(mut postgres) = Postgres::start(&["max_connections=12"]) else {
            return;
        };
        postgres.sql("create table routes (domain text, address text)");
        postgres.sql("insert into routes values ('a.example', '127.0.0.1:80')");
        postgres.stop();
        postgres.restart();
        assert_eq!(
            postgres.sql("select * from routes"),
            "a.example|127.0.0.1:80"
        );
    }
}
