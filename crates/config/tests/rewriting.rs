//! `rewrite`, groups in texts, and variables that depend on the request.

use config::Sources;
use config::model::{Handler, LimitKey, QueryChange, Template, TemplatePart};

use crate::written::{LISTEN, SITE, model};

fn groups(template: &Template) -> Vec<usize> {
    let group = |part: &TemplatePart| match part {
        TemplatePart::Capture(group) => Some(*group),
        _ => None,
    };
    template.parts.iter().filter_map(group).collect()
}

#[test]
fn what_becomes_of_the_query_follows_from_the_target_unless_it_is_said() {
    let model = model(&format!(
        "{LISTEN}{SITE}rewrite = [\n\
         {{ from = 'a', to = \"/a\" }},\n\
         {{ from = 'a', to = \"/a?b\", unless = \"file\" }},\n\
         {{ from = 'a', to = \"/a?b\", query = \"append\", last = true }},\n\
         {{ from = 'a', to = \"/a\", query = \"drop\", unless = [\"directory\", \"file\"] }},\n]\n"
    ));
    let rewrites = &model.sites[0].rewrites;
    let queries: Vec<_> = rewrites.iter().map(|it| it.query).collect();
    let [keep, replace, append, drop] = [
        QueryChange::Keep,
        QueryChange::Replace,
        QueryChange::Append,
        QueryChange::Drop,
    ];
    assert_eq!(queries, [keep, replace, append, drop]);
    let unless = |at: usize| (rewrites[at].unless_file, rewrites[at].unless_directory);
    assert_eq!(
        [unless(0), unless(1), unless(3)],
        [(false, false), (true, false), (true, true)]
    );
    assert!(rewrites[2].last && !rewrites[3].last);
}

#[test]
fn a_group_is_its_number_whatever_it_is_called() {
    let model = model(&format!(
        "{LISTEN}{SITE}[[sites.rules]]\nmatch = {{ path_regex = '^/(?<year>[0-9]+)/(b)?' }}\n\
         limits = [{{ key = [\"${{year}}\", \"$2\"], rate = \"1/s\" }}]\n\
         env = {{ A = \"$1x${{1}}y\" }}\n\
         handler = {{ redirect = \"/by/${{year}}/$2$0\" }}\n"
    ));
    let rule = &model.sites[0].rules[0];
    let Some(Handler::Redirect(redirect)) = &rule.handler else {
        panic!("{:?}", rule.handler);
    };
    assert_eq!(groups(&redirect.target), [1, 2, 0]);
    assert_eq!(
        rule.limits[0].key,
        [LimitKey::Capture(1), LimitKey::Capture(2)]
    );
    let env = rule.settings.env[0].value.as_ref().expect("a value");
    assert_eq!(groups(env), [1, 1]);
}

#[test]
fn variables_of_a_list_stay_in_their_order() {
    let model = model(&format!(
        "{LISTEN}{SITE}env = {{ A = [\"1\", {{ value = false, match = {{ method = \"GET\" }} }}, \
         {{ value = \"$host\", match = {{ cookie = {{ b = {{ regex = 'c' }} }} }} }}], B = false }}\n"
    ));
    let env = &model.sites[0].settings.env;
    let told: Vec<_> = env
        .iter()
        .map(|it| (it.name.as_str(), it.value.is_some(), it.conditions.len()))
        .collect();
    let expected = [
        ("A", true, 0),
        ("A", false, 1),
        ("A", true, 1),
        ("B", false, 0),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_rule_that_rewriting_may_lead_past_is_told() {
    let front = "rewrite = [{ from = '^/(.*)$', to = \"/index.php?route=$1\" }]\n";
    let media = "rewrite = [{ from = '^/media/([0-9]+)$', to = \"/show?id=$1\" }]\n";
    let branches = "rewrite = [{ from = '^/media/|^/ad', to = \"/show\" }]\n";
    let perhaps = "rewrite = [{ from = '^/ad?\\.x', to = \"/show\" }]\n";
    let mount = &*format!("[[sites.mounts]]\npath = \"/wiki\"\nroot = \"/w\"\n{front}");
    let admin = "path = [\"/none\", \"/admin/*\"]";
    let deny = "deny = \"all\"";
    for (before, conditions, does, is_told) in [
        (front, admin, deny, true),
        (front, admin, "allow = [\"10.0.0.0/8\"]", true),
        (front, admin, "env = { A = \"b\" }", false),
        (
            front,
            "path_regex = '^/a'",
            "limits = [{ rate = \"1/s\" }]",
            true,
        ),
        (front, "not = { path = \"/open/*\" }", deny, true),
        (front, "file = \"*.php\"", deny, false),
        (media, admin, deny, false),
        (media, "path = \"*.sql\"", deny, true),
        (media, "path = \"/media/*\"", deny, true),
        (branches, admin, deny, true),
        (perhaps, admin, deny, true),
        (mount, admin, deny, false),
        (mount, "path = \"/wiki/private/*\"", deny, true),
    ] {
        let rule = format!("[[sites.rules]]\nmatch = {{ {conditions} }}\n{does}\n");
        let text = format!("{LISTEN}{SITE}{before}{rule}");
        let sources = Sources::from_text("nagaya.toml", &text);
        let (_, warnings) = config::load_and_warn(&sources).unwrap_or_else(|told| panic!("{told}"));
        let told = warnings.to_string().contains("never meets `rule 1`");
        assert_eq!(told, is_told, "{text}{warnings}");
    }
}

#[test]
fn rules_that_rewrite_may_meet_the_limits_of_all_without_a_handler() {
    let limits: Vec<_> = (0..9)
        .map(|at| format!("{{ name = \"l{at}\", rate = \"1/s\" }}"))
        .collect();
    let rule = format!("[[sites.rules]]\nlimits = [{}]\n", limits.join(", "));
    let text = format!(
        "{LISTEN}{SITE}[[sites.rules]]\nREWRITE\n{rule}handler = {{ static = true }}\n{rule}"
    );
    model(&text.replace("REWRITE", "env = { A = \"b\" }"));
    let again = text.replace("REWRITE", "rewrite = [{ from = 'a', to = \"/b\" }]");
    let told = crate::written::problems(&Sources::from_text("nagaya.toml", &again));
    assert!(told.contains("could meet 18 limits"), "{told}");
}
