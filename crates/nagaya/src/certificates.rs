//! The certificates of a configuration, judged as the keeper would, by whoever types `check`.

use std::io::ErrorKind;

use config::model::Model;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use supervisor::certificates::plan::{Harm, Plan, Planned};
use supervisor::certificates::validity_warning;

/// Threads that judge.
const THREADS_MAX: usize = 8;

/// What is to be said of certificates, a line each.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What keeps the gateway from starting, or a site from answering.
    pub(crate) problems: Vec<String>,
    /// What does not.
    pub(crate) warnings: Vec<String>,
}

/// Reads and judges all of them, as of a day in this machine's time zone, or as of now.
pub(crate) fn judge(model: &Model, at: Option<Date>) -> Report {
    let Some(plan) = Plan::of(model) else {
        return Report::default();
    };
    let day = at.and_then(|day| day.to_zoned(TimeZone::system()).ok());
    let at_s = day
        .map_or_else(Timestamp::now, |day| day.timestamp())
        .as_second();
    let (files, problems) = plan.files();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = files.len().div_ceil(threads.min(THREADS_MAX)).max(1);
    let mut report = Report {
        problems,
        warnings: plan.missing(),
    };
    let reports = std::thread::scope(|scope| {
        let judges: Vec<_> = files
            .chunks(share)
            .map(|files| scope.spawn(move || Report::of(files, at_s)))
            .collect();
        let judged = judges.into_iter().map(|judge| judge.join());
        judged.flatten().collect::<Vec<_>>()
    });
    for part in reports {
        report.problems.extend(part.problems);
        report.warnings.extend(part.warnings);
    }
    report
}

impl Report {
    fn of(files: &[Planned], at_s: i64) -> Report {
        let mut report = Report::default();
        for planned in files {
            report.add(planned, at_s);
        }
        report
    }

    fn add(&mut self, planned: &Planned, at_s: i64) {
        let candidate = match planned.read() {
            Ok(candidate) => candidate,
            // The service may read what the user of this command may not.
            Err(why) if why.kind == ErrorKind::PermissionDenied => {
                let unread = format!("{}: it is not judged here; ask as root", why.problem);
                return self.warnings.push(unread);
            }
            Err(why) if why.kind == ErrorKind::NotFound && planned.harm == Harm::Nobody => return,
            Err(why) => return self.problems.push(why.problem),
        };
        match keeper::judge(&candidate) {
            Ok(pair) => {
                let valid_s = pair.not_before_s..=pair.not_after_s;
                self.warnings
                    .extend(validity_warning(&planned.source, valid_s, at_s));
                self.warnings.extend(planned.exposed());
            }
            Err(problem) => self.problems.push(problem),
        }
    }
}
