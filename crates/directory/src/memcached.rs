//! Rows in memcached, asked for first.
//!
//! The idea: whoever reaches memcached can write there, and on a shared machine that is anybody. What this
//! directory puts there carries a MAC under a key of its own over directory, host, expiry and row; what has none, or
//! another's, is as if it were not there. Where rows of others are believed, they stand under the bare host.

use std::rc::Rc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use ipc::directory::DirectorySettings;
use sha2::Sha256;
use stores::Stores;
use stores::memcached::{KEY_BYTES_MAX, Memcached};

use crate::judge::RawRow;
use crate::snapshot::now_ms;
use crate::source::row_of_json;

/// Bytes of a MAC, and of the expiry behind it.
const MAC_BYTES: usize = 32;
const EXPIRY_BYTES: usize = 8;
/// Bytes of a value of somebody else's.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// The column that a bare text stands for.
const BARE_COLUMN: &str = "upstream";

/// What a directory keeps in memcached.
pub(crate) struct RowCache {
    client: Rc<Memcached>,
    name: String,
    keep_ms: u64,
    /// `None` where rows of others are believed.
    key: Option<[u8; 32]>,
}

/// A row from there, and how old it is.
pub(crate) type Cached = (RawRow, Duration);

impl RowCache {
    /// The one that is configured, if there is one.
    pub(crate) fn new(
        settings: &DirectorySettings,
        stores: &Rc<Stores>,
        key: [u8; 32],
    ) -> Result<Option<RowCache>, String> {
        let Some(address) = &settings.memcached else {
            return Ok(None);
        };
        Ok(Some(RowCache {
            client: stores
                .memcached(address)
                .map_err(|error| error.to_string())?,
            name: settings.name.clone(),
            keep_ms: settings.keep_ms,
            key: (!settings.trusts_unsigned).then_some(key),
        }))
    }

    /// The row of a host, if one is there that is believed.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) async fn row(&self, host: &str) -> Result<Option<Cached>, String> {
        let Some(place) = self.place(host) else {
            return Ok(None);
        };
        let value = self.client.get(place).await;
        let value = value.map_err(|error| error.to_string())?;
        Ok(value.and_then(|value| match &self.key {
            Some(key) => self.opened(key, host, &value, now_ms()),
            None => Some((unsigned(&value)?, Duration::ZERO)),
        }))
    }

    /// Keeps a row.
    pub(crate) async fn put(&self, host: &str, columns: &[(String, String)]) {
        let Some(place) = self.place(host) else {
            return;
        };
        let value = match &self.key {
            Some(key) => self.sealed(key, host, columns, now_ms()),
            None => plain(columns),
        };
        let expiry = i64::try_from(self.keep_ms.div_ceil(1_000)).unwrap_or(1);
        // What is not kept is asked for again.
        let _ = self
            .client
            .set(place, value, expiry.clamp(1, 30 * 86_400))
            .await;
    }

    /// Forgets a host.
    pub(crate) async fn forget(&self, host: &str) {
        if let Some(place) = self.place(host) {
            let _ = self.client.delete(place).await;
        }
    }

    fn place(&self, host: &str) -> Option<Vec<u8>> {
        let place = match self.key {
            Some(_) => format!("nagaya:{}:{host}", self.name),
            None => host.to_owned(),
        };
        (place.len() <= KEY_BYTES_MAX).then(|| place.into_bytes())
    }

    fn mac(&self, key: &[u8; 32], host: &str, rest: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        for part in [self.name.as_bytes(), b"\0", host.as_bytes(), b"\0", rest] {
            mac.update(part);
        }
        Some(mac)
    }

    fn sealed(
        &self,
        key: &[u8; 32],
        host: &str,
        columns: &[(String, String)],
        now_ms: i64,
    ) -> Vec<u8> {
        let expiry = now_ms.saturating_add(i64::try_from(self.keep_ms).unwrap_or(i64::MAX));
        let row = postcard::to_stdvec(columns).unwrap_or_default();
        let rest = [&expiry.to_le_bytes()[..], &row].concat();
        let mac = self
            .mac(key, host, &rest)
            .map(|mac| mac.finalize().into_bytes().to_vec());
        [mac.unwrap_or_default(), rest].concat()
    }

    fn opened(&self, key: &[u8; 32], host: &str, value: &[u8], now_ms: i64) -> Option<Cached> {
        let (mac, rest) = value.split_at_checked(MAC_BYTES)?;
        self.mac(key, host, rest)?.verify_slice(mac).ok()?;
        let (expiry, row) = rest.split_first_chunk::<EXPIRY_BYTES>()?;
        let left = i64::from_le_bytes(*expiry).checked_sub(now_ms)?;
        let left = u64::try_from(left)
            .ok()
            .filter(|left| *left <= self.keep_ms)?;
        let columns: Vec<(String, String)> = postcard::from_bytes(row).ok()?;
        let row = columns
            .into_iter()
            .map(|(name, text)| (name, Ok(Some(text))));
        Some((row.collect(), Duration::from_millis(self.keep_ms - left)))
    }
}

/// A row as others write it: an object, or a text that is one column.
fn unsigned(value: &[u8]) -> Option<RawRow> {
    if value.len() > VALUE_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?.trim();
    if text.starts_with('{') {
        return serde_json::from_str(text).ok().map(row_of_json);
    }
    (!text.is_empty()).then(|| vec![(BARE_COLUMN.to_owned(), Ok(Some(text.to_owned())))])
}

fn plain(columns: &[(String, String)]) -> Vec<u8> {
    match columns {
        [(name, text)] if name == BARE_COLUMN => text.clone().into_bytes(),
        _ => {
            let columns = columns.iter();
            let columns = columns.map(|(name, text)| (name.clone(), text.clone().into()));
            let object: serde_json::Map<String, serde_json::Value> = columns.collect();
            serde_json::Value::Object(object).to_string().into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(name: &str, key: u8) -> (RowCache, [u8; 32]) {
        let client = Stores::new(stores::Limits::default()).memcached("127.0.0.1:1");
        let key = [key; 32];
        let cache = RowCache {
            client: client.expect("an address"),
            name: name.into(),
            keep_ms: 1_000,
            key: Some(key),
        };
        (cache, key)
    }

    #[test]
    fn a_row_is_believed_under_its_key_for_its_host_in_its_time_alone() {
        let (cache, key) = self::cache("customers", 1);
        let columns = [("tenant".to_owned(), "anna".to_owned())];
        let sealed = cache.sealed(&key, "a.example", &columns, 10_000);
        let (row, age) = cache
            .opened(&key, "a.example", &sealed, 10_400)
            .expect("ours");
        assert_eq!(row, [("tenant".to_owned(), Ok(Some("anna".to_owned())))]);
        assert_eq!(age, Duration::from_millis(400));
        assert!(cache.opened(&key, "b.example", &sealed, 10_400).is_none());
        assert!(cache.opened(&key, "a.example", &sealed, 11_001).is_none());
        assert!(cache.opened(&key, "a.example", &sealed, 9_999).is_none());
        let (other, other_key) = self::cache("customers", 2);
        assert!(
            other
                .opened(&other_key, "a.example", &sealed, 10_400)
                .is_none()
        );
        let (other, _) = self::cache("others", 1);
        assert!(other.opened(&key, "a.example", &sealed, 10_400).is_none());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(
                cache.opened(&key, "a.example", &changed, 10_400).is_none(),
                "{at}"
            );
            assert!(
                cache
                    .opened(&key, "a.example", &sealed[..at], 10_400)
                    .is_none(),
                "{at}"
            );
        }
    }

    #[test]
    fn rows_of_others_are_an_object_or_a_text() {
        let upstream = vec![("upstream".to_owned(), Ok(Some("10.0.0.1:80".to_owned())))];
        assert_eq!(unsigned(b"10.0.0.1:80\n"), Some(upstream.clone()));
        assert_eq!(unsigned(b"{\"upstream\":\"10.0.0.1:80\"}"), Some(upstream));
        for none in [&b""[..], b"{", b"\xff"] {
            assert_eq!(unsigned(none), None);
        }
        let columns = [("upstream".to_owned(), "a:1".to_owned())];
        assert_eq!(plain(&columns), b"a:1");
    }
}
