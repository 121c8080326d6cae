//! Sites and mounts that join a pool which runs, by a reload or an upgrade.

use std::os::unix::fs::chown;

use rustix::process::Signal;
use testkit::PATIENCE;
use testkit::wait::eventually;

use crate::fixtures::pools::{CONFIG, WHO, plain_bed, who};
use crate::fixtures::programs::is_root;

/// A site of the first one's tenant, user and settings.
const SITE: &str = r#"
[[sites]]
hosts = ["{name}.test"]
tenant = "app.test"
root = "{site}/{name}"
{user0}
pool = { php = "{version}" }
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { php = true }
"#;

#[test]
fn a_site_that_joins_a_warm_pool_is_answered_by_who_sees_its_files() {
    let Some(mut bed) = plain_bed() else { return };
    let mut before = bed.who();
    let mut sites = String::new();
    for round in 0..4 {
        let name = format!("joins{round}");
        bed.site.write(&format!("{name}/index.php"), WHO);
        if is_root() {
            chown(bed.site.path().join(&name), Some(33), None).unwrap();
        }
        sites += &SITE.replace("{name}", &name);
        bed.gateway.reload(&CONFIG.replace("{sites}", &sites));
        bed.gateway
            .wait_for_message(&format!("ready: generation {} ", round + 2));
        let answer = bed.get_of(&format!("{name}.test"), "/index.php");
        let text = answer.text();
        assert_eq!(answer.status, 200, "{text}\n{}", bed.gateway.stderr());
        let joined = who(&text);
        assert_ne!(joined.master, before.master, "one that sees it");
        // It has left everybody else where they were.
        before = bed.who();
        assert_eq!(before.master, joined.master, "the same pool");
    }
    let log = bed.gateway.stderr();
    for text in [
        "pool started",
        "a request came",
        "its settings have changed",
        "another one has taken over",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
}

#[test]
fn a_site_that_joins_a_warm_pool_by_an_upgrade_is_answered_by_who_sees_its_files() {
    let Some(bed) = plain_bed() else { return };
    let before = bed.who();
    bed.site.write("joins/index.php", WHO);
    if is_root() {
        chown(bed.site.path().join("joins"), Some(33), None).unwrap();
    }
    let site = SITE.replace("{name}", "joins");
    bed.gateway.place(&CONFIG.replace("{sites}", &site));
    bed.gateway.signal(Signal::USR2);
    let answer = eventually(PATIENCE, "the next program's server", || {
        let answer = bed.get_of("joins.test", "/index.php");
        (answer.status != 421).then_some(answer)
    });
    let text = answer.text();
    assert_eq!(answer.status, 200, "{text}\n{}", bed.gateway.stderr());
    assert_ne!(who(&text).master, before.master, "one that sees it");
}

#[test]
fn a_mount_that_comes_to_a_warm_pool_is_answered_by_who_sees_its_files() {
    let Some(mut bed) = plain_bed() else { return };
    let before = bed.who();
    bed.site.write("wiki/index.php", WHO);
    let mounts = "mounts = [{ path = \"/wiki\", root = \"{site}/wiki\" }]";
    bed.gateway.reload(&CONFIG.replace("{app}", mounts));
    bed.gateway.wait_for_message("ready: generation 2 ");
    let answer = bed.get("/wiki/index.php");
    let text = answer.text();
    assert_eq!(answer.status, 200, "{text}\n{}", bed.gateway.stderr());
    assert_ne!(who(&text).master, before.master, "one that sees it");
    assert_eq!(bed.who().master, who(&text).master, "the same pool");
}
