//! Files and requests that mean harm: a defined answer, in bounds.

use crate::site::{Site, get};

#[test]
fn many_rules_with_costly_patterns_end_in_an_answer() {
    let costly = "RewriteRule ^(?=(a|a)*b)(.*)$ - [E=x:1]\n".repeat(4_000);
    let site = Site::new(&format!("RewriteEngine On\n{costly}"));
    let target = format!("/{}", "a".repeat(8_000));
    assert!(["500", "200"].contains(&site.short(&target).as_str()));
    let many = "RewriteCond %{QUERY_STRING} !x\n".repeat(512);
    let site = Site::new(&format!("RewriteEngine On\n{many}RewriteRule ^ /y [L]"));
    assert_eq!(site.short("/a"), "-> /y");
    let more = "RewriteCond %{QUERY_STRING} !x\n".repeat(513);
    let site = Site::new(&format!("RewriteEngine On\n{more}RewriteRule ^ /y [L]"));
    assert_eq!(site.short("/a"), "500");
}

#[test]
fn many_questions_end_in_an_answer() {
    let asks: String = (0..2_000)
        .map(|at| format!("RewriteCond /srv/site/{at} -f\nRewriteRule ^ - [E=x:1]\n"))
        .collect();
    let asked = Site::new(&format!("RewriteEngine On\n{asks}")).ask("/a");
    assert_eq!(asked.short(), "500");
    assert!(asked.questions.len() <= 512);
}

#[test]
fn variables_fill_up() {
    let text = "RewriteEngine On\nRewriteRule ^(.*)$ - [E=a:$1$1$1$1]\n".to_owned()
        + &(0..60)
            .map(|at| format!("RewriteRule ^(.*)$ - [E=v{at}:$1$1$1$1]\n"))
            .collect::<String>();
    assert_eq!(
        Site::new(&text).short(&format!("/{}", "a".repeat(3_000))),
        "500"
    );
}

#[test]
fn a_half_written_file_refuses_what_it_covers() {
    let whole = "<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteRule ^x$ /y [L]\n</IfModule>\n<Files a>\nDeny from all\n</Files>\n";
    for end in 0..whole.len() {
        let site = Site::new(&whole[..end]).files(&["a"]);
        let found = site.short("/a");
        let is_begun = !site.problems().is_empty();
        assert!(
            !is_begun || found == "500" || found == "200",
            "{end}: {found}"
        );
    }
    assert_eq!(Site::new("<Files a>\nDeny from all\n").short("/b"), "500");
    assert_eq!(Site::new(&"x".repeat(300_000)).short("/b"), "403");
}

#[test]
fn directories_as_deep_as_can_be_are_merged() {
    let mut site = Site::new("RewriteEngine On");
    let mut path = String::new();
    for at in 0..32 {
        path = format!("{path}/d{at}");
        site = site.below(
            path.trim_start_matches('/'),
            "RewriteRule ^x$ y\n<Files z>\nDeny from all\n</Files>",
        );
    }
    assert_eq!(site.short(&format!("{path}/x")), format!("-> {path}/y"));
    assert_eq!(site.short(&format!("{path}/z")), "403");
}

#[test]
fn redirects_that_turn_in_circles_end() {
    let site = Site::new("RewriteEngine On\nRewriteRule ^a$ b [L]\nRewriteRule ^b$ a [L]");
    assert_eq!(site.followed("/a"), "500 loop");
}

#[test]
fn nothing_of_a_request_becomes_a_pattern_or_a_line() {
    let site = Site::new(
        "RewriteEngine On\nRewriteCond %{HTTP:X} ^(.*)$\nRewriteRule ^ - [E=x:%1]\nHeader set A \"%{x}e\"",
    );
    let asked = site.asked(&get("/").with("X", "%{HTTP_HOST}$1(["), None);
    assert_eq!(asked.variable("x").as_deref(), Some("%{HTTP_HOST}$1(["));
}

#[test]
fn names_without_end_are_not_compared_without_end() {
    let names: String = (0..3_000).map(|at| format!("Nonsense{at} x\n")).collect();
    assert_eq!(Site::new(&names).short("/"), "500");
    assert_eq!(Site::new(&"Nonsense x\n".repeat(3_000)).short("/"), "200");
}

#[test]
fn problems_of_a_file_are_told_up_to_a_number() {
    let problems = Site::new(&"Nonsense\n".repeat(1_000)).problems();
    assert_eq!(problems.len(), htaccess::PROBLEMS_MAX);
}
