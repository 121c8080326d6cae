//! What is kept, and for how long.

use config::model::UnknownLines;
use htaccess::overrides::Unknown;
use os::file::FileKind;

use super::*;

/// As much as a test needs.
const ENOUGH: usize = 1 << 30;

fn stamp(changed_ns: u64) -> Stamp {
    let facts = FileFacts {
        kind: FileKind::Regular,
        size: 1,
        modified_s: 1,
        modified_ns: 1,
        changed_ns,
        device: 1,
        inode: 1,
        uid: 0,
        gid: 0,
        mode: 0o644,
    };
    Stamp { level: 0, facts }
}

fn files(word: &str) -> Arc<SiteHtaccess> {
    Arc::new(SiteHtaccess {
        words: vec![word.to_owned()],
        unknown: UnknownLines::Log,
        overrides: Overrides::new([word], Unknown::Log).expect("a class"),
        handlers: Vec::new(),
        directories: Vec::new(),
    })
}

/// Has a directory of a site with this file kept.
fn keep(
    programs: &Programs,
    (site, directory): (&str, &str),
    (files, text): (&Arc<SiteHtaccess>, &str),
    most_bytes: usize,
) -> Arc<KnownChain> {
    let shared = programs.of_file(text.as_bytes(), &files.overrides);
    let levels = vec![(Arc::from(directory.as_bytes()), shared)];
    let directory = directory.as_bytes();
    let place = ChainPlace {
        tenant: site,
        files,
        directory,
    };
    let merged = programs.merge(&place, (vec![stamp(1)], true), levels, most_bytes);
    merged.expect("few levels")
}

fn is_kept(programs: &Programs, site: &str, directory: &str, files: &Arc<SiteHtaccess>) -> bool {
    let directory = directory.as_bytes();
    let place = ChainPlace {
        tenant: site,
        files,
        directory,
    };
    programs.chain(&place, &[stamp(1)]).is_some()
}

#[test]
fn the_same_bytes_are_understood_once_for_all_that_allow_the_same() {
    let programs = Programs::default();
    let all = files("All");
    let one = programs.of_file(b"Require all denied\n", &all.overrides);
    let again = programs.of_file(b"Require all denied\n", &files("All").overrides);
    assert!(Arc::ptr_eq(&one, &again));
    let other = programs.of_file(b"Require all denied\n", &files("FileInfo").overrides);
    assert!(!Arc::ptr_eq(&one, &other));
    let mut problems = other.program.problems.iter();
    assert!(problems.any(|problem| problem.refuses));
}

#[test]
fn each_site_is_told_of_a_file_for_itself_and_of_few_it_is_remembered() {
    let (programs, all) = (Programs::default(), files("All"));
    let of = |text: &str| programs.of_file(text.as_bytes(), &all.overrides);
    programs.note_told(("t", "a"), &of("Frobnicate 1"), 2);
    assert_eq!(programs.told(("t", "a"), &of("Frobnicate 1")), 2);
    assert_eq!(programs.told(("t", "b"), &of("Frobnicate 1")), 0);
    for number in 0..3 * TOLD_MAX {
        let file = of(&format!("Frobnicate {number}"));
        programs.note_told(("t", "a"), &file, 1);
    }
    let tenants = held(programs.shard_of("t"));
    let told = tenants.get("t").map(|tenant| tenant.told.len());
    assert!(told.is_some_and(|told| told <= TOLD_MAX));
}

#[test]
fn what_is_kept_has_a_bound_in_bytes_and_is_counted_until_it_is_gone() {
    let (programs, all) = (Programs::default(), files("All"));
    let most_bytes = 200_000;
    let used = keep(
        &programs,
        ("a", "/a/"),
        (&all, "Require all denied"),
        most_bytes,
    );
    for number in 0..1_000 {
        let text = format!("RewriteRule ^{number}$ /x\n").repeat(10);
        let at = format!("/srv/{number}/");
        keep(&programs, ("a", &at), (&all, &text), most_bytes);
        assert!(programs.bytes() <= most_bytes, "{}", programs.bytes());
        assert!(is_kept(&programs, "a", &at, &all), "the newest is kept");
    }
    assert!(programs.bytes() > most_bytes / 3, "{}", programs.bytes());
    assert!(!is_kept(&programs, "a", "/a/", &all));
    assert_eq!(used.chain.levels().len(), 1, "what is in use lives on");
    programs.make_room(0);
    drop(used);
    assert_eq!(programs.bytes(), 0);
}

#[test]
fn a_site_that_writes_without_end_gives_up_its_own_and_nobody_elses() {
    let (programs, all) = (Programs::default(), files("All"));
    let few = "RewriteEngine on\nRewriteRule . /index.php [L]\n";
    let names: Vec<_> = (0..100).map(|number| format!("s{number}")).collect();
    for site in &names {
        keep(&programs, (site, "/srv/"), (&all, few), ENOUGH);
    }
    let most_bytes = 4 * programs.bytes();
    for number in 0..2_000 {
        let text = format!("Redirect /{number} /\n").repeat(20);
        let at = format!("/evil/{number}/");
        keep(&programs, ("evil", &at), (&all, &text), most_bytes);
    }
    assert!(programs.bytes() <= most_bytes);
    let mut names = names.iter();
    assert!(names.all(|site| is_kept(&programs, site, "/srv/", &all)));
}

#[test]
fn who_shares_a_large_file_with_many_is_not_taken_for_who_has_most() {
    let (programs, all) = (Programs::default(), files("All"));
    let shared = "SetEnv A b\n".repeat(2_000);
    for number in 0..50 {
        let site = format!("s{number}");
        keep(&programs, (&site, "/srv/"), (&all, &shared), ENOUGH);
    }
    let most_bytes = programs.bytes() * 3 / 2;
    for number in 0..200 {
        let text = format!("Redirect /{number} /\n").repeat(20);
        let at = format!("/own/{number}/");
        keep(&programs, ("own", &at), (&all, &text), most_bytes);
    }
    assert!(programs.bytes() <= most_bytes);
    let mut sites = (0..50).map(|number| format!("s{number}"));
    assert!(sites.all(|site| is_kept(&programs, &site, "/srv/", &all)));
}

#[test]
fn what_a_generation_left_goes_before_anything_that_counts() {
    let (programs, old, new) = (Programs::default(), files("All"), files("All"));
    for number in 0..100 {
        let site = format!("s{number}");
        keep(
            &programs,
            (&site, "/srv/"),
            (&old, "Require all denied"),
            ENOUGH,
        );
    }
    assert!(!is_kept(&programs, "s1", "/srv/", &new), "read again");
    drop(old);
    let most_bytes = programs.bytes();
    for at in ["/a/", "/b/"] {
        let text = "Require all granted\n".repeat(80);
        keep(&programs, ("large", at), (&new, &text), most_bytes);
    }
    assert!(is_kept(&programs, "large", "/a/", &new));
    let tenants = programs.tenants.iter().map(|it| held(it).len());
    assert_eq!(tenants.sum::<usize>(), 1);
}

#[test]
fn a_file_that_was_changed_a_moment_before_it_was_read_is_read_again() {
    let now_ns = 1_000 * SECOND_NS + 5;
    for (age_ns, is_settled) in [
        (0, false),
        (SETTLED_NS - 1, false),
        (SETTLED_NS + 1, true),
        // Where times have no parts of a second.
        (5, false),
        (2 * SECOND_NS + 5, false),
        (3 * SECOND_NS + 5, true),
    ] {
        let stamp = stamp(now_ns - age_ns);
        assert_eq!(
            is_settled_at(&stamp.facts, now_ns.into()),
            is_settled,
            "{age_ns}"
        );
    }
    let tomorrow = stamp(now_ns + SECOND_NS);
    assert!(!is_settled_at(&tomorrow.facts, now_ns.into()));
    let (programs, all) = (Programs::default(), files("All"));
    let place = ChainPlace {
        tenant: "a",
        files: &all,
        directory: b"/srv/a/",
    };
    let shared = programs.of_file(b"Require all denied\n", &all.overrides);
    for is_settled in [false, true] {
        let levels = vec![(Arc::from(&b"/srv/a/"[..]), Arc::clone(&shared))];
        let merged = programs.merge(&place, (vec![stamp(1)], is_settled), levels, ENOUGH);
        merged.expect("few levels");
        let known = programs.chain(&place, &[stamp(1)]);
        assert_eq!(known.is_some(), is_settled);
        assert_eq!(programs.bytes() > 0, is_settled, "only what is kept counts");
    }
    assert!(programs.chain(&place, &[stamp(2)]).is_none());
    assert!(programs.chain(&place, &[]).is_none());
}
