//! What became of a program, as the exchange's failure: the table of reasons.
//!
//! A limit the program ran into is said with its value and its group, for the log; the client
//! learns only which kind it was.

use crate::error::{Error, Kind};
use crate::programs::ProgramOutcome;
use crate::programs::link::lost;
use ipc::order::{End, Ended, Failure, LimitHit};

/// Why there is no reply, or not all of one. `flaw` is what was wrong with what the program said.
pub(super) fn failure(outcome: &ProgramOutcome, flaw: Error) -> Error {
    match outcome {
        ProgramOutcome::Lost => lost(),
        ProgramOutcome::Failed(failure, detail) => not_started(*failure, detail),
        ProgramOutcome::Ended(ended) => ended_early(ended, flaw),
    }
}

/// Whether a reply whose length nobody said may have been cut short by the program's end.
pub(super) fn is_violent(outcome: &ProgramOutcome) -> bool {
    !matches!(outcome, ProgramOutcome::Ended(ended) if matches!(ended.end, End::Exit(_)))
}

fn not_started(failure: Failure, detail: &str) -> Error {
    let kind = match failure {
        Failure::ProgramsFull | Failure::NoMemory => Kind::Full,
        Failure::PidsLimit => Kind::Limited,
        Failure::FilesSilent => Kind::UpstreamSlow,
        Failure::TenantSuspended => Kind::Refused(503),
        _ => Kind::Internal,
    };
    Error::new(kind, failure.word(), detail)
}

fn ended_early(ended: &Ended, flaw: Error) -> Error {
    if let Some(limit) = &ended.limit {
        return limited(limit);
    }
    match ended.end {
        End::Signal(signal) => {
            let detail = format!("{}: the program was ended by signal {signal}", flaw.reason);
            Error::new(Kind::UpstreamBroken, "program_killed", detail)
        }
        End::Exit(status) => {
            let detail = format!("{}, and it exited with status {status}", flaw.detail);
            Error::new(flaw.kind, flaw.reason, detail)
        }
    }
}

/// The limit, with its value, as an error.
pub(super) fn limited(limit: &LimitHit) -> Error {
    let (reason, detail) = match limit {
        LimitHit::Memory { group, bytes } => (
            "memory_limit",
            format!("group {group} may have {} of memory", config::size(*bytes)),
        ),
        LimitHit::Pids { group, pids } => (
            "pids_limit",
            match pids {
                1 => format!("group {group} may have 1 process"),
                _ => format!("group {group} may have {pids} processes"),
            },
        ),
        LimitHit::CpuTime { seconds } => (
            "cpu_time_limit",
            format!("the program may use {seconds} s of processor time"),
        ),
        LimitHit::FileSize { bytes } => (
            "file_size_limit",
            format!("the program may write files of {}", config::size(*bytes)),
        ),
    };
    Error::new(Kind::Limited, reason, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_reply::status_of;

    fn ended(end: End, limit: Option<LimitHit>) -> ProgramOutcome {
        ProgramOutcome::Ended(Ended {
            id: 0,
            end,
            cpu_us: 0,
            peak_rss_bytes: 0,
            limit,
        })
    }

    #[test]
    fn every_end_has_its_status_and_reason() {
        let group = || "t/s/r".to_owned();
        let (killed, failed) = (End::Signal(9), End::Exit(1));
        let refused = |failure| ProgramOutcome::Failed(failure, "why".into());
        for (outcome, status, reason) in [
            (ProgramOutcome::Lost, 502, "spawner_lost"),
            (refused(Failure::OwnerMismatch), 500, "owner_mismatch"),
            (refused(Failure::UserIsRoot), 500, "user_is_root"),
            (refused(Failure::NotAProgram), 500, "not_a_program"),
            (refused(Failure::ProgramsFull), 503, "programs_full"),
            (refused(Failure::PidsLimit), 503, "pids_limit"),
            (refused(Failure::FilesSilent), 504, "files_silent"),
            (refused(Failure::TenantSuspended), 503, "tenant_suspended"),
            (ended(End::Exit(0), None), 502, "program_no_head"),
            (ended(failed, None), 502, "program_no_head"),
            (ended(killed, None), 502, "program_killed"),
            (
                ended(
                    killed,
                    Some(LimitHit::Memory {
                        group: group(),
                        bytes: 1,
                    }),
                ),
                503,
                "memory_limit",
            ),
            (
                ended(
                    failed,
                    Some(LimitHit::Pids {
                        group: group(),
                        pids: 1,
                    }),
                ),
                503,
                "pids_limit",
            ),
            (
                ended(killed, Some(LimitHit::CpuTime { seconds: 1 })),
                503,
                "cpu_time_limit",
            ),
            (
                ended(killed, Some(LimitHit::FileSize { bytes: 1 })),
                503,
                "file_size_limit",
            ),
        ] {
            let flaw = Error::new(Kind::UpstreamBroken, "program_no_head", "no_reply");
            let error = failure(&outcome, flaw);
            assert_eq!(
                (status_of(error.kind), error.reason),
                (Some(status), reason)
            );
        }
    }
}
