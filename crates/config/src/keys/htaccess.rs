//! Keys of `[htaccess]`, and of `htaccess` on a site.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};

pub(super) const HTACCESS_OF_PROCESS: Key = key(
    "htaccess",
    Kind::Other("table"),
    Absent("its defaults"),
    "What all sites with `.htaccess` files share.",
    "htaccess = { cached = \"256MiB\" }",
);
pub(super) const HTACCESS_OF_SITE: Key = key(
    "htaccess",
    Kind::Other("table"),
    Absent("such files count for nothing, and are never served"),
    "Has `.htaccess` files below the site's roots count, and sections of an Apache configuration.",
    "htaccess = { override = [\"FileInfo\", \"AuthConfig\", \"Limit\", \"Indexes\"] }",
);

pub(crate) const HTACCESS: Section = Section {
    title: "[htaccess]",
    about: "What all sites with `.htaccess` files share.",
    keys: &[key(
        "cached",
        Kind::Size(1 << 20, 64 << 30),
        Value("64MiB"),
        "What is kept of files that were understood, and of what those above a directory say together. Files with the \
         same bytes, read under the same `override`, are one. Where there is more, the site that has most gives up \
         what was asked for longest ago.",
        "cached = \"256MiB\"",
    )],
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
             that name. Empty, as `\"None\"` alone, no file is looked for. `override` of `directories` says otherwise for a \
             part.",
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
        key(
            "directories",
            Kind::Other("list of tables"),
            Value("[]"),
            "What the configuration itself says in the words of such files, for all that `<Directory>` is used for in \
             Apache. It counts whatever `override` says.",
            "directories = [{ path = \"/srv/wiki\", text = 'Require ip 192.0.2.0/24' }]",
        ),
    ],
};

pub(crate) const DIRECTORY_SECTION: Section = Section {
    title: "directories = [{ … }]",
    about: "The text of an Apache `<Directory>` section, obeyed as a `.htaccess` file that lies in that directory, before \
        the one that does. All that files may say may stand there, in `<Files>`, `<If>` and the others, too; and `php_admin_flag engine`, which \
        no file takes back. What a file \
        would be answered 500 for is refused, with its line; what is left out is warned of.",
    keys: &[
        key(
            "path",
            Kind::Text,
            Required,
            "The directory, absolute: below a root of the site, the root itself, or one above it. Links are not \
             followed in it. With `*`, `?` or `[a-z]`, which leave slashes alone, it is all directories of such names, in \
             their place among those as deep.",
            "path = \"/srv/wiki\"",
        ),
        key(
            "override",
            Kind::Other("list of texts"),
            Absent("as it is for the directory above"),
            "What `.htaccess` files in that directory, and below it, may say, in place of what the site's `override` \
             allows: empty, none of them is looked for. Of several the innermost holds.",
            "override = [\"AuthConfig\"]",
        ),
        key(
            "text",
            Kind::Text,
            Value(""),
            "What stands in the section. In `'''` a backslash is a backslash.",
            "text = '''\nRewriteEngine On\nRewriteRule ^old/(.*)$ new/$1 [R=301,L]\n'''",
        ),
        key(
            "context",
            Kind::Choice(&["directory", "server"]),
            Value("directory"),
            "Whose it is. What stands in a virtual host outside of sections is the `server`'s: it covers the whole site, \
             mounts too and what has no files, before all directories; its `RewriteRule` sees the path with the slash at \
             its begin, comes before those of directories and does not take their place, and `RewriteBase` does not \
             count. With `END` those of directories are not gone through.",
            "context = \"server\"",
        ),
    ],
};
