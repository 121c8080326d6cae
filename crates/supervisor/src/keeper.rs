//! The keeper as the supervisor keeps it: there where a listener speaks TLS, and started again.
//!
//! The idea: as with the spawner, what it is told is answered at once and the supervisor waits for
//! that. When it dies its keys die with it; after a rest the next one is handed every file again,
//! numbers the keys anew, and server and keeper are given links to each other. Open connections and
//! sessions that are resumed need none of it meanwhile.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use config::reason;
use ipc::certificates::{KeyId, KeyKind};
use ipc::keeper::{Candidate, FromKeeper, Judged, Local, Request, Settings, ToKeeper};
use ipc::message::Message;
use ipc::scripted::CertificateQuestion;
use ipc::server::ProcessLife;

use crate::child::{self, Child, KeptProcess, user_beside, wait_for};
use crate::role::Role;

/// How long the keeper may take to answer, twice: the largest batch of keys takes it a second, and a
/// machine that stands still for longer uses up one of the two.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// How long the key of a challenge may be asked for.
const CHALLENGE_MAX: Duration = Duration::from_secs(3_600);
/// How long the key of a certificate that scripts choose may be asked for after it was asked for last.
const SCRIPTED_MAX: Duration = Duration::from_secs(600);
/// Whom it becomes, if there is such a user and it is not the server's: what the package makes for
/// it, and what every system has.
const USERS: [&str; 3] = ["nagaya-keys", "nobody", "daemon"];

/// The keeper, or the wait for the next one.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) kept: KeptProcess,
    /// Keepers there have been: numbers of keys mean something with one of them only.
    life: u64,
    settings: Option<Settings>,
    /// Keys of challenges, and until when they may be asked for.
    challenges: Vec<(KeyId, Instant)>,
    /// Keys of certificates that scripts choose, and until when they may be asked for.
    scripted: HashMap<KeyId, Instant>,
    /// What certificates the server's scripts want, asked while it cannot hear the answer.
    pub(super) unanswered: Vec<CertificateQuestion>,
}

impl Keys {
    /// Goes on with the keeper that another supervisor had. What it numbered is asked for anew.
    pub(super) fn take_over(keeper: Option<Child>) -> Keys {
        let mut keys = Keys {
            life: u64::from(keeper.is_some()),
            ..Keys::default()
        };
        if let Some(keeper) = keeper {
            keys.kept.run(keeper, ());
        }
        keys
    }

    /// Which keeper this is; numbers of keys that another gave mean nothing to it.
    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// The process, for who asks how it is.
    pub(super) fn life_of_process(&self) -> ProcessLife {
        ProcessLife {
            pid: self.kept.pid().unwrap_or(0),
            restarts: self.life.saturating_sub(1),
        }
    }

    /// Whether one is there.
    pub(super) fn is_running(&self) -> bool {
        self.kept.process().is_some()
    }

    /// Starts one beside a server of this user, unless there is one.
    pub(super) fn start(&mut self, server: &str) -> Result<(), String> {
        if self.is_running() {
            return Ok(());
        }
        let user = user(server).to_owned();
        let keeper = Child::start(&Role::Keeper { user }).map_err(|error| {
            self.rest(Duration::ZERO);
            format!("start the keeper: {}", reason(&error))
        })?;
        tracing::info!(pid = keeper.pid(), "keeper started");
        self.kept.run(keeper, ());
        self.life += 1;
        self.scripted.clear();
        match self.settings.clone() {
            Some(settings) => self.tell(&ToKeeper::Settings(settings)),
            None => Ok(()),
        }
    }

    /// Ends it: nobody speaks TLS any more.
    pub(super) fn end(&mut self) {
        self.kept.take();
    }

    /// By what it works from now on, and every one after it.
    pub(super) fn set(&mut self, settings: Settings) -> Result<(), String> {
        if self.settings.as_ref() == Some(&settings) {
            return Ok(());
        }
        self.settings = Some(settings.clone());
        match self.is_running() {
            true => self.tell(&ToKeeper::Settings(settings)),
            false => Ok(()),
        }
    }

    /// Looks whether it still answers; one that does not is lost.
    pub(super) fn look(&mut self) {
        // What is wrong has been told.
        let _ = self.judge(Vec::new());
    }

    /// Has files judged; a verdict for each, in their order.
    pub(super) fn judge(
        &mut self,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Result<Judged, String>>, String> {
        let count = candidates.len();
        match self.ask(&ToKeeper::Judge { candidates })? {
            FromKeeper::Judged { verdicts } if verdicts.len() == count => Ok(verdicts),
            _ => Err(self.answered_otherwise()),
        }
    }

    /// Has a key made, and the request for a certificate of these names.
    pub(super) fn request(
        &mut self,
        kind: KeyKind,
        names: Vec<String>,
    ) -> Result<Result<Request, String>, String> {
        match self.ask(&ToKeeper::Request { kind, names })? {
            FromKeeper::Requested { result } => Ok(result),
            _ => Err(self.answered_otherwise()),
        }
    }

    /// Has the certificate made that answers a challenge for a name. Its key is kept for as long
    /// as an order may take.
    pub(super) fn challenge(
        &mut self,
        name: String,
        digest: [u8; 32],
    ) -> Result<Result<Judged, String>, String> {
        match self.ask(&ToKeeper::Challenge { name, digest })? {
            FromKeeper::Challenge { result } => {
                let now = Instant::now();
                self.challenges.retain(|(_, until)| *until > now);
                let made = result.as_ref().map(|made| (made.key, now + CHALLENGE_MAX));
                self.challenges.extend(made.ok());
                Ok(result)
            }
            _ => Err(self.answered_otherwise()),
        }
    }

    /// Has a certificate for development made, by this authority; an empty one is made, too.
    pub(super) fn local(
        &mut self,
        authority: Vec<u8>,
        names: Vec<String>,
    ) -> Result<Result<Local, String>, String> {
        let authority = authority.into();
        match self.ask(&ToKeeper::Local { authority, names })? {
            FromKeeper::Local { result } => Ok(result),
            _ => Err(self.answered_otherwise()),
        }
    }

    /// Has what a script wants shown judged.
    pub(super) fn judge_scripted(
        &mut self,
        candidate: Candidate,
    ) -> Result<Result<Judged, String>, String> {
        match self.ask(&ToKeeper::JudgeScripted { candidate })? {
            FromKeeper::Judged { mut verdicts } if verdicts.len() == 1 => Ok(verdicts.remove(0)),
            _ => Err(self.answered_otherwise()),
        }
    }

    /// Keeps a key that was judged for a script, for a while.
    pub(super) fn keep_scripted(&mut self, key: KeyId) {
        self.scripted.insert(key, Instant::now() + SCRIPTED_MAX);
    }

    /// Whether a key that was judged for a script is kept; from now on it is for a while.
    pub(super) fn is_still_scripted(&mut self, key: KeyId) -> bool {
        let until = self.scripted.get_mut(&key);
        until
            .map(|until| *until = Instant::now() + SCRIPTED_MAX)
            .is_some()
    }

    /// Whether there are such keys that nobody asks for any more.
    pub(super) fn has_unused_scripted(&self, now: Instant) -> bool {
        self.scripted.values().any(|until| *until <= now)
    }

    /// Has every key forgotten but these, those of challenges that are under way, and those that scripts use.
    pub(super) fn keep(&mut self, mut keys: Vec<KeyId>) -> Result<(), String> {
        let now = Instant::now();
        self.challenges.retain(|(_, until)| *until > now);
        self.scripted.retain(|_, until| *until > now);
        keys.extend(self.scripted.keys());
        keys.extend(self.challenges.iter().map(|(key, _)| *key));
        self.tell(&ToKeeper::Keep { keys })
    }

    /// So many links between the keeper and a server: the server's ends; none while there is no
    /// keeper.
    pub(super) fn links(&mut self, count: usize) -> Vec<OwnedFd> {
        if !self.is_running() {
            return Vec::new();
        }
        let count = count.min(ipc::keeper::TO_KEEPER_FDS_MAX);
        let made = (0..count).map(|_| os::fdpass::packet_pair());
        let made: io::Result<Vec<_>> = made.collect();
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                tracing::error!(error = reason(&error), "no links to the keeper");
                return Vec::new();
            }
        };
        let (ours, links) = made.into_iter().unzip();
        match self.tell(&ToKeeper::Links { links }) {
            Ok(()) => ours,
            Err(problem) => {
                tracing::error!("{problem}");
                Vec::new()
            }
        }
    }

    /// Ends the keeper, if it has not ended, and rests before the next.
    pub(super) fn lose(&mut self, why: &str) {
        // Where there is none, it was lost already, or is not wanted.
        let Some(keeper) = self.kept.take_running() else {
            return;
        };
        if child::is_successor() {
            let pid = keeper.pid();
            return tracing::error!(pid, "lost the keeper: {why}");
        }
        let lived = keeper.lose("keeper", why);
        self.rest(lived);
    }

    fn ask(&mut self, question: &ToKeeper) -> Result<FromKeeper, String> {
        self.tell(question)?;
        let Some(link) = self.kept.link() else {
            return Err("there is no keeper".into());
        };
        let hear = || wait_for(link, ANSWER_MAX).and_then(|()| FromKeeper::recv(link));
        let heard = match hear() {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => hear(),
            heard => heard,
        };
        heard.map_err(|error| self.silent(&error))
    }

    fn tell(&mut self, message: &ToKeeper) -> Result<(), String> {
        let Some(link) = self.kept.link() else {
            return Err("there is no keeper".into());
        };
        message.send(link).map_err(|error| self.silent(&error))
    }

    fn silent(&mut self, error: &io::Error) -> String {
        let reason = reason(error);
        self.lose(&format!("it does not answer: {reason}"));
        format!("the keeper does not answer: {reason}")
    }

    fn answered_otherwise(&mut self) -> String {
        self.lose("it answered something else");
        "the keeper answered something else".into()
    }

    fn rest(&mut self, lived: Duration) {
        let (failures, rest) = self.kept.rest(lived);
        let rest_ms = rest.as_millis();
        tracing::warn!(failures, rest_ms, "the keeper is started again");
    }
}

/// Whom the keeper becomes beside a server of this user.
fn user(server: &str) -> &str {
    let user = user_beside(server, &USERS);
    if user == server && os::process::is_root() {
        tracing::warn!(
            user,
            "the keeper runs as the server's user, for there is none of its own: add the system user nagaya-keys"
        );
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keeper_is_never_the_servers_user_where_root_starts_it() {
        if testkit::lacks_root("becoming another") {
            return;
        }
        for server in USERS {
            assert_ne!(user(server), server);
        }
    }
}
