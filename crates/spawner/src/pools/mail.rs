//! What sends mail of a pool's programs: the words of `nagaya sendmail`, for a shell.
//!
//! The idea: what stands in them is spelt so that neither PHP's settings nor a shell see anything
//! but letters; whoever reads it back knows how (`%2B`).

use std::fmt::Write as _;

use ipc::pools::{PoolManifest, PoolSite};

/// Bytes of the words that tell of sites. More are not told, and the stamp has none.
const SITES_BYTES_MAX: usize = 8 << 10;

/// The command; `None` where this program or the server cannot be written there.
pub(super) fn sendmail(pool: &PoolManifest, sites: &[PoolSite], mail: &str) -> Option<String> {
    let program = os::process::program_path().ok()?;
    command(program.to_str()?, pool, sites, mail)
}

fn command(program: &str, pool: &PoolManifest, sites: &[PoolSite], mail: &str) -> Option<String> {
    let is_plain = |text: &&str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:[]".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    if ![program, mail].iter().all(is_plain) {
        return None;
    }
    let (id, tenant) = (spelt(pool.id.as_bytes()), spelt(pool.tenant.as_bytes()));
    let mut words =
        format!("{program} sendmail -t -i --server={mail} --pool={id} --tenant={tenant}");
    if let Some(user) = &pool.user {
        let _ = write!(words, " --user={}", spelt(user.as_bytes()));
    }
    let sites = sites.iter().map(|site| {
        let name = spelt(site.name.as_bytes());
        let root = spelt(site.root.as_os_str().as_encoded_bytes());
        format!("{name}={root}")
    });
    let sites = sites.collect::<Vec<_>>().join(",");
    if (1..=SITES_BYTES_MAX).contains(&sites.len()) {
        let _ = write!(words, " --sites={sites}");
    }
    Some(words)
}

fn spelt(bytes: &[u8]) -> String {
    let mut spelt = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            true => spelt.push(char::from(*byte)),
            false => {
                let _ = write!(spelt, "%{byte:02X}");
            }
        }
    }
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::tests::pool_named;

    fn pool(tenant: &str) -> PoolManifest {
        PoolManifest {
            id: "a-1".into(),
            name: "php 8.2 of a".into(),
            user: Some("u$1".into()),
            directory: "/p/a-1".into(),
            socket: "/p/a-1.sock".into(),
            ..pool_named(tenant)
        }
    }

    fn site(name: &str, root: &str) -> PoolSite {
        PoolSite {
            name: name.into(),
            root: root.into(),
        }
    }

    #[test]
    fn no_name_is_more_than_a_word_of_the_shell() {
        let sites = [site("*.a.test", "/srv/`id`;a b"), site("b", "")];
        let words = command("/usr/bin/nagaya", &pool("a'b\"c $(d)"), &sites, "[::1]:25").unwrap();
        assert_eq!(
            words,
            "/usr/bin/nagaya sendmail -t -i --server=[::1]:25 --pool=a-1 --tenant=a%27b%22c%20%24%28d%29 \
             --user=u%241 --sites=%2A.a.test=/srv/%60id%60%3Ba%20b,b="
        );
        assert_eq!(command("/usr/bin/nagaya", &pool("a"), &[], "a;b:25"), None);
        assert_eq!(command("/opt/my $x/nagaya", &pool("a"), &[], "a:25"), None);
    }

    #[test]
    fn more_sites_than_a_command_should_have_are_not_told() {
        let sites: Vec<_> = (0..1_000)
            .map(|at| site(&format!("site-{at}.test"), "/srv"))
            .collect();
        let words = command("/usr/bin/nagaya", &pool("a"), &sites, "a:25").unwrap();
        assert!(
            !words.contains("--sites") && words.ends_with("--user=u%241"),
            "{words}"
        );
    }
}
