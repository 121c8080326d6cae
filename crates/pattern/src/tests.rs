//! What patterns match, as Ruby 3 says.

use proptest::prelude::*;

use super::*;

fn spans(pattern: &str, text: &str) -> String {
    let pattern = match Pattern::new(pattern, Flags::default()) {
        Ok(pattern) => pattern,
        Err(error) => return error.to_string(),
    };
    let mut budget = Budget::of_text(text.len());
    match pattern.find(text.as_bytes(), 0, &mut budget) {
        Ok(Some(spans)) => {
            let each = spans.iter().map(|span| match span {
                Some((from, to)) => format!("{from}-{to}"),
                None => ".".to_owned(),
            });
            each.collect::<Vec<_>>().join(" ")
        }
        Ok(None) => "none".to_owned(),
        Err(exhausted) => exhausted.to_string(),
    }
}

/// Pattern, text, and where the match and its groups lie in bytes: printed by Ruby 3.
const TABLE: &[(&str, &str, &str)] = &[
    ("abc", "xabcx", "1-4"),
    ("a|b|cd", "xcd", "1-3"),
    ("a*", "aaa", "0-3"),
    ("a+?", "aaa", "0-1"),
    ("(a+)(b+)?", "aac", "0-2 0-2 ."),
    ("^b$", "a\nb\nc", "2-3"),
    ("\\Aa", "ba", "none"),
    ("c\\z", "c\n", "none"),
    ("c\\Z", "c\n", "0-1"),
    (".", "é", "0-2"),
    (".+", "a\nb", "0-1"),
    ("[a-c&&[^b]]+", "bacb", "1-3"),
    ("[^a-z]", "abcD", "3-4"),
    ("\\d{2,3}", "1234", "0-3"),
    ("\\d{,2}x", "123x", "1-4"),
    ("a{2}?", "aaa", "0-2"),
    ("x{a}", "x{a}", "0-4"),
    ("(?<y>\\d+)-(?<m>\\d+)", "on 2026-11", "3-10 3-7 8-10"),
    ("(?:ab)+", "ababa", "0-4"),
    ("(a)|(b)", "b", "0-1 . 0-1"),
    ("(\\w)\\1", "hello", "2-4 2-3"),
    ("(?<c>.)\\k<c>", "abccd", "2-4 2-3"),
    ("(?i)ABC", "xabc", "1-4"),
    ("(?i:a)b", "Ab", "0-2"),
    ("a(?i)b|c", "aC", "0-2"),
    ("(?=bar)b", "foobar", "3-4"),
    ("foo(?!bar)", "foobar foobaz", "7-10"),
    ("(?<=a)b", "ab", "1-2"),
    ("(?<!a)b", "ab cb", "4-5"),
    ("(?<=a|bc)d", "bcd", "2-3"),
    ("(?<!a|bc)d", "bcd xd", "5-6"),
    ("(?>a+)ab", "aaab", "none"),
    ("a++b", "aaab", "0-4"),
    ("a*+a", "aaa", "none"),
    ("\\bfoo\\b", "a foo b", "2-5"),
    ("\\Bo", "foo", "1-2"),
    ("[[:alpha:]]+", "1é日a", "1-7"),
    ("[[:^digit:]]+", "12ab", "2-4"),
    ("\\h+", "xyzDEADbeef", "3-11"),
    ("[\\w.]+@[\\w.]+", "mail me@x.jp now", "5-12"),
    ("\\p{Hiragana}+", "漢字ひらがなカナ", "6-18"),
    ("\\p{^Alpha}", "ab1", "2-3"),
    ("(a*)*", "aaa", "0-3 3-3"),
    ("(a*)+", "b", "0-0 0-0"),
    ("(a|ab)(c|bcd)(d*)", "abcd", "0-4 0-1 1-4 4-4"),
    ("(?m:.)+", "a\nb", "0-3"),
    ("a\\Kb", "ab", "1-2"),
    ("\\R", "a\r\nb", "1-3"),
    ("(a)?(?(1)b|c)", "ab c", "0-2 0-1"),
    ("(a)?(?(1)b|c)", "c", "0-1 ."),
    ("[]a]", "x]", "1-2"),
    ("[a\\]]+", "a]", "0-2"),
    ("[\\d\\-x]+", "1-x", "0-3"),
    ("日本", "東日本", "3-9"),
    ("[あ-ん]+", "東あいう", "3-12"),
    ("(?<n>a)(b)", "ab", "0-2 0-1"),
    ("\\x41\\u0042\\u{43}", "ABC", "0-3"),
    ("\\101", "A", "0-1"),
    ("a # c", "a # c", "0-5"),
    (
        "(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)\\10",
        "abcdefghijj",
        "0-11 0-1 1-2 2-3 3-4 4-5 5-6 6-7 7-8 8-9 9-10",
    ),
    ("^", "a\n", "0-0"),
    ("$", "a\n", "1-1"),
    ("(?:)", "a", "0-0"),
    ("a||b", "b", "0-0"),
    ("(?<!\\d)\\d{3}(?!\\d)", "1234 567", "5-8"),
    ("^(?:(\\d+)\\.)+$", "1.2.3.", "0-6 4-5"),
    ("((a)|b)+", "ab", "0-2 1-2 0-1"),
    ("(?:a?){3}a{3}", "aaa", "0-3"),
    ("[a-z]+\\.php(/.*)?$", "index.php/x", "0-11 9-11"),
    ("\\A/users/(\\d+)\\z", "/users/42", "0-9 7-9"),
    ("[^/]+\\z", "/a/b/c", "5-6"),
    ("(?i)É", "é", "0-2"),
    ("\\.(?:jpe?g|png|gif)\\z", "a.jpeg", "1-6"),
    ("\\\\", "a\\b", "1-2"),
    ("\\/", "a/b", "1-2"),
    ("[\\t ]+", "a \tb", "1-3"),
    ("a{0}b", "ab", "1-2"),
    ("(a{1,2}){2}", "aaaa", "0-4 2-4"),
    ("\\S+\\s\\S+", "ab cd", "0-5"),
    ("[[:punct:]]", "a!", "1-2"),
    ("[[:space:]]", "a　", "1-4"),
    ("\\G\\d", "a1", "none"),
    (".*?b", "aab", "0-3"),
    ("(?:.*?,){2}(.*)", "a,b,c", "0-5 4-5"),
    ("[^\\n]*$", "ab\ncd", "0-2"),
    ("(?x) a b # c", "ab", "0-2"),
    ("(?<a>x)|(?<a>y)", "y", "0-1 . 0-1"),
    ("\\w+", "日本", "none"),
    ("\\W", "a日", "1-4"),
    ("(?=(a+))a*b\\1", "baaabac", "3-6 3-4"),
    ("\\$\\{?(\\w+)\\}?", "a ${foo}", "2-8 4-7"),
    ("a.c", "a日c", "0-5"),
    ("[^[:alnum:]]+", "ab--c", "2-4"),
    ("[a-c[x-z]]+", "1ay", "1-3"),
    ("x*", "aaa", "0-0"),
    ("(?:x|y|)z", "z", "0-1"),
    ("a{,}", "a{,}", "0-4"),
    ("{", "{", "0-1"),
    ("a{1", "a{1", "0-3"),
    ("}", "]}", "1-2"),
];

#[test]
fn patterns_match_what_they_match_in_ruby() {
    let wrong: Vec<_> = TABLE
        .iter()
        .filter(|(pattern, text, expected)| spans(pattern, text) != *expected)
        .map(|(pattern, text, expected)| {
            let found = spans(pattern, text);
            format!("{pattern} on {text:?}: {found}, not {expected}")
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_match_that_takes_too_long_is_given_up() {
    let text = "a".repeat(40) + "b";
    for pattern in [
        "(a+)+$",
        "(a|a)*c",
        "(?:a*)*c",
        "(a?){40}a{40}c",
        "(?=(a+)+c)",
        "(.*)*x",
    ] {
        let found = spans(pattern, &text);
        assert!(
            found.contains("given up") || found == "none",
            "{pattern}: {found}"
        );
    }
    assert_eq!(spans("(a+)+$", &text), "none", "it remembers where it was");
    let refers = spans("(?:(a+)+b?\\1)+c", &text);
    assert!(refers.contains("given up"), "groups count: {refers}");
    let long = "ab".repeat(400_000);
    assert!(spans("(?:ab)*c", &long).contains("given up"));
    assert_eq!(spans(".*z", &"a".repeat(100)), "none");
}

/// Where a pattern and its groups are found; after so many steps the search remembers where it was.
fn found(pattern: &str, text: &str, unmarked: u64) -> Option<Option<Spans>> {
    let pattern = Pattern::new(pattern, Flags::default()).expect(pattern);
    let mut budget = Budget::of_steps(300_000);
    let text = (text.as_bytes(), 0);
    run::search(&pattern.program, text, &mut budget, unmarked).ok()
}

fn steps(pattern: &str, text: &str) -> u64 {
    let pattern = Pattern::new(pattern, Flags::default()).expect(pattern);
    let mut budget = Budget::of_steps(u64::MAX);
    let found = pattern.find(text.as_bytes(), 0, &mut budget);
    assert_eq!(found, Ok(None));
    u64::MAX - budget.left()
}

fn patterns() -> impl Strategy<Value = String> {
    let leaves = [
        "a", "b", "ab", ".", "[ab]", "[^b]", "a*", "b+", "[ab]{2,}", ".*", "(?:)", "b??", "a{1,2}",
        "$", "^", "\\b", "a++", "(?i:b)",
    ];
    let leaves = proptest::sample::select(leaves.to_vec()).prop_map(str::to_owned);
    leaves.prop_recursive(4, 24, 5, |inner| {
        let some = proptest::collection::vec(inner.clone(), 2..6);
        let hows = ["*", "+", "?", "*?", "{2,3}", "{2}"];
        let groups = ["(?:", "(", "(?=", "(?!", "(?>"];
        prop_oneof![
            some.clone().prop_map(|all| all.concat()),
            some.prop_map(|all| format!("(?:{})", all.join("|"))),
            (inner.clone(), proptest::sample::select(hows.to_vec()))
                .prop_map(|(inner, how)| format!("(?:{inner}){how}")),
            (inner, proptest::sample::select(groups.to_vec()))
                .prop_map(|(inner, group)| format!("{group}{inner})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_search_that_remembers_where_it_was_finds_the_same(
        pattern in patterns(),
        text in "[abc]{0,14}",
        unmarked in 1u64..40,
    ) {
        prop_assume!(Pattern::new(&pattern, Flags::default()).is_ok());
        let Some(plain) = found(&pattern, &text, u64::MAX) else {
            return Ok(());
        };
        prop_assert_eq!(found(&pattern, &text, unmarked), Some(plain), "{} on {}", pattern, text);
    }

    #[test]
    fn branches_that_the_next_byte_chooses_are_tried_in_their_order(
        branches in proptest::collection::vec("[abk]{0,2}(\\.|a\\*|\\[\\^b\\])?[a-b]{0,2}", 4..9),
        text in "[abckK]{0,8}é?[abc]{0,3}",
    ) {
        let chosen = format!("(?i)(?:{})c", branches.join("|"));
        // The same, two at a time.
        let (last, others) = branches.split_last().expect("there are some");
        let nested = others.iter().rev().fold(last.clone(), |rest, one| format!("(?:{one}|{rest})"));
        prop_assert_eq!(
            found(&chosen, &text, u64::MAX),
            found(&format!("(?i)(?:{nested})c"), &text, u64::MAX)
        );
    }
}

#[test]
fn a_search_takes_no_more_steps_than_the_pattern_is_long_for_each_byte_of_the_text() {
    let text = "ab".repeat(2_000);
    for pattern in [
        "(a+)+$c",
        "(.*)(.*)(.*)(.*)x",
        "(a|b|ab)*c",
        "(?:a?b?)*c",
        "(.*?,){11}P",
        "(a|b)*a(a|b){20}c",
        "(?=b)(a|b)*c",
    ] {
        let taken = steps(pattern, &text);
        assert!(taken < 120 * 4_000, "{pattern}: {taken}");
    }
    // A run that is too short is too short from each of its places.
    assert!(steps("[a-z]{5000,}", &text) < 10_000);
    // Of many words few begin with a letter.
    let words: Vec<String> = ('a'..='z')
        .flat_map(|first| (0..20).map(move |at| format!("{first}word{at}")))
        .collect();
    let taken = steps(&format!("(?i)({})", words.join("|")), &text);
    assert!(taken < 60 * 4_000, "{taken}");
}

#[test]
fn what_is_no_pattern_is_refused() {
    for (pattern, said) in [
        ("(", "a ( without its )"),
        (")", "a ) without its ("),
        ("[a", "a [ without its ]"),
        ("*", "nothing before a repetition"),
        ("a{3,2}", "ends before it begins"),
        ("[z-a]", "ends before it begins"),
        ("\\", "a \\ at the end"),
        ("(?<=a+)b", "no fixed length"),
        ("\\2(a)", "no group 2"),
        ("\\k<x>", "no group x"),
        ("\\p{Klingon}", "no property Klingon"),
        ("[[:klingon:]]", "no class [:klingon:]"),
        ("(?~a)", "not supported"),
        ("\\g<a>", "not supported"),
        ("(?:ab){1000}{1000}", "instructions"),
        ("a{10001}", "above 10000"),
    ] {
        let found = Pattern::new(pattern, Flags::default())
            .expect_err(pattern)
            .to_string();
        assert!(found.contains(said), "{pattern}: {found}");
    }
    let deep = "(".repeat(10_000);
    assert!(Pattern::new(&deep, Flags::default()).is_err());
    let deep = "[".repeat(10_000);
    assert!(Pattern::new(&deep, Flags::default()).is_err());
    let long = "a".repeat(70_000);
    assert!(Pattern::new(&long, Flags::default()).is_err());
}

#[test]
fn bytes_that_are_no_text_are_characters_of_their_own() {
    let find = |pattern: &str, text: &[u8]| {
        let pattern = Pattern::new(pattern, Flags::default()).expect("a pattern");
        let mut budget = Budget::of_text(text.len());
        let found = pattern.find(text, 0, &mut budget).expect("it ends");
        found.map(|spans| spans.whole())
    };
    assert_eq!(find("a.b", b"a\xffb"), Some((0, 3)));
    assert_eq!(find("[^a]", b"a\xff"), Some((1, 2)));
    assert_eq!(find("\\w", b"\xff\xfe"), None);
    assert_eq!(find("\\xff", b"a\xff"), Some((1, 2)));
    assert_eq!(find("[\\xf0-\\xff]", b"a\xff"), Some((1, 2)));
    assert_eq!(find(".+b", b"\xe3\x81b"), Some((0, 3)));
}

#[test]
fn the_last_match_is_found_from_behind() {
    let pattern = Pattern::new("o", Flags::default()).expect("a pattern");
    let mut budget = Budget::of_text(9);
    let mut find = |from| {
        let found = pattern.find_last(b"foo boo x", from, &mut budget);
        found.expect("it ends").map(|spans| spans.whole().0)
    };
    assert_eq!(
        (find(9), find(5), find(4), find(0)),
        (Some(6), Some(5), Some(2), None)
    );
}

#[test]
fn looking_far_behind_costs_steps() {
    let text = "b".repeat(400_000);
    assert!(spans("(?<=x.{9999})b", &text).contains("given up"));
}

#[test]
fn sets_within_sets_are_one_set() {
    for (pattern, text, expected) in [
        ("[[a-c][あ-ん]x]+", "-bあx-", "1-6"),
        ("[z[^a-y]]+", "abz-é", "2-6"),
        ("[[a-z&&[^b]]é]+", "babcéd", "1-2"),
        ("[c-ea-dg-h]+", "xabcdeghf", "1-8"),
        ("[[[b]\\d]\\d]+", "xb1", "1-3"),
        ("(?i)[[É][k]]+", "éK", "0-3"),
    ] {
        assert_eq!(spans(pattern, text), expected, "{pattern}");
    }
    let many = format!("[{}]", "[^a]".repeat(101));
    assert!(spans(&many, "a").contains("more than 100 sets"));
}
