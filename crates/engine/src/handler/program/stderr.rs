//! What the program of one exchange says on its standard error, as lines of the error log.
//!
//! Dropping it says what is left. How much a site may say is decided in [`crate::stderr_log`].

use std::rc::Rc;
use std::time::Instant;

use crate::exchange::Exchange;
use crate::exchange::request::RequestId;
use crate::resolve::resolved::Resolved;
use crate::site_log::{self, Audience};
use crate::stage::Routed;
use crate::stderr_log::{CUT, LINES_MAX, Lines};
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// Where one exchange's program says what is wrong.
#[derive(Debug)]
pub(in super::super) struct StderrLog {
    request_id: RequestId,
    worker: Rc<Worker>,
    serving: Rc<Serving>,
    site_index: u32,
    file: Option<Rc<Resolved>>,
    lines: Lines,
}

impl StderrLog {
    /// Begins for an exchange whose route is known.
    pub(in super::super) fn new(routed: Routed<'_>, exchange: &Exchange) -> Self {
        Self {
            request_id: exchange.request.id,
            worker: Rc::clone(routed.worker),
            serving: Rc::clone(routed.serving),
            site_index: routed.site_index,
            file: exchange.route.file.clone(),
            lines: Lines::default(),
        }
    }

    /// Logs what was said, as soon as a line is whole.
    pub(in super::super) fn push(&mut self, bytes: &[u8]) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.push(bytes, |line| self.say(line));
        self.lines = lines;
    }

    /// Whether this may be logged; what the site's share does not let through is counted as said.
    fn may_say(&self, text: &str) -> bool {
        let (now, name) = (Instant::now(), self.site().unwrap_or_default());
        let (shares, texts) = (&self.serving.stderr, &self.serving.stderr.complaints.sites);
        if !texts.is_due(name, text, now) {
            return false;
        }
        let may_say = shares.is_due(self.site_index, now);
        if !may_say {
            texts.is_due(name, text, now);
        }
        may_say
    }

    fn say(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        if !self.may_say(&text) {
            return;
        }
        self.tell(&|| {
            tracing::warn!(request_id = %self.request_id, site = self.site(), file = self.file(), text = &*text, "a program's standard error");
        });
    }

    fn tell(&self, say: &dyn Fn()) {
        let logs = &self.serving.generation.logs;
        let page = &self.worker.access_log;
        site_log::tell(logs, page, self.site(), Audience::Tenant, say);
    }

    fn site(&self) -> Option<&str> {
        let site = self.serving.site(self.site_index)?;
        Some(&site.name)
    }

    fn file(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        Some(String::from_utf8_lossy(file.name()).into_owned())
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        if let Some(line) = lines.last() {
            self.say(&line);
        }
        if lines.unsaid_bytes > 0 && self.may_say(CUT) {
            let (bytes, lines_max) = (lines.unsaid_bytes, LINES_MAX);
            self.tell(&|| {
                tracing::warn!(request_id = %self.request_id, site = self.site(), file = self.file(), bytes, lines_max, "a program's standard error was cut");
            });
        }
    }
}
