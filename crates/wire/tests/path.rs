//! Canonical paths, row by row: both faces under each rule, and what has no canonical path.

use wire::{EncodedSlash, HeadCaps, PathRules, RequestHead, Slashes};

fn faces(raw: &str, rules: PathRules) -> Result<(String, String), &'static str> {
    let bytes = format!("GET {raw} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut head = RequestHead::default();
    assert_eq!(
        head.parse(bytes.as_bytes(), &HeadCaps::default()),
        Ok(Some(bytes.len())),
        "{raw}"
    );
    head.canonicalize(rules).map_err(|refusal| {
        assert_eq!(refusal.status, 400);
        refusal.reason
    })?;
    let text = |face: &[u8]| String::from_utf8(face.to_vec()).expect("both faces are UTF-8");
    Ok((text(head.path()), text(head.path_wire())))
}

fn check(raw: &str, rules: PathRules, decoded: &str, wire: &str) {
    assert_eq!(
        faces(raw, rules),
        Ok((decoded.into(), wire.into())),
        "{raw}"
    );
    assert_eq!(
        faces(wire, rules),
        Ok((decoded.into(), wire.into())),
        "{raw}: its wire face is not canonical"
    );
}

const KEEP_SLASHES: PathRules = PathRules {
    slashes: Slashes::Keep,
    encoded_slash: EncodedSlash::Refuse,
};
const KEEP_ENCODED: PathRules = PathRules {
    slashes: Slashes::Merge,
    encoded_slash: EncodedSlash::Keep,
};

#[test]
fn both_faces_of_a_path() {
    for (raw, decoded, wire) in [
        ("/", "/", "/"),
        ("/a/b.html", "/a/b.html", "/a/b.html"),
        ("/%41%7e%2D%5f%2e%30", "/A~-_.0", "/A~-_.0"),
        ("/a%2Bb+c", "/a+b+c", "/a%2Bb+c"),
        ("/a%2bb", "/a+b", "/a%2bb"),
        ("/100%25", "/100%", "/100%25"),
        ("/%2541", "/%41", "/%2541"),
        ("/%252e%252e/x", "/%2e%2e/x", "/%252e%252e/x"),
        ("/a%3Bb;c", "/a;b;c", "/a%3Bb;c"),
        ("/~user/@x:y", "/~user/@x:y", "/~user/@x:y"),
        ("/%7Euser/%40x%3Ay", "/~user/@x:y", "/~user/%40x%3Ay"),
        ("/a%20b", "/a b", "/a%20b"),
        ("/a%3Fb%23c", "/a?b#c", "/a%3Fb%23c"),
        ("/%E9%95%B7%e5%b1%8b", "/長屋", "/%E9%95%B7%e5%b1%8b"),
        (
            "/a\"<>[]^`{|}b",
            "/a\"<>[]^`{|}b",
            "/a%22%3C%3E%5B%5D%5E%60%7B%7C%7Db",
        ),
        ("/a!$&'()*+,;=b", "/a!$&'()*+,;=b", "/a!$&'()*+,;=b"),
        (
            "/..a/.b/c./d../...",
            "/..a/.b/c./d../...",
            "/..a/.b/c./d../...",
        ),
    ] {
        check(raw, PathRules::default(), decoded, wire);
    }
}

#[test]
fn dot_segments_and_slashes_go() {
    for (raw, path) in [
        ("/.", "/"),
        ("/./", "/"),
        ("/a/.", "/a/"),
        ("/a/./b", "/a/b"),
        ("/a/..", "/"),
        ("/a/../", "/"),
        ("/a/b/../c", "/a/c"),
        ("/a/b/..", "/a/"),
        ("/a/b/../../c", "/c"),
        ("/a/%2e/b", "/a/b"),
        ("/a/%2E%2e/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("//", "/"),
        ("//a", "/a"),
        ("/a//b///c", "/a/b/c"),
        ("/a//", "/a/"),
        ("/a//../b", "/b"),
        ("/a/.//b", "/a/b"),
        ("/a/..//b", "/b"),
    ] {
        check(raw, PathRules::default(), path, path);
    }
}

#[test]
fn kept_slashes_count_as_segments() {
    for (raw, path) in [
        ("//", "//"),
        ("/a//b", "/a//b"),
        ("/a//../b", "/a/b"),
        ("//..", "/"),
        ("/a/./b//", "/a/b//"),
        ("/a/..//b", "//b"),
        ("/plain", "/plain"),
    ] {
        check(raw, KEEP_SLASHES, path, path);
    }
    assert_eq!(faces("/a/../..//b", KEEP_SLASHES), Err("path_above_root"));
}

#[test]
fn an_encoded_slash_is_kept_only_where_allowed() {
    check("/a%2Fb%2fc", KEEP_ENCODED, "/a%2Fb%2Fc", "/a%2Fb%2fc");
    check("/a%2Fb/../c", KEEP_ENCODED, "/c", "/c");
    check(
        "/a%2F..b%2F/c",
        KEEP_ENCODED,
        "/a%2F..b%2F/c",
        "/a%2F..b%2F/c",
    );
    assert_eq!(faces("/a%2Fb", PathRules::default()), Err("encoded_slash"));
    assert_eq!(faces("/a%2fb", KEEP_SLASHES), Err("encoded_slash"));
    for raw in [
        "/a%2F../b",
        "/x/..%2f/b",
        "/x/%2f%2e%2E",
        "/a%2F.%2Fb",
        "/a%2F..;x/b",
        "/a%252F..%252Fb",
    ] {
        assert_eq!(faces(raw, KEEP_ENCODED), Err("hidden_dot_segment"), "{raw}");
    }
}

#[test]
fn what_can_be_read_two_ways_is_refused() {
    for (raw, reason) in [
        ("/..", "path_above_root"),
        ("/../a", "path_above_root"),
        ("/a/../../b", "path_above_root"),
        ("/%2e%2e/a", "path_above_root"),
        ("/./..", "path_above_root"),
        ("//..", "path_above_root"),
        ("/a%00b", "nul_in_path"),
        ("/a%0d%0ab", "control_in_path"),
        ("/a%1f", "control_in_path"),
        ("/a%7F", "control_in_path"),
        ("/a\\b", "backslash_in_path"),
        ("/a%5cb", "backslash_in_path"),
        ("/..%5C..", "backslash_in_path"),
        ("/%", "bad_escape"),
        ("/%4", "bad_escape"),
        ("/%/41", "bad_escape"),
        ("/%zz", "bad_escape"),
        ("/%+1", "bad_escape"),
        ("/%u0041", "bad_escape"),
        ("/%C0%AF", "path_not_utf8"),
        ("/%C0%AE%C0%AE/", "path_not_utf8"),
        ("/%E0%80%AF", "path_not_utf8"),
        ("/%ED%A0%80", "path_not_utf8"),
        ("/%F4%90%80%80", "path_not_utf8"),
        ("/%FF", "path_not_utf8"),
        ("/%E9", "path_not_utf8"),
        ("/a/..;/b", "hidden_dot_segment"),
        ("/a/%2e%2e;x=y/b", "hidden_dot_segment"),
        ("/a/.;/b", "hidden_dot_segment"),
    ] {
        for rules in [PathRules::default(), KEEP_ENCODED] {
            assert_eq!(faces(raw, rules), Err(reason), "{raw}");
        }
    }
}

#[test]
fn a_query_stays_as_sent() {
    let mut head = RequestHead::default();
    let bytes = b"GET /a/../b?x=%2e%2e/%00//\\&%zz?y|{} HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        head.parse(bytes, &HeadCaps::default()),
        Ok(Some(bytes.len()))
    );
    assert_eq!(head.canonicalize(PathRules::default()), Ok(()));
    assert_eq!(
        (head.path(), head.query()),
        (&b"/b"[..], Some(&b"x=%2e%2e/%00//\\&%zz?y|{}"[..]))
    );
}

#[test]
fn a_refused_path_leaves_none() {
    let mut head = RequestHead::default();
    let bytes = b"GET /a%2fb HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        head.parse(bytes, &HeadCaps::default()),
        Ok(Some(bytes.len()))
    );
    assert_eq!(head.canonicalize(KEEP_ENCODED), Ok(()));
    assert!(head.canonicalize(PathRules::default()).is_err());
    assert_eq!((head.path(), head.path_wire()), (&b""[..], &b""[..]));
}
