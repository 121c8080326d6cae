//! What is to be known of logs before figures made of them are believed.

use report::units;

use super::{History, REQUESTS_MAX, Refused};

/// Of so many requests one may leave its file untold.
const UNTOLD_SHARE_MAX: usize = 20;

/// The durations of one log that are whole numbers.
#[derive(Debug, Default)]
pub(super) struct WholeNumbers {
    count: u64,
    /// Those below ten, which as microseconds hardly any request can be over in.
    tiny: u64,
    longest: u64,
}

impl WholeNumbers {
    pub(super) fn add(&mut self, number: u64) {
        self.count += 1;
        self.tiny += u64::from(number < 10);
        self.longest = self.longest.max(number);
    }

    /// Why they are no microseconds.
    pub(super) fn doubt(&self) -> Option<String> {
        let Self {
            count,
            tiny,
            longest,
        } = self;
        let is_odd = *count > 0 && (*longest < 1_000 || tiny * 2 > *count);
        is_odd.then(|| {
            format!(
                "{tiny} of its {count} durations are below 10, the longest is {longest}: these can \
                 hardly be microseconds, and whole seconds (%T) are too coarse\n  \
                 log %D, as the only field behind the user agent"
            )
        })
    }
}

impl History {
    /// What is to be known before figures of these logs are believed.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some((line, why)) = self.first_unread {
            doubts.push(format!(
                "{} of {} lines were left out; the first, line {line}: {why}",
                self.unread, self.lines
            ));
        }
        if self.left_out > 0 {
            doubts.push(format!(
                "only the first {REQUESTS_MAX} requests were looked at"
            ));
        }
        if self.has_seconds {
            doubts.push(
                "the log tells whole seconds: requests of one second are spread over it, so short \
                 bursts look tamer than they were"
                    .to_owned(),
            );
        }
        let all = units::count(self.requests.len() as u64);
        let refused = |how| {
            let requests = self.requests.iter();
            requests.filter(|request| request.refused == how).count() as u64
        };
        let instead = "each counts with the median time of its file or path, else of all; a log \
                       written without limits, or with them in shadow, tells more";
        if let count @ 1.. = refused(Refused::ByLimit) {
            doubts.push(format!(
                "{} of {all} requests were refused by a limit and took no time: {instead}",
                units::count(count)
            ));
        }
        if let count @ 1.. = refused(Refused::Perhaps) {
            doubts.push(format!(
                "{} of {all} requests were answered 429 or 503, perhaps by a limit: {instead}",
                units::count(count)
            ));
        }
        doubts
    }

    /// Whether of nearly every request the file is known: enough to go by.
    pub(crate) fn tells_files(&self) -> bool {
        self.untold_files <= self.requests.len() / UNTOLD_SHARE_MAX
    }

    /// What is to be known of limits that count by file, where files are not told.
    pub(crate) fn doubt_of_files(&self) -> Option<String> {
        let whose = match self.untold_files {
            0 => return None,
            all if all == self.requests.len() => "this log does not tell files".to_owned(),
            some => format!("{some} requests do not tell their file"),
        };
        Some(format!(
            "{whose}: paths stand in for them, and a front controller, such as one index.php for all \
             paths, counts as many files"
        ))
    }
}
