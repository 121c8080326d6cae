//! Where a virtual host's files and programs lie.

use crate::apache::import;

/// What a virtual host says, and what of it must stand in the site.
const ROWS: &[(&str, &str)] = &[
    // Links: followed to anywhere where nothing is said, and to what is their owner's.
    ("", "symlinks = \"allow\"\nwithin = \"/\""),
    (
        "<Directory />\nOptions Indexes\n</Directory>\n<Directory /srv/a>\nOptions +SymLinksIfOwnerMatch\n</Directory>",
        "symlinks = \"owner\"\nwithin = \"/\"",
    ),
    (
        "Alias /b /srv/b\n<Directory /srv/b>\nOptions SymLinksIfOwnerMatch\n</Directory>",
        "root = \"/srv/b\"\nsymlinks = \"owner\"\nwithin = \"/\"",
    ),
    // A program for all below a path.
    (
        "ScriptAlias /cgit/ /usr/lib/cgit/cgit.cgi/",
        "root = \"/usr/lib/cgit\"\ntry = [\"/cgit.cgi\"]",
    ),
    (
        "ScriptAlias /cgit/ /usr/lib/cgit/cgit.cgi/",
        "match = { path_regex = \"^/cgit(/.*)?$\" }\n\
         handler = { cgi = { params = { set = { SCRIPT_NAME = \"/cgit\", PATH_INFO = \"$1\" } } } }",
    ),
    (
        "ScriptAlias /graphs/munin-cgi-graph /usr/lib/munin/cgi/munin-cgi-graph",
        "path = \"/graphs/munin-cgi-graph\"\nroot = \"/usr/lib/munin/cgi\"\ntry = [\"/munin-cgi-graph\"]",
    ),
    (
        "ScriptAlias /a/a.cgi /usr/lib/cgi-bin/a.cgi\n<Directory /srv/a>\nDirectoryIndex a.cgi\n</Directory>",
        "match = { path = \"*/\", file = \"/usr/lib/cgi-bin/a.cgi\" }\n\
         handler = { cgi = { params = { set = { SCRIPT_NAME = \"/a/a.cgi\" } } } }",
    ),
    // Pages say their charset themselves unless it is said.
    ("", "path = \"/\", text = '''\nAddDefaultCharset Off\n'''"),
    (
        "AddDefaultCharset EUC-JP",
        "path = \"/\", text = '''\nAddDefaultCharset EUC-JP\n'''",
    ),
    // A handler that is not had keeps closed what it is for, and nothing beside.
    (
        "AddHandler type-map var",
        "match = { file = \"*.var\" }\ndeny = \"all\"",
    ),
];

#[test]
fn files_links_and_programs_are_where_they_were() {
    for (body, expected) in ROWS {
        let (_, site) = import(body);
        assert!(
            site.contains(expected),
            "{body}\n-- lacks --\n{expected}\n{site}"
        );
    }
}

#[test]
fn links_that_were_not_followed_lead_nowhere() {
    let (_, site) = import("<Directory />\nOptions None\n</Directory>");
    assert!(!site.contains("within"), "{site}");
}

#[test]
fn a_program_is_told_from_a_directory_of_programs() {
    for target in ["/usr/lib/cgi-bin", "/usr/lib/cgi-bin/", "/srv/programs"] {
        let (_, site) = import(&format!("ScriptAlias /cgi-bin {target}"));
        assert!(
            site.contains("match = { path = \"/cgi-bin/*\" }\nhandler = { cgi = true }"),
            "{site}"
        );
        assert!(!site.contains("try ="), "{site}");
    }
}
