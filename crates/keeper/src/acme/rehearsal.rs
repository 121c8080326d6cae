//! Rehearsals: whether an authority would find that the names of a certificate are ours, before it matters.
//!
//! The idea: an order is made and its proofs are shown, as ever, and there it ends: nothing is signed, no key is made,
//! and what is served stays. Let's Encrypt has a place for that, where nothing counts against its limits; of others the
//! directory itself is asked. The limits of orders in a short time hold for these, too: who has thousands looked at
//! waits for each one's turn.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::client::Client;
use super::order::{NotIssued, Order};
use super::{Orders, Ready, now_s};
use ipc::acme::{Account, Wanted};

/// Rehearsals under way at once.
pub(super) const REHEARSALS_MAX: usize = 4;
/// Those that wait for their turn, with them.
const ASKED_MAX: usize = 64;
/// How long one waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(300);
/// Where Let's Encrypt takes orders, and where it takes those that are to count for nothing.
const LETS_ENCRYPT: [&str; 2] = [
    "https://acme-v02.api.letsencrypt.org/directory",
    "https://acme-staging-v02.api.letsencrypt.org/directory",
];

/// Where an account rehearses.
fn directory(of: &str) -> &str {
    let [orders, rehearsals] = LETS_ENCRYPT;
    match of == orders {
        true => rehearsals,
        false => of,
    }
}

impl Orders {
    /// Begins the rehearsal of a certificate, unless it is under way.
    pub(super) fn rehearse(self: &Rc<Self>, certificate: &str) {
        let state = &mut *self.state.borrow_mut();
        let mut known = state.plan.certificates.iter();
        let Some(wanted) = known.find(|it| it.certificate == certificate).cloned() else {
            return;
        };
        let account = wanted.accounts.first().map(|index| usize::from(*index));
        let account = account.and_then(|index| state.plan.accounts.get(index).cloned());
        let Some(account) = account.filter(|_| !state.rehearsing.contains(certificate)) else {
            return;
        };
        if state.rehearsing.len() >= ASKED_MAX {
            let why = format!("{ASKED_MAX} others are rehearsed: try again when these have ended");
            if let Some(course) = state.courses.get_mut(certificate) {
                course.rehearsed(why);
            }
            return self.tell_state(&state.plan.accounts, &state.courses, &wanted);
        }
        state.rehearsing.insert(certificate.to_owned());
        let orders = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let outcome = orders.rehearsed(&wanted, &account).await;
            orders.conclude_rehearsal(&wanted, outcome);
        });
    }

    /// Has a certificate rehearsed when it is its turn.
    async fn rehearsed(&self, wanted: &Wanted, account: &Account) -> Result<(), NotIssued> {
        let until = Instant::now() + TURN_MAX;
        let place = tokio::time::timeout(TURN_MAX, self.rehearsals.acquire()).await;
        let _place = place.map_err(|_| NotIssued::Whole("the others took too long".into()))?;
        let names: Vec<&String> = wanted.names.iter().collect();
        let pass = |now_s| {
            let brake = &mut self.state.borrow_mut().brake;
            brake.pass(&account.name, &names, now_s)
        };
        while let Err(until_s) = pass(now_s()) {
            let wait_s = u64::try_from(until_s.saturating_sub(now_s())).unwrap_or(0);
            let wait = Duration::from_secs(wait_s.max(1));
            if Instant::now() + wait > until {
                let why = format!("there are too many orders: try again in {wait_s} s");
                return Err(NotIssued::Whole(why));
            }
            tokio::time::sleep(wait).await;
        }
        self.validate(wanted, account).await
    }

    /// Has the names of a certificate validated.
    async fn validate(&self, wanted: &Wanted, account: &Account) -> Result<(), NotIssued> {
        let certificate = &wanted.certificate;
        let directory = directory(&account.directory);
        tracing::info!(certificate, account = account.name, directory, "rehearsed");
        let ready = match directory == account.directory {
            true => self.ready(account).await?,
            false => self.ready_to_rehearse(account, directory).await?,
        };
        let is_known =
            |profile: &&str| ready.account.profiles().any(|known| known.name == *profile);
        let order = Order {
            link: &self.link,
            account: &ready.account,
            account_name: &account.name,
            challenges: &account.challenges,
            profile: account.profile.as_deref().filter(is_known),
            certificate,
            names: wanted.names.clone(),
            begun: None,
            replaces: None,
            failures: Vec::new(),
        };
        order.rehearse().await
    }

    /// An account for rehearsals alone: it lives as long as this process.
    async fn ready_to_rehearse(
        &self,
        account: &Account,
        directory: &str,
    ) -> Result<Ready, NotIssued> {
        let _one = self.making.lock().await;
        let name = format!("rehearsals at {directory}");
        if let Some(ready) = self.state.borrow().ready.get(&name) {
            return Ok(ready.clone());
        }
        let own = Account {
            directory: directory.to_owned(),
            binding: None,
            credentials: None,
            ..account.clone()
        };
        let client = Client::start(&own);
        let (made, _) = self.create(&own, &client).await?;
        let ready = Ready {
            account: made,
            client,
        };
        self.state.borrow_mut().ready.insert(name, ready.clone());
        Ok(ready)
    }

    fn conclude_rehearsal(&self, wanted: &Wanted, outcome: Result<(), NotIssued>) {
        let certificate = &wanted.certificate;
        let why = match outcome {
            Ok(()) => String::new(),
            Err(NotIssued::Whole(why)) => why,
            Err(NotIssued::Names(names)) => {
                let names = names.iter().map(|(name, why)| format!("{name}: {why}"));
                names.collect::<Vec<_>>().join("; ")
            }
        };
        tracing::info!(certificate, why, "the rehearsal has ended");
        let state = &mut *self.state.borrow_mut();
        state.rehearsing.remove(certificate);
        if let Some(course) = state.courses.get_mut(certificate) {
            course.rehearsed(why);
        }
        let mut known = state.plan.certificates.iter();
        if let Some(wanted) = known.find(|it| it.certificate == *certificate) {
            self.tell_state(&state.plan.accounts, &state.courses, wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_encrypt_is_asked_where_it_counts_for_nothing_and_others_where_they_are() {
        let [orders, rehearsals] = LETS_ENCRYPT;
        assert_eq!(directory(orders), rehearsals);
        assert_eq!(directory(rehearsals), rehearsals);
        assert_eq!(
            directory("https://ca.example/dir"),
            "https://ca.example/dir"
        );
    }
}
