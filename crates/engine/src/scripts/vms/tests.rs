//! Tenants' VMs, on exchanges in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::fixture::{Fixture, block_on, exchange, generation, peer, reply};
use crate::pipeline;

const PATIENCE: Duration = Duration::from_secs(60);

/// A site for each tenant, called like it, whose path says which of its scripts runs.
fn config(scripts: &str, tenants: &[&str]) -> String {
    let mut text = format!(
        "[[listen]]\naddress = '127.0.0.1:1'\n[scripts]\ncpu = '1s'\n\
         init = {{ code = \"Cache.new(:namespace => 'n').incr 'inits'; $asked = 0\" }}\n\
         worker_exit = {{ code = \"Cache.new(:namespace => 'n').incr 'exits'\" }}\n{scripts}\n"
    );
    for tenant in tenants {
        text += &format!("[[sites]]\nhosts = ['{tenant}']\n");
        for (path, code) in [
            ("/count", "Nginx.rputs $asked += 1"),
            (
                "/break",
                "class String; undef_method :upcase; end; Nginx.rputs 1",
            ),
            ("/upcase", "Nginx.rputs 'fine'.upcase"),
            ("/wait", "sleep 0.05; Nginx.rputs 'waited'"),
            (
                "/cache",
                "Nginx.rputs Cache.new(:namespace => 'n').get(Nginx::Var.new.args).to_i",
            ),
            (
                "/set",
                "Cache.new(:namespace => 'n')[Nginx::Var.new.args] = '1'",
            ),
            (
                "/unset",
                "Cache.new(:namespace => 'n').delete Nginx::Var.new.args",
            ),
            (
                "/lock",
                "m = Mutex.new(:global => true, :name => 'm'); m.lock; $in = m; sleep 0.01 until Cache.new(:namespace => 'n')['done']; Nginx.rputs 'locked'",
            ),
            (
                "/busy",
                "m = Mutex.new(:global => true, :name => 'm'); Nginx.rputs m.try_lock.inspect",
            ),
            ("/keep", "$kept = 'x' * 900_000; Nginx.rputs 'kept'"),
            ("/fill", "$kept = []; $kept << 'x' * 100_000 while true"),
        ] {
            text += &format!(
                "[[sites.rules]]\nmatch = {{ path = '{path}' }}\nhandler = {{ script = {{ code = \"{code}\" }} }}\n"
            );
        }
        text += "[[sites.rules]]\nmatch = { path = '/plain' }\nhandler = { respond = { body = 'plain' } }\n";
        text += "[[sites.rules]]\nmatch = { path = '/may' }\nhandler = { respond = { body = 'may' } }\n\
                 scripts = { access = { code = '1', on_error = 'allow' } }\n";
    }
    text
}

async fn ask(fixture: &Fixture, host: &str, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut exchange = exchange(peer("192.0.2.7:40000"), &request);
    let served = pipeline::serve(&fixture.worker, &mut exchange).await;
    served.expect("memory takes all");
    let (status, _, body) = reply(&exchange);
    (status, body)
}

async fn said(fixture: &Fixture, host: &str, path: &str) -> String {
    let (status, body) = ask(fixture, host, path).await;
    assert_eq!(status, 200, "{host}{path}: {body}");
    body
}

fn vms(fixture: &Fixture) -> Rc<Vms> {
    let serving = fixture.worker.serving();
    Rc::clone(serving.scripts.as_ref().expect("there are scripts"))
}

/// VMs of tenants that are open.
fn open(fixture: &Fixture) -> u64 {
    vms(fixture).figures()[1]
}

/// VMs of tenants that were opened, closed for others, and did not open.
fn counted(fixture: &Fixture) -> [u64; 3] {
    let stats = &fixture.worker.stats.scripts;
    [&stats.own_opened, &stats.own_closed, &stats.own_failed]
        .map(|it| it.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn what_one_tenants_script_does_to_ruby_is_its_own() {
    let fixture = Fixture::new(&config("", &["a", "b"]));
    block_on(async {
        for host in ["a", "b"] {
            assert_eq!(said(&fixture, host, "/upcase").await, "FINE");
        }
        said(&fixture, "a", "/break").await;
        assert_eq!(ask(&fixture, "a", "/upcase").await.0, 500);
        assert_eq!(said(&fixture, "b", "/upcase").await, "FINE");
        assert_eq!(said(&fixture, "a", "/count").await, "1");
        assert_eq!(said(&fixture, "a", "/count").await, "2");
        assert_eq!(said(&fixture, "b", "/count").await, "1");
    });
    assert_eq!((open(&fixture), counted(&fixture)), (2, [2, 0, 0]));
}

#[test]
fn tenants_that_say_so_share_a_vm() {
    let shared =
        "[tenants.a]\nscripts_vm = 'shared'\n[tenants.b]\nscripts_vm = 'shared'\n[tenants.c]\n";
    let fixture = Fixture::new(&config(shared, &["a", "b", "c"]));
    block_on(async {
        said(&fixture, "a", "/break").await;
        assert_eq!(ask(&fixture, "b", "/upcase").await.0, 500);
        assert_eq!(said(&fixture, "c", "/upcase").await, "FINE");
    });
    assert_eq!(open(&fixture), 1);
}

#[test]
fn a_lone_tenant_has_no_vm_of_its_own_and_requests_without_scripts_open_none() {
    let alone = Fixture::new(&config("", &["a"]));
    let two = Fixture::new(&config("", &["a", "b"]));
    block_on(async {
        assert_eq!(said(&alone, "a", "/count").await, "1");
        assert_eq!(said(&two, "a", "/plain").await, "plain");
        assert_eq!(ask(&two, "nobody", "/count").await.0, 421);
    });
    assert_eq!((open(&alone), open(&two)), (0, 0));
}

#[test]
fn scripts_of_the_process_run_in_each_tenants_vm_and_for_others_in_the_shared_one() {
    let process = "log = { code = \"$logged = ($logged || 0) + 1\" }\n\
                   access = { code = \"Nginx::Headers_out.new['X-Logged'] = $logged.to_s\" }\n";
    let fixture = Fixture::new(&config(process, &["a", "b"]));
    block_on(async {
        for (host, status, before) in [
            ("a", 200, ""),
            ("a", 200, "1"),
            ("b", 200, ""),
            ("nobody", 421, ""),
            ("a", 200, "2"),
        ] {
            let request = format!("GET /plain HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let mut exchange = exchange(peer("192.0.2.7:40000"), &request);
            let served = pipeline::serve(&fixture.worker, &mut exchange).await;
            served.expect("memory takes all");
            let (is, fields, _) = reply(&exchange);
            let logged = fields
                .iter()
                .find_map(|field| field.strip_prefix("X-Logged: "));
            assert_eq!((is, logged.unwrap_or("")), (status, before), "{host}");
        }
    });
    assert_eq!(fixture.worker.stats.scripts.of(script::Phase::Log), (5, 0));
}

#[test]
fn all_who_want_a_vm_wait_for_one_opening() {
    let slow = "worker_init = { code = \"sleep 0.05\" }";
    let fixture = Fixture::new(&config(slow, &["a", "b"]));
    block_on(async {
        let mut said = tokio::join!(
            said(&fixture, "a", "/count"),
            said(&fixture, "a", "/count"),
            said(&fixture, "a", "/count"),
        );
        let said: &mut [String] = &mut [said.0, said.1, std::mem::take(&mut said.2)];
        said.sort();
        assert_eq!(said, ["1", "2", "3"]);
        assert_eq!(self::said(&fixture, "a", "/cache?inits").await, "2");
    });
    assert_eq!(counted(&fixture), [1, 0, 0]);
}

#[test]
fn the_longest_idle_vm_closes_for_another_and_runs_worker_exit() {
    let fixture = Fixture::new(&config("vms = 2", &["a", "b", "c"]));
    block_on(async {
        for (host, count) in [
            ("a", "1"),
            ("b", "1"),
            ("a", "2"),
            // For it b's closes.
            ("c", "1"),
            ("a", "3"),
            // For it c's closes.
            ("b", "1"),
            ("a", "4"),
        ] {
            assert_eq!(said(&fixture, host, "/count").await, count, "{host}");
            assert!(open(&fixture) <= 2);
        }
        assert_eq!(said(&fixture, "a", "/cache?exits").await, "2");
    });
    assert_eq!(counted(&fixture), [4, 2, 0]);
}

#[test]
fn a_vm_in_use_is_not_closed_and_who_wants_another_waits() {
    let fixture = Fixture::new(&config("vms = 1", &["a", "b"]));
    block_on(async {
        let (waited, counted) =
            tokio::join!(said(&fixture, "a", "/wait"), said(&fixture, "b", "/count"),);
        assert_eq!((&*waited, &*counted), ("waited", "1"));
    });
    assert_eq!(counted(&fixture), [2, 1, 0]);
}

#[test]
fn who_waits_for_a_vm_in_vain_fails_as_a_script_does() {
    let fixture = Fixture::new(&config("vms = 1\nwall = '1s'", &["a", "b"]));
    block_on(async {
        said(&fixture, "a", "/count").await;
        let vms = vms(&fixture);
        let kept = vms.pin(VmIndex::of_tenant(0)).expect("it is open");
        let (refused, allowed) =
            tokio::join!(ask(&fixture, "b", "/count"), ask(&fixture, "b", "/may"));
        assert_eq!((refused.0, allowed), (500, (200, "may".to_owned())));
        let failed = Rc::clone(&vms).pin_opened(
            VmIndex::of_tenant(1),
            Arc::from("b.rb"),
            Duration::from_millis(10),
        );
        let failed = failed.await.err().expect("it is not open").to_string();
        assert!(failed.contains("all 1 VMs of tenants"), "{failed}");
        assert!(failed.contains("see scripts.vms"), "{failed}");
        assert_eq!(said(&fixture, "a", "/count").await, "2");
        drop(kept);
        assert_eq!(said(&fixture, "b", "/count").await, "1");
    });
}

#[test]
fn a_vm_that_does_not_start_is_tried_again_after_a_while() {
    let breaks = "worker_init = { code = \"c = Cache.new(:namespace => 'n'); c.incr 'tries'; raise 'broken' if c['broken']\" }";
    let fixture = Fixture::new(&config(breaks, &["a", "b", "c"]));
    block_on(async {
        said(&fixture, "a", "/set?broken").await;
        let tries = said(&fixture, "a", "/cache?tries").await;
        let began = Instant::now();
        for _ in 0..20 {
            assert_eq!(ask(&fixture, "b", "/count").await.0, 500);
        }
        assert_eq!(said(&fixture, "b", "/may").await, "may");
        let after: u64 = said(&fixture, "a", "/cache?tries").await.parse().unwrap();
        let rested = began.elapsed().as_secs();
        assert_eq!(tries, "2");
        assert!(
            (3..=3 + rested).contains(&after),
            "{after} tries, after {rested} s"
        );
        said(&fixture, "a", "/unset?broken").await;
        let until = Instant::now() + PATIENCE;
        while ask(&fixture, "b", "/count").await.0 != 200 {
            assert!(Instant::now() < until, "it is never tried again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let [opened, closed, failed] = counted(&fixture);
    assert!((opened, closed) == (2, 0) && failed >= 1, "{failed}");
}

#[test]
fn cache_and_global_mutexes_are_the_same_in_all_vms() {
    let fixture = Fixture::new(&config("", &["a", "b"]));
    block_on(async {
        said(&fixture, "a", "/set?seen").await;
        assert_eq!(said(&fixture, "b", "/cache?seen").await, "1");
        assert_eq!(said(&fixture, "b", "/busy").await, "true");
        let (locked, busy) = tokio::join!(said(&fixture, "a", "/lock"), async {
            tokio::task::yield_now().await;
            let busy = said(&fixture, "b", "/busy").await;
            said(&fixture, "b", "/set?done").await;
            busy
        });
        assert_eq!((&*locked, &*busy), ("locked", "false"));
    });
}

#[test]
fn many_vms_take_no_more_memory_than_one_may() {
    let names: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let memory = "memory = '8MiB'\nbody_filter_bytes = '64KiB'\nread_bytes = '64KiB'\nvms = 64";
    let fixture = Fixture::new(&config(memory, &names));
    block_on(async {
        for name in names.iter().chain(&names) {
            assert_eq!(said(&fixture, name, "/keep").await, "kept");
            let [_, _, bytes, _] = vms(&fixture).figures();
            assert!(bytes <= 8 << 20, "{bytes}");
        }
        // One that wants all of it ends with NoMemoryError, and the others go on.
        assert_eq!(ask(&fixture, "t0", "/fill").await.0, 500);
        assert_eq!(said(&fixture, "t1", "/count").await, "1");
        assert_eq!(said(&fixture, "t2", "/keep").await, "kept");
    });
    let [opened, closed, failed] = counted(&fixture);
    assert!(closed > 40 && opened - closed < 20, "{opened} {closed}");
    assert_eq!(failed, 0);
}

#[test]
fn a_generation_that_ends_runs_worker_exit_in_every_vm() {
    let fixture = Fixture::new(&config("", &["a", "b", "c"]));
    let next = generation(2, &config("", &["a", "b"]));
    block_on(async {
        for host in ["a", "b"] {
            said(&fixture, host, "/count").await;
        }
        let ending = vms(&fixture);
        fixture.worker.prepare(&next).await.expect("it starts");
        fixture.reload(Arc::clone(&next));
        ending.release();
        ending.end().await;
        assert_eq!(ending.figures()[1], 0);
        assert_eq!(said(&fixture, "a", "/cache?exits").await, "3");
        let refused = Rc::clone(&ending).pin_opened(
            VmIndex::of_tenant(2),
            Arc::from("c.rb"),
            Duration::from_secs(1),
        );
        assert!(refused.await.is_err(), "nothing opens any more");
    });
}

#[test]
fn a_script_of_a_tenant_that_is_no_ruby_refuses_the_generation() {
    let broken = config("", &["a", "b"]).replace("Nginx.rputs 1", "Nginx.rputs (");
    let fixture = Fixture::new(&config("", &["a"]));
    let refused = block_on(fixture.worker.prepare(&generation(2, &broken)));
    let said = refused.expect_err("no Ruby").detail.to_string();
    assert!(said.contains("syntax error"), "{said}");
}
