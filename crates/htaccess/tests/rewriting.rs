//! The twelve points of mod_rewrite's semantics in a directory, one by one, and its flags.

use crate::site::{Site, get};
use htaccess::{AllowedOptions, Question};

/// A site whose rules are on.
fn rules(text: &str) -> Site {
    Site::new(&format!("RewriteEngine On\n{text}")).files(&["index.php", "a.html", "sub/b.html"])
}

#[test]
fn point_1_access_is_decided_for_the_first_path_and_again_for_the_result() {
    let site = rules("RewriteRule ^open$ sub/b.html [L]").below("sub", "Require all denied");
    assert_eq!(site.short("/open"), "-> /sub/b.html");
    assert_eq!(site.followed("/open"), "403");
    // A rule does not open what is closed.
    let site = rules("Require all denied\nRewriteRule ^ /a.html [L]");
    assert_eq!(site.short("/x"), "403");
}

#[test]
fn point_1_what_begins_anew_has_redirect_variables() {
    let site = rules(
        "RewriteRule ^x$ a.html [E=found:yes,L]\nRewriteCond %{ENV:REDIRECT_STATUS} !^$\nRewriteRule ^a - [E=status:%{ENV:REDIRECT_STATUS},E=again:%{ENV:REDIRECT_found}]",
    );
    let first = site.ask("/x");
    let after = first.variables.redirected(b"/x", None).expect("they fit");
    let mut again = get("/a.html");
    again.variables = after;
    let again = site.asked(&again, None);
    assert_eq!(again.variable("status").as_deref(), Some("200"));
    assert_eq!(again.variable("again").as_deref(), Some("yes"));
    assert_eq!(again.variable("REDIRECT_URL").as_deref(), Some("/x"));
}

#[test]
fn point_2_the_text_is_the_path_below_the_directory_with_its_path_info() {
    let site = rules("").below(
        "sub",
        "RewriteEngine On\nRewriteRule ^b\\.html/(.*)$ /x/$1 [L]",
    );
    assert_eq!(site.short("/sub/b.html/more/of/it"), "-> /x/more/of/it");
    // No leading slash.
    assert_eq!(rules("RewriteRule ^/a /x").short("/a.html"), "200");
}

#[test]
fn point_2_only_the_innermost_rules_count_unless_they_are_inherited() {
    let outer = "RewriteRule ^(.*)b\\.html$ /outer [L]";
    let off = rules(outer).below("sub", "RewriteEngine On");
    assert_eq!(off.short("/sub/b.html"), "200");
    let plain = rules(outer).below("sub", "Options -Indexes");
    assert_eq!(plain.short("/sub/b.html"), "-> /outer");
    let inherits = rules(outer).below("sub", "RewriteOptions Inherit\nRewriteRule ^b /inner [L]");
    assert_eq!(inherits.short("/sub/b.html"), "-> /inner");
    let before = rules(outer).below(
        "sub",
        "RewriteOptions InheritBefore\nRewriteRule ^b /inner [L]",
    );
    assert_eq!(before.short("/sub/b.html"), "-> /outer");
    let down = rules(&format!("RewriteOptions InheritDownBefore\n{outer}"));
    let down = down.below("sub", "RewriteRule ^b /inner [L]");
    assert_eq!(down.short("/sub/b.html"), "-> /outer");
    let ignores = rules(&format!("RewriteOptions InheritDownBefore\n{outer}"));
    let ignores = ignores.below(
        "sub",
        "RewriteOptions IgnoreInherit\nRewriteRule ^b /inner [L]",
    );
    assert_eq!(ignores.short("/sub/b.html"), "-> /inner");
}

#[test]
fn point_2_the_engine_is_inherited() {
    let site = rules("").below("sub", "RewriteRule ^b /inner [L]");
    assert_eq!(site.short("/sub/b.html"), "-> /inner");
    let site = Site::new("RewriteRule ^ /never").files(&["a.html"]);
    assert_eq!(site.short("/a.html"), "200");
}

#[test]
fn point_3_a_directory_without_its_slash_is_left_alone() {
    let site = rules("").below("sub", "RewriteRule ^ /x [L]");
    assert_eq!(site.short("/sub"), "200");
    assert_eq!(site.short("/sub/"), "-> /x");
    let site = rules("").below("sub", "RewriteOptions AllowNoSlash\nRewriteRule ^ /x [L]");
    assert_eq!(site.short("/sub"), "200", "it is sent to its slash first");
    let site = rules("RewriteRule ^sub$ /x [L]\nDirectorySlash Off").files(&["sub/b.html"]);
    assert_eq!(site.short("/sub"), "-> /x");
    let site = rules("RewriteRule ^sub$ /x [R]").files(&["sub/b.html"]);
    assert_eq!(site.short("/sub"), "302 http://example.jp/x");
}

#[test]
fn point_3_after_end_nothing_is_rewritten() {
    let site = rules("RewriteRule ^x$ y [END]\nRewriteRule ^y$ z [L]");
    assert_eq!(site.followed("/x"), "/y");
    let site = rules("RewriteRule ^x$ y [L]\nRewriteRule ^y$ z [L]");
    assert_eq!(site.followed("/x"), "/z");
}

#[test]
fn point_3_rules_need_that_links_are_followed() {
    let site = rules("RewriteRule ^x$ y").options(AllowedOptions::NONE);
    assert_eq!(site.short("/x"), "403");
    let site = rules("Options +SymLinksIfOwnerMatch\nRewriteRule ^x$ y");
    assert_eq!(site.options(AllowedOptions::NONE).short("/x"), "-> /y");
}

#[test]
fn point_4_the_pattern_comes_first_then_conditions_in_order() {
    let site = rules(
        "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule \\.css$ /x [L]",
    );
    assert!(
        site.ask("/a.html").questions.is_empty(),
        "the pattern did not match"
    );
    let asked = site.ask("/a.css");
    let file = Question::File(b"/srv/site/a.css".to_vec());
    assert_eq!(asked.questions, [file], "asked once for the request");
    assert_eq!(asked.short(), "-> /x");
}

#[test]
fn point_4_or_skips_the_rest_of_its_chain() {
    let site = rules(
        "RewriteCond %{QUERY_STRING} ^a=(.) [OR]\nRewriteCond %{QUERY_STRING} ^b=(.) [OR]\nRewriteCond %{QUERY_STRING} ^c=(.)\nRewriteCond %{HTTP_HOST} .\nRewriteRule ^ /%0? [L]",
    );
    for (query, result) in [("a=1", "-> /e"), ("b=2", "-> /e"), ("d=4", "200")] {
        assert_eq!(
            site.short(&format!("/x?{query}")),
            result,
            "the last one's groups"
        );
    }
    let site = rules(
        "RewriteCond %{QUERY_STRING} ^a=(.) [OR]\nRewriteCond %{QUERY_STRING} ^b=(.)\nRewriteRule ^ /%1? [L]",
    );
    assert_eq!(site.short("/x?b=2"), "-> /2");
    assert_eq!(site.short("/x?a=1&b=2"), "-> /1");
}

#[test]
fn point_4_the_filename_is_as_rewritten_and_the_uri_as_asked() {
    let site = rules(
        "RewriteRule ^x$ y\nRewriteCond %{REQUEST_FILENAME}#%{REQUEST_URI} ^(.*)$\nRewriteRule ^ - [E=both:%1]",
    );
    assert_eq!(
        site.ask("/x").variable("both").as_deref(),
        Some("/srv/site/y#/x")
    );
}

#[test]
fn point_5_a_hyphen_changes_nothing_but_what_flags_do() {
    let site = rules(
        "RewriteRule ^ - [E=seen:1]\nRewriteRule ^gone - [G]\nRewriteRule ^no - [F]\nRewriteRule ^tea - [R=418]\nRewriteRule ^stay - [R=301]",
    );
    assert_eq!(site.ask("/a.html").variable("seen").as_deref(), Some("1"));
    for (target, result) in [
        ("/gone", "410"),
        ("/no", "403"),
        ("/tea", "418"),
        ("/stay", "200"),
        ("/a.html", "200"),
    ] {
        assert_eq!(site.short(target), result, "{target}");
    }
}

#[test]
fn point_5_results_are_relative_paths_or_urls() {
    for (result, found) in [
        ("y", "-> /y"),
        ("/y", "-> /y"),
        ("https://other.jp/y", "302 https://other.jp/y"),
        // Our own host is no redirect.
        ("http://example.jp/y", "-> /y"),
        ("http://www.example.jp/y", "-> /y"),
        ("http://example.jp:81/y", "302 http://example.jp:81/y"),
        ("https://example.jp/y", "302 https://example.jp/y"),
    ] {
        assert_eq!(
            rules(&format!("RewriteRule ^x$ {result} [L]")).short("/x"),
            found,
            "{result}"
        );
    }
}

#[test]
fn point_5_a_result_that_is_what_was_asked_is_no_loop() {
    let site = rules("RewriteRule ^(.*)$ $1?seen=1 [QSA]");
    let asked = site.ask("/a.html?x=2");
    assert_eq!(
        (asked.short().as_str(), asked.query.as_deref()),
        ("200", Some("seen=1&x=2"))
    );
}

#[test]
fn point_6_a_base_replaces_the_directory() {
    let site = rules("").below("sub", "RewriteBase /mounted/\nRewriteRule ^x$ y [L]");
    assert_eq!(site.short("/sub/x"), "-> /mounted/y");
    let site = rules("").below("sub", "RewriteRule ^x$ y [L]");
    assert_eq!(site.short("/sub/x"), "-> /sub/y");
    let site = rules("").below("sub", "RewriteBase /m\nRewriteRule ^x$ y [R=301]");
    assert_eq!(site.short("/sub/x"), "301 http://example.jp/m/y");
    // Without one a relative redirect tells the path of the file, as it always has.
    let site = rules("").below("sub", "RewriteRule ^x$ y [R]");
    assert_eq!(site.short("/sub/x"), "302 http://example.jp/srv/site/sub/y");
    let merged = rules("RewriteBase /m\nRewriteOptions MergeBase");
    let merged = merged.below("sub", "RewriteRule ^x$ y [L]");
    assert_eq!(merged.short("/sub/x"), "-> /m/y");
}

#[test]
fn point_7_the_query_is_kept_replaced_appended_or_dropped() {
    for (rule, found) in [
        ("y", "-> /y?a=1"),
        ("y?b=2", "-> /y?b=2"),
        ("y?b=2 [QSA]", "-> /y?b=2&a=1"),
        ("y [QSD]", "-> /y"),
        ("y?b=2 [QSD]", "-> /y?b=2"),
        ("y?", "-> /y"),
        ("y? [QSA]", "-> /y?a=1"),
        ("y?b=?c [QSL]", "-> /y?b=?c"),
    ] {
        assert_eq!(
            rules(&format!("RewriteRule ^x$ {rule}")).short("/x?a=1"),
            found,
            "{rule}"
        );
    }
}

#[test]
fn point_7_blanks_in_a_query_and_captured_question_marks_are_refused() {
    let site = rules("RewriteRule ^(.*)$ /y?q=$1");
    assert_eq!(site.short("/one%20two"), "403");
    assert_eq!(site.short("/one"), "-> /y?q=one");
    let site = rules("RewriteRule ^(.*)$ /y?q=$1\nRewriteRule ^ - [G]");
    assert_eq!(
        (site.short("/one%20two"), site.short("/one")),
        ("403".into(), "410".into())
    );
    assert_eq!(
        rules("RewriteRule ^(.*)$ /y?q=$1 [B]").short("/one%20two"),
        "-> /y?q=one+two"
    );
    let site = rules("RewriteRule ^(.*)$ /y/$1");
    assert_eq!(site.short("/a%3Fb=1"), "403");
    let site = rules("RewriteRule ^(.*)$ /y/$1 [UnsafeAllow3F]");
    assert_eq!(site.short("/a%3Fb=1"), "-> /y/a?b=1");
}

#[test]
fn point_8_last_ends_the_pass_and_not_the_request() {
    let site = rules("RewriteRule ^x$ y [L]\nRewriteRule ^y$ z");
    assert_eq!(site.short("/x"), "-> /y");
    assert_eq!(site.followed("/x"), "/z");
}

#[test]
fn point_8_next_begins_anew_and_not_for_ever() {
    assert_eq!(
        rules("RewriteRule ^(.*)_(.*)$ $1-$2 [N]").short("/a_b_c"),
        "-> /a-b-c"
    );
    let asked = rules("RewriteRule ^(.*)$ $1x [N]").ask("/a");
    let htaccess::Ending::Status(stop) = asked.ending else {
        panic!("it goes on for ever")
    };
    assert_eq!(
        (stop.status, stop.reason, stop.line),
        (500, "htaccess_loop", 2)
    );
}

#[test]
fn point_8_chains_are_skipped_and_skips_are_counted() {
    let chained = "RewriteRule ^a$ - [C]\nRewriteRule ^ - [E=one:1,C]\nRewriteRule ^ - [E=two:1]\nRewriteRule ^ - [E=three:1]";
    let asked = rules(chained).ask("/b");
    let set = |name: &str| asked.variable(name).is_some();
    assert_eq!([set("one"), set("two"), set("three")], [false, false, true]);
    let skipped = "RewriteRule ^a$ - [S=2]\nRewriteRule ^ - [E=one:1]\nRewriteRule ^ - [E=two:1]\nRewriteRule ^ - [E=three:1]";
    let asked = rules(skipped).ask("/a");
    let set = |name: &str| asked.variable(name).is_some();
    assert_eq!([set("one"), set("two"), set("three")], [false, false, true]);
}

#[test]
fn point_8_pass_through_ends_the_pass() {
    let site = rules("RewriteRule ^x$ y [PT]\nRewriteRule ^y$ z\nRewriteRule ^u http://o.jp/ [PT]");
    assert_eq!(site.short("/x"), "-> /y");
    assert_eq!(site.short("/u"), "400");
}

#[test]
fn point_8_forwarding_is_refused() {
    let site = rules("RewriteRule ^x$ http://back.end/ [P]");
    assert_eq!(site.short("/x"), "403");
    assert_eq!(site.short("/a.html"), "200");
    assert!(
        site.problems()
            .iter()
            .any(|problem| problem.reason == "htaccess_refused")
    );
}

#[test]
fn point_8_a_path_grows_only_so_far() {
    let site = rules("RewriteRule ^(.*)$ $1$1$1$1$1$1$1$1 [N=60]");
    assert_eq!(site.short("/aaaaaaaa"), "500");
}

#[test]
fn point_9_fields_of_true_conditions_vary_but_not_the_host() {
    let site = rules(
        "RewriteCond %{HTTP_HOST} .\nRewriteCond %{HTTP:Accept-Language} ^ja [OR]\nRewriteCond %{HTTP_USER_AGENT} x\nRewriteCond %{HTTP_COOKIE} ^$ [NV]\nRewriteRule ^ - [E=ja:1]",
    );
    let asked = site.asked(
        &get("/").with("Accept-Language", "ja").with("Cookie", ""),
        None,
    );
    assert_eq!(asked.vary, ["Accept-Language"]);
}

#[test]
fn point_9_redirects_are_escaped_unless_told_otherwise() {
    let redirect = |flags: &str| rules(&format!("RewriteRule ^x(.*)$ https://o.jp/$1 [{flags}]"));
    assert_eq!(redirect("R").short("/x%20%22"), "302 https://o.jp/%20%22");
    assert_eq!(redirect("R=301,NE").short("/x%25"), "301 https://o.jp/%");
    assert_eq!(
        redirect("R=301,NE").short("/x%0D%0Aa:b"),
        "403",
        "no field of its own"
    );
    let site = rules("RewriteRule ^(.*)$ /y/$1 [B=/]");
    assert_eq!(site.short("/a/b%20c"), "404");
    let site = rules("RewriteRule ^(.*)$ /y/$1 [BNP,B]");
    assert_eq!(site.short("/a%20c"), "-> /y/a c");
}

#[test]
fn a_path_that_rules_lead_to_is_read_as_one_that_a_client_asks_for() {
    let site = rules("RewriteRule ^x(.*)$ y$1");
    for (path, found) in [
        ("/x%2541", "-> /yA"),
        ("/x%41", "-> /yA"),
        ("/x%25y", "400"),
        ("/x%25", "400"),
        ("/x%252Fb", "404"),
        ("/x%2500", "404"),
    ] {
        assert_eq!(site.short(path), found, "{path}");
    }
}

#[test]
fn point_10_lookups_are_not_had_and_never_open_anything() {
    let site = rules("RewriteCond %{REQUEST_URI} -U\nRewriteRule ^x$ y\nRewriteRule ^z$ w");
    assert_eq!(
        (site.short("/x"), site.short("/z")),
        ("200".to_owned(), "-> /w".to_owned())
    );
    let site = rules("RewriteCond %{LA-U:REMOTE_USER} ^$\nRewriteRule ^x$ - [F]");
    assert_eq!(site.short("/anything"), "500");
    let site = rules("RewriteRule ^(.*)$ /${lower:$1|none}");
    assert_eq!(site.short("/x"), "200", "a map is not had");
}

#[test]
fn point_11_what_is_unknown_is_left_out_or_refuses() {
    assert_eq!(rules("MakeItFast On").short("/a.html"), "200");
    assert_eq!(rules("RequireMagic yes").short("/a.html"), "500");
    assert_eq!(rules("RewriteRule ^( x").short("/a.html"), "500");
    assert_eq!(rules("RewriteRule ^ x [WAT]").short("/a.html"), "500");
}

#[test]
fn point_12_variables_by_what_is_asked_are_early_and_plain_ones_late() {
    let site = rules(
        "SetEnv late 1\nSetEnvIf Request_URI x early=1\nRewriteCond %{ENV:early}%{ENV:late} ^1$\nRewriteRule ^ - [E=only:early]",
    );
    let asked = site.ask("/x");
    assert_eq!(asked.variable("only").as_deref(), Some("early"));
    assert_eq!(asked.variable("late").as_deref(), Some("1"));
}

#[test]
fn conditions_compare_texts_and_numbers() {
    for (condition, holds) in [
        ("%{QUERY_STRING} =abc", true),
        ("%{QUERY_STRING} =ABC", false),
        ("%{QUERY_STRING} =ABC [NC]", true),
        ("%{QUERY_STRING} !=x", true),
        ("%{QUERY_STRING} >abb", true),
        // The longer one is the greater.
        ("%{QUERY_STRING} >zz", true),
        ("%{QUERY_STRING} <abcd", true),
        ("%{SERVER_PORT} -eq80", true),
        ("%{SERVER_PORT} -ne80", false),
        ("%{SERVER_PORT} !-ne80", true),
        ("%{SERVER_PORT} -gt79", true),
        ("%{HTTP:Nothing} =\"\"", true),
        ("%{HTTPS} off", true),
        ("%{TIME_YEAR}%{TIME_MON}%{TIME_WDAY} ^2026115$", true),
        ("%{REQUEST_SCHEME} ^http$", true),
        (
            "expr \"%{REQUEST_URI} =~ m#^/x# && -n '%{HTTP_HOST}'\"",
            true,
        ),
        ("/srv/site/a.html -s", true),
        ("/srv/site/sub -d", true),
        ("/srv/site/some-link -l", true),
        ("/etc/passwd -f", false),
    ] {
        let site = rules(&format!(
            "RewriteCond {condition}\nRewriteRule ^ - [E=hit:1]"
        ));
        let found = site.ask("/x?abc").variable("hit").is_some();
        assert_eq!(found, holds, "{condition}: {:?}", site.problems());
    }
}

#[test]
fn groups_of_expressions_are_those_of_conditions() {
    let site =
        rules("RewriteCond expr \"%{REQUEST_URI} =~ m#^/(.)#\"\nRewriteRule ^ - [E=first:%1]");
    assert_eq!(site.ask("/xyz").variable("first").as_deref(), Some("x"));
}

#[test]
fn a_base_is_found_with_back_references() {
    // What Symfony and TYPO3 do to learn where they are mounted.
    let text = "RewriteEngine On\nRewriteCond %{REQUEST_URI}::$0 ^(/.+)/(.*)::\\2$\nRewriteRule .* - [E=BASE:%1]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ %{ENV:BASE}/index.php [L]";
    let site = Site::new("").below("app", text);
    assert_eq!(site.short("/app/some/page"), "-> /app/index.php");
    let site = Site::new(&text.replace("app/", ""));
    assert_eq!(site.short("/page"), "-> /index.php");
}

#[test]
fn cookies_are_set_once() {
    let site = rules(
        "RewriteRule ^ - [CO=a:b:example.jp:10:/p:secure:httponly:lax]\nRewriteRule ^ - [CO=a:b:example.jp:10:/p:secure:httponly:lax]",
    );
    let asked = site.ask("/a.html");
    assert_eq!(
        asked.cookies,
        [
            "a=b; path=/p; domain=example.jp; expires=Fri, 27 Nov 2026 08:15:09 GMT; secure; HttpOnly; SameSite=lax"
        ]
    );
}

#[test]
fn names_that_a_server_says_to_programs_are_not_a_rule_s_to_set() {
    let site = rules(
        "RewriteRule ^ - [E=HTTP_PROXY:x,E=LD_PRELOAD:y,E=LD-PRELOAD:y,E=php.admin-value:z,E=PHP_VALUE:z,E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]",
    );
    let asked = site.asked(&get("/a.html").with("Authorization", "Basic eA=="), None);
    let names: Vec<_> = asked
        .variables
        .iter()
        .map(|(name, _)| name.to_vec())
        .collect();
    assert_eq!(names, [b"HTTP_AUTHORIZATION"]);
}

#[test]
fn leading_slashes_are_merged_unless_they_are_written() {
    assert_eq!(rules("RewriteRule ^x(.*)$ $1").short("/x//y"), "-> /y");
}

#[test]
fn every_line_that_was_looked_at_is_explained() {
    let asked = rules("RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^x$ y [L]").ask("/x");
    assert_eq!(
        asked.trace,
        [
            "3: RewriteRule ^x$ matches `x`",
            "2: RewriteCond %{REQUEST_FILENAME} !-f matches: `/srv/site/x`",
            "3: to `/srv/site/y`"
        ]
    );
}

#[test]
fn a_fragment_is_no_part_of_the_path_that_a_rule_leads_to() {
    let site = rules("RewriteRule ^x$ /y.html#top [L]\nRewriteRule ^z$ /y.html#top [R,NE,L]");
    assert_eq!(site.short("/x"), "-> /y.html");
    assert_eq!(site.short("/z"), "302 http://example.jp/y.html#top");
}
