//! What operators ask of pools: passed on to the supervisor, and by it to the spawner.
//!
//! The idea: an operator waits on a thread of the control socket, no worker does. A question has a
//! number; its answer finds who waits by that, and one that nobody waits for any more is dropped.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ipc::pools::{PoolAnswer, PoolQuestion};
use ipc::server::{LinkSender, ToSupervisor};

/// How long an answer may take: less than who asks waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where questions are asked and answers come in.
#[derive(Debug, Default)]
pub(crate) struct Inquiries {
    supervisor: OnceLock<LinkSender>,
    waiting: Mutex<Unanswered>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Unanswered {
    /// The next question's number.
    next: u64,
    /// The questions that wait, and their answers.
    answers: BTreeMap<u64, Option<PoolAnswer>>,
}

impl Inquiries {
    /// Asks over this link.
    pub(crate) fn ask_over(&self, supervisor: &LinkSender) {
        // There is one link in a server's life.
        let _ = self.supervisor.set(supervisor.clone());
    }

    /// Asks, and waits for the answer; the error says why there is none.
    pub(crate) fn ask(&self, question: PoolQuestion) -> Result<PoolAnswer, String> {
        let gone = || "the supervisor does not listen".to_owned();
        let supervisor = self.supervisor.get().ok_or_else(gone)?;
        let number = {
            let mut waiting = self.lock();
            waiting.next += 1;
            let number = waiting.next;
            waiting.answers.insert(number, None);
            number
        };
        let sent = supervisor.send(&ToSupervisor::Pools { number, question });
        let mut waiting = self.lock();
        if sent.is_ok() {
            let is_open = |it: &mut Unanswered| matches!(it.answers.get(&number), Some(None));
            let waited = self.answered.wait_timeout_while(waiting, PATIENCE, is_open);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let answer = waiting.answers.remove(&number).flatten();
        sent.map_err(|_| gone())?;
        answer.ok_or_else(|| "the spawner does not answer".to_owned())
    }

    /// Takes in an answer.
    pub(crate) fn hear(&self, number: u64, answer: PoolAnswer) {
        if let Some(waiting) = self.lock().answers.get_mut(&number) {
            *waiting = Some(answer);
        }
        self.answered.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Unanswered> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_answer_finds_who_has_asked_and_late_ones_nobody() {
        let inquiries = Arc::new(Inquiries::default());
        let asked = inquiries.ask(PoolQuestion::List);
        assert!(asked.unwrap_err().contains("does not listen"));
        let (supervisor, link) = os::fdpass::pair().unwrap();
        inquiries.ask_over(&LinkSender::new(&link).unwrap());
        let asking = Arc::clone(&inquiries);
        let asking = std::thread::spawn(move || asking.ask(PoolQuestion::Stop(vec!["a".into()])));
        let heard = ToSupervisor::recv(supervisor.as_fd()).unwrap();
        let ToSupervisor::Pools { number, question } = heard else {
            panic!("{heard:?}");
        };
        assert_eq!(question, PoolQuestion::Stop(vec!["a".into()]));
        inquiries.hear(number + 7, PoolAnswer::Begun(9));
        inquiries.hear(number, PoolAnswer::Begun(1));
        assert_eq!(asking.join().unwrap(), Ok(PoolAnswer::Begun(1)));
        inquiries.hear(number, PoolAnswer::Begun(2));
        assert!(inquiries.lock().answers.is_empty());
        drop((supervisor, link));
        assert!(inquiries.ask(PoolQuestion::List).is_err());
    }
}
