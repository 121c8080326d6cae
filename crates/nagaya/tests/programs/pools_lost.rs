//! What is left of pools where the gateway is killed: nothing.

use rustix::process::Signal;
use testkit::{Gateway, PATIENCE, eventually};

use crate::fixtures::pools::{kill, plain_bed, runs, signal};
use crate::fixtures::programs::is_root;

/// Another gateway with the same places.
const NEXT: &str = r#"
workers = 1
[pools]
directory = "{pools}"
[[sites]]
hosts = ["next.test"]
root = "{site}"
{user}
pool = { isolate = "none" }
  [[sites.rules]]
  handler = { app = { command = ["/bin/true"], directory = "{site}" } }
"#;

#[test]
fn pools_end_with_a_supervisor_that_is_killed() {
    let Some(bed) = plain_bed() else { return };
    let who = bed.who();
    kill(bed.gateway.pid());
    eventually(PATIENCE, "the end of the pool", || {
        (!runs(who.master) && !runs(who.child)).then_some(())
    });
}

#[test]
fn what_is_left_of_a_killed_gateway_has_ended_when_the_next_one_serves() {
    let Some(bed) = plain_bed() else { return };
    let who = bed.who();
    let spawner = bed.gateway.spawner_pid();
    // It does not see the supervisor's end.
    signal(spawner, Signal::STOP);
    kill(bed.gateway.pid());
    kill(spawner);
    eventually(PATIENCE, "their ends", || {
        (!runs(bed.gateway.pid()) && !runs(spawner)).then_some(())
    });
    assert!(runs(who.master), "nobody has ended it");
    let user = match is_root() {
        true => "user = \"www-data\"",
        false => "",
    };
    let pools = bed.gateway.directory().path().join("pools");
    let next = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), NEXT)
        .with("pools", pools.display())
        .with("site", bed.site.path().display())
        .with("user", user)
        .start();
    assert!(!runs(who.master) && !runs(who.child), "{}", next.stderr());
    assert!(next.stderr().contains("that a killed gateway has left"));
}
