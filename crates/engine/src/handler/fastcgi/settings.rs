//! Settings of PHP that `.htaccess` files give a page of a pool.
//!
//! php-fpm takes them with a request (`PHP_VALUE`), and its process keeps them for whatever it runs
//! next. So the connection stays open behind the reply, and the process is asked for its status with
//! what makes it forget them: it accepts nobody else before. What the pool's own settings say no
//! file changes.

use std::collections::BTreeSet;

use fastcgi::environment::Environment;
use fastcgi::record::{self, Connection};
use htaccess::php;
use ipc::pools::FPM_STATUS_PATH;

use crate::error::Result;
use crate::exchange::Exchange;

const PHP_VALUE: &[u8] = b"PHP_VALUE";

/// Adds the settings of a page to what its process in a pool is told, but for those that are fixed; what it is to
/// be asked afterwards, where there are any.
///
/// # Errors
/// They are too long.
pub(super) fn tell(
    exchange: &Exchange,
    fixed: &BTreeSet<Box<str>>,
    variables: &mut Environment,
) -> Result<Option<Vec<u8>>> {
    let Some(applied) = &exchange.route.htaccess else {
        return Ok(None);
    };
    let is_free = |name: &str| !fixed.contains(name);
    let settings = applied.decision.settings.php();
    let settings: Vec<_> = settings.filter(|(name, _)| is_free(name)).collect();
    if settings.is_empty() {
        return Ok(None);
    }
    let names: BTreeSet<&str> = settings.iter().map(|(name, _)| *name).collect();
    let before = variables.get(PHP_VALUE).unwrap_or_default();
    let lines = [before, b"\n", &*php::lines(settings.into_iter())].concat();
    variables.set(PHP_VALUE, lines.trim_ascii_start())?;
    forgetting(&names).map(Some)
}

/// A request that is answered by php-fpm itself and runs no page.
fn forgetting(names: &BTreeSet<&str>) -> Result<Vec<u8>> {
    let variables = php::forgetting(names);
    let own = [
        ("REQUEST_METHOD", "GET"),
        ("SCRIPT_NAME", FPM_STATUS_PATH),
        ("SCRIPT_FILENAME", FPM_STATUS_PATH),
    ];
    let own = own
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let others = variables.iter();
    let others = others.map(|(name, value)| (&**name, &**value));
    let mut out = Vec::new();
    record::begin(Connection::Close, &mut out);
    record::params(own.chain(others), &mut out)?;
    record::stdin_end(&mut out);
    Ok(out)
}
