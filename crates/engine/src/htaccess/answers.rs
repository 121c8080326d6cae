//! Answers to what files want to know: what is at a path, and who asks.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use config::model::{Auth, Root as NamedRoot, Site};
use config::reason;
use htaccess::{FileFacts, Progress, Question, Told, UserTold};
use os::file::{self, Wait};

use super::looks::{holds, look, tree_of};
use crate::admission::{self, Credentials};
use crate::error::Result;
use crate::exchange::Exchange;
use crate::resolve::{self, search::Root};
use crate::rules;
use crate::stage::Routed;

/// Largest file of users or groups.
const USERS_BYTES_MAX: usize = 1 << 20;
/// What of a file is told that lies elsewhere.
const OUTSIDE: &str = "the site may not read there (`within`)";
/// Users that somebody whom the file does not know is taken for, to take as long.
const OTHERS_MAX: usize = 8;

/// Goes on with an evaluation to its end; what is at one name was seen before.
///
/// # Errors
/// When the machine is in trouble, or too many passwords wait to be compared.
pub(crate) async fn finish<T>(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    mut progress: Progress<'_, T>,
    known: (&[u8], Option<FileFacts>),
) -> Result<T> {
    loop {
        match progress {
            Progress::Done(result) => return Ok(result),
            Progress::Asks(question, waiting) => {
                let told = match (question, known.1) {
                    (Question::File(path), Some(seen)) if path == known.0 => Told::File(seen),
                    (Question::File(path), _) => Told::File(look(routed, exchange, path).await?),
                    (
                        Question::User {
                            user_file,
                            group_file,
                            ..
                        },
                        _,
                    ) => Told::User(who(routed, exchange, user_file, group_file).await?),
                };
                progress = waiting.answer(told);
            }
        }
    }
}

/// Who asks, by a file of users.
async fn who(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    user_file: Vec<u8>,
    group_file: Option<Vec<u8>>,
) -> Result<UserTold> {
    let text = match read(routed, exchange, &user_file).await? {
        Ok(text) => text,
        Err(why) => return Ok(unreadable(&user_file, &why)),
    };
    let groups = match &group_file {
        None => Vec::new(),
        Some(file) => match read(routed, exchange, file).await? {
            Ok(text) => text,
            Err(why) => return Ok(unreadable(file, &why)),
        },
    };
    let Some(credentials) = Credentials::of(&exchange.request) else {
        return Ok(UserTold::Nobody);
    };
    // A guess is counted before it is compared.
    rules::charge_for_files(routed, exchange).await?;
    let user = credentials.user.clone();
    let auth = Auth {
        realm: String::new(),
        users: Arc::new(users(&text, &user)),
        file: PathBuf::from(String::from_utf8_lossy(&user_file).into_owned()),
        groups: None,
    };
    exchange.record.user.clone_from(&user);
    let chosen = routed.chosen(&exchange.route);
    if !admission::authenticate(chosen, exchange, &auth, credentials).await? {
        // Where he may come in all the same, nobody is told a name that is not proven.
        exchange.record.user.clear();
        return Ok(UserTold::Nobody);
    }
    Ok(UserTold::Known {
        groups: groups_of(&groups, user.as_bytes()),
        name: user.into_bytes(),
    })
}

/// A file of users or groups, or why it cannot be read.
type ReadUsers = std::result::Result<Vec<u8>, String>;

/// A file of users or groups that cannot be read.
pub(super) fn unreadable(file: &[u8], why: &str) -> UserTold {
    let file = String::from_utf8_lossy(file);
    UserTold::Unreadable(format!("{file} cannot be read: {why}"))
}

/// The whole of a file beneath what the site may read, or why it cannot be read.
async fn read(routed: Routed<'_>, exchange: &Exchange, name: &[u8]) -> Result<ReadUsers> {
    let Some(tree) = tree_of(routed, exchange, name) else {
        return Ok(Err(OUTSIDE.to_owned()));
    };
    let (named, name) = (tree.root.clone(), name.to_vec());
    resolve::ask(routed, tree, move |root, wait| {
        read_below((root, &named), &name, wait)
    })
    .await
}

/// Reads a file of users or groups; says why it cannot be read.
///
/// # Errors
/// It must not wait, and would.
fn read_below(
    (root, named): (&Root, &NamedRoot),
    name: &[u8],
    wait: Wait,
) -> io::Result<ReadUsers> {
    let Some(relative) = root.relative_of_full(named, name) else {
        return Ok(Err(OUTSIDE.to_owned()));
    };
    let descriptor = match root.descriptor(&relative, wait) {
        Ok(descriptor) => descriptor,
        Err(error) if wait == Wait::Never => return Err(retried(error)),
        Err(error) => return Ok(Err(reason(&error))),
    };
    let facts = file::facts(descriptor.as_fd())?;
    if facts.kind != file::FileKind::Regular {
        return Ok(Err("it is no file".to_owned()));
    }
    // To read it may take its time.
    if wait == Wait::Never {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let read = file::read_whole(descriptor.as_fd(), USERS_BYTES_MAX);
    Ok(read.map_err(|error| reason(&error)))
}

/// Why a file of users or groups cannot be read that one of a site's files names, if that is so for
/// the user of this thread. May wait.
pub(super) fn trouble_with(site: &Site, name: &[u8]) -> Option<String> {
    let mounts = site.mounts.iter().map(|mount| &mount.root);
    let mut roots = site.root.iter().chain(mounts);
    let Some(named) = roots.find(|root| holds(root, name)) else {
        return Some(OUTSIDE.to_owned());
    };
    let opened = Root::open(named);
    let read = opened.and_then(|root| read_below((&root, named), name, Wait::Allowed));
    match read {
        Ok(read) => read.err(),
        Err(error) => Some(reason(&error)),
    }
}

/// What a worker could not open at once a helper looks for again.
fn retried(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::CrossesDevices => error,
        _ => io::ErrorKind::WouldBlock.into(),
    }
}

/// The user of a file that is wanted, and some others; none whose password stands there in a way
/// that is not read.
fn users(text: &[u8], wanted: &str) -> BTreeMap<String, String> {
    let mut users = BTreeMap::new();
    let user = |line: &[u8]| {
        let line = std::str::from_utf8(line.trim_ascii()).ok()?;
        let (name, rest) = line.split_once(':').filter(|_| !line.starts_with('#'))?;
        let hash = rest.split(':').next().unwrap_or(rest);
        Some((name.to_owned(), hash.to_owned()))
    };
    for line in text.split(|byte| *byte == b'\n') {
        let rest = line.trim_ascii_start().strip_prefix(wanted.as_bytes());
        let is_wanted = rest.is_some_and(|rest| rest.starts_with(b":"));
        if (is_wanted || users.len() < OTHERS_MAX)
            && let Some((name, hash)) = user(line)
        {
            users.entry(name).or_insert(hash);
        }
    }
    users.retain(|_, hash: &mut String| config::is_borne_hash(hash));
    users
}

/// The groups that a user is in.
fn groups_of(text: &[u8], user: &[u8]) -> Vec<Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n');
    let group = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b':')?;
        let (name, members) = line.split_at_checked(at)?;
        let mut members = members.split(|byte| byte.is_ascii_whitespace() || *byte == b':');
        let is_in = members.any(|member| member == user);
        is_in.then(|| name.trim_ascii().to_vec())
    };
    lines.filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_of_users_the_one_who_is_wanted_is_read_and_few_others() {
        let line = |name: &str| format!("{name}:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=\n");
        let text: String = (0..100).map(|at| line(&format!("user{at}"))).collect();
        let found = users(text.as_bytes(), "user77");
        assert!(found.contains_key("user77") && found.len() <= OTHERS_MAX + 1);
        assert!(!users(text.as_bytes(), "user").contains_key("user"));
        let twice = format!("ann:plain\n{}", line("ann"));
        assert!(
            users(twice.as_bytes(), "ann").is_empty(),
            "the first line counts"
        );
    }
}
