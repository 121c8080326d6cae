//! Keys of `[htaccess]`, and of `htaccess` on a site.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};

pub(super) const HTACCESS_OF_PROCESS: Key = key(
    "htaccess",
    Kind::Other("table"),
    Absent("its defaults"),
    "What all sites with `.htaccess` files share.",
    "htaccess = { cached = 50000 }",
);
pub(super) const HTACCESS_OF_SITE: Key = key(
    "htaccess",
    Kind::Other("table"),
    Absent("such files count for nothing, and are never served"),
    "Has `.htaccess` files below the site's roots count.",
    "htaccess = { override = [\"FileInfo\", \"AuthConfig\", \"Limit\", \"Indexes\"] }",
);

pub(crate) const HTACCESS: Section = Section {
    title: "[htaccess]",
    about: "What all sites with `.htaccess` files share.",
    keys: &[key(
        "cached",
        Kind::Count(1, 1_000_000),
        Value("20000"),
        "Files that are kept parsed, of all sites; those with the same bytes, read under the same `override`, are one.",
        "cached = 50000",
    )],
    later: &[],
};

pub(crate) const SITE_HTACCESS: Section = Section {
    title: "htaccess = { … }",
    about: "`.htaccess` files of a site: that of each directory from the root of the site or mount to the file asked for, \
        read as Apache reads them and in force for the next request. Lines about access never fail open: one that is \
        unknown, not allowed or not understood refuses what it covers. Rules of the site come after, and `deny` of either \
        side denies.",
    keys: &[
        key(
            "override",
            Kind::Other("list of texts"),
            Required,
            "What files may say, as `AllowOverride` has it: `\"All\"`, `\"AuthConfig\"`, `\"FileInfo\"`, `\"Indexes\"`, \
             `\"Limit\"`, `\"Options\"`, `\"Options=Indexes,…\"`, `\"Nonfatal=…\"`; any other word allows the directive of \
             that name.",
            "override = [\"FileInfo\", \"Limit\", \"Options=Indexes\"]",
        ),
        key(
            "unknown",
            Kind::Choice(&["log", "error"]),
            Value("log"),
            "What becomes of a line that is unknown or not allowed, and not about access: left out, and told once for \
             each version of its file, or the whole directory is answered 500 as Apache does.",
            "unknown = \"error\"",
        ),
        key(
            "handlers",
            Kind::Other("table of versions of PHP"),
            Value("{}"),
            "Handlers that files name, and the `[php.VERSION]` that runs then, in a pool of its own. Other names of \
             handlers for PHP stand for the PHP of the site's first rule with `php` or `fastcgi`.",
            "handlers = { \"application/x-httpd-ea-php82\" = \"8.2\" }",
        ),
    ],
    later: &[],
};
