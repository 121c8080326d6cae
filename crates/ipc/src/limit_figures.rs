//! Names of the figures that tell over time who waited at a limit and who was refused, by reason and by key.
//!
//! The idea: a limit's identity and a key may have almost anything in them, but no tab: what stands between
//! two of these is what it says, whatever it looks like.

use std::borrow::Cow;

use crate::console::LimitOwner;

/// How all of them begin.
pub const LIMIT_FIGURES: &str = "limit.";

/// What is counted of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitCount<'a> {
    /// Requests that waited.
    Waited,
    /// Requests that were refused for this reason.
    Refused(&'a str),
    /// Requests that were refused with this key.
    Key(&'a str),
}

impl LimitCount<'_> {
    /// The name of this figure of a limit, by what the limit's state is kept by.
    #[must_use]
    pub fn name(self, limit: &str) -> String {
        let (what, of) = match self {
            LimitCount::Waited => ("waited", ""),
            LimitCount::Refused(reason) => ("refused", reason),
            LimitCount::Key(key) => ("key", key),
        };
        let [limit, of] = [limit, of].map(|text| text.replace('\t', " "));
        format!("{LIMIT_FIGURES}{limit}\t{what}\t{of}")
    }

    /// What of a limit it is of: of a key its owner's part, where owners have the limit apart.
    #[must_use]
    pub fn part_of(self, limit: &str) -> Cow<'_, str> {
        match self {
            LimitCount::Key(key) => LimitOwner::of_key(limit, key),
            LimitCount::Waited | LimitCount::Refused(_) => limit.into(),
        }
    }

    /// The limit and what is counted of it, by a figure's name; none where it is no such figure.
    #[must_use]
    pub fn of_name(name: &str) -> Option<(&str, LimitCount<'_>)> {
        let mut parts = name.strip_prefix(LIMIT_FIGURES)?.splitn(3, '\t');
        let (limit, what, of) = (parts.next()?, parts.next()?, parts.next()?);
        match what {
            "waited" => Some((limit, LimitCount::Waited)),
            "refused" => Some((limit, LimitCount::Refused(of))),
            "key" => Some((limit, LimitCount::Key(of))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_limit_and_what_is_counted() {
        for count in [
            LimitCount::Waited,
            LimitCount::Refused("queue_full"),
            LimitCount::Key("/srv/a.b/x=1.php"),
        ] {
            let name = count.name("rule a.example/*.php/file");
            let read = LimitCount::of_name(&name);
            assert_eq!(read, Some(("rule a.example/*.php/file", count)));
        }
        assert_eq!(LimitCount::of_name("limit.a"), None);
        assert_eq!(LimitCount::of_name("tenant.a.cpu"), None);
        let odd = LimitCount::Key("a\tb").name("site a\twaited\t");
        let read = LimitCount::of_name(&odd);
        assert_eq!(read, Some(("site a waited ", LimitCount::Key("a b"))));
    }
}
