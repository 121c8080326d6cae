//! Whether a row can be used.
//!
//! The idea: whoever fills the table is not trusted. Columns of meaning are judged here as their meaning
//! wants it, all others as texts; the first thing that is wrong is told by column, and the row is out.

use std::collections::BTreeSet;

use std::net::Ipv6Addr;

use ipc::directory::{COLUMN_BYTES_MAX, COLUMN_NAME_BYTES_MAX, COLUMNS_MAX, ROW_BYTES_MAX};

use crate::source::ROWS_OF_HOST_MAX;

/// Bytes of what is one component of a path, or a name.
const WORD_BYTES_MAX: usize = 128;

/// A row as a source has it: columns in order, each with its text, none, or what is wrong with it.
pub(crate) type RawRow = Vec<(String, Result<Option<String>, String>)>;

/// What no row may name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// Tenants of written sites.
    pub(crate) tenants: BTreeSet<String>,
    /// The least uid of a row's `user`.
    pub(crate) uid_min: u32,
    /// Uids of the gateway's own processes and of written sites.
    pub(crate) own_uids: Vec<u32>,
}

/// What a row's column `user` names, as far as it was looked up.
pub(crate) type Uid = Result<u32, String>;

/// The row of a host, where it has one alone. What says itself that it is another host's is none of them, whatever the
/// source takes for equal.
pub(crate) fn one(host: &str, rows: Vec<RawRow>) -> Result<Option<Vec<(String, String)>>, String> {
    let is_other = |text: &str| {
        // A column of fixed width is filled up with blanks.
        let text = text.trim_end_matches(' ');
        let text = text.strip_suffix('.').unwrap_or(text);
        !text.is_empty() && !text.eq_ignore_ascii_case(host)
    };
    let is_others = |row: &RawRow| {
        let mut columns = row.iter();
        columns.any(|(name, text)| {
            let text = text.as_ref().ok().and_then(Option::as_deref);
            name.eq_ignore_ascii_case("host") && text.is_some_and(is_other)
        })
    };
    // There may be more of them than are looked at.
    let is_cut = rows.len() >= ROWS_OF_HOST_MAX;
    let mut rows = rows.into_iter().filter(|row| !is_others(row));
    match (rows.next(), rows.next()) {
        (None, _) if is_cut => Err(format!(
            "{ROWS_OF_HOST_MAX} rows of other hosts stand before it: compare bytes"
        )),
        (None, _) => Ok(None),
        (Some(row), None) => texts(row).map(Some),
        (Some(_), Some(_)) => Err("there are two rows".to_owned()),
    }
}

/// The columns of a row that have a text, where all of them are sound.
fn texts(row: RawRow) -> Result<Vec<(String, String)>, String> {
    if row.len() > COLUMNS_MAX {
        return Err(format!("it has more than {COLUMNS_MAX} columns"));
    }
    let (mut columns, mut bytes): (Vec<(String, String)>, _) = (Vec::with_capacity(row.len()), 0);
    for (name, value) in row {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !(1..=COLUMN_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_name) {
            return Err("a column has a name other than letters, digits and `_`".to_owned());
        }
        let value = value.map_err(|why| format!("column `{name}` {why}"))?;
        let Some(text) = value.filter(|text| !text.is_empty()) else {
            continue;
        };
        // As databases have it, letters of either case are the same.
        let name = name.to_ascii_lowercase();
        if columns.iter().any(|(known, _)| *known == name) {
            return Err(format!("column `{name}` is there twice"));
        }
        if text.len() > COLUMN_BYTES_MAX {
            return Err(format!(
                "column `{name}` has more than {COLUMN_BYTES_MAX} bytes"
            ));
        }
        if text.chars().any(char::is_control) {
            return Err(format!("column `{name}` has a control character"));
        }
        bytes += name.len() + text.len();
        if bytes > ROW_BYTES_MAX {
            return Err(format!("it has more than {ROW_BYTES_MAX} bytes"));
        }
        columns.push((name, text));
    }
    Ok(columns)
}

/// Judges columns of meaning, and the uid of the row's user, where it has one.
pub(crate) fn judge(
    columns: &[(String, String)],
    uid: Option<Uid>,
    names: &Names,
) -> Result<Option<u32>, String> {
    for (name, text) in columns {
        let fits = match name.as_str() {
            "tenant" | "user" | "root" | "plan" | "certificate" => is_component(text),
            "php" => {
                text.bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'.')
                    && is_component(text)
            }
            "upstream" => is_upstream(text),
            "redirect" => is_host(&text.to_ascii_lowercase()),
            "suspended" => is_suspended(text).is_some(),
            _ => true,
        };
        if !fits {
            let meant = match name.as_str() {
                "php" => "is no version, as `8.3`",
                "upstream" => "is not `HOST:PORT`",
                "redirect" => "is no host",
                "suspended" => "is neither `0` nor `1`",
                _ => "is not one name of letters, digits, `-`, `_`, `.` and `@`",
            };
            return Err(format!("column `{name}` {meant}"));
        }
        if name == "tenant" && names.tenants.contains(text) {
            return Err(format!("its tenant `{text}` is one of the configuration's"));
        }
    }
    let uid = uid.transpose()?;
    if let Some(uid) = uid {
        if uid < names.uid_min {
            return Err(format!("its user has uid {uid}, below {}", names.uid_min));
        }
        if names.own_uids.contains(&uid) {
            return Err("its user is the gateway's or a written site's".to_owned());
        }
    }
    Ok(uid)
}

/// Whether a text is one component of a path, and nothing but a name.
fn is_component(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    (1..=WORD_BYTES_MAX).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text.bytes().all(fits)
}

/// `HOST:PORT`, perhaps with `http://` before it; which servers are allowed is judged where one connects.
fn is_upstream(text: &str) -> bool {
    let text = text.strip_prefix("http://").unwrap_or(text);
    let Some((host, port)) = text.strip_suffix('/').unwrap_or(text).rsplit_once(':') else {
        return false;
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_host = match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(fits),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    is_host && is_port && port.parse::<u16>().is_ok_and(|port| port > 0) && text.len() <= 300
}

/// Whether a text is a host as requests are compared with it.
pub(crate) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(fits)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// What a column `suspended` says; `None` where that is not clear.
fn is_suspended(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" => Some(true),
        "0" | "false" | "f" | "no" | "n" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(said: &[(&str, &str)]) -> Vec<(String, String)> {
        let said = said.iter();
        said.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    fn raw(said: &[(&str, &str)]) -> RawRow {
        let columns = columns(said).into_iter();
        columns.map(|(name, text)| (name, Ok(Some(text)))).collect()
    }

    type Judged = (Vec<(String, String)>, Option<u32>);

    fn judged(said: &[(&str, &str)], uid: Option<Uid>) -> Result<Judged, String> {
        let names = Names {
            tenants: BTreeSet::from(["own".to_owned()]),
            uid_min: 1_000,
            own_uids: vec![65_534],
        };
        let columns = one("a.example", vec![raw(said)])?.unwrap_or_default();
        let uid = judge(&columns, uid, &names)?;
        Ok((columns, uid))
    }

    #[test]
    fn a_sound_row_has_its_texts() {
        let said = [
            ("tenant", "anna-1"),
            ("user", "anna"),
            ("upstream", "10.0.0.5:8080"),
            ("php", "8.3"),
            ("plan", "small"),
            ("redirect", "www.anna.example"),
            ("suspended", "0"),
            ("note", "quotes ' \" ; and ${row.tenant} are a text"),
            ("nothing", ""),
        ];
        let (columns, uid) = judged(&said, Some(Ok(1_001))).unwrap();
        assert_eq!((columns.len(), uid), (8, Some(1_001)));
    }

    #[test]
    fn each_column_of_meaning_is_judged_by_it() {
        for (name, text) in [
            ("tenant", "own"),
            ("tenant", "../anna"),
            ("tenant", ".anna"),
            ("tenant", "a b"),
            ("user", "a/b"),
            ("root", ".."),
            ("root", "/etc"),
            ("plan", "${row.x}"),
            ("certificate", "-a"),
            ("php", "8.3; rm"),
            ("php", "latest"),
            ("upstream", "unix:/run/nagaya.sock"),
            ("upstream", "/run/nagaya.sock"),
            ("upstream", "10.0.0.1"),
            ("upstream", "http://"),
            ("upstream", "https://a:443"),
            ("upstream", "http://a:80/path"),
            ("upstream", "a:99999"),
            ("upstream", "a:0"),
            ("upstream", "::1:80"),
            ("upstream", "a b:80"),
            ("upstream", "file://a:80"),
            ("redirect", "https://a.example"),
            ("redirect", "A.example."),
            ("redirect", "a.example/x"),
            ("suspended", "maybe"),
            ("any", "two\nlines"),
            ("any", "nul\0"),
            ("a b", "x"),
        ] {
            let wrong = judged(&[(name, text)], None).expect_err(text);
            assert!(
                wrong.contains(name) || name == "a b",
                "{name}: {text}: {wrong}"
            );
        }
        let long = "x".repeat(1 << 20);
        assert!(
            judged(&[("any", &long)], None)
                .unwrap_err()
                .contains("4096 bytes")
        );
        let twice = judged(&[("a", "x"), ("a", "y")], None).unwrap_err();
        assert!(twice.contains("twice"), "{twice}");
        let most = "x".repeat(4_000);
        let many: Vec<_> = ["a", "b", "c", "d", "e"]
            .iter()
            .map(|name| (*name, most.as_str()))
            .collect();
        assert!(judged(&many, None).unwrap_err().contains("16384"));
    }

    #[test]
    fn a_row_that_says_that_it_is_another_hosts_is_none_of_the_host_asked_for() {
        let row = |host: &str, tenant: &str| raw(&[("Host", host), ("tenant", tenant)]);
        let rows = vec![
            row("b\u{e4}nk.example", "thief"),
            row("Bank.example.", "bank"),
        ];
        let columns = one("bank.example", rows).unwrap().unwrap();
        assert_eq!(columns[1], ("tenant".to_owned(), "bank".to_owned()));
        let padded = vec![row("bank.example    ", "bank")];
        assert!(one("bank.example", padded).unwrap().is_some());
        let others = vec![row("bahnk.example", "thief")];
        assert_eq!(one("bank.example", others), Ok(None));
        let many = (0..ROWS_OF_HOST_MAX).map(|at| row("b\u{e4}nk.example", &format!("t{at}")));
        let wrong = one("bank.example", many.collect()).unwrap_err();
        assert!(wrong.contains("compare bytes"), "{wrong}");
    }

    #[test]
    fn names_of_columns_are_the_same_in_letters_of_either_case() {
        let wrong = judged(&[("Suspended", "maybe")], None).unwrap_err();
        assert!(wrong.contains("`suspended`"), "{wrong}");
        let wrong = judged(&[("tenant", "anna"), ("TENANT", "own")], None).unwrap_err();
        assert!(wrong.contains("twice"), "{wrong}");
        for upstream in ["10.0.0.5:80", "http://app.internal:80/", "[2001:db8::1]:80"] {
            assert!(
                judged(&[("Upstream", upstream)], None).is_ok(),
                "{upstream}"
            );
        }
    }

    #[test]
    fn users_below_the_least_and_our_own_are_refused() {
        for uid in [
            Ok(0),
            Ok(999),
            Ok(65_534),
            Err("there is no user `x`".to_owned()),
        ] {
            assert!(judged(&[("user", "x")], Some(uid)).is_err());
        }
    }

    #[test]
    fn two_rows_and_wrong_types_are_told() {
        let one = |rows| super::one("a.example", rows);
        assert_eq!(one(Vec::new()), Ok(None));
        let two = one(vec![raw(&[("a", "x")]), raw(&[("a", "x")])]);
        assert!(two.unwrap_err().contains("two rows"));
        let three = vec![Vec::new(), Vec::new(), Vec::new()];
        assert!(one(three).unwrap_err().contains("two rows"));
        let typed = one(vec![vec![("at".into(), Err("is a time".into()))]]);
        assert_eq!(typed.unwrap_err(), "column `at` is a time");
    }
}
