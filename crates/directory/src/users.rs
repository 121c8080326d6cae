//! Uids of rows' users, looked up beside the runtime and remembered for a while.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

use os::user::User;
use tokio::time::Instant;

use crate::judge::Uid;

/// How long a uid is believed.
const BELIEVED: Duration = Duration::from_secs(60);
/// Users that are remembered; then all are forgotten.
const USERS_MAX: usize = 20_000;

/// What is known of users.
#[derive(Default)]
pub(crate) struct Users {
    known: RefCell<HashMap<String, (Instant, Uid)>>,
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
        let wanted = name.clone();
        let found = tokio::task::spawn_blocking(move || User::look_up(&wanted)).await;
        let found = found.map_err(|_| "users cannot be looked up".to_owned())?;
        let uid = match found {
            Ok(user) => Ok(user.uid),
            Err(error) if is_none(&error) => Err("its user is none of this machine's".to_owned()),
            Err(error) => {
                return Err(format!(
                    "users cannot be looked up: {}",
                    config::reason(&error)
                ));
            }
        };
        let mut known = self.known.borrow_mut();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(name.clone(), (Instant::now(), uid.clone()));
        Ok(Some(uid))
    }
}

/// Whether there is no such user, or cannot be one.
fn is_none(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    )
}
