//! What the configuration makes of a request, as indexes and answers: its site, its file, the rules that match.
//!
//! What these mean in the request's generation is said by its stage ([`crate::stage`]).

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use limits::LimitId;

use crate::access_log::targets::TargetIndex;
use crate::exchange::request::Request;
use crate::htaccess::applied::Applied;
use crate::htaccess::facts::Carried;
use crate::maps::answers::Answers;
use crate::resolve::resolved::Resolved;
use crate::site::Site;
use crate::template::{Captured, Values};
use crate::upstream::Destination;

/// Added to a site's index where a row has stamped a copy of that site for the request's host.
pub(crate) const OF_ROW: u32 = 1 << 31;

/// The way of one request through the configuration.
#[derive(Debug, Default)]
pub struct Route {
    /// Index of its site in the generation, with [`OF_ROW`] where it is a row's; `None` until the host was found.
    pub site_index: Option<u32>,
    /// That site, where a row makes it.
    pub(crate) row: OnceCell<Arc<Site>>,
    /// Where its access record goes; `None` is nowhere.
    pub log: Option<TargetIndex>,
    /// Number of the tree its path leads into ([`Tree`](crate::tree::Tree)); `None` where there is none, or none was
    /// looked for.
    pub tree: Option<u32>,
    /// The resolved file; `None` where none was looked for.
    pub file: Option<Rc<Resolved>>,
    /// Whether it does without scripts that are optional: there is too much to do.
    pub skips_optional: bool,
    /// Where it is looked for, if not at the request's path.
    lookup: Option<Box<[u8]>>,
    /// What its `.htaccess` files have said; `None` where there are none.
    pub(crate) htaccess: Option<Box<Applied>>,
    /// What goes with it to the page of a failure.
    pub(crate) carried: Option<Box<Carried>>,
    /// What files had said where it failed, while the page of that is looked for.
    pub(crate) failed: Option<Box<Applied>>,
    /// The status of the failure whose page is looked for; 0 where there was none.
    pub(crate) failed_status: u16,
    /// The upstream a script has named; `None` where the configuration says it, or nobody.
    pub upstream: Option<Destination>,
    /// Whose `deny`, `allow` or `auth` keeps the client out; `None` where it was let in.
    pub refused_by: Option<Refusing>,
    /// Whether the request's fields were edited before, and a script has sent it elsewhere since.
    pub was_edited: bool,
    /// What maps have answered to the request.
    pub answers: Answers,
    /// Indexes of the rules that matched, in order; the last one may have the handler.
    matched: Vec<usize>,
    /// How many of the first of these hold for where `.htaccess` files have led to, and did not match.
    kept: usize,
    /// Indexes of further rules of that place, whose limits count.
    counting: Vec<usize>,
    /// Rates that have counted it, where `.htaccess` files may answer: each does so once.
    pub(crate) counted: Vec<LimitId>,
    /// What rules have found in the path, by their indexes: of those whose texts have groups in them.
    captured: Vec<(usize, Captured)>,
    /// Indexes of the rules that have rewritten the path.
    rewritten_by: Vec<usize>,
    /// Whose `auth` was the innermost for each path that rules have rewritten: a rule's, or the site's.
    asked_by: Vec<Refusing>,
    /// How often rules have rewritten the path, wherever it was sent since.
    pub rewrites: u32,
}

/// How much was noted of rules, to be taken back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotedRules {
    matched: usize,
    kept: usize,
    counting: usize,
    captured: usize,
    asked_by: usize,
}

/// Who keeps a client out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusing {
    /// The site.
    Site,
    /// The rule of this index.
    Rule(usize),
}

/// What is known of a request's file.
#[derive(Debug)]
pub struct Lookup {
    file: Option<Rc<Resolved>>,
    /// Where it is looked for, if not at the request's path.
    pub at: Option<Box<[u8]>>,
}

impl Route {
    /// Forgets the last request.
    pub fn clear(&mut self) {
        self.site_index = None;
        self.row = OnceCell::new();
        self.log = None;
        self.was_edited = false;
        self.skips_optional = false;
        self.failed_status = 0;
        self.failed = None;
        self.carried = None;
        self.answers.clear();
        self.counted.clear();
        self.rewrites = 0;
        self.start_over();
    }

    /// Forgets what the request was resolved to: its path has changed.
    pub fn start_over(&mut self) {
        self.tree = None;
        self.file = None;
        self.lookup = None;
        self.htaccess = None;
        self.upstream = None;
        self.refused_by = None;
        self.matched.clear();
        self.kept = 0;
        self.counting.clear();
        self.captured.clear();
        self.rewritten_by.clear();
        self.asked_by.clear();
    }

    /// Forgets the file: the path has changed. What matched stays.
    pub fn forget_file(&mut self) {
        self.tree = None;
        self.file = None;
        self.lookup = None;
        let left = self.htaccess.take().map(|applied| applied.left());
        self.carried = left.map(Box::new).or(self.carried.take());
    }

    /// Has the file looked for at this canonical path instead of the request's.
    pub fn look_up(&mut self, path: Vec<u8>) {
        self.file = None;
        self.lookup = Some(path.into());
    }

    /// The canonical path at which the file is looked for.
    pub fn lookup_path<'a>(&'a self, request: &'a Request) -> &'a [u8] {
        self.lookup.as_deref().unwrap_or(request.head.path())
    }

    /// What is known of the file, and where it is looked for.
    pub fn lookup(&self) -> Lookup {
        Lookup {
            file: self.file.clone(),
            at: self.lookup.clone(),
        }
    }

    /// Takes back what was known of the file.
    pub fn look_up_again(&mut self, lookup: Lookup) {
        self.file = lookup.file;
        self.lookup = lookup.at;
    }

    /// Notes that a rule matched.
    pub fn add_rule(&mut self, index: usize) {
        self.matched.push(index);
    }

    /// Notes that a rule holds beside those that matched; which of these was the last it leaves as it
    /// is.
    pub(crate) fn keep(&mut self, index: usize) {
        if !self.matched.contains(&index) {
            self.matched.insert(0, index);
            self.kept += 1;
        }
    }

    /// Notes that the limits of a rule count beside those of the rules that matched.
    pub(crate) fn count_at(&mut self, index: usize) {
        self.counting.push(index);
    }

    /// Indexes of rules whose limits count beside those of the rules that matched.
    pub(crate) fn counting(&self) -> &[usize] {
        &self.counting
    }

    /// How much is noted of rules.
    pub(crate) fn noted(&self) -> NotedRules {
        NotedRules {
            matched: self.matched.len(),
            kept: self.kept,
            counting: self.counting.len(),
            captured: self.captured.len(),
            asked_by: self.asked_by.len(),
        }
    }

    /// Forgets what was noted of rules since.
    pub(crate) fn take_back(&mut self, noted: NotedRules) {
        let kept = self.kept.saturating_sub(noted.kept);
        self.matched.drain(..kept.min(self.matched.len()));
        self.matched.truncate(noted.matched);
        self.kept = noted.kept;
        self.counting.truncate(noted.counting);
        self.captured.truncate(noted.captured);
        self.asked_by.truncate(noted.asked_by);
    }

    /// Notes that a rule decides that may have matched before: the last one does.
    pub fn decide(&mut self, index: usize) {
        self.matched.retain(|matched| *matched != index);
        self.matched.push(index);
    }

    /// Notes what a rule has found in the path.
    pub(crate) fn capture(&mut self, index: usize, captured: Captured) {
        self.captured.push((index, captured));
    }

    /// What a rule has found in the path.
    pub(crate) fn captured(&self, index: usize) -> Option<&Captured> {
        let mut all = self.captured.iter();
        all.find(|(rule, _)| *rule == index)
            .map(|(_, captured)| captured)
    }

    /// What texts of the rule that decides are filled in from.
    pub(crate) fn values<'a>(&'a self, request: &'a Request) -> Values<'a> {
        let last = self.last_matched();
        Values {
            request,
            answers: &self.answers,
            captured: last.and_then(|last| self.captured(last)),
        }
    }

    /// Notes that a rule has rewritten the path.
    pub fn note_rewritten(&mut self, index: usize) {
        self.rewrites += 1;
        self.rewritten_by.push(index);
    }

    /// Whether a rule has rewritten the path.
    pub fn was_rewritten_by(&self, index: usize) -> bool {
        self.rewritten_by.contains(&index)
    }

    /// Notes who asks for credentials for one of the paths.
    pub fn note_asking(&mut self, by: Refusing) {
        self.asked_by.push(by);
    }

    /// Who asks for credentials, one for each path; nobody where no rule has rewritten it.
    pub fn asked_by(&self) -> &[Refusing] {
        &self.asked_by
    }

    /// The indexes of the rules that matched, in order.
    pub fn matched(&self) -> &[usize] {
        &self.matched
    }

    /// Index in the site of the rule that matched last: the one whose handler answers, if any.
    pub fn deciding_index(&self) -> Option<u32> {
        u32::try_from(self.last_matched()?).ok()
    }

    /// Index of the rule that matched last.
    pub(crate) fn last_matched(&self) -> Option<usize> {
        self.matched.get(self.kept..)?.last().copied()
    }
}
