//! What of a query the recorder is told: the values of a few named keys, and nothing else.
//!
//! The idea: whoever sees queries, a worker or a reader of logs, takes these values out of them, and the
//! rest goes no further.

/// Keys of campaigns, as most of the web has them.
const CAMPAIGN_KEYS: [&str; 3] = ["utm_source", "utm_medium", "utm_campaign"];
/// Bytes of a value of a query that is kept.
const VALUE_BYTES_MAX: usize = 120;
/// Parameters of a query that are looked at.
const PARAMETERS_MAX: usize = 100;

/// The parameters of a target.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a>(pub &'a str);

impl<'a> Query<'a> {
    /// Those behind the first `?` of a target.
    pub fn of(target: &'a str) -> Query<'a> {
        let query = target.split_once('?').map_or("", |(_, query)| query);
        Query(query.split('#').next().unwrap_or_default())
    }

    /// The value of a key, decoded; empty where there is none.
    pub fn text(&self, wanted: &str) -> String {
        let parameters = self.0.split('&').take(PARAMETERS_MAX);
        let mut values = parameters.filter_map(|it| it.split_once('='));
        let found = values.find(|(key, _)| *key == wanted);
        let Some((_, value)) = found else {
            return String::new();
        };
        decoded(&value.replace('+', " "))
    }

    /// The same, without needless spaces and not longer than one keeps.
    pub fn value(&self, wanted: &str) -> String {
        let value = self.text(wanted);
        let mut end = value.len().min(VALUE_BYTES_MAX);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        let value = value.get(..end).unwrap_or_default();
        value.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// By which campaign somebody came; empty where that is not said.
    pub fn campaign(&self) -> String {
        if !self.0.contains("utm_") {
            return String::new();
        }
        let values = CAMPAIGN_KEYS.map(|key| self.value(key));
        if values.iter().all(String::is_empty) {
            return String::new();
        }
        let shown = values.map(|value| if value.is_empty() { "-".into() } else { value });
        shown.join(" / ")
    }

    /// What is searched for by the first of these keys that says something, in lower case.
    pub fn search(&self, keys: &[String]) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let values = keys.iter().map(|key| self.value(key));
        let mut values = values.filter(|value| !value.is_empty());
        values.next().unwrap_or_default().to_lowercase()
    }
}

/// Escapes decoded where text comes of it, and no control character.
pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = match (first, after) {
            (b'%', [high, low, ..]) => char::from(*high)
                .to_digit(16)
                .zip(char::from(*low).to_digit(16)),
            _ => None,
        };
        let byte = digits.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        match byte.filter(|byte| !byte.is_ascii_control()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_query_named_values_are_kept_alone() {
        let query =
            Query::of("/s?q=%E7%8C%AB+Cat%0d%0a&token=secret&utm_source=news&utm_campaign=may#x");
        assert_eq!(query.search(&["s".into(), "q".into()]), "猫 cat%0d%0a");
        assert_eq!(query.campaign(), "news / - / may");
        assert_eq!(Query::of("/s").campaign(), "");
        let long = format!("/s?q={}", "あ".repeat(100));
        assert_eq!(
            Query::of(&long).search(&["q".into()]).len(),
            VALUE_BYTES_MAX
        );
    }
}
