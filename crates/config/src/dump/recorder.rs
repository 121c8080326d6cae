//! `[recorder]`.

use super::Lines;
use super::write::{braces, list, quote, quote_path};
use crate::lower::names::Named;
use crate::model::Recorder;

impl Lines {
    pub(super) fn recorder(&mut self, recorder: &Recorder) {
        self.section("[recorder]");
        self.key("directory", quote_path(&recorder.directory));
        self.key("salt", quote(recorder.salt.name()));
        self.key("exclude", list(&recorder.exclude, quote));
        if let Some(cookie) = &recorder.exclude_cookie {
            self.key("exclude_cookie", quote(cookie));
        }
        self.key("do_not_track", recorder.do_not_track);
        self.key("search", list(&recorder.searches, quote));
        let groups = recorder.groups.iter();
        let groups = groups.map(|(text, name)| format!("{} = {}", quote(text), quote(name)));
        self.key("groups", braces(groups));
        if let Some(file) = &recorder.countries {
            self.key("countries", quote_path(file));
        }
        if let Some(user) = &recorder.user {
            self.key("user", quote(user));
        }
        self.key("nice", recorder.nice);
        if let Some(server) = &recorder.send {
            self.key("send", quote(server.url("postgres")));
        }
    }
}
