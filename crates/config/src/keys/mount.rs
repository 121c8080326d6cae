//! Keys of `[[sites.mounts]]`.

use super::key::Fallback::{Absent, Required, Value};
use super::key::{Kind, Section, key};
use super::rewrite::REWRITE_OF_LEVEL;

pub(crate) const MOUNT: Section = Section {
    title: "[[sites.mounts]]",
    about: "A root of its own below a path of the site, as Apache's `Alias`: several applications below one host. \
        It is resolved as a site's root is; of several mounts the longest path counts. Rules and settings are the site's, \
        and their paths whole ones. Programs see the mount's root as `DOCUMENT_ROOT`, and its path in `SCRIPT_NAME`. At \
        most 64 a site.",
    keys: &[
        key(
            "path",
            Kind::Text,
            Required,
            "What paths below it begin with. `/wiki` stands for itself and all below `/wiki/`, not for `/wikis`; without its \
             slash it is redirected as a directory is, but where `try` names files alone.",
            "path = \"/wiki\"",
        ),
        key(
            "root",
            Kind::Text,
            Required,
            "Directory of its files, relative to the configuration file. It must exist.",
            "root = \"/usr/share/mediawiki\"",
        ),
        key(
            "within",
            Kind::Text,
            Absent("`root`"),
            "No file outside this directory is ever served below the mount. `root` lies beneath it.",
            "within = \"/srv\"",
        ),
        key(
            "symlinks",
            Kind::Choice(&["deny", "owner", "allow"]),
            Value("owner"),
            "Symbolic links below `root`, as of a site.",
            "symlinks = \"deny\"",
        ),
        key(
            "index",
            Kind::Other("list of file names"),
            Absent("as the site's"),
            "Names tried in a directory, in order.",
            "index = [\"index.php\"]",
        ),
        key(
            "try",
            Kind::Other(
                "list of `\"$path\"`, `\"$path/\"`, `\"$path.SUFFIX\"`, `\"/FILE\"`, `\"=STATUS\"`",
            ),
            Value("[\"$path\", \"$path/\"]"),
            "What a path is resolved to, as of a site: `/FILE` is one below the mount's `root`.",
            "try = [\"$path\", \"$path/\", \"/index.php\"]",
        ),
        key(
            "user",
            Kind::Text,
            Absent("the site's"),
            "The user that CGI programs and `php` run as below the mount; an `app` runs as the site's. Uid 0 is refused.",
            "user = \"wiki\"",
        ),
        REWRITE_OF_LEVEL,
    ],
};
