//! Who of a tenant comes before whom, and what of a limit is whose: `class` and `reserve`.

use config::dump;
use config::model::{Condition, Reserve};
use config::{Sources, load_and_warn};

use crate::written::{self, LISTEN, SITE, model};

fn problems(text: &str) -> String {
    written::problems(&Sources::from_text("nagaya.toml", text))
}

fn tenant(class: &str) -> String {
    format!("{LISTEN}[tenants.a]\nclass = [{class}]\n{SITE}tenant = \"a\"\n")
}

#[test]
fn classes_have_their_order_names_and_weights() {
    let model = model(&tenant(
        "{ match = { path = \"/login\" }, weight = 9 }, { name = \"posts\", match = { method = \"POST\" } }",
    ));
    let classes = &model.tenants[0].classes;
    let told: Vec<_> = classes.iter().map(|it| (&*it.name, it.weight)).collect();
    assert_eq!(told, [("class 1", 9), ("posts", 1)]);
    assert_eq!(
        classes[1].conditions,
        [Condition::Method(vec!["POST".to_owned()])]
    );
    assert!(
        dump(&model)
            .contains("class = [{ name = \"class 1\", match = { path = \"/login\" }, weight = 9 }")
    );
}

#[test]
fn a_class_that_says_nothing_of_requests_is_refused() {
    let plain = "{ match = { method = \"POST\" } }";
    let many = [plain; 17].join(", ");
    for (class, told) in [
        ("{ weight = 2 }", "`match` is missing"),
        ("{ match = {} }", "`match` is empty"),
        (
            "{ match = { method = \"POST\" }, weight = 0 }",
            "from 1 to 1000",
        ),
        (
            "{ name = \"\", match = { method = \"POST\" } }",
            "short text",
        ),
        (
            "{ name = \"a\", match = { method = \"GET\" } }, { name = \"a\", match = { method = \"POST\" } }",
            "two classes are called `a`",
        ),
        (&many, "16 at most"),
    ] {
        let problems = problems(&tenant(class));
        assert!(problems.contains(told), "{class}: {problems}");
    }
}

/// A configuration with a limit on an upstream, and two tenants.
fn upstream(limit: &str) -> String {
    format!(
        "{LISTEN}[upstreams.app]\nservers = [\"127.0.0.1:9000\"]\nlimits = [{limit}]\n\
         [tenants.shop]\n[tenants.blog]\n{SITE}tenant = \"shop\"\n"
    )
}

#[test]
fn reserves_are_told_and_printed() {
    let model = model(&upstream(
        "{ concurrent = 4, queue = 9, reserve = { shop = 3, blog = 1 } }",
    ));
    let mut reserves = model.upstreams[0].limits[0].reserves.clone();
    reserves.sort_by_key(|it| it.permits);
    let expected = [("blog", 1), ("shop", 3)].map(|(tenant, permits)| Reserve {
        tenant: tenant.to_owned(),
        permits,
    });
    assert_eq!(reserves, expected);
    assert!(dump(&model).contains("reserve = {"));
}

#[test]
fn reserves_that_cannot_be_kept_are_refused() {
    for (limit, told) in [
        (
            "{ concurrent = 4, queue = 1, reserve = { shop = 3, blog = 2 } }",
            "5 requests are reserved, of the 4",
        ),
        (
            "{ concurrent = \"auto\", queue = 1, reserve = { shop = 3 } }",
            "needs a number",
        ),
        (
            "{ rate = \"5/s\", reserve = { shop = 3 } }",
            "needs a number",
        ),
        (
            "{ key = \"client\", concurrent = 4, queue = 1, reserve = { shop = 3 } }",
            "share as a whole",
        ),
        (
            "{ concurrent = 4, queue = 1, reserve = { shop = 0 } }",
            "from 1 to",
        ),
        (
            "{ concurrent = 4, queue = 1, reserve = { shpo = 1 } }",
            "there is no tenant `shpo`",
        ),
        (
            "{ concurrent = 4, queue = 1, reserve = { elsewhere = 1 } }",
            "[tenants.elsewhere]",
        ),
    ] {
        let problems = problems(&upstream(limit));
        assert!(problems.contains(told), "{limit}: {problems}");
    }
    let of_site = format!(
        "{LISTEN}{SITE}limits = [{{ concurrent = 4, queue = 1, reserve = {{ a = 1 }} }}]\n"
    );
    assert!(problems(&of_site).contains("share as a whole"));
}

#[test]
fn a_reserve_without_a_queue_is_a_warning() {
    let text = upstream("{ concurrent = 4, reserve = { shop = 3 } }");
    let (_, warnings) = load_and_warn(&Sources::from_text("nagaya.toml", &text)).expect("sound");
    assert!(
        warnings
            .to_string()
            .contains("says nothing without `queue`"),
        "{warnings}"
    );
}
