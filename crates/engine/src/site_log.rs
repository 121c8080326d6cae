//! What is to be said of a site, where its own people read it: in its error log, where it has one.
//!
//! A line is put into words as for the error log of the process, and goes the way of access records:
//! gathered by the worker, written by the writer's thread, opened by the supervisor.

use crate::access_log::page::AccessLog;
use crate::access_log::targets::Targets;

/// Who is to hear of something that concerns a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Whoever has the site: the operator only where it has no log of its own.
    Tenant,
    /// The operator as well, who has to do something about it.
    Everybody,
}

/// Says something of the site of this name, if any. Whoever calls sees to it that it is not said
/// without end.
pub(crate) fn tell(
    logs: &Targets,
    page: &AccessLog,
    site: Option<&str>,
    audience: Audience,
    say: &dyn Fn(),
) {
    let own = site.and_then(|site| logs.error_log_of(site));
    if own.is_none() || audience == Audience::Everybody {
        say();
    }
    if let Some(target) = own {
        page.add_lines(target, &error_log::lines_of(say));
    }
}
