//! What is not asked again, since asking may do something: the published list.
//!
//! The idea: GET ought to be safe and is not where applications log out, run jobs or unsubscribe by a
//! link. What is on the list is counted by its class and left out, unless a flag allows each class it
//! is of. Words are whole parts of paths and of queries' names and values, so `/cartoons` is asked;
//! those that name pages, too, count only where a parameter says what to do.

/// Requests that may do something, of one class.
#[derive(Debug)]
pub(super) struct Effect {
    pub(super) name: &'static str,
    /// What they do.
    pub(super) what: &'static str,
    /// Words of the path or the query.
    words: &'static [&'static str],
    /// Words that count as a parameter without a value, or as the value of one of [`DOING`].
    actions: &'static [&'static str],
    /// Parts of names of parameters.
    parameters: &'static [&'static str],
    /// What the log says was answered.
    statuses: &'static [u16],
}

/// Parameters that say what is to be done.
const DOING: [&str; 12] = [
    "action", "act", "do", "op", "cmd", "command", "task", "mode", "method", "event", "fn", "func",
];

const NOTHING: Effect = Effect {
    name: "",
    what: "",
    words: &[],
    actions: &[],
    parameters: &[],
    statuses: &[],
};

/// The list.
pub(super) const EFFECTS: [Effect; 8] = [
    Effect {
        name: "refused",
        what: "was refused to a stranger, and may be let in from here",
        statuses: &[401, 403],
        ..NOTHING
    },
    Effect {
        name: "cron",
        what: "runs jobs that are due",
        words: &[
            "cron",
            "wp-cron",
            "doing_wp_cron",
            "runner",
            "scheduler",
            "run",
        ],
        ..NOTHING
    },
    Effect {
        name: "logout",
        what: "ends somebody's session",
        words: &[
            "logout",
            "log-out",
            "logoff",
            "signout",
            "sign-out",
            "sign_out",
            "userlogout",
        ],
        ..NOTHING
    },
    Effect {
        name: "unsubscribe",
        what: "puts somebody on a list, or takes him off",
        words: &[
            "unsubscribe",
            "subscribe",
            "register",
            "opt-out",
            "optout",
            "opt_out",
        ],
        ..NOTHING
    },
    Effect {
        name: "cart",
        what: "changes a cart, or orders",
        words: &[
            "cart",
            "add-to-cart",
            "add_to_cart",
            "remove_item",
            "checkout",
            "order-pay",
            "buy",
            "pay",
        ],
        actions: &["order"],
        parameters: &["cart"],
        ..NOTHING
    },
    Effect {
        name: "change",
        what: "changes or removes something",
        words: &[
            "delete",
            "remove",
            "trash",
            "untrash",
            "rollback",
            "revert",
            "purge",
            "activate",
            "wp-activate",
            "deactivate",
            "install",
            "upgrade",
            "update",
            "vote",
            "approve",
            "enable",
            "disable",
            "stop",
            "restart",
            "save",
            "reset",
            "flush",
            "clear",
        ],
        actions: &["start", "import", "create"],
        ..NOTHING
    },
    Effect {
        name: "mail",
        what: "confirms an address or sends mail",
        words: &[
            "confirm",
            "verify",
            "resend",
            "lostpassword",
            "resetpass",
            "forgot",
        ],
        ..NOTHING
    },
    Effect {
        name: "token",
        what: "carries a secret that is good for one use or one person",
        parameters: &[
            "token",
            "nonce",
            "csrf",
            "secret",
            "sig",
            "signature",
            "auth",
            "ticket",
            "password",
            "passwd",
            "session",
            "sid",
            "key",
            "apikey",
            "code",
            "hash",
        ],
        ..NOTHING
    },
];

/// All classes of a question, by its target as it was sent and what the log says was answered.
pub(super) fn of(
    target: &str,
    status: Option<u16>,
) -> impl Iterator<Item = &'static Effect> + use<> {
    let decoded = decoded(target).to_ascii_lowercase();
    let status = status.unwrap_or_default();
    EFFECTS
        .iter()
        .filter(move |effect| effect.statuses.contains(&status) || is_of(&decoded, effect))
}

/// A target whose escapes are what they stand for.
fn decoded(target: &str) -> String {
    String::from_utf8_lossy(&engine::unescaped(target)).into_owned()
}

fn is_of(target: &str, effect: &Effect) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts = path.split('/').chain(query.split(['&', '=', ';']));
    // `wp-cron.php` is `wp-cron`.
    let mut words = parts.flat_map(|part| part.split(['.', ':']));
    let mut pairs = query
        .split(['&', ';'])
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (pair, None),
        });
    words.any(|word| effect.words.contains(&word))
        || pairs.any(|(name, value)| {
            let action = match value {
                Some(value) if DOING.iter().any(|doing| has_part(name, doing)) => value,
                Some(_) => "",
                None => name,
            };
            let mut named = effect.parameters.iter();
            effect.actions.contains(&action) || named.any(|part| has_part(name, part))
        })
}

/// Whether a name is a part, or has it as one of its words: `_wpnonce`, `user_token`.
fn has_part(name: &str, part: &str) -> bool {
    let mut words = name.split(['_', '-', '[', ']', '.']);
    name == part || (part.len() > 4 && name.ends_with(part)) || words.any(|word| word == part)
}

/// The list as it is published.
pub(super) fn page() -> String {
    let mut page = String::from("Left out, by class (--allow CLASS asks them):\n");
    for effect in &EFFECTS {
        let Effect { name, what, .. } = effect;
        let statuses = effect.statuses.iter().map(u16::to_string);
        let parts = [
            ("status", statuses.collect::<Vec<_>>().join(", ")),
            ("words", effect.words.join(", ")),
            ("actions", effect.actions.join(", ")),
            ("parameters", effect.parameters.join(", ")),
        ];
        let parts = parts.iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = parts.map(|(kind, list)| format!("{kind} {list}")).collect();
        page.push_str(&format!("  {name}: {what}: {}\n", parts.join("; ")));
    }
    page.push_str(&format!(
        "Actions are values of the parameters {}, and parameters without a value.\n",
        DOING.join(", ")
    ));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(target: &str, status: Option<u16>) -> Vec<&'static str> {
        of(target, status).map(|effect| effect.name).collect()
    }

    #[test]
    fn what_may_do_something_is_of_a_class_and_what_reads_alike_is_not() {
        for (target, expected) in [
            ("/wp-cron.php?doing_wp_cron=1.5", &["cron"][..]),
            ("/index.php?title=Special:UserLogout", &["logout"]),
            ("/wp-login.php?action=logout", &["logout"]),
            ("/log%6Fut", &["logout"]),
            ("/index.php?title=Special%3AUserLogout", &["logout"]),
            ("/newsletter/unsubscribe/17", &["unsubscribe"]),
            ("/?add-to-cart=5", &["cart"]),
            ("/cartoons/", &[]),
            ("/page?_wpnonce=a", &["token"]),
            ("/page?user_token=a", &["token"]),
            ("/page?sid=a", &["token"]),
            ("/wp-activate.php?key=a", &["change", "token"]),
            ("/page?inside=a", &[]),
            ("/index.php?title=A&action=delete", &["change"]),
            ("/jobs?do=start", &["change"]),
            ("/jobs?import", &["change"]),
            ("/doku.php?id=start", &[]),
            ("/list?order=asc", &[]),
            ("/blog/how-to-update-php/", &[]),
            ("/", &[]),
        ] {
            assert_eq!(classes(target, Some(200)), expected, "{target}");
        }
    }

    #[test]
    fn what_a_stranger_was_refused_is_a_class_of_its_own() {
        assert_eq!(classes("/server-admin/", Some(403)), ["refused"]);
        assert_eq!(classes("/admin/purge", Some(401)), ["refused", "change"]);
        assert_eq!(classes("/admin/", Some(404)), [""; 0]);
        assert_eq!(classes("/admin/", None), [""; 0]);
    }
}
