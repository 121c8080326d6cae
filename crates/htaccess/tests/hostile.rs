//! Files and requests that mean harm: a defined answer, in so many steps.
//!
//! What is measured are the steps that the crate counts; tests of single steps are those of what
//! takes them. Whatever was not counted would be answered here.

use htaccess::{Ending, Overrides, STEPS_MAX, compile};

use crate::site::{Asked, Get, Site, get};

/// The status and the reason that a request is refused with.
fn refused(asked: &Asked) -> (u16, &'static str) {
    match &asked.ending {
        Ending::Status(stop) => (stop.status, stop.reason),
        other => panic!("{other:?}"),
    }
}

const WORK: (u16, &str) = (500, "htaccess_work");

/// Asks for `/a` with a long field.
fn asked(text: &str) -> Asked {
    let long = "x".repeat(8_000);
    let get = Get {
        target: "/a",
        ..get("/a").with("X", &long)
    };
    Site::new(text).files(&["a"]).asked(&get, None)
}

#[test]
fn patterns_that_cost_much_are_refused_and_those_that_cost_little_are_not() {
    let costly = "RewriteRule ^(?=(a|a)*b)(.*)$ - [E=x:1]\n".repeat(4_000);
    let site = Site::new(&format!("RewriteEngine On\n{costly}"));
    let target = format!("/{}", "a".repeat(8_000));
    assert_eq!(refused(&site.ask(&target)), (500, "htaccess_regex"));
    let many = "RewriteCond %{QUERY_STRING} !x\n".repeat(512);
    let site = Site::new(&format!("RewriteEngine On\n{many}RewriteRule ^ /y [L]"));
    assert_eq!(site.short("/a"), "-> /y");
    let more = "RewriteCond %{QUERY_STRING} !x\n".repeat(513);
    let site = Site::new(&format!("RewriteEngine On\n{more}RewriteRule ^ /y [L]"));
    assert_eq!(site.short("/a"), "500");
}

#[test]
fn words_and_functions_of_expressions_are_counted() {
    let condition = |expression: &str| {
        format!("RewriteEngine On\nRewriteCond expr \"{expression}\"\nRewriteRule ^ - [E=hit:1]\n")
    };
    let hash = "sha1(%{HTTP:X})";
    let one = asked(&condition(&format!("{hash} == 'a'")));
    assert_eq!(one.short(), "200");
    assert!(one.spent < 4_000, "{}", one.spent);
    let many = [hash; 400].join(".");
    assert_eq!(refused(&asked(&condition(&format!("{many} == 'a'")))), WORK);
    let words = ["%{HTTP:X}"; 1_000].join(",");
    let list = condition(&format!("'a' in {{ {words} }}")).repeat(4);
    assert_eq!(refused(&asked(&list)), WORK);
    let long = "*a".repeat(3_000);
    let like = condition(&format!("%{{HTTP:X}} -strmatch '{long}'"));
    assert_eq!(refused(&asked(&like)), WORK);
}

#[test]
fn look_ups_of_fields_and_variables_are_counted() {
    let fields = "%{HTTP:X-None}".repeat(1_000);
    let conditions = format!("RewriteCond {fields} !x\n").repeat(15);
    let text = format!("RewriteEngine On\n{conditions}RewriteRule ^ - ");
    let once = asked(&format!("{text}[E=a:b]"));
    assert_eq!(once.short(), "200");
    assert!((75_000..STEPS_MAX).contains(&once.spent), "{}", once.spent);
    assert_eq!(refused(&asked(&format!("{text}[N]"))), WORK);
    let names: Vec<String> = (0..400).map(|at| format!("v{at}=1")).collect();
    let set = format!("SetEnvIf Request_URI . {}\n", names.join(" "));
    let tests = "Deny from env=none env=none env=none env=none\n".repeat(3_000);
    let set = asked(&format!("{set}Order allow,deny\nAllow from all\n{tests}"));
    assert_eq!(refused(&set), WORK);
}

#[test]
fn all_paths_of_a_request_share_its_steps() {
    let words = ["%{HTTP:X}"; 150].join("");
    let text = format!(
        "RewriteEngine On\nRewriteCond expr \"-n sha1('{words}')\"\nRewriteRule ^(a+)$ /a$1 [L]\n"
    );
    let site = Site::new(&text);
    let one = site.ask("/a");
    assert_eq!(one.short(), "-> /aa");
    let each = one.spent;
    assert!(each > 0);
    let mut later = get("/a");
    later.spent = STEPS_MAX - each;
    assert_eq!(site.asked(&later, None).short(), "-> /aa");
    later.spent += 1;
    assert_eq!(site.asked(&later, None).short(), "500");
}

#[test]
fn requirements_that_are_merged_do_not_stand_in_each_other() {
    let one = "<Files *>\nAuthMerging And\nRequire all granted\n</Files>\n";
    let few = asked(&one.repeat(100));
    assert_eq!(few.short(), "200");
    assert!(few.spent < 100 * 60, "{}", few.spent);
    let many = asked(&one.repeat(1_000));
    assert_eq!(refused(&many), (500, "htaccess_too_large"));
    assert!(many.spent < 1_000 * 60, "{}", many.spent);
    let mut site = Site::new(&one.repeat(1_000));
    for at in 0..4 {
        site = site.below(&"d/".repeat(at + 1), &one.repeat(1_000));
    }
    assert_eq!(site.short("/d/d/d/d/x"), "500");
}

#[test]
fn what_is_merged_for_a_request_is_counted() {
    let names: Vec<String> = (0..500).map(|at| format!("n{at}")).collect();
    let unset = format!("UnsetEnv {}\n", names.join(" "));
    let once = asked(&format!("{unset}<Files *>\nSetEnv a b\n</Files>\n"));
    assert_eq!(once.short(), "200");
    assert!((500 * 8..20_000).contains(&once.spent), "{}", once.spent);
    let often = format!("<Files *>\n{unset}</Files>\n").repeat(60);
    assert_eq!(refused(&asked(&often)), WORK);
    let more = asked(&format!("{unset}UnsetEnv {}\n", "x ".repeat(20)).replace("x x", "y z"));
    assert_eq!(more.short(), "200");
    let names: Vec<String> = (0..513).map(|at| format!("n{at}")).collect();
    assert_eq!(
        asked(&format!("UnsetEnv {}", names.join(" "))).short(),
        "500"
    );
    // Each line of a section is taken in once, wherever it goes.
    let redirects = "<Files *>\nRedirect /x /y\n</Files>\n";
    let (half, whole) = (
        asked(&redirects.repeat(600)),
        asked(&redirects.repeat(1_200)),
    );
    assert_eq!((half.short(), whole.short()), ("200".into(), "200".into()));
    assert!(whole.spent < half.spent * 2 + 100, "{}", whole.spent);
    let inherited = "RewriteRule ^x$ /y\n".repeat(2_000)
        + &"<Files *>\nRewriteOptions Inherit\nRewriteRule ^z$ /y\n</Files>\n".repeat(400);
    assert_eq!(refused(&asked(&inherited)), WORK);
}

#[test]
fn as_many_lines_as_a_file_may_have_leave_steps_for_other_paths() {
    for line in [
        "RewriteRule ^old-{}/(.*)$ /new/$1 [R=301,L]\n",
        "RedirectMatch 301 ^/old-{}/(.*)$ /new/$1\n",
        "Redirect 301 /old-{} /new\n",
        "SetEnvIf User-Agent ^bot-{} bad\n",
        "Header set X-{} y\n",
        "Deny from 10.{}\n",
    ] {
        let lines = (0..4_090).map(|at| line.replace("{}", &(at % 250).to_string()));
        let text = format!("RewriteEngine On\n{}", lines.collect::<String>());
        let asked = asked(&text);
        assert_eq!(asked.short(), "200", "{line}");
        assert!(asked.spent < STEPS_MAX / 3, "{line}: {}", asked.spent);
    }
}

#[test]
fn lines_in_sections_in_sections_are_looked_at_once() {
    let lines = "Xq1 a\n".repeat(4_000);
    let text = "<If true>\n".repeat(32) + &lines + &"</If>\n".repeat(32);
    let program = compile(text.as_bytes(), &Overrides::all());
    assert!(program.looks <= 2 * 4_096, "{}", program.looks);
    let unknown = "<Nonsense>\n".repeat(32) + &lines + &"</Nonsense>\n".repeat(32);
    let program = compile(unknown.as_bytes(), &Overrides::all());
    assert!(program.looks <= 2 * 4_096, "{}", program.looks);
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
    let asked = Site::new(&text).ask(&format!("/{}", "a".repeat(3_000)));
    assert_eq!(refused(&asked), (500, "htaccess_env"));
}

#[test]
fn a_half_written_file_refuses_what_it_covers() {
    let rules = "RewriteEngine On\nRewriteRule ^x$ /y [L]\n";
    let whole = format!("{rules}<Files a>\nDeny from all\n</Files>\n");
    let closed = whole.find("</Files").expect("it is there") + "</Files".len();
    for end in 0..=whole.len() {
        let site = Site::new(&whole[..end]).files(&["a", "b"]);
        let (of_a, of_b) = (site.short("/a"), site.short("/b"));
        if end >= closed {
            assert_eq!((&*of_a, &*of_b), ("403", "200"), "{end}");
        } else if end > rules.len() {
            assert_eq!((&*of_a, &*of_b), ("500", "500"), "{end}");
        } else {
            let refuses = site.problems().iter().any(|problem| problem.refuses);
            assert_eq!(of_a, if refuses { "500" } else { "200" }, "{end}");
        }
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
    let asked = site.ask(&format!("{path}/x"));
    assert_eq!(asked.short(), format!("-> {path}/y"));
    assert!(asked.spent < 2_000, "{}", asked.spent);
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

#[test]
fn patterns_of_a_file_take_so_many_bytes_and_no_more() {
    let rules = |count| "RewriteRule (?:ab?){45} /x\n".repeat(count);
    let few = compile(rules(500).as_bytes(), &Overrides::all());
    assert_eq!(few.problems, []);
    let most = 17 << 20;
    let many = compile(rules(4_000).as_bytes(), &Overrides::all());
    assert!((16 << 20..most + (2 << 20)).contains(&many.memory_bytes()));
    let site = asked(&format!("{}Require all granted\n", rules(4_000)));
    assert_eq!(refused(&site), (403, "htaccess_too_large"));
    let problem = many.problems.last().expect("it is told");
    assert!(problem.refuses && problem.text.contains("16777216"));
}
