//! Lines, quotes and sections.

use htaccess::tree::{DEPTH_MAX, DIRECTIVES_MAX, Directive, FILE_BYTES_MAX, TreeCaps, parse};
use htaccess::words::{all_words, rewrite_arguments};

fn shown(directives: &[Directive]) -> String {
    let one = |directive: &Directive| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (name, arguments) = (text(&directive.name), text(&directive.arguments));
        match &directive.children {
            None => format!("{}:{name}({arguments})", directive.line),
            Some(children) => format!(
                "{}:{name}({arguments}){{{}}}",
                directive.line,
                shown(children)
            ),
        }
    };
    directives.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn lines_continue_comments_are_lines_and_sections_nest() {
    for (text, found) in [
        ("A b  c ", "1:A(b  c)"),
        ("# A\n\n  B c", "3:B(c)"),
        ("A b \\\n c\nD", "1:A(b  c) 3:D()"),
        ("# x \\\nA b\nC", "3:C()"),
        ("A b\\", "1:A(b)"),
        ("A b # no comment", "1:A(b # no comment)"),
        ("\u{feff}A b", "1:A(b)"),
        ("A b\r\nC d\r\n", "1:A(b) 2:C(d)"),
        ("<S x>\nA\n</s>\nB", "1:S(x){2:A()} 4:B()"),
        (
            "<S>\n<T \"a>b\" >\nA\n</T>\n</S>",
            "1:S(){2:T(\"a>b\"){3:A()}}",
        ),
        ("<V >= 2.4>\n</V>", "1:V(>= 2.4){}"),
    ] {
        let tree = parse(text.as_bytes(), TreeCaps::default());
        assert_eq!(
            tree.as_ref().map(|tree| shown(tree)).as_deref(),
            Ok(found),
            "{text}"
        );
    }
}

#[test]
fn what_does_not_open_and_close_is_told_with_its_line() {
    for (text, line, part) in [
        ("A\n<S x>\nB", 2, "add </S>"),
        ("<S>\n</T>", 2, "where </S> must"),
        ("</S>", 1, "closes nothing"),
        ("<S x\nA\n</S>", 1, "lacks its >"),
        ("A \0b", 1, "NUL"),
    ] {
        let error = parse(text.as_bytes(), TreeCaps::default()).expect_err("it is no tree");
        assert_eq!(
            (error.line, error.reason),
            (line, "htaccess_syntax"),
            "{text}"
        );
        assert!(error.text.contains(part), "{}", error.text);
    }
}

#[test]
fn everything_has_a_number() {
    for (text, fits) in [
        ("A\n".repeat(DIRECTIVES_MAX), true),
        ("A\n".repeat(DIRECTIVES_MAX + 1), false),
        ("#\n".repeat(FILE_BYTES_MAX / 2), true),
        ("#".repeat(FILE_BYTES_MAX + 1), false),
        (
            format!(
                "{}{}",
                "<S>\n".repeat(DEPTH_MAX),
                "</S>\n".repeat(DEPTH_MAX)
            ),
            true,
        ),
        (
            format!(
                "{}{}",
                "<S>\n".repeat(DEPTH_MAX + 1),
                "</S>\n".repeat(DEPTH_MAX + 1)
            ),
            false,
        ),
        (format!("A {}", "x".repeat(20_000)), false),
        ("A \\\n".repeat(10_000), false),
    ] {
        let tree = parse(text.as_bytes(), TreeCaps::default());
        assert_eq!(tree.is_ok(), fits, "{} bytes", text.len());
        if let Err(error) = tree {
            assert_eq!(error.reason, "htaccess_too_large");
        }
    }
}

#[test]
fn quotes_hide_blanks_and_backslashes_hide_quotes() {
    for (line, words) in [
        ("a b", &["a", "b"][..]),
        ("\"a b\" 'c \"d'", &["a b", "c \"d"]),
        ("\"a \\\" b\" c\\d \\\\e", &["a \" b", "c\\d", "\\e"]),
        ("\"unended", &["unended"]),
        ("\"\" x", &["", "x"]),
        ("  ", &[]),
    ] {
        let found: Vec<_> = all_words(line.as_bytes());
        let found: Vec<_> = found
            .iter()
            .map(|word| String::from_utf8_lossy(word))
            .collect();
        assert_eq!(found, words, "{line}");
    }
    let rewritten = rewrite_arguments(b"\"^a b$\" c\\ d [L,\tR]");
    let bytes = |text: &str| text.as_bytes().to_vec();
    assert_eq!(
        rewritten,
        Some((bytes("^a b$"), bytes("c\\ d"), Some(bytes("[L,"))))
    );
    assert_eq!(rewrite_arguments(b"^only"), None);
}
