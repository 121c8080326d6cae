//! The gateway as a process: started from a configuration text, asked, signalled, ended.
//!
//! The idea: what is tested is the binary that ships, from outside. A test that ends leaves no
//! process behind, and a panic inside the gateway fails the test that caused it, as does an error
//! it did not put into words.

use std::ffi::OsString;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Body, Outcome, RawClient, Reply, reply};
use crate::processes;
use crate::temp::TempDir;
use crate::wait::{PATIENCE, eventually, free_port};

/// How long one that starts may leave a connection unanswered before another is tried.
const SILENCE: Duration = Duration::from_secs(10);

/// What a configuration is given that says nothing of it: a table's header, a key, and its value.
const GIVEN: [(&str, &str, &str); 2] = [
    ("[[listen]]", "address", "\"127.0.0.1:{port}\""),
    ("[log]", "access", "\"\""),
];

/// Prepares a [`Gateway`].
#[derive(Debug)]
pub struct Builder {
    binary: PathBuf,
    config: String,
    values: Vec<(String, String)>,
    environment: Vec<(String, OsString)>,
    directory: TempDir,
    port: u16,
}

/// A running gateway; killed with its children when dropped.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    builder: Builder,
}

impl Builder {
    /// Fills `{name}` in the configuration with `value`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.values.push((format!("{{{name}}}"), value.to_string()));
        self
    }

    /// Sets a variable of the gateway's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Starts the gateway by another program, which is given its arguments and becomes it.
    #[must_use]
    pub fn through(mut self, program: impl Into<PathBuf>) -> Self {
        self.binary = program.into();
        self
    }

    /// The directory `{dir}` stands for, to put files into before the start.
    #[must_use]
    pub fn directory(&self) -> &TempDir {
        &self.directory
    }

    /// Starts `nagaya serve -c FILE` and waits until it answers.
    ///
    /// # Panics
    /// When it ends or stays silent instead; the message holds its stderr.
    #[must_use]
    pub fn start(self) -> Gateway {
        let mut gateway = self.launch();
        gateway.wait_until_it_answers();
        gateway
    }

    /// Starts `nagaya serve -c FILE`, which may never come to answering.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn launch(self) -> Gateway {
        let file = self.write(&self.config);
        let child = Command::new(&self.binary)
            .arg("serve")
            .arg("-c")
            .arg(file)
            .current_dir(self.directory.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(self.create("stdout"))
            .stderr(self.create("stderr"))
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", self.binary.display()));
        Gateway {
            child,
            builder: self,
        }
    }

    /// Runs `nagaya ARGUMENTS` on the configuration to its end; status, stdout and stderr.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> (ExitStatus, String, String) {
        self.write(&self.config);
        self.run_beside(arguments)
    }

    fn run_beside(&self, arguments: &[&str]) -> (ExitStatus, String, String) {
        let output = Command::new(&self.binary)
            .args(arguments)
            .arg("-c")
            .arg(self.directory.path().join("nagaya.toml"))
            .stdin(Stdio::null())
            .output()
            .expect("run the gateway's binary");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status, text(&output.stdout), text(&output.stderr))
    }

    fn write(&self, config: &str) -> PathBuf {
        let mut text = config.to_owned();
        for (name, value) in &self.values {
            text = text.replace(name, value);
        }
        for given in GIVEN {
            give(&mut text, given);
        }
        text = text
            .replace("{port}", &self.port.to_string())
            .replace("{dir}", &self.directory.path().display().to_string());
        self.directory.write("nagaya.toml", text)
    }

    fn create(&self, name: &str) -> File {
        File::create(self.directory.path().join(name)).expect("create a log file")
    }
}

impl Gateway {
    /// Begins with the binary (`env!("CARGO_BIN_EXE_nagaya")`) and a configuration, in which
    /// `{port}` and `{dir}` are filled in: a free port and a fresh directory. One that names no
    /// listener listens at that port, and one that says nothing of logs has no access log.
    #[must_use]
    pub fn with_config(binary: impl AsRef<Path>, config: &str) -> Builder {
        Builder {
            binary: binary.as_ref().to_owned(),
            config: config.to_owned(),
            values: Vec::new(),
            environment: Vec::new(),
            directory: TempDir::new(),
            port: free_port(),
        }
    }

    /// The address `{port}` is on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.builder.port))
    }

    /// A fresh connection.
    #[must_use]
    pub fn client(&self) -> RawClient {
        RawClient::connect(self.address())
    }

    /// Sends one request on a connection of its own and reads the reply.
    #[must_use]
    pub fn ask(&self, request: &[u8]) -> Outcome {
        self.client().ask(request)
    }

    /// The reply to a plain request, which must come.
    ///
    /// # Panics
    /// When there was none.
    #[track_caller]
    pub fn get(&self, host: &str, path: &str) -> Reply {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        reply(
            self.client()
                .with_deadline(PATIENCE)
                .ask(request.as_bytes()),
        )
    }

    /// Runs `nagaya WORDS -c FILE` beside it, to its end; status, stdout and stderr.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let (status, out, err) = self.builder.run_beside(words);
        (status.code(), out, err)
    }

    /// As [`Gateway::command`] of one that has to succeed; its stdout.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn told(&self, words: &[&str]) -> String {
        let (status, out, err) = self.command(words);
        assert_eq!(status, Some(0), "{words:?}: {out}{err}");
        out
    }

    /// The directory `{dir}` stands for.
    #[must_use]
    pub fn directory(&self) -> &TempDir {
        &self.builder.directory
    }

    /// What it has written to stderr, in whole lines.
    #[must_use]
    pub fn stderr(&self) -> String {
        whole_lines(self.read("stderr"))
    }

    /// What it has written to stdout, in whole lines: the access log, where the configuration says
    /// `"-"`.
    #[must_use]
    pub fn stdout(&self) -> String {
        whole_lines(self.read("stdout"))
    }

    /// Process id of the supervisor.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Process ids of the supervisor's children.
    #[must_use]
    pub fn children(&self) -> Vec<u32> {
        processes::children(self.pid())
    }

    /// Process id of the server: the child that has sockets listening.
    ///
    /// # Panics
    /// When there is none for a while.
    #[must_use]
    pub fn server_pid(&self) -> u32 {
        self.child_called("server")
    }

    /// Process id of the spawner: the child that starts programs.
    ///
    /// # Panics
    /// When there is none for a while.
    #[must_use]
    pub fn spawner_pid(&self) -> u32 {
        self.child_called("spawner")
    }

    /// Process id of the keeper: the child that has private keys.
    ///
    /// # Panics
    /// When there is none for a while.
    #[must_use]
    pub fn keeper_pid(&self) -> u32 {
        self.child_called("keeper")
    }

    /// Process id of the child that is one of these: `server`, `spawner`, `keeper`, `acme`.
    ///
    /// # Panics
    /// When there is none for a while.
    #[must_use]
    pub fn child_called(&self, name: &str) -> u32 {
        eventually(PATIENCE, &format!("a {name} process"), || {
            let children = self.children();
            let named = |id: &&u32| {
                let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                line.split(|&byte| byte == 0).nth(1) == Some(name.as_bytes())
            };
            children.iter().find(named).copied()
        })
    }

    /// Most memory the server has had resident so far, in bytes.
    ///
    /// # Panics
    /// When the server is gone.
    #[must_use]
    pub fn server_peak_bytes(&self) -> u64 {
        processes::memory_kib(self.server_pid(), "VmHWM") * 1024
    }

    /// Sends a signal to the supervisor.
    ///
    /// # Panics
    /// When the supervisor is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal the supervisor");
    }

    /// Writes another configuration in place, placeholders filled in, and sends HUP. Whether it
    /// was taken is for the test to see.
    pub fn reload(&mut self, config: &str) {
        self.place(config);
        self.signal(Signal::HUP);
    }

    /// Writes another configuration in place, placeholders filled in, without a word to anybody.
    pub fn place(&self, config: &str) {
        self.builder.write(config);
    }

    /// Waits until stderr says `text`.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub fn wait_for_message(&self, text: &str) {
        eventually(PATIENCE, &format!("`{text}` on stderr"), || {
            self.stderr().contains(text).then_some(())
        });
    }

    /// Sends TERM and waits for the end.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub fn wait(&mut self) -> ExitStatus {
        eventually(PATIENCE, "the gateway to stop", || {
            self.child.try_wait().expect("wait for a child")
        })
    }

    fn read(&self, name: &str) -> String {
        let path = self.builder.directory.path().join(name);
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait_until_it_answers(&mut self) {
        let question = b"OPTIONS * HTTP/1.1\r\nHost: testkit.invalid\r\nConnection: close\r\n\r\n";
        let address = self.address();
        eventually(PATIENCE, "the gateway to answer", || {
            if let Some(status) = self.child.try_wait().expect("wait for a child") {
                panic!("the gateway ended with {status}: {}", self.read("stderr"));
            }
            // A refused connection must cost nothing; a silent one is given a while.
            TcpStream::connect(address).ok()?;
            let client = RawClient::try_connect(address).ok()?;
            let mut client = client.with_deadline(SILENCE);
            client.send(question);
            matches!(client.read_reply(Body::Framed), Outcome::Reply(_)).then_some(())
        });
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let children = self.children();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for id in children {
            let id = i32::try_from(id).ok().and_then(Pid::from_raw);
            if let Some(id) = id {
                let _ = kill_process(id, Signal::KILL);
            }
        }
        let stderr = self.read("stderr");
        if std::thread::panicking() {
            eprintln!("gateway's stderr:\n{stderr}");
        } else {
            assert!(
                !stderr.contains("panicked at"),
                "the gateway panicked: {stderr}"
            );
            assert!(
                !stderr.contains("(os error "),
                "the gateway speaks to machines: {stderr}"
            );
        }
    }
}

/// Adds a key to the first table with this header, which is added where there is none.
fn give(text: &mut String, (header, key, value): (&str, &str, &str)) {
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        from += line.len();
        if line.trim() == header {
            let lines = text[from..].lines().map(str::trim_start);
            let mut table = lines.take_while(|line| !line.starts_with('['));
            if !table.any(|line| line.starts_with(key)) {
                text.insert_str(from, &format!("{key} = {value}\n"));
            }
            return;
        }
    }
    *text += &format!("\n{header}\n{key} = {value}\n");
}

/// Leaves out a last line that may have been read while it was being written.
fn whole_lines(mut text: String) -> String {
    text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
    text
}
