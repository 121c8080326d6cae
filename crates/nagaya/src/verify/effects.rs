//! What is not asked again, since asking may do something: the published list.
//!
//! The idea: GET ought to be safe and is not where applications log out, run jobs or unsubscribe by a
//! link. What is on the list is counted by its class and left out, unless a flag allows the class.
//! Words are whole parts of paths and of queries' names and values, so `/cartoons` is asked.

/// Requests that may do something, of one class.
#[derive(Debug)]
pub(super) struct Effect {
    pub(super) name: &'static str,
    /// What they do.
    pub(super) what: &'static str,
    /// Words of the path or the query.
    words: &'static [&'static str],
    /// Parts of names of parameters.
    parameters: &'static [&'static str],
}

/// The list.
pub(super) const EFFECTS: [Effect; 7] = [
    Effect {
        name: "cron",
        what: "runs jobs that are due",
        words: &["cron", "wp-cron", "doing_wp_cron", "runner", "scheduler"],
        parameters: &[],
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
        parameters: &[],
    },
    Effect {
        name: "unsubscribe",
        what: "takes somebody off a list",
        words: &["unsubscribe", "opt-out", "optout", "opt_out"],
        parameters: &[],
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
        ],
        parameters: &["cart"],
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
            "deactivate",
            "install",
            "upgrade",
            "update",
            "vote",
            "approve",
        ],
        parameters: &[],
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
        parameters: &[],
    },
    Effect {
        name: "token",
        what: "carries a secret that is good for one use or one person",
        words: &[],
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
            "apikey",
            "api_key",
            "hash",
        ],
    },
];

/// The first class that a target is of.
pub(super) fn of(target: &str) -> Option<&'static Effect> {
    let target = target.to_ascii_lowercase();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let parts = path.split('/').chain(query.split(['&', '=', ';']));
    // `wp-cron.php` is `wp-cron`.
    let words: Vec<&str> = parts.flat_map(|part| part.split(['.', ':'])).collect();
    let pairs = query.split(['&', ';']);
    let names: Vec<&str> = pairs.filter_map(|pair| pair.split('=').next()).collect();
    let is_of = |effect: &&Effect| {
        let mut named = effect.parameters.iter();
        words.iter().any(|word| effect.words.contains(word))
            || named.any(|part| names.iter().any(|name| has_part(name, part)))
    };
    EFFECTS.iter().find(is_of)
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
        let words = effect.words.join(", ");
        let names = effect.parameters.join(", ");
        let parts = [("words", words), ("parameters", names)];
        let parts = parts.iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = parts.map(|(kind, list)| format!("{kind} {list}")).collect();
        let Effect { name, what, .. } = effect;
        page.push_str(&format!("  {name}: {what}: {}\n", parts.join("; ")));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_do_something_is_of_a_class_and_what_reads_alike_is_not() {
        for (target, class) in [
            ("/wp-cron.php?doing_wp_cron=1.5", Some("cron")),
            ("/index.php?title=Special:UserLogout", Some("logout")),
            ("/wp-login.php?action=logout&_wpnonce=a1", Some("logout")),
            ("/newsletter/unsubscribe/17", Some("unsubscribe")),
            ("/?add-to-cart=5", Some("cart")),
            ("/cartoons/", None),
            ("/page?_wpnonce=a", Some("token")),
            ("/page?user_token=a", Some("token")),
            ("/page?sid=a", Some("token")),
            ("/page?inside=a", None),
            ("/index.php?title=A&action=delete", Some("change")),
            ("/blog/how-to-update-php/", None),
            ("/", None),
        ] {
            assert_eq!(of(target).map(|effect| effect.name), class, "{target}");
        }
    }
}
