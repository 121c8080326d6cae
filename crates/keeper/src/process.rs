//! The life of the keeper: what it gives up, and what it does for the supervisor.
//!
//! The idea: everything it could do harm by is gone before its first message; then one loop
//! answers the supervisor, in order, and threads answer the server. It ends with the supervisor's
//! link.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use config::reason;
use ipc::certificates::KeyKind;
use ipc::keeper::{Candidate, FromKeeper, Judged, Local, ShownTo, TO_KEEPER_FDS_MAX, ToKeeper};
use ipc::message::Message;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;

use crate::judge::{Pair, judge};
use crate::keys::{CAPS, Keys};
use crate::links::Secrets;
use crate::making::{self, Authority, Made};
use crate::sandbox;

/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);
/// Descriptors: the links of two servers, and a few.
const DESCRIPTORS_MAX: u64 = 2 * TO_KEEPER_FDS_MAX as u64 + 64;
/// Threads that files are judged on.
const JUDGES_MAX: usize = 8;

/// Keeps keys until the supervisor has gone: the life of the process.
#[must_use]
pub fn run(user: &str) -> ExitCode {
    os::confine::allow_locked_memory();
    let dropped = os::confine::bar_capabilities()
        .and_then(|()| os::process::drop_privileges(user))
        .and_then(|()| os::confine::forget_capabilities());
    error_log::start("keeper");
    let served = match dropped {
        Ok(()) => begin().and_then(|(link, judges)| serve(&link, judges)),
        Err(error) => Err(error),
    };
    if let Err(error) = &served {
        tracing::error!(error = reason(error), user, "the keeper cannot go on");
    }
    error_log::flush(FLUSH);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Shuts this process in, and tells its link, and how many threads may judge.
fn begin() -> io::Result<(OwnedFd, usize)> {
    os::process::set_name("nagaya-keeper");
    let link = os::process::take_stdin()?;
    os::confine::close_all_but(&link)?;
    os::process::die_with_parent(&link)?;
    os::confine::bound_descriptors(DESCRIPTORS_MAX)?;
    if !os::confine::hide_memory()? {
        tracing::info!(
            "keys may be swapped out: this process may not lock its memory (LimitMEMLOCK)"
        );
    }
    let judges = std::thread::available_parallelism().map_or(1, usize::from);
    sandbox::filter()?.enter()?;
    Ok((link, judges.min(JUDGES_MAX)))
}

/// Answers the supervisor until its end of the link is closed.
fn serve(link: &OwnedFd, judges: usize) -> io::Result<()> {
    let mut keeper = Keeper {
        secrets: Arc::new(Secrets::new(Keys::new(CAPS))),
        authority: None,
        judges,
    };
    loop {
        let message = match ToKeeper::recv(link.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            message => message?,
        };
        if let Some(answer) = keeper.hear(message) {
            answer.send(link.as_fd())?;
        }
    }
}

/// What the loop has.
struct Keeper {
    secrets: Arc<Secrets>,
    /// The authority for development, in use already.
    authority: Option<Authority>,
    judges: usize,
}

impl Keeper {
    /// Does what a message says; tells the answer to those that have one.
    fn hear(&mut self, message: ToKeeper) -> Option<FromKeeper> {
        match message {
            ToKeeper::Settings(settings) => self.secrets.tickets.set(settings),
            ToKeeper::Keep { keys } => {
                self.secrets.keys.keep(&keys);
                os::process::release_memory();
                tracing::debug!(keys = self.secrets.keys.count(), "keys kept");
            }
            ToKeeper::Links { links } => self.secrets.answer_at(links),
            ToKeeper::Judge { candidates } => {
                let verdicts = self.judge(&candidates);
                return Some(FromKeeper::Judged { verdicts });
            }
            ToKeeper::JudgeScripted { candidate } => {
                let keys = &self.secrets.keys;
                let verdict = judge(&candidate).and_then(|pair| {
                    let id = keys.add_scripted(&candidate.chain_file, &pair.key)?;
                    Ok(pair.judged(id))
                });
                return Some(FromKeeper::Judged {
                    verdicts: vec![verdict],
                });
            }
            ToKeeper::Request { kind, names } => {
                let result = making::request(kind, &names);
                return Some(FromKeeper::Requested { result });
            }
            ToKeeper::Challenge { name, digest } => {
                let result = making::challenge(&name, &digest);
                let result = result.and_then(|made| self.take(&name, vec![name.clone()], made));
                return Some(FromKeeper::Challenge { result });
            }
            ToKeeper::Local { authority, names } => {
                let result = self.local(&authority.0, names);
                return Some(FromKeeper::Local { result });
            }
        }
        None
    }

    /// Judges files, on as many threads as there are processors for.
    fn judge(&self, candidates: &[Candidate]) -> Vec<Result<Judged, String>> {
        let share = candidates.len().div_ceil(self.judges).max(1);
        std::thread::scope(|scope| {
            let shares = candidates.chunks(share);
            let judges = shares.map(|share| {
                scope.spawn(|| {
                    let verdicts = share
                        .iter()
                        .map(|candidate| judge(candidate).map(|pair| self.keep(candidate, pair)));
                    verdicts.collect::<Vec<_>>()
                })
            });
            let judges: Vec<_> = judges.collect();
            let shares = candidates.chunks(share);
            let verdicts = judges.into_iter().zip(shares).map(|(judge, share)| {
                let broke_off = || vec![Err("it cannot be judged".to_owned()); share.len()];
                judge.join().unwrap_or_else(|_| broke_off())
            });
            verdicts.flatten().collect()
        })
    }

    /// Keeps the key of a pair.
    fn keep(&self, candidate: &Candidate, pair: Pair) -> Judged {
        let (name, shown_to) = (&candidate.chain_file, candidate.shown_to);
        let id = self.secrets.keys.add(name, &pair.key, shown_to);
        pair.judged(id)
    }

    /// Makes a certificate for development.
    fn local(&mut self, pem: &[u8], names: Vec<String>) -> Result<Local, String> {
        let mut told = None;
        let kept = match (&self.authority, pem) {
            (Some(_), _) | (None, []) => None,
            (None, pem) => Authority::of_pem(pem)?,
        };
        let authority = match (&self.authority, kept) {
            (Some(authority), _) => authority,
            (None, Some(kept)) => self.authority.insert(kept),
            (None, None) => {
                let (authority, pem) = Authority::make()?;
                told = Some(pem);
                self.authority.insert(authority)
            }
        };
        let made = authority.certify(&names)?;
        let name = names.first().cloned().unwrap_or_default();
        Ok(Local {
            certificate: self.take(&name, names, made)?,
            authority: told,
        })
    }

    /// Keeps a key that was made here.
    fn take(&self, name: &str, names: Vec<String>, made: Made) -> Result<Judged, String> {
        any_supported_type(&made.key).map_err(|error| error.to_string())?;
        Ok(Judged {
            names,
            not_before_s: made.not_before_s,
            not_after_s: made.not_after_s,
            kind: KeyKind::P256,
            key: self.secrets.keys.add(name, &made.key, ShownTo::Clients),
            chain: made.chain,
        })
    }
}
