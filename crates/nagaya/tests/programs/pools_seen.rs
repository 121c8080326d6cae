//! What is seen of pools from outside, and the compiled files that they keep.

use std::path::PathBuf;

use testkit::client::{Body, reply};
use testkit::processes::{children, memory_kib};
use testkit::{PATIENCE, eventually};

use crate::fixtures::limited;
use crate::fixtures::pools::{Bed, WHO, Wish, bed, bed_of, request};
use crate::fixtures::programs::is_root;

/// What a tenant that nobody asks may take: more than the 7 or so that it does in a build like
/// this, for among 300 of them arenas of threads that had to wait count for a few.
const IDLE_KIB_MAX: u64 = 12;
/// Where a page finds what its pool keeps.
const CACHE: &str = "<?php $cache = dirname(ini_get('upload_tmp_dir')) . '/cache'; ";

#[test]
fn the_longest_request_is_told_with_its_script_and_no_client_sees_where_from() {
    let files = [("app/index.php", WHO), ("app/long.php", "<?php sleep(60);")];
    let Some(bed) = bed_of(&files) else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(&request("app.test", "/long.php"));
    let told = |what: &str| {
        eventually(PATIENCE, "the longest request", || {
            let pools = limited::ask(&bed.gateway, "pools json");
            let is_told = pools.contains("app/long.php\"") && pools.contains(what);
            is_told.then_some(pools)
        })
    };
    told("\"under_way\":1,");
    // Of one whose client has gone php-fpm alone knows.
    drop(client);
    let pools = told("\"under_way\":0,");
    assert!(pools.contains("\"longest_ms\":"), "{pools}");
    let table = limited::ask(&bed.gateway, "pools");
    assert!(table.contains(": longest in /"), "{table}");
    for path in [
        "/../status?full",
        "/status?full",
        "/index.php/../../status?full",
        "/%2e%2e/status?full",
        "/index.php/%2e%2e/%2e%2e/status?full",
    ] {
        let answer = bed.get(path);
        assert!(!answer.text().contains("process manager"), "{path}");
        assert_ne!(answer.status, 200, "{path}: {}", answer.text());
    }
}

/// The cache in which this file is.
fn cache_with(bed: &Bed, name: &str) -> PathBuf {
    let pools = bed.gateway.directory().path().join("pools");
    let each = std::fs::read_dir(pools).unwrap().map(|it| it.unwrap());
    let mut caches = each.map(|it| it.path().join("cache"));
    caches.find(|it| it.join(name).exists()).unwrap()
}

#[test]
fn compiled_files_are_bounded_and_cleared_after_the_last_who_could_write_some() {
    let fill = format!(
        "{CACHE} for ($i = 0; $i < 12; $i++) {{ \
         file_put_contents(\"$cache/f$i\", str_repeat('x', 1 << 20)); \
         touch(\"$cache/f$i\", time() - 1000 + $i); }} echo 'filled';"
    );
    let late = format!(
        "{CACHE} touch(__DIR__ . '/begun'); \
         for ($i = 0; $i < 600 && !file_exists(__DIR__ . '/go'); $i++) {{ \
         usleep(100000); clearstatcache(); }} \
         file_put_contents(\"$cache/late\", 'x'); echo 'late';"
    );
    let files = [
        ("app/index.php", WHO),
        ("app/fill.php", &*fill),
        ("app/late.php", &*late),
    ];
    let wish = Wish {
        pools: "cache = \"6MiB\"",
        files: &files,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    assert_eq!(bed.get("/fill.php").text(), "filled");
    // The oldest may be gone already: files are looked at after each start.
    let cache = cache_with(&bed, "f11");
    let has = |name: &str| cache.join(name).exists();
    limited::ask(&bed.gateway, "pools-restart app.test");
    eventually(PATIENCE, "the oldest files' end", || {
        (!has("f0")).then_some(())
    });
    eventually(PATIENCE, "as many as may be", || (!has("f5")).then_some(()));
    assert!(has("f11"), "the latest ones stay");
    bed.await_masters(1);
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(&request("app.test", "/late.php"));
    // One that is handed over but not begun is for the pool's next run.
    let begun = bed.site.path().join("app/begun");
    eventually(PATIENCE, "a page under way", || {
        begun.exists().then_some(())
    });
    assert_eq!(limited::ask(&bed.gateway, "pools-clear app.test"), "1\n");
    std::fs::write(bed.site.path().join("app/go"), "").unwrap();
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!(answer.text(), "late", "what was begun is ended");
    eventually(PATIENCE, "an empty cache", || {
        (!has("late") && !has("f11")).then_some(())
    });
    assert_eq!(bed.get("/").status, 200);
}

#[test]
fn what_php_logs_in_several_lines_is_told_once_and_what_it_says_as_it_was() {
    let page = "<?php trigger_error(\"one of two\\ntwo of two\", E_USER_WARNING); \
        file_put_contents('php://stderr', \"the last word\\n\"); throw new Exception('unlucky');";
    let files = [("app/index.php", WHO), ("app/throws.php", page)];
    let Some(bed) = bed_of(&files) else { return };
    bed.get("/throws.php");
    let log = eventually(PATIENCE, "all that was said", || {
        let log = bed.gateway.stderr();
        let is_said = log.contains("the last word");
        (is_said && log.contains("Stack trace")).then_some(log)
    });
    for (text, times) in [("two of two", 1), ("said into", 0), ("unlucky", 1)] {
        assert_eq!(log.matches(text).count(), times, "{text}: {log}");
    }
    limited::ask(&bed.gateway, "pools-stop app.test");
    bed.gateway.wait_for_message("an operator stopped it");
    let log = bed.gateway.stderr();
    for text in ["two of two", "Stack trace"] {
        assert_eq!(log.matches(text).count(), 1, "{text}: {log}");
    }
}

/// A gateway with so many sites more, each a tenant's own with a limit and a pool.
fn with_idle(sites: usize) -> Option<Bed> {
    let user = match is_root() {
        true => "user = \"www-data\"",
        false => "",
    };
    let site = |number: usize| {
        format!(
            "[[sites]]\nhosts = [\"idle{number}.test\"]\nroot = \"/srv\"\n{user}\n\
             pool = {{ php = \"{{version}}\" }}\nlimits = [{{ concurrent = 50 }}]\n\
             rules = [{{ match = {{ file = \"*.php\" }}, handler = {{ php = true }} }}]\n"
        )
    };
    let sites: String = (0..sites).map(site).collect();
    bed(&Wish {
        sites: &sites,
        ..Wish::default()
    })
}

/// The processes of a gateway, and what of memory is theirs alone.
fn processes(bed: &Bed) -> (usize, u64) {
    let own = bed.gateway.pid();
    let mut pids = children(own);
    pids.push(own);
    let held_kib = pids.iter().map(|pid| memory_kib(*pid, "RssAnon")).sum();
    (pids.len(), held_kib)
}

#[test]
fn tenants_that_nobody_asks_take_no_process_and_little_memory() {
    const MORE: usize = 300;
    let (Some(few), Some(many)) = (with_idle(1), with_idle(1 + MORE)) else {
        return;
    };
    eventually(PATIENCE, "little memory", || {
        let ((few, few_kib), (many, many_kib)) = (processes(&few), processes(&many));
        let each_kib = many_kib.saturating_sub(few_kib) / MORE as u64;
        (many == few && each_kib <= IDLE_KIB_MAX).then_some(())
    });
}
