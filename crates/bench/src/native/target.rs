//! A URL and how often it is asked for: `URL`, or `3@URL`.
//!
//! The weight stands in front, where no URL has an `@` after nothing but digits before its scheme.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use load::client::{REQUESTS_MAX, Url};

/// Greatest weight.
const WEIGHT_MAX: u32 = 1_000_000;
/// Longest file of URLs.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A URL with its weight.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Share among the requests.
    pub(crate) weight: u32,
    /// As it was written, without the weight.
    pub(crate) text: String,
    /// The same, read.
    pub(crate) url: Url,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (weight, text) = match text.split_once('@') {
            Some((digits, rest)) if all_digits(digits) => (weight(digits)?, rest),
            _ => (1, text),
        };
        let url = text
            .parse()
            .map_err(|error: load::Error| error.to_string())?;
        Ok(Target {
            weight,
            text: text.to_owned(),
            url,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weight {
            1 => f.write_str(&self.text),
            weight => write!(f, "{weight}@{}", self.text),
        }
    }
}

/// Reads a file of URLs, one a line; empty lines and such that begin with `#` are passed over.
pub(crate) fn from_file(path: &Path) -> Result<Vec<Target>, String> {
    let named = |reason: &dyn fmt::Display| format!("--urls {}: {reason}", path.display());
    let length = std::fs::metadata(path).map_err(|e| named(&e))?.len();
    if length > FILE_BYTES_MAX {
        return Err(named(&"longer than 16 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
    let targets = from_lines(&text).map_err(|reason| named(&reason))?;
    match targets.len() {
        0 => Err(named(&"names no URL: write one a line")),
        1..=REQUESTS_MAX => Ok(targets),
        many => Err(named(&format!("{many} URLs, at most {REQUESTS_MAX}"))),
    }
}

fn from_lines(text: &str) -> Result<Vec<Target>, String> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            line.parse()
                .map_err(|reason| format!("line {number}: {reason}"))
        })
        .collect()
}

fn weight(digits: &str) -> Result<u32, String> {
    match digits.parse() {
        Ok(weight @ 1..=WEIGHT_MAX) => Ok(weight),
        _ => Err(format!("weight {digits}: at least 1, at most {WEIGHT_MAX}")),
    }
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_stands_before_the_url_and_is_one_without() {
        let read = |text: &str| {
            text.parse::<Target>()
                .map(|target| (target.weight, target.text))
        };
        let plain = "http://127.0.0.1:8080/";
        assert_eq!(read(plain), Ok((1, plain.into())));
        assert_eq!(read(&format!("3@{plain}")), Ok((3, plain.into())));
        let with_at = "http://127.0.0.1/a@2";
        assert_eq!(read(with_at), Ok((1, with_at.into())));
        for text in [
            "0@http://127.0.0.1/",
            "99999999@http://127.0.0.1/",
            "3@",
            "",
            "ftp://a/",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let weighted: Target = "3@http://127.0.0.1/".parse().expect("reads");
        assert_eq!(weighted.to_string(), "3@http://127.0.0.1/");
    }

    #[test]
    fn a_file_names_urls_a_line_each_and_errors_say_which() {
        let targets = from_lines("# mix\n\n2@http://127.0.0.1/a\n  http://127.0.0.1/b  \n");
        let weights: Vec<u32> = targets.expect("reads").iter().map(|t| t.weight).collect();
        assert_eq!(weights, [2, 1]);
        let error = from_lines("http://127.0.0.1/\n\nnonsense://\n").expect_err("is none");
        assert!(error.starts_with("line 3: "), "{error}");
        assert!(from_file(Path::new("/nowhere/urls")).is_err_and(|e| e.contains("/nowhere/urls")));
    }
}
