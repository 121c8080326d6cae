//! Uids of rows' users, looked up beside the runtime and remembered for a while.

use std::cell::RefCell;
use std::collections::HashMap;
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
    pub(crate) async fn of(&self, columns: &[(String, String)]) -> Option<Uid> {
        let (_, name) = columns.iter().find(|(column, _)| column == "user")?;
        let known = self.known.borrow().get(name).cloned();
        if let Some((at, uid)) = known
            && at.elapsed() < BELIEVED
        {
            return Some(uid);
        }
        let wanted = name.clone();
        let found = tokio::task::spawn_blocking(move || User::look_up(&wanted)).await;
        let uid = match found {
            Ok(Ok(user)) => Ok(user.uid),
            Ok(Err(error)) => Err(format!(
                "its user cannot be looked up: {}",
                config::reason(&error)
            )),
            Err(_) => Err("its user cannot be looked up".to_owned()),
        };
        let mut known = self.known.borrow_mut();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(name.clone(), (Instant::now(), uid.clone()));
        Some(uid)
    }
}
