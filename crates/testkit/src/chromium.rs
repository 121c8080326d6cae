//! Opens a page in headless Chromium and brings back what a probe inside it says.
//!
//! The idea: a browser on a busy machine may hang at its start, so each try has a deadline, there are
//! three, and whatever a try started is gone after it. What a page asks for beside what is tested a
//! [`PageServer`] answers, and ends however the test does.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::temp::TempDir;
use crate::wait::eventually;

const TRIES: u32 = 3;
const TRY_MAX: Duration = Duration::from_secs(90);
const GONE_MAX: Duration = Duration::from_secs(30);
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// What stands before each answer of the probe.
const ANSWER: &str = "<pre class=\"probe\">";
const PROBE: &str = include_str!("probe.js");

/// What the reader prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// The browser, where there is one.
#[must_use]
pub fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).flat_map(|place| NAMES.map(|name| place.join(name)));
    places.into_iter().find(|file| file.is_file())
}

/// What the probe says of each page in windows of these widths, one after the other.
///
/// # Panics
/// When the browser did not show them in three tries, or complained.
#[must_use]
pub fn probed(browser: &Path, pages: &[&str], widths: &[u32], colours: Colours) -> Vec<Value> {
    let directory = TempDir::new();
    let frames = pages
        .iter()
        .flat_map(|page| widths.iter().map(move |width| (*page, *width)));
    let frames: Vec<(&str, u32)> = frames.collect();
    let file = directory.write("page.html", framed(&frames));
    visited(
        browser,
        &format!("file://{}", file.display()),
        frames.len(),
        colours,
    )
}

/// What the probes of a page say, so many of them.
///
/// # Panics
/// When the browser did not show it in three tries, or complained.
#[must_use]
pub fn visited(browser: &Path, url: &str, probes: usize, colours: Colours) -> Vec<Value> {
    let directory = TempDir::new();
    let mut said = String::new();
    for turn in 0..TRIES {
        let place = directory.path().join(format!("try-{turn}"));
        fs::create_dir(&place).expect("a directory of our own");
        match dumped(browser, url, &place, colours) {
            Ok(dom) => return answers(&dom, probes),
            Err(why) => said = format!("{said}\ntry {turn}: {why}"),
        }
    }
    panic!("{} did not show the page: {said}", browser.display());
}

/// A page with a frame for each page and width: a window itself cannot be as narrow as a telephone.
fn framed(frames: &[(&str, u32)]) -> String {
    let frames = frames.iter().enumerate().map(|(number, (page, width))| {
        let copy = probing(page).replace('&', "&amp;").replace('"', "&quot;");
        format!("<iframe name=\"{number}\" width=\"{width}\" height=\"900\" style=\"border:0\" srcdoc=\"{copy}\"></iframe>\n")
    });
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\">\n\
         <body>{}</body>",
        frames.collect::<String>()
    )
}

/// A copy of a page with the probe in it.
fn probing(page: &str) -> String {
    // The page's policy lets nothing run; the copy lets the probe run, and still nothing load.
    let script = format!("<script>{PROBE}</script>\n<meta name=\"viewport\"");
    let allowed = "default-src 'none'; script-src 'unsafe-inline';";
    let copy = page.replacen("default-src 'none';", allowed, 1).replacen(
        "<meta name=\"viewport\"",
        &script,
        1,
    );
    assert!(
        copy.contains(allowed) && copy.contains(PROBE),
        "no place for the probe"
    );
    copy
}

/// The page's elements after it was loaded, as text.
fn dumped(browser: &Path, url: &str, place: &Path, colours: Colours) -> Result<String, String> {
    let (out, log) = (place.join("dom"), place.join("log"));
    let profile = place.join("profile");
    let scheme = match colours {
        Colours::Dark => 0,
        Colours::Light => 1,
    };
    let mut command = Command::new(browser);
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args([
            "--disable-sync",
            "--disable-quic",
            "--disable-breakpad",
            "--disable-crash-reporter",
        ])
        .args([
            "--disable-extensions",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--window-size=1400,1000")
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg("--dump-dom")
        .arg(url)
        .env("HOME", place)
        .stdin(Stdio::null())
        .stdout(File::create(&out).map_err(|error| error.to_string())?)
        .stderr(File::create(&log).map_err(|error| error.to_string())?)
        .process_group(0);
    let mut tree = Tree::start(command, profile)?;
    let status = tree.ended();
    drop(tree);
    let dom = fs::read_to_string(&out).unwrap_or_default();
    let log = fs::read_to_string(&log).unwrap_or_default();
    if dom.contains(ANSWER) {
        let spoken: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(":CONSOLE"))
            .collect();
        assert!(
            spoken.is_empty(),
            "the page made the browser complain: {spoken:#?}"
        );
        return Ok(dom);
    }
    let tail: Vec<&str> = log.lines().rev().take(5).collect();
    Err(format!("{status:?}, {} bytes, {tail:?}", dom.len()))
}

/// A browser and whatever it starts.
struct Tree {
    child: Child,
    profile: PathBuf,
}

impl Tree {
    fn start(mut command: Command, profile: PathBuf) -> Result<Tree, String> {
        let child = command.spawn().map_err(|error| error.to_string())?;
        Ok(Tree { child, profile })
    }

    /// How the browser ended; `None` when it did not in time.
    fn ended(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + TRY_MAX;
        eventually(TRY_MAX * 2, "the browser or its deadline", || {
            match self.child.try_wait().expect("our own child") {
                Some(status) => Some(Some(status)),
                None => (Instant::now() > deadline).then_some(None),
            }
        })
    }

    /// Processes that run on our profile.
    fn left(&self) -> Vec<i32> {
        let profile = format!("--user-data-dir={}", self.profile.display());
        let processes = fs::read_dir("/proc").expect("processes can be listed");
        processes
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&profile)
            })
            .collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Its helpers are in its group, whether it ended by itself or not.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        if !std::thread::panicking() {
            eventually(GONE_MAX, "the browser's processes to be gone", || {
                self.left().is_empty().then_some(())
            });
        }
    }
}

fn answers(dom: &str, count: usize) -> Vec<Value> {
    let texts = dom.split(ANSWER).skip(1);
    let mut answers: Vec<Value> = texts
        .map(|text| {
            let text = text.split_once("</pre>").expect("the answer's end").0;
            let text = text
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&nbsp;", "\u{a0}");
            serde_json::from_str(&text.replace("&amp;", "&")).expect("the probe answers in JSON")
        })
        .collect();
    assert_eq!(answers.len(), count, "a frame did not answer");
    answers.sort_by_key(|answer| {
        answer["frame"]
            .as_str()
            .and_then(|it| it.parse::<usize>().ok())
    });
    answers
}

/// Bytes of a request that are read.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// What is answered: lines of a head, each with its end, and a body.
pub type PageReply = (String, String);

/// Answers what a page asks for: `/held` not before `/seen` was asked for or half a try is over, so that the
/// browser is not done with the page until then. It ends when it is dropped.
#[derive(Debug)]
pub struct PageServer {
    address: SocketAddr,
    state: Arc<PageState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct PageState {
    is_seen: AtomicBool,
    is_over: AtomicBool,
}

impl PageServer {
    /// Answers other paths with what there is for them, or that there is nothing.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn start(answer: impl Fn(&str) -> Option<PageReply> + Send + Sync + 'static) -> PageServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has an address");
        let (state, answer) = (Arc::<PageState>::default(), Arc::new(answer));
        let known = Arc::clone(&state);
        let thread = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if known.is_over.load(Relaxed) {
                    return;
                }
                let (known, answer) = (Arc::clone(&known), Arc::clone(&answer));
                // A browser that goes away in between asks for nothing more.
                thread::spawn(move || drop(known.answer(stream, &*answer)));
            }
        });
        PageServer {
            address,
            state,
            thread: Some(thread),
        }
    }

    /// Where it answers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.state.is_over.store(true, Relaxed);
        // So that it looks; where nobody listens any more it has ended already.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl PageState {
    fn answer(
        &self,
        mut stream: TcpStream,
        answer: &dyn Fn(&str) -> Option<PageReply>,
    ) -> io::Result<()> {
        stream.set_read_timeout(Some(TRY_MAX))?;
        let mut lines = BufReader::new(stream.try_clone()?.take(REQUEST_BYTES_MAX)).lines();
        let line = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|it| !it.is_empty()) {}
        let target = line.split(' ').nth(1).unwrap_or_default();
        let reply = match target.split('?').next().unwrap_or_default() {
            "/held" => {
                self.hold();
                None
            }
            "/seen" => {
                self.is_seen.store(true, Relaxed);
                None
            }
            path => answer(path),
        };
        let close = "Connection: close\r\n";
        let reply = match reply {
            Some((fields, body)) => {
                let length = body.len();
                format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {length}\r\n{fields}\r\n{body}")
            }
            None => format!("HTTP/1.1 204 No Content\r\n{close}\r\n"),
        };
        stream.write_all(reply.as_bytes())
    }

    /// Waits until the page has been seen as it is to be.
    fn hold(&self) {
        // So much sooner than the browser's end that what there is of the page is told.
        let deadline = Instant::now() + TRY_MAX / 2;
        eventually(TRY_MAX, "the page or its deadline", || {
            let is_over = self.is_seen.load(Relaxed) || self.is_over.load(Relaxed);
            (is_over || Instant::now() > deadline).then_some(())
        });
    }
}
