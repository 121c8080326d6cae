//! Uids of rows' users, looked up beside the runtime and remembered for a while.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use os::user::User;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::judge::Uid;

/// How long a uid is believed.
const BELIEVED: Duration = Duration::from_secs(60);
/// Users that are remembered; then all are forgotten.
const USERS_MAX: usize = 20_000;

/// Users that are looked up at once: others than these threads wait for files and SQLite.
const AT_ONCE: usize = 4;

/// What is known of users.
pub(crate) struct Users {
    look: UserLookup,
    known: Rc<RefCell<HashMap<String, (Instant, Uid)>>>,
    places: Arc<Semaphore>,
}

/// Looks a user up, which may take long.
type UserLookup = fn(&str) -> io::Result<User>;

impl Default for Users {
    fn default() -> Self {
        Self::looked_up_by(User::look_up)
    }
}

impl Users {
    fn looked_up_by(look: UserLookup) -> Self {
        Self {
            look,
            known: Rc::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// The uid of column `user`, where a row has one.
    ///
    /// # Errors
    /// Nobody can say now whether there is such a user. That is not remembered.
    pub(crate) async fn of(&self, columns: &[(String, String)]) -> Result<Option<Uid>, String> {
        let Some((_, name)) = columns.iter().find(|(column, _)| column == "user") else {
            return Ok(None);
        };
        let known = self.known.borrow().get(name).cloned();
        if let Some((at, uid)) = known
            && at.elapsed() < BELIEVED
        {
            return Ok(Some(uid));
        }
        let place = Arc::clone(&self.places).acquire_owned().await;
        // Who asks may not wait so long: what is found is remembered for whoever asks next.
        let looking = look_up(self.look, name.clone(), place.ok(), Rc::clone(&self.known));
        let found = tokio::task::spawn_local(looking).await;
        found
            .unwrap_or_else(|_| Err("users cannot be looked up".to_owned()))
            .map(Some)
    }
}

/// Looks a user up, and remembers what was found; whoever hangs keeps his place.
async fn look_up(
    look: UserLookup,
    name: String,
    place: Option<OwnedSemaphorePermit>,
    known: Rc<RefCell<HashMap<String, (Instant, Uid)>>>,
) -> Result<Uid, String> {
    let wanted = name.clone();
    let found = tokio::task::spawn_blocking(move || {
        let _place = place;
        look(&wanted)
    });
    let found = found.await;
    let found = found.map_err(|_| "users cannot be looked up".to_owned())?;
    let uid = match found {
        Ok(user) => Ok(user.uid),
        Err(error) if is_none(&error) => {
            Err(format!("its user {name:.80?} is none of this machine's"))
        }
        Err(error) => {
            let why = config::reason(&error);
            return Err(format!("users cannot be looked up: {why}"));
        }
    };
    let mut known = known.borrow_mut();
    if known.len() >= USERS_MAX {
        known.clear();
    }
    known.insert(name, (Instant::now(), uid.clone()));
    Ok(uid)
}

/// What this process's user is called: whoever reads that a file cannot be opened wants to know for whom.
pub(crate) fn own_name() -> String {
    let uid = os::process::user_id();
    let name = User::name_of(uid).ok().flatten();
    name.unwrap_or_else(|| format!("uid {uid}"))
}

/// Whether there is no such user, or cannot be one.
fn is_none(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::time::timeout;

    use super::*;

    static LOOKED: AtomicUsize = AtomicUsize::new(0);
    /// Nobody is found before the test says so.
    static OPENED: Barrier = Barrier::new(2);

    fn slow(_: &str) -> io::Result<User> {
        LOOKED.fetch_add(1, SeqCst);
        OPENED.wait();
        Ok(User {
            uid: 1_234,
            gid: 1_234,
            groups: Vec::new(),
        })
    }

    #[test]
    fn what_comes_when_nobody_waits_any_more_is_there_for_who_asks_next() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let users = Users::looked_up_by(slow);
            let columns = [("user".to_owned(), "anna".to_owned())];
            let in_time = timeout(Duration::from_millis(10), users.of(&columns)).await;
            assert!(in_time.is_err(), "it takes longer than anybody waits");
            OPENED.wait();
            let begun = std::time::Instant::now();
            while users.known.borrow().is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(60));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let found = users.of(&columns).await.expect("it was looked up");
            assert_eq!(found, Some(Ok(1_234)));
            assert_eq!(LOOKED.load(SeqCst), 1);
        });
    }
}
