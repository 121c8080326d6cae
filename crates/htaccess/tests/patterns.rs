//! Patterns mean what they mean to PCRE, byte for byte.

use crate::site::{Site, get};

/// The first group, or the whole, of a match in a field's value.
fn matched(pattern: &str, text: &str) -> Option<String> {
    let site = Site::new(&format!(
        "RewriteEngine On\nRewriteCond %{{HTTP:X}} \"{pattern}\"\nRewriteRule ^ - [E=hit:%0]"
    ));
    let asked = site.asked(&get("/").with("X", text), None);
    assert_eq!(asked.short(), "200", "{pattern}: {:?}", site.problems());
    asked.variable("hit")
}

#[test]
fn escapes_sets_and_anchors_are_those_of_pcre() {
    for (pattern, text, found) in [
        // Words' ends elsewhere, brackets here.
        (r"(\<|%3C).*script", "<xscript", Some("<xscript")),
        (r"\<a\>", "<a>", Some("<a>")),
        (r"\<a", "a", None),
        (r"[^[]+", "a[b", Some("a")),
        (r"[]a]+", "]a", Some("]a")),
        (r"[a&&b]+", "&ab", Some("&ab")),
        (r"[\w.-]+", "a-b.c", Some("a-b.c")),
        (r"[a-]+", "a-", Some("a-")),
        (r"[\d-x]+", "1-x", Some("1-x")),
        (r"[[:alpha:]_]+", "ab_1", Some("ab_")),
        (r"[\[\]]+", "[]", Some("[]")),
        (r"[!--]+", "+-", Some("+-")),
        (r"a{,3}", "a{,3}", Some("a{,3}")),
        (r"a{2}", "aaa", Some("aa")),
        (r"%{x}", "%{x}", Some("%{x}")),
        (r"a$", "ab", None),
        (r"\.php$", "x.php", Some(".php")),
        (r"\x41\101", "AA", Some("AA")),
        (r"\x41\x{42}", "AB", Some("AB")),
        (r"a\/b\:c\-d\_e", "a/b:c-d_e", Some("a/b:c-d_e")),
        (r"\Q.*\E+", ".**", Some(".**")),
        (r"(?i)ABC", "abc", Some("abc")),
        (r"(?:a|b)+(?#note)c", "abc", Some("abc")),
        (r"\bfoo\b", "a foo b", Some("foo")),
        (r"\h+", "a \tb", Some(" \t")),
        (r"é", "é", Some("é")),
        (r"[^a]", "é", None),
    ] {
        let hit = matched(pattern, text);
        if pattern == "[^a]" {
            assert!(hit.is_some(), "bytes, not letters");
        } else {
            assert_eq!(hit.as_deref(), found, "{pattern}");
        }
    }
}

#[test]
fn look_around_and_back_references_are_had_in_few_steps() {
    for (pattern, text, found) in [
        (r"^(?!index\.php)\w+", "other", Some("other")),
        (r"^(?!index\.php)\w+", "index.php", None),
        (r"(?<=a)b", "ab", Some("b")),
        (r"(?<!a)b", "ab", None),
        (r"(.+)-\1$", "x-ab-ab", Some("ab-ab")),
        (r"^(.)(.)\2\1$", "abba", Some("abba")),
        (r"(?>a+)b", "aab", Some("aab")),
        (r"a++b", "aab", Some("aab")),
        (r"(?P<x>a)\k<x>", "aa", Some("aa")),
        (r"(b)(?<x>a)\2", "baa", Some("baa")),
        (r"(?=.*é)x", "xé", Some("x")),
        (r"(?=é)[^/]+", "aé/b", Some("é")),
        (r"^(.)(.)\1\2$", "éé", Some("éé")),
        (r"(?=s)\bso", "ê so", Some("so")),
        (r"(?i)(?=É)É", "É", Some("É")),
        (r"[[:alpha:]](?!x)", "éay", Some("a")),
    ] {
        assert_eq!(matched(pattern, text).as_deref(), found, "{pattern}");
    }
}

#[test]
fn what_is_found_in_many_steps_is_what_is_found_in_few() {
    let names: Vec<String> = (0..400).map(|at| format!("bot{at}x")).collect();
    let list = names.join("|");
    for (pattern, text, found) in [
        (
            format!("(?i)({list})/"),
            "a".repeat(2_000) + "BOT399X/1",
            "BOT399X/",
        ),
        ("(.*)b(.*)c$".to_owned(), "ab".repeat(600) + "c", "all"),
        ("(é|b)+c".to_owned(), "ab".repeat(600) + "ébéc", "bébéc"),
    ] {
        let found = if found == "all" { text.as_str() } else { found };
        for _ in 0..2 {
            assert_eq!(matched(&pattern, &text).as_deref(), Some(found));
        }
    }
}

#[test]
fn what_takes_too_many_steps_ends_in_an_error_and_linear_patterns_never_do() {
    let text = "a".repeat(4_000);
    let ask = |pattern: &str| {
        let site = Site::new(&format!(
            "RewriteEngine On\nRewriteCond %{{HTTP:X}} {pattern}\nRewriteRule ^ - [E=hit:1]"
        ));
        site.asked(&get("/").with("X", &text), None)
    };
    assert_eq!(ask("^(a+)+$").short(), "200");
    let asked = ask("^(a+)(a+)(a+)\\1b");
    let htaccess::Ending::Status(stop) = &asked.ending else {
        panic!("{asked:?}")
    };
    assert_eq!((stop.status, stop.reason), (500, "htaccess_regex"));
    assert!(stop.line > 0);
}

#[test]
fn what_is_no_pattern_is_told() {
    for pattern in [
        "(",
        "[a",
        "a**",
        "\\",
        "(?R)",
        "(?|a)",
        "(*FAIL)",
        "[b-a]",
        "\\j",
        "[[:wat:]]",
        "\\1",
        "(?m)^a",
        "a(?i)b",
        "a{2}++",
        "a{1,2}+",
        "(?:ab){900}",
        "((a{9}b){90}c){90}",
        "\\k<none>",
        "(?-s).",
    ] {
        let site = Site::new(&format!("RewriteEngine On\nRewriteRule {pattern} /x"));
        assert_eq!(site.short("/"), "500", "{pattern}");
        assert!(
            site.problems()[0].text.starts_with("RewriteRule"),
            "{pattern}"
        );
    }
}
