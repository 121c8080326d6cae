//! Whether a row can be used.
//!
//! The idea: whoever fills the table is not trusted. Columns of meaning are judged here as their meaning
//! wants it, all others as texts; the first thing that is wrong is told by column, and the row is out.

use std::collections::BTreeSet;

use ipc::directory::{COLUMN_BYTES_MAX, COLUMN_NAME_BYTES_MAX, COLUMNS_MAX, ROW_BYTES_MAX};

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

/// The row of a host, where it has one alone.
pub(crate) fn one(rows: Vec<RawRow>) -> Result<Option<Vec<(String, String)>>, String> {
    let mut rows = rows.into_iter();
    match (rows.next(), rows.next()) {
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
            "redirect" => is_host(text),
            "suspended" => is_suspended(text).is_some(),
            _ => true,
        };
        if !fits {
            let meant = match name.as_str() {
                "php" => "is no version, as `8.3`",
                "upstream" => "is neither a server's address with a port nor a URL",
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

/// `host:port`, or a URL of `http` or `https`; which servers are allowed is judged where one connects.
fn is_upstream(text: &str) -> bool {
    let address = ["http://", "https://"]
        .into_iter()
        .find_map(|it| text.strip_prefix(it));
    let (authority, has_port) = match address {
        Some(rest) => (rest.split('/').next().unwrap_or_default(), true),
        None => {
            let port = text.rsplit_once(':').map(|(_, port)| port);
            (text, port.is_some_and(|port| port.parse::<u16>().is_ok()))
        }
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
    has_port && !authority.is_empty() && authority.len() <= 300 && authority.bytes().all(fits)
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
        let columns = one(vec![raw(said)])?.unwrap_or_default();
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
            ("upstream", "a b:80"),
            ("upstream", "file://a:80"),
            ("redirect", "https://a.example"),
            ("redirect", "A.example"),
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
        assert_eq!(one(Vec::new()), Ok(None));
        let two = one(vec![raw(&[("a", "x")]), raw(&[("a", "x")])]);
        assert!(two.unwrap_err().contains("two rows"));
        let three = vec![Vec::new(), Vec::new(), Vec::new()];
        assert!(one(three).unwrap_err().contains("two rows"));
        let typed = one(vec![vec![("at".into(), Err("is a time".into()))]]);
        assert_eq!(typed.unwrap_err(), "column `at` is a time");
    }
}
