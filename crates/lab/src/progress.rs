//! One line that says what is being done, how far it is and how long it will take.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The line. On anything but a terminal only rows are said, each on a line of its own.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
    row: String,
    /// Slices done of the row, and their time.
    done: u32,
    began: Instant,
    /// Slices of the row still to come, and the time all later rows will take.
    slices_left: u32,
    later: Duration,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            is_terminal: std::io::stderr().is_terminal(),
            row: String::new(),
            done: 0,
            began: Instant::now(),
            slices_left: 0,
            later: Duration::ZERO,
        }
    }

    /// A row begins.
    pub(crate) fn row(&mut self, name: &str, slices: u32, later: Duration) {
        self.row = name.to_owned();
        self.done = 0;
        self.began = Instant::now();
        self.slices_left = slices;
        self.later = later;
        if self.is_terminal {
            self.show("starting");
        } else {
            eprintln!("lab: {name}");
        }
    }

    /// Something of the row is being done.
    pub(crate) fn doing(&self, what: &str) {
        if self.is_terminal {
            self.show(what);
        }
    }

    /// A slice of the row is done.
    pub(crate) fn slice_done(&mut self) {
        self.done += 1;
        self.slices_left = self.slices_left.saturating_sub(1);
    }

    /// Says a sentence that stays.
    pub(crate) fn say(&self, text: &str) {
        self.clear();
        eprintln!("lab: {text}");
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn show(&self, what: &str) {
        let left = match self.left() {
            Some(left) => format!(" · {} left", span(left)),
            None => String::new(),
        };
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "\r\x1b[K{} · {what}{left}", self.row);
        let _ = stderr.flush();
    }

    fn left(&self) -> Option<Duration> {
        let each = self.began.elapsed().checked_div(self.done)?;
        Some(each * self.slices_left + self.later)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=89 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
