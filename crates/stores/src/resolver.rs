//! Resolver of servers to addresses, asked of the system on its helper threads.
//!
//! A resolver that hangs holds as many helper threads as this file allows and no more, also when
//! those who asked have gone. What was found is remembered for some seconds, so that a script that
//! connects for each request does not ask each time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::error::{Error, Kind};

/// Questions under way at once, each on a helper thread.
const LOOKUPS_MAX: usize = 4;
/// How long an answer holds.
const FRESH: Duration = Duration::from_secs(5);
/// Resolver remembered; one more, and all are forgotten.
const NAMES_MAX: usize = 256;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// The names one worker has asked for.
pub(crate) struct Resolver {
    lookups: Arc<Semaphore>,
    known: RefCell<HashMap<String, Known>>,
}

struct Known {
    until: Instant,
    addresses: Rc<[IpAddr]>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            known: RefCell::default(),
        }
    }
}

impl Resolver {
    /// The addresses of a host, at least one.
    ///
    /// # Errors
    /// [`Kind::Lookup`] when the system knows none.
    pub(crate) async fn addresses(&self, host: &str) -> Result<Rc<[IpAddr]>, Error> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Rc::new([address]));
        }
        if let Some(addresses) = self.remembered(host) {
            return Ok(addresses);
        }
        let addresses = self.ask(host).await.map_err(|reason| {
            Error::new(
                Kind::Lookup,
                format!("look up {host}: {reason}: see /etc/hosts and /etc/resolv.conf"),
            )
        })?;
        self.remember(host, &addresses);
        Ok(addresses)
    }

    fn remembered(&self, host: &str) -> Option<Rc<[IpAddr]>> {
        let known = self.known.borrow();
        let found = known.get(host)?;
        (Instant::now() < found.until).then(|| Rc::clone(&found.addresses))
    }

    fn remember(&self, host: &str, addresses: &Rc<[IpAddr]>) {
        let mut known = self.known.borrow_mut();
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        let (until, addresses) = (Instant::now() + FRESH, Rc::clone(addresses));
        known.insert(host.to_owned(), Known { until, addresses });
    }

    async fn ask(&self, host: &str) -> Result<Rc<[IpAddr]>, String> {
        let place = Arc::clone(&self.lookups).acquire_owned().await;
        let place = place.expect("places are never closed");
        let host = host.to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            let answer = system(&host);
            // Held by the thread, not by whoever asked: that one may have gone.
            drop(place);
            answer
        });
        let found = asked.await.map_err(|error| error.to_string())?;
        let found = found.map_err(|error| error.to_string())?;
        match found.is_empty() {
            true => Err("it has no address".to_owned()),
            false => Ok(found.into()),
        }
    }
}

fn system(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in (host, 0).to_socket_addrs()? {
        if !found.contains(&address.ip()) && found.len() < ADDRESSES_MAX {
            found.push(address.ip());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_needs_no_lookup_and_a_name_is_remembered() {
        let names = Resolver::default();
        let address = names.addresses("127.0.0.1").await.expect("an address");
        assert_eq!(&*address, &[IpAddr::from([127, 0, 0, 1])]);
        assert!(names.known.borrow().is_empty());
        names.addresses("localhost").await.expect("an address");
        assert!(names.remembered("localhost").is_some());
    }

    #[tokio::test]
    async fn a_name_nobody_knows_is_an_error_with_the_name() {
        let names = Resolver::default();
        // Too long for a name, so that no resolver has to be asked.
        let host = format!("{}.invalid", "n".repeat(64));
        let error = names.addresses(&host).await.expect_err("no address");
        assert_eq!(error.kind(), Kind::Lookup);
        assert!(
            error.to_string().starts_with(&format!("look up {host}: ")),
            "{error}"
        );
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let names = Resolver::default();
        let one: Rc<[IpAddr]> = Rc::new([IpAddr::from([127, 0, 0, 1])]);
        for number in 0..NAMES_MAX * 2 {
            names.remember(&format!("host-{number}"), &one);
        }
        assert!(names.known.borrow().len() <= NAMES_MAX);
    }
}
