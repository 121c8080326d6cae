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
    known: Rc<RefCell<HashMap<String, (Instant, Uid)>>>,
    places: Arc<Semaphore>,
}

impl Default for Users {
    fn default() -> Self {
        Self {
            known: Rc::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Users {
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
        let looking = look_up(name.clone(), place.ok(), Rc::clone(&self.known));
        let found = tokio::task::spawn_local(looking).await;
        found
            .unwrap_or_else(|_| Err("users cannot be looked up".to_owned()))
            .map(Some)
    }
}

/// Looks a user up, and remembers what was found; whoever hangs keeps his place.
async fn look_up(
    name: String,
    place: Option<OwnedSemaphorePermit>,
    known: Rc<RefCell<HashMap<String, (Instant, Uid)>>>,
) -> Result<Uid, String> {
    let wanted = name.clone();
    let found = tokio::task::spawn_blocking(move || {
        let _place = place;
        User::look_up(&wanted)
    });
    let found = found.await;
    let found = found.map_err(|_| "users cannot be looked up".to_owned())?;
    let uid = match found {
        Ok(user) => Ok(user.uid),
        Err(error) if is_none(&error) => Err("its user is none of this machine's".to_owned()),
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

/// Whether there is no such user, or cannot be one.
fn is_none(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    )
}
