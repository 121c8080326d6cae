//! php-fpm's pools, for sites whose PHP is to run in pools of the gateway's.
//!
//! The idea: a pool is told by the address that sites ask it at. What it says of its processes and
//! settings becomes `user` and `pool` of those sites, and nothing of it is needed where php-fpm stays.

use std::sync::Arc;

use crate::draft::{DraftKeys, SiteDraft, TomlItem};
use crate::ledger::Ledger;
use crate::{Fate, LINES_MAX, words};

/// Bytes of one setting: lists of functions that hosts forbid are long.
const SETTING_BYTES_MAX: usize = 4 * 1024;

/// Why php-fpm stays where nobody is known to run its programs as.
const NOBODYS: &str = "php-fpm stays for it: name its pools with `--pools`, for a pool of the gateway's wants a `user`";

/// Beginnings of keys that keep a pool's programs in.
const WALLS: [&str; 5] = [
    "chroot",
    "include",
    "php_admin",
    "security.limit_extensions",
    "apparmor_hat",
];

/// A file of php-fpm's pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolFile {
    /// Its name.
    pub name: String,
    /// What stands in it.
    pub text: String,
}

/// A pool.
#[derive(Debug, Default)]
struct FpmPool {
    name: String,
    /// Where it is asked, as `fastcgi` says it.
    address: Option<String>,
    /// What a site says in its place.
    site: DraftKeys,
    /// The lines that this is made of, each with what is different.
    lines: Vec<(usize, Fate, &'static str)>,
    /// Why php-fpm must stay: what it keeps from its programs would be lost.
    stays: Option<&'static str>,
}

/// All pools that are known.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    list: Vec<FpmPool>,
}

impl Pools {
    /// Reads files of pools.
    pub(crate) fn read(files: &[PoolFile], ledger: &Ledger) -> Self {
        let mut pools = Self::default();
        for file in files {
            let name: Arc<str> = Arc::from(&*file.name);
            let mut pool: Option<FpmPool> = None;
            for (line, number) in file.text.lines().take(LINES_MAX).zip(1_u32..) {
                let text = line.trim();
                if text.is_empty() || text.starts_with([';', '#']) {
                    continue;
                }
                let id = ledger.enter(&name, number, text);
                if let Some(title) = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                    pools.list.extend(pool.take());
                    ledger.idle(id, "it begins a pool");
                    pool = Some(FpmPool {
                        name: title.trim().to_owned(),
                        ..FpmPool::default()
                    });
                } else if let Some((pool, (key, value))) = pool.as_mut().zip(text.split_once('=')) {
                    let value = value.split(" ;").next().unwrap_or_default().trim();
                    pool.line(id, key.trim(), value.trim_matches('"'), ledger);
                } else {
                    ledger.idle(id, "it says nothing of a pool");
                }
            }
            pools.list.extend(pool);
        }
        pools
    }

    /// Has a site take over the pools that its rules are to run the PHP of.
    pub(crate) fn settle(&self, site: &mut SiteDraft, ledger: &Ledger) {
        for rule in &mut site.rules {
            let Some((address, line)) = rule.pool_at.take() else {
                continue;
            };
            match self.take(&address, &mut site.keys, ledger) {
                Ok(note) => ledger.differs(line, note),
                Err(note) => {
                    ledger.differs(line, note);
                    let fastcgi = TomlItem::table([("fastcgi", address.into())]);
                    rule.replace("handler", fastcgi);
                }
            }
        }
    }

    /// Gives a site what the pool at an address says: what is different then, or why php-fpm stays.
    fn take(
        &self,
        address: &str,
        site: &mut DraftKeys,
        ledger: &Ledger,
    ) -> Result<&'static str, &'static str> {
        let mut pools = self.list.iter();
        let found = pools.find(|pool| pool.address.as_deref() == Some(address));
        // A pool of nobody's would run as who serves, which is refused.
        let has_user = site.has("user") || found.is_some_and(|pool| pool.site.has("user"));
        let pool = match (found, has_user) {
            (_, false) => return Err(NOBODYS),
            (None, true) => return Ok("PHP runs in a pool of the gateway's"),
            (Some(pool), true) => pool,
        };
        let is_same = |key: &str| {
            site.get(key)
                .is_none_or(|it| pool.site.get(key) == Some(it))
        };
        let is_first = site.get("pool").is_none_or(|it| !it.has("processes"));
        if !is_same("user") || !(is_first || is_same("pool")) {
            return Err(
                "php-fpm stays for it: a site has one pool and one user, and this pool is another's",
            );
        }
        if let Some(why) = pool.stays {
            return Err(why);
        }
        site.merge(pool.site.clone());
        for (id, fate, note) in &pool.lines {
            ledger.say(*id, *fate, note);
        }
        Ok("PHP runs in a pool of the gateway's, as its pool did")
    }
}

impl FpmPool {
    /// Takes a line in; what it comes to is said once a site has the pool.
    fn line(&mut self, id: usize, key: &str, value: &str, ledger: &Ledger) {
        const UNSAID: &str = "no site takes its PHP here: php-fpm stays as it is";
        const STAYS: &str =
            "php-fpm stays for it: its pool keeps its programs in by a line that `pool` cannot say";
        let value = value.replace("$pool", &self.name);
        let Some(made) = self.made(id, key, &value) else {
            return ledger.idle(id, "pools of the gateway's need no such word");
        };
        ledger.idle(id, UNSAID);
        if made.is_none() && WALLS.iter().any(|it| key.starts_with(it)) {
            self.stays = Some(STAYS);
        }
        let is_open = ["php_value", "php_flag"]
            .iter()
            .any(|it| key.starts_with(it));
        let (fate, note) = match made {
            None => (
                Fate::NotCarried,
                "`pool` has no such key: see there what can be said",
            ),
            Some(()) if is_open => (Fate::Different, "pages cannot change it"),
            Some(()) => (Fate::Carried, ""),
        };
        self.lines.push((id, fate, note));
    }

    /// Whether the site says a line in its place; `None` where it need not.
    fn made(&mut self, id: usize, key: &str, value: &str) -> Option<Option<()>> {
        let count = |most: u64| value.parse().ok().filter(|it| (1..=most).contains(it));
        Some(match key.split_once('[').map_or(key, |(kind, _)| kind) {
            "listen" => {
                self.address = address_of(value);
                Some(())
            }
            "user" => words::is_user(value).then(|| self.site.put("user", value, &[id])),
            "pm.max_children" => {
                count(1_024).map(|it| self.put("processes", TomlItem::Count(it), id))
            }
            "pm.max_requests" if value == "0" => Some(()),
            "pm.max_requests" => {
                count(1_000_000).map(|it| self.put("requests", TomlItem::Count(it), id))
            }
            "request_terminate_timeout" => match words::milliseconds(value) {
                Some(0) => Some(()),
                Some(ms @ 1_000..=86_400_000) => {
                    let whole = config::duration(ms / 1_000 * 1_000);
                    self.put("time", whole.into(), id);
                    Some(())
                }
                _ => None,
            },
            kind @ ("php_value" | "php_flag" | "php_admin_value" | "php_admin_flag") => {
                let name = within(key).filter(|name| is_setting(name, value));
                name.map(|name| {
                    let is_on = ["on", "yes", "true", "1"].contains(&&*value.to_ascii_lowercase());
                    let item = match kind.ends_with("flag") {
                        true => TomlItem::Flag(is_on),
                        false => value.into(),
                    };
                    self.put("admin", TomlItem::table([(name, item)]), id);
                })
            }
            "env" => {
                let name = within(key).filter(|name| config::is_variable_name(name));
                let name = name.filter(|_| !value.starts_with('$'));
                name.map(|name| {
                    let text = value.replace('$', "$$");
                    self.site.put_in("env", name, text, &[id]);
                })
            }
            "security.limit_extensions" if is_php_alone(value) => Some(()),
            "security.limit_extensions"
            | "apparmor_hat"
            | "chroot"
            | "chdir"
            | "slowlog"
            | "include"
            | "access.log" => None,
            _ => return None,
        })
    }

    fn put(&mut self, name: &str, item: TomlItem, id: usize) {
        self.site.put_in("pool", name, item, &[id]);
    }
}

/// Whether files with these endings alone run in pools of the gateway's, too.
fn is_php_alone(endings: &str) -> bool {
    let mut endings = endings.split([' ', ',']).filter(|it| !it.is_empty());
    endings.all(|ending| [".php", ".phar"].contains(&ending))
}

/// The name in brackets.
fn within(key: &str) -> Option<&str> {
    key.split_once('[')?.1.strip_suffix(']')
}

/// The address that a pool listens at, as `fastcgi` says it.
fn address_of(listen: &str) -> Option<String> {
    if let Some(path) = words::file_path(listen) {
        return Some(format!("unix:{path}"));
    }
    let (host, port) = listen.rsplit_once(':').unwrap_or(("127.0.0.1", listen));
    words::address(host, port)
}

/// Whether a pool of ours may have a setting of PHP.
pub(crate) fn is_setting(name: &str, value: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.len() <= 128
        && name.bytes().all(fits);
    let is_odd = |c: char| c.is_control() || ['"', '\\'].contains(&c);
    is_name && !value.contains(is_odd) && !value.contains("${") && value.len() <= SETTING_BYTES_MAX
}
