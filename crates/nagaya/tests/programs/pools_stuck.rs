//! A process of a pool that even a kill does not end, since the kernel waits for a disk.

use std::time::Duration;

use testkit::processes::children;
use testkit::slow_mount::SlowMount;
use testkit::{PATIENCE, eventually, lacks, lacks_root};

use crate::fixtures::pools::{WHO, bed_of, kill, request, runs};

/// How long each question to the disk takes.
const DELAY: Duration = Duration::from_secs(8);

#[test]
fn a_process_that_cannot_be_killed_is_told_and_nobody_takes_its_place() {
    if lacks_root("to mount a slow file system") {
        return;
    }
    let files = [
        ("app/index.php", WHO),
        ("app/slow.php", "<?php readfile('slow/big');"),
        ("app/slow/none", ""),
    ];
    let Some(bed) = bed_of(&files) else { return };
    let _mounted = match SlowMount::at(&bed.site.path().join("app/slow"), 1, DELAY) {
        Ok(mounted) => mounted,
        Err(error) => return lacks("a kernel's feature", format!("FUSE: {error}")),
    };
    let before = bed.who();
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", before.master)).unwrap();
    if !groups.contains("/nagaya-") {
        return lacks("a controller", "who is left is known by its group");
    }
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(&request("app.test", "/slow.php"));
    let stuck = eventually(PATIENCE, "somebody who waits for the disk", || {
        let waits = |pid: &u32| {
            let place = std::fs::read_to_string(format!("/proc/{pid}/wchan"));
            place.is_ok_and(|place| place.contains("request_wait_answer"))
        };
        children(before.master).into_iter().find(waits)
    });
    kill(before.master);
    bed.gateway
        .wait_for_message("processes that were killed have not ended");
    eventually(PATIENCE, "an answer", || {
        let answer = bed.get("/");
        assert!(!(runs(stuck) && answer.status == 200), "two at one socket");
        (answer.status == 200).then_some(())
    });
}
