//! What a pool with walls sees of the machine's files.
//!
//! The idea: programs, libraries, and of `/etc` and `/run` what libraries look for, the same for
//! all; then what is the pool's own: its user's home, its sites' directories, its PHP. What a
//! pool needs beyond that an operator names (`[pools] see`). Whether something may be written is
//! for the file system to say; the common part cannot be in any case.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use config::model::{Model, Pool, PoolProgram, Root, Site};
use ipc::pools::{Seen, WallsManifest};
use os::user::User;

/// Size of a pool's own `/tmp`.
pub(super) const TMP_BYTES: u64 = 512 << 20;

/// What every pool sees, where it is there.
const COMMON: [&str; 61] = [
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/usr",
    // The loader, names of users and machines, certificates, zones.
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/timezone",
    // Languages and their libraries.
    "/etc/freetds",
    "/etc/fonts",
    "/etc/ImageMagick-6",
    "/etc/ImageMagick-7",
    "/etc/magic",
    "/etc/mailname",
    "/etc/my.cnf",
    "/etc/my.cnf.d",
    "/etc/mysql",
    "/etc/odbc.ini",
    "/etc/odbcinst.ini",
    "/etc/papersize",
    "/etc/perl",
    "/etc/php",
    "/etc/php.d",
    "/etc/php.ini",
    "/etc/postgresql-common",
    "/etc/python3",
    "/etc/vips",
    "/var/cache/fontconfig",
    "/var/lib/ghostscript",
    "/var/lib/php/modules",
    // Sockets of databases and of who knows names.
    "/run/mysqld",
    "/run/nscd",
    "/run/postgresql",
    "/run/systemd/resolve",
    "/var/run/mysqld",
    "/var/run/nscd",
    "/var/run/postgresql",
    "/var/lib/sss/mc",
    "/var/lib/sss/pipes",
];

/// What every pool with walls sees.
pub(super) fn common(model: &Model) -> Vec<Seen> {
    let common = COMMON.iter().map(|path| seen(PathBuf::from(path), false));
    let wished = model.pool_terms.see.iter();
    let wished = wished.map(|path| seen(path.clone(), true));
    // For `nagaya sendmail`.
    let own = os::process::program_path().ok();
    let own = own.filter(|path| !path.starts_with("/usr"));
    let own = own.map(|path| seen(path, false));
    in_order(common.chain(wished).chain(own))
}

/// What a pool sees beside that.
pub(super) fn of(model: &Model, pool: &Pool) -> WallsManifest {
    let roots = roots(model, pool).map(|(_, root)| seen(root.within.clone(), true));
    let home = pool.user.as_deref().and_then(home);
    let home = home.map(|path| seen(path, true));
    let own = Seen {
        path: model.pool_terms.directory.join(&pool.id),
        is_writable: true,
        is_optional: false,
    };
    let program = match &pool.program {
        PoolProgram::Php(php) => {
            let php = model.php.get(php.php);
            php.map_or_else(Vec::new, |php| of_program(&php.program))
        }
        PoolProgram::App(app) => {
            let program = app.command.first().map(Path::new);
            let program = program.filter(|path| path.is_absolute());
            let mut sees = program.map_or_else(Vec::new, of_program);
            sees.push(seen(app.directory.clone(), true));
            sees
        }
    };
    WallsManifest {
        sees: in_order(roots.chain(home).chain([own]).chain(program)),
        tmp_bytes: TMP_BYTES,
    }
}

/// The roots whose programs a pool runs, each with its site: of that and its mounts those that have
/// its user.
pub(super) fn roots<'a>(
    model: &'a Model,
    pool: &'a Pool,
) -> impl Iterator<Item = (&'a Site, &'a Root)> {
    let sites = pool.sites.iter().filter_map(move |at| model.sites.get(*at));
    sites.flat_map(move |site| {
        let roots = site.roots_of(pool.user.as_ref());
        roots.map(move |(_, root)| (site, root))
    })
}

fn seen(path: PathBuf, is_writable: bool) -> Seen {
    Seen {
        path,
        is_writable,
        is_optional: true,
    }
}

/// The home of a user, where there is one of that user's own: not one that many share, nor `/`.
fn home(name: &str) -> Option<PathBuf> {
    let home = os::user::home(name).ok()?;
    let user = User::look_up(name).ok()?;
    let facts = std::fs::symlink_metadata(&home).ok()?;
    let is_own = home.is_absolute() && home.parent().is_some() && facts.uid() == user.uid;
    is_own.then_some(home)
}

/// The tree that a program outside of `/usr` is installed in: below `/opt` all of its vendor's, whose
/// packages lean on each other, and its settings in `/etc/opt`.
pub(super) fn of_program(program: &Path) -> Vec<Seen> {
    let system = ["/usr", "/bin", "/sbin"];
    if system.iter().any(|system| program.starts_with(system)) {
        return Vec::new();
    }
    let below = program.strip_prefix("/opt").ok();
    if let Some(vendor) = below.and_then(|below| below.components().next()) {
        let trees = ["/opt", "/etc/opt"].map(|top| Path::new(top).join(vendor));
        return trees.map(|tree| seen(tree, false)).into();
    }
    let mut tree = program.parent().unwrap_or(program);
    for inner in [&["sbin", "bin", "libexec"][..], &["usr"]] {
        let name = tree.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| inner.contains(&name)) {
            tree = tree.parent().unwrap_or(tree);
        }
    }
    // What would be half the machine is the program alone.
    let is_small = tree.components().count() > 2;
    vec![seen(
        if is_small { tree } else { program }.to_owned(),
        false,
    )]
}

/// Each after what it lies in, and none twice; where one lies in another that can be had the same
/// way it is left out.
fn in_order(sees: impl Iterator<Item = Seen>) -> Vec<Seen> {
    let mut sorted: Vec<Seen> = sees.collect();
    sorted.sort_by(|one, other| {
        let by_path = one.path.cmp(&other.path);
        // Of two the one that can be written, and has to be there.
        by_path
            .then((other.is_writable, !other.is_optional).cmp(&(one.is_writable, !one.is_optional)))
    });
    let mut kept: Vec<Seen> = Vec::new();
    for seen in sorted {
        let covers = |above: &Seen| {
            seen.path.starts_with(&above.path)
                && (above.is_writable || !seen.is_writable)
                && (!above.is_optional || seen.is_optional)
        };
        if !kept.iter().any(covers) {
            kept.push(seen);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(sees: &[Seen]) -> Vec<String> {
        let shown = |it: &Seen| {
            let way = if it.is_writable { "w" } else { "r" };
            format!("{way} {}", it.path.display())
        };
        sees.iter().map(shown).collect()
    }

    #[test]
    fn what_lies_in_another_comes_after_it_or_not_at_all() {
        let sees = [
            seen("/h/u/www".into(), true),
            seen("/srv/a".into(), true),
            seen("/srv".into(), false),
            seen("/h/u".into(), true),
            seen("/srv/b".into(), false),
            seen("/h/u".into(), false),
            seen("/srv-x".into(), false),
        ];
        let kept = in_order(sees.into_iter());
        assert_eq!(paths(&kept), ["w /h/u", "r /srv", "w /srv/a", "r /srv-x"]);
    }

    #[test]
    fn a_program_brings_the_tree_it_is_installed_in() {
        for (program, trees) in [
            ("/usr/sbin/php-fpm8.2", &[][..]),
            (
                "/opt/remi/php82/root/usr/sbin/php-fpm",
                &["r /opt/remi", "r /etc/opt/remi"],
            ),
            ("/srv/php/8.2/sbin/php-fpm", &["r /srv/php/8.2"]),
            ("/srv/php/8.2/usr/bin/php-fpm", &["r /srv/php/8.2"]),
            ("/srv/sbin/php-fpm", &["r /srv/sbin/php-fpm"]),
        ] {
            assert_eq!(paths(&of_program(Path::new(program))), trees, "{program}");
        }
    }

    #[test]
    fn what_is_common_is_in_order_and_is_the_machines_alone() {
        let common = COMMON.iter().map(|path| seen(PathBuf::from(path), false));
        let kept = in_order(common);
        assert_eq!(kept.len(), COMMON.len());
        for closed in [
            "/etc/shadow",
            "/home",
            "/root",
            "/proc",
            "/dev",
            "/sys",
            "/tmp",
        ] {
            let sees = |seen: &Seen| Path::new(closed).starts_with(&seen.path);
            assert!(!kept.iter().any(sees), "{closed}");
        }
    }
}
