//! MariaDB in a directory of its own, small, and careless about what a power cut would cost.
//!
//! Its tables of users are made by the server itself out of the SQL files it comes with, which is
//! what `mariadb-install-db` does too, but without the help texts and views that take most of
//! that program's time. Well under a second where a machine has nothing else to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Store, file_name, find, owned, user_for_root};
use crate::temp::TempDir;
use crate::wait::free_port;

/// Where its SQL files lie.
const SCRIPTS: [&str; 2] = ["/usr/share/mysql", "/usr/share/mariadb"];

/// Which of them make its tables of users, in this order.
const TABLES: [&str; 3] = [
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
];

/// Small files and buffers, and nothing waits for a disk.
const SMALL: [&str; 9] = [
    "--innodb-buffer-pool-size=8M",
    "--innodb-log-file-size=4M",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
    "--innodb-temp-data-file-path=ibtmp1:2M:autoextend",
    "--innodb-flush-method=nosync",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    // Rings are scarce where many servers run at once.
    "--innodb-use-native-aio=0",
    "--aria-log-file-size=8M",
];

/// What a MariaDB is beyond a store: the client that asks it.
#[derive(Debug)]
pub struct Sql {
    client: PathBuf,
}

/// A MariaDB server.
///
/// There is a database `test`, and a user [`MariaDb::USER`] with [`MariaDb::PASSWORD`] who may do
/// everything in every database from this machine. `root` has no password.
pub type MariaDb = Store<Sql>;

impl Store<Sql> {
    /// Who may do everything, by password.
    pub const USER: &str = "tester";
    /// The password of [`MariaDb::USER`].
    pub const PASSWORD: &str = "secret";
    /// A database that is there, empty.
    pub const DATABASE: &str = "test";

    /// Starts one; `settings` are further arguments of it (`["--max-connections=5"]`). `None`,
    /// and a line on stderr, when there is no MariaDB.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(settings: &[&str]) -> Option<Self> {
        let program = find(&["mariadbd", "mysqld"])?;
        let client = find(&["mariadb", "mysql"])?;
        let directory = TempDir::new();
        let port = free_port();
        let data = prepare(&program, directory.path());
        let mut arguments = in_directory(&data);
        arguments.push("--bind-address=127.0.0.1".to_owned());
        arguments.push(format!("--port={port}"));
        arguments.push(format!("--socket={}", socket(directory.path())));
        arguments.push("--skip-name-resolve".to_owned());
        arguments.extend(owned(settings));
        // Read from its log: a connection that says nothing would be counted as a failed one.
        let is_ready = |mariadb: &Self| mariadb.log().contains("ready for connections");
        let place = (directory, port);
        let mariadb = Self::begin(Sql { client }, program, arguments, place, is_ready);
        let (user, password) = (Self::USER, Self::PASSWORD);
        let grant =
            |host: &str| format!("grant all on *.* to {user}@'{host}' identified by '{password}';");
        let database = format!("create database {};", Self::DATABASE);
        mariadb.run(
            &(database + &grant("localhost") + &grant("127.0.0.1")),
            "mysql",
        );
        Some(mariadb)
    }

    /// The Unix socket where it listens as well.
    #[must_use]
    pub fn socket(&self) -> String {
        socket(self.directory.path())
    }

    /// Runs SQL as `root` in the database [`MariaDb::DATABASE`]. Gives the rows: a line each,
    /// columns with tabs between them, no line of names.
    ///
    /// # Panics
    /// When it fails; the message holds what the server said.
    pub fn sql(&self, sql: &str) -> String {
        self.run(sql, Self::DATABASE)
    }

    fn run(&self, sql: &str, database: &str) -> String {
        let output = Command::new(&self.kind.client)
            .args(["--no-defaults", "--batch", "--skip-column-names"])
            .args(["--user=root", "--password="])
            .arg(format!("--socket={}", self.socket()))
            .arg(format!("--database={database}"))
            .arg(format!("--execute={sql}"))
            .stdin(Stdio::null())
            .output()
            .expect("run the client of MariaDB");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{sql}` failed: {said}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }
}

/// Makes the tables of users in a fresh directory below the given one; gives its path.
fn prepare(program: &Path, directory: &Path) -> PathBuf {
    let data = directory.join("data");
    fs::create_dir(&data).expect("create a data directory");
    let mut sql = String::from(
        "create database if not exists mysql;\nuse mysql;\nset @auth_root_socket = NULL;\n",
    );
    for table in TABLES {
        sql.push_str(&script(table));
    }
    let tables = directory.join("tables.sql");
    fs::write(&tables, sql).expect("write SQL");
    let output = Command::new(program)
        .args(in_directory(&data))
        .args(["--bootstrap", "--skip-networking", "--log-warnings=0"])
        .stdin(fs::File::open(tables).expect("open what was written"))
        .output()
        .expect("run MariaDB");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} made no tables: {said}",
        file_name(program)
    );
    data
}

/// One of the SQL files MariaDB comes with.
fn script(name: &str) -> String {
    let found = SCRIPTS
        .iter()
        .find_map(|directory| fs::read_to_string(Path::new(directory).join(name)).ok());
    found.unwrap_or_else(|| {
        panic!(
            "MariaDB is there, but no {name} in {}",
            SCRIPTS.join(" or ")
        )
    })
}

/// The arguments every run of the server on this directory needs.
fn in_directory(data: &Path) -> Vec<String> {
    // Has to be the first.
    let mut arguments = owned(&["--no-defaults"]);
    if let Some(user) = user_for_root("root") {
        arguments.push(format!("--user={user}"));
    }
    arguments.push(format!("--datadir={}", data.display()));
    // A server that starts removes what it takes for its own left-overs, from a shared one as well.
    arguments.push(format!("--tmpdir={}", data.display()));
    arguments.extend(owned(&SMALL));
    arguments
}

fn socket(directory: &Path) -> String {
    directory.join("mariadb.sock").display().to_string()
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn mariadb_keeps_its_rows_over_a_restart_and_refuses_while_it_is_down() {
        let Some(mut mariadb) = MariaDb::start(&["--max-connections=12"]) else {
            return;
        };
        assert_eq!(mariadb.sql("select @@max_connections"), "12");
        mariadb.sql("create table routes (domain varchar(64), address varchar(64))");
        mariadb.sql("insert into routes values ('a.example', '127.0.0.1:80'), ('b.example', null)");
        assert_eq!(
            mariadb.sql("select * from routes order by domain"),
            "a.example\t127.0.0.1:80\nb.example\tNULL"
        );

        mariadb.stop();
        assert!(TcpStream::connect(mariadb.address()).is_err());
        mariadb.restart();
        assert_eq!(mariadb.sql("select count(*) from routes"), "2");
    }

    #[test]
    fn the_user_of_mariadb_comes_in_by_password_over_the_network() {
        let Some(mariadb) = MariaDb::start(&[]) else {
            return;
        };
        let select = |user: &str, password: &str| {
            Command::new(&mariadb.kind.client)
                .args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1"])
                .arg(format!("--port={}", mariadb.address().port()))
                .args([format!("--user={user}"), format!("--password={password}")])
                .args(["--batch", "--execute=select 1", MariaDb::DATABASE])
                .output()
                .expect("run the client of MariaDB")
                .status
                .success()
        };
        assert!(select(MariaDb::USER, MariaDb::PASSWORD));
        assert!(!select(MariaDb::USER, "wrong"));
        assert!(select("root", ""));
    }
}
