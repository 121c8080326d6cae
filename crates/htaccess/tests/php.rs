//! Settings of PHP, as php-fpm is told them.

use htaccess::php;

#[test]
fn settings_are_found_by_their_names_and_walls_are_none_of_them() {
    for name in php::names() {
        assert!(php::is_known(name), "{name}");
    }
    for name in [
        "open_basedir",
        "disable_functions",
        "extension",
        "sendmail_path",
        "session.save_path",
        "opcache.enable",
        "user_ini.filename",
        "Memory_Limit",
        "",
    ] {
        assert!(!php::is_known(name), "{name}");
    }
}

#[test]
fn a_value_is_one_setting_whatever_it_is() {
    for (value, expected) in [
        (&b"64M"[..], &b"memory_limit='64M'\n"[..]),
        (b"", b"memory_limit=\"\"\n"),
        (b"'", b"memory_limit=\"'\"\n"),
        (b"a'b;\"${c}\\", b"memory_limit='a'\"'\"'b;\"${c}\\'\n"),
    ] {
        let told = php::lines([("memory_limit", value)].into_iter());
        assert_eq!(told, expected, "{}", told.escape_ascii());
    }
}

#[test]
fn what_is_forgotten_is_what_php_ini_says_or_phps_own() {
    let variables = php::forgetting(&["precision", "nothing"].into());
    assert_eq!(
        variables,
        [
            (b"precision".to_vec(), b"14".to_vec()),
            (
                b"PHP_VALUE".to_vec(),
                b"precision=\"${precision}\"\n".to_vec()
            ),
        ]
    );
}
