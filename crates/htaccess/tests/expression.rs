//! Expressions: the grammar, its operators and functions, and where it ends.

use crate::site::{Site, get};

fn holds(expression: &str) -> Option<bool> {
    let text = format!(
        "<If \"{}\">\nSetEnv hit 1\n</If>",
        expression.replace('"', "\\\"")
    );
    let site = Site::new(&text).files(&["a.html", "empty.txt", "sub/b.html", "some-link"]);
    let ask = get("/a.html?q=1").with("X", "some text").with("Empty", "");
    let asked = site.asked(&ask, None);
    match asked.short().as_str() {
        "200" => Some(asked.variable("hit").is_some()),
        _ => None,
    }
}

#[test]
fn operators_compare_texts_numbers_and_patterns() {
    for (expression, found) in [
        ("true", true),
        ("false", false),
        ("! false", true),
        ("not true or true", true),
        ("true && false || true", true),
        ("true and (false or true)", true),
        ("'a' == 'a'", true),
        ("'a' = 'b'", false),
        ("'a' != 'b'", true),
        ("'a' < 'b' && 'b' > 'a' && 'a' <= 'a' && 'a' >= 'a'", true),
        ("'10' -gt '9' && 10 gt 9", true),
        ("'10' > '9'", false),
        ("1 -eq 1 && 1 -ne 2 && 1 -lt 2 && 1 -le 1 && 2 -ge 1", true),
        ("-1 -lt 0", true),
        ("'abc' =~ /B/", false),
        ("'abc' =~ /B/i", true),
        ("'a/c' =~ m#^a/#", true),
        ("'abc' !~ /x/", true),
        ("'a' in { 'b', 'a' } && ! ('c' -in { 'a' })", true),
        ("'10.1.2.3' -ipmatch '10.0.0.0/8'", true),
        ("'2001:db8::1' -ipmatch '2001:db8::/32'", true),
        ("'nonsense' -ipmatch '10.0.0.0/8'", false),
        ("'index.html' -strmatch '*.html'", true),
        ("'INDEX.html' -strcmatch 'index*'", true),
        ("'a/b' -fnmatch 'a*'", false),
        ("-n %{HTTP_HOST} && -z '%{HTTP:Nothing}'", true),
        ("-T 'yes' && ! -T 'Off' && ! -T '0' && ! -T ''", true),
        ("-R '192.0.2.0/24'", true),
        (
            "-f '/srv/site/a.html' && -d '/srv/site/sub' && -e %{REQUEST_FILENAME}",
            true,
        ),
        ("-s '/srv/site/empty.txt'", false),
        ("-L '/srv/site/some-link'", true),
        ("-f '/etc/passwd'", false),
    ] {
        assert_eq!(holds(expression), Some(found), "{expression}");
    }
}

#[test]
fn texts_have_variables_groups_and_functions_in_them() {
    for expression in [
        "%{REQUEST_METHOD} == 'GET'",
        "%{QUERY_STRING} == 'q=1'",
        "'%{REQUEST_URI}?' == '/a.html?'",
        "%{http:X} == 'some text' && req('X') == 'some text'",
        "%{HTTPS} == 'off'",
        "'abc' =~ /a(.)c/ && $1 == 'b' && '$0-$1' == 'abc-b'",
        "tolower('ABC') . 'd' == 'abcd'",
        "toupper(%{REQUEST_METHOD}) == 'GET'",
        "%{tolower:ABC} == 'abc'",
        "escape('a b') == 'a%20b' && unescape('a%20b') == 'a b'",
        "base64('foo') == 'Zm9v' && unbase64('Zm9v') == 'foo'",
        "md5('foo') == 'acbd18db4cc2f85cedef654fccc4a4d8'",
        "sha1('foo') == '0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33'",
        "%{HANDLER} == ''",
        "%{REMOTE_ADDR} == '192.0.2.7' && %{SERVER_PORT} -eq 80",
        "%{TIME} == '20261127080509'",
    ] {
        assert_eq!(holds(expression), Some(true), "{expression}");
    }
}

#[test]
fn what_means_nothing_is_a_fault_and_not_false() {
    for expression in [
        "",
        "'a'",
        "'a' ==",
        "'a' == 'b' 'c'",
        "(true",
        "true)",
        "%{NO_SUCH} == ''",
        "%{HTTP_HOST",
        "nothing('x') == ''",
        "file('/etc/passwd') == ''",
        "-U '/x'",
        "-Q 'x'",
        "'a' =~ 'b'",
        "'a' =~ /(/",
        "'x' -ipmatch 'y'",
        "'unended",
        "true and",
        "'a' in 'b'",
    ] {
        assert_eq!(holds(expression), None, "{expression}");
    }
    let deep = format!("{}true{}", "(".repeat(1_000), ")".repeat(1_000));
    assert_eq!(holds(&deep), None);
    assert_eq!(holds(&format!("{}true", "! ".repeat(1_000))), Some(true));
    assert_eq!(holds(&format!("{}'x'", "-n ".repeat(1_000))), None);
}
