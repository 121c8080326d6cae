//! Users: whom the server becomes, and whom programs run as.

use super::context::problem_overall;
use super::tops::Tops;
use crate::sources::Sources;

/// `user`: whom the server becomes.
pub(crate) fn server(tops: &Tops<'_>) -> String {
    let table = tops.holder("user");
    let name = table.text("user");
    let written = table.get("user");
    if written.is_none_or(|value| value.is_text())
        && let Some((message, help)) = wrong_user(tops.context.sources, Role::Server, &name)
    {
        match written {
            Some(value) => value.report_help(message, help),
            None => tops.context.report(problem_overall(message).help(help)),
        }
    }
    name
}

/// Who becomes a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The server.
    Server,
    /// Programs of a site or a map.
    Programs,
    /// A site's error log, which is made that user's.
    ErrorLog,
    /// Files that are written for others.
    Files,
    /// Nobody: the site has neither.
    Nobody,
}

/// Why the server, or programs, cannot become a user, and what to do.
pub(crate) fn wrong_user(
    sources: &Sources,
    role: Role,
    name: &str,
) -> Option<(String, &'static str)> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.$@".contains(&byte);
    if name.is_empty() || !name.bytes().all(known) {
        let message = format!("`{name}` is no user name");
        return Some((message, "one looks like `www-data`"));
    }
    if name == "root" || name.bytes().all(|byte| byte == b'0') {
        let help = "name a user without privileges, such as `www-data`";
        let message = match role {
            Role::Server => "the server must not stay root",
            Role::Programs | Role::ErrorLog | Role::Files | Role::Nobody => {
                "a site's programs must not run as root"
            }
        };
        return Some((message.to_owned(), help));
    }
    let why = sources.users.get(name)?.as_ref().err();
    let message = match role {
        Role::Server => format!("the server cannot become user `{name}`: {}", why?),
        Role::Programs => format!("programs cannot run as user `{name}`: {}", why?),
        Role::ErrorLog => format!("no error log can be given to user `{name}`: {}", why?),
        Role::Files => format!("no files can be given to user `{name}`: {}", why?),
        Role::Nobody => return None,
    };
    Some((message, "create it, or let `user` name another"))
}
