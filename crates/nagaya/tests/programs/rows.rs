//! Pages of sites that rows make: whose user they run as, and what of others' they reach.

use std::os::unix::fs::chown;
use std::time::Duration;

use testkit::client::{Body, reply};
use testkit::php::find_php_fpm;
use testkit::stores::Memcached;

use testkit::{Gateway, PATIENCE, Reply, TempDir, eventually, lacks_root};

use crate::fixtures::limited;
use crate::fixtures::pools::kill;

/// Two users of rows, neither of which is the server's.
const USERS: [(&str, u32); 2] = [("www-data", 33), ("backup", 34)];

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[pools]
directory = "{dir}/pools"
idle = "{idle}"
[php."8.3"]
program = "{php}"
[directories.customers]
source = "file:{dir}/rows.csv"
keep = "1s"
missing = "1s"
wait = "60s"
uid_min = 1
{directory}
[plans.small]
cgroup = { pids = 50 }
cgroup_required = false
[[sites]]
hosts = { directory = "customers" }
tenant = "$row.tenant"
user = "$row.user"
plan = "$row.plan"
root = "{sites}/$row.home"
index = ["index.php"]
htaccess = { override = ["All"] }
pool = { php = "$row.php", processes = 2, admin = { memory_limit = "{memory}M" } }
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { php = true }
  [[sites.rules]]
  match = { file = "*.cgi" }
  handler = { cgi = true }
"#;

/// Says as whom it runs, under which limit, and what it reads of a path it is asked for.
const PAGE: &str = r#"<?php
preg_match('/^Uid:\s+(\d+)/m', file_get_contents('/proc/self/status'), $uid);
echo "$uid[1] ", ini_get('memory_limit'), ' ', getmypid(), ' ';
if (isset($_GET['read'])) echo '[', @file_get_contents($_GET['read']), ']';
if (isset($_GET['list'])) echo '[', implode(' ', @scandir($_GET['list']) ?: []), ']';
"#;

/// Says as whom it runs.
const CGI: &str = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nid -u\n";

const COLUMNS: &str = "host,tenant,user,home,plan,php";

struct Bed {
    gateway: Gateway,
    sites: TempDir,
}

/// A gateway whose sites are these rows; `None` where there is no php-fpm or no root.
fn bed(rows: &str, idle: &str, directory: &str) -> Option<Bed> {
    if lacks_root("programs of other users") {
        return None;
    }
    let program = find_php_fpm()?;
    let sites = TempDir::new();
    for (name, uid) in USERS {
        sites.write(&format!("{name}/index.php"), PAGE);
        sites.write(&format!("{name}/secret.txt"), format!("of {name}"));
        sites.write_program(&format!("{name}/who.cgi"), CGI);
        for file in ["", "/who.cgi"] {
            chown(sites.path().join(format!("{name}{file}")), Some(uid), None).unwrap();
        }
    }
    let prepared = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("sites", sites.path().display())
        .with("idle", idle)
        .with("php", program.display())
        .with("directory", directory)
        .with("memory", "64");
    let written = format!("{COLUMNS}\n{rows}");
    prepared.directory().write("rows.csv", written);
    Some(Bed {
        gateway: prepared.start(),
        sites,
    })
}

impl Bed {
    fn get(&self, host: &str, path: &str) -> Reply {
        let mut client = self.gateway.client().with_deadline(PATIENCE);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        reply(client.read_reply(Body::Framed))
    }

    /// What the page of a host says, once there is one.
    fn page(&self, host: &str, query: &str) -> String {
        let said = eventually(PATIENCE, &format!("the page of {host}"), || {
            let reply = self.get(host, &format!("/index.php?{query}"));
            (reply.status == 200).then(|| reply.text())
        });
        assert!(!said.contains("Warning"), "{said}");
        said
    }

    fn sockets(&self) -> usize {
        let pools = self.gateway.directory().path().join("pools");
        let entries = std::fs::read_dir(pools).unwrap().flatten();
        let names = entries.map(|it| it.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".sock")).count()
    }
}

const TWO: &str = "a.example,anna,www-data,www-data,small,8.3\nb.example,ben,backup,backup,,8.3\n\
                   a2.example,anna,www-data,www-data,small,8.3\na3.example,anna,www-data,www-data,,8.3\n\
                   old.example,cleo,backup,backup,,9.9\nplain.example,dora,backup,backup,,\n";

#[test]
fn a_page_runs_as_its_rows_user_and_reaches_nothing_of_another_rows() {
    let Some(bed) = bed(TWO, "10m", "") else {
        return;
    };
    let (own, others) = (
        bed.sites.path().join("www-data"),
        bed.sites.path().join("backup"),
    );
    let said = bed.page("a.example", &format!("read={}/secret.txt", own.display()));
    assert!(
        said.starts_with("33 64M ") && said.ends_with("[of www-data]"),
        "{said}"
    );
    let said = bed.page(
        "b.example",
        &format!("read={}/secret.txt", others.display()),
    );
    assert!(
        said.starts_with("34 64M ") && said.ends_with("[of backup]"),
        "{said}"
    );
    let group = bed.page("a.example", "read=/proc/self/cgroup");
    // Where this machine has groups for them.
    let is_apart = group.contains(":/nagaya-");
    assert!(
        !is_apart || group.contains("/row-anna%20small/pool-row-"),
        "{group}"
    );
    let other = bed.page("a3.example", "read=/proc/self/cgroup");
    assert!(!is_apart || !other.contains("%20small"), "{other}");
    // Everybody may read it, and has no way there.
    let said = bed.page(
        "a.example",
        &format!("read={}/secret.txt", others.display()),
    );
    assert!(said.ends_with(" []"), "{said}");
    let pools = bed.gateway.directory().path().join("pools");
    for path in [bed.sites.path(), &pools, std::path::Path::new("/home")] {
        let said = bed.page("a.example", &format!("list={}", path.display()));
        assert!(
            !said.contains("backup") && !said.contains(".sock"),
            "{said}"
        );
    }
    // Hosts of one root share a pool.
    let child = |host| bed.page(host, "").split(' ').nth(2).map(str::to_owned);
    let (first, second) = (child("a.example"), child("a2.example"));
    assert!(first.is_some() && second.is_some());
    assert_eq!(bed.sockets(), 3);
    assert_eq!(bed.get("old.example", "/index.php").status, 503);
    bed.gateway.wait_for_message("there is no PHP");
    assert_eq!(bed.get("plain.example", "/index.php").status, 503);
    assert_eq!(bed.get("plain.example", "/secret.txt").status, 200);
}

#[test]
fn whatever_columns_of_two_rows_are_crossed_a_page_runs_as_whose_it_is_or_not_at_all() {
    let mut rows = String::new();
    let mut hosts = Vec::new();
    for tenant in ["anna", "ben"] {
        for (user, uid) in USERS {
            for (home, owner) in USERS {
                for plan in ["", "small"] {
                    let host = format!("{tenant}-{user}-{home}-{plan}x.example");
                    rows.push_str(&format!("{host},{tenant},{user},{home},{plan},8.3\n"));
                    hosts.push((host, uid, owner));
                }
            }
        }
    }
    let Some(bed) = bed(&rows, "10m", "") else {
        return;
    };
    for (host, uid, owner) in hosts {
        match uid == owner {
            true => {
                let said = bed.page(&host, "");
                assert!(said.starts_with(&format!("{uid} ")), "{host}: {said}");
                let reply = bed.get(&host, "/who.cgi");
                assert_eq!(
                    (reply.status, reply.text()),
                    (200, format!("{uid}\n")),
                    "{host}"
                );
            }
            false => {
                let status = bed.get(&host, "/index.php").status;
                assert_eq!(status, 403, "{host}");
                assert_eq!(bed.get(&host, "/who.cgi").status, 403, "{host}");
            }
        }
    }
}

#[test]
fn files_of_a_rows_directories_count_for_that_row_alone() {
    let Some(bed) = bed(TWO, "10m", "") else {
        return;
    };
    let other = bed.sites.path().join("backup/users");
    let lines = format!(
        "Redirect 302 /moved /index.php\nphp_value precision 5\nphp_value memory_limit 512M\n\
         <Files private.txt>\nAuthType Basic\nAuthName x\nAuthUserFile {}\nRequire valid-user\n</Files>\n",
        other.display()
    );
    bed.sites.write("www-data/.htaccess", lines);
    bed.sites.write("backup/users", "u:{PLAIN}p\n");
    for (name, _) in USERS {
        let page = "<?php echo ini_get('precision'), ' ', ini_get('memory_limit');";
        bed.sites.write(&format!("{name}/settings.php"), page);
        bed.sites.write(&format!("{name}/private.txt"), "private");
    }
    bed.page("a.example", "");
    bed.page("b.example", "");
    for (host, moved, private, settings) in [
        ("a.example", 302, [500, 401].as_slice(), "5 64M"),
        ("b.example", 404, &[200], "14 64M"),
    ] {
        assert_eq!(bed.get(host, "/moved").status, moved, "{host}");
        let status = bed.get(host, "/private.txt").status;
        assert!(private.contains(&status), "{host}: {status}");
        assert_eq!(bed.get(host, "/settings.php").text(), settings, "{host}");
    }
    assert_eq!(bed.get("a.example", "/.htaccess").status, 404);
}

#[test]
fn operators_see_pools_of_rows_and_suspend_their_tenants() {
    let Some(bed) = bed(TWO, "10m", "") else {
        return;
    };
    assert!(bed.page("a.example", "").starts_with("33 "));
    assert!(bed.page("b.example", "").starts_with("34 "));
    let told = limited::ask(&bed.gateway, "pools");
    for pool in ["php 8.3 of anna", "php 8.3 of ben"] {
        assert!(told.contains(pool), "{told}");
    }
    let told = limited::ask(&bed.gateway, "tenant-suspend anna");
    assert!(
        told.contains("anna is suspended") && told.contains("1 pool"),
        "{told}"
    );
    let suspended = bed.get("a.example", "/index.php");
    assert_eq!(suspended.status, 503);
    assert!(bed.page("b.example", "").starts_with("34 "));
    let told = limited::ask(&bed.gateway, "tenant-resume anna");
    assert!(told.contains("anna is resumed"), "{told}");
    assert!(bed.page("a.example", "").starts_with("33 "));
    let told = limited::ask(&bed.gateway, "tenant-kill anna");
    assert!(told.contains("killed"), "{told}");
    assert!(bed.page("a.example", "").starts_with("33 "));
}

#[test]
fn a_row_that_names_the_gateways_user_or_climbs_has_no_pool() {
    let rows = "ours.example,anna,nobody,www-data,,8.3\nroot.example,anna,root,www-data,,8.3\n\
                up.example,anna,www-data,..,,8.3\ndot.example,anna,www-data,.www-data,,8.3\n\
                slash.example,anna,www-data,www-data/x,,8.3\nnone.example,anna,no-such-user,www-data,,8.3\n";
    let Some(bed) = bed(rows, "10m", "") else {
        return;
    };
    for host in ["ours", "root", "up", "dot", "slash", "none"] {
        let status = bed.get(&format!("{host}.example"), "/index.php").status;
        assert_eq!(status, 503, "{host}");
    }
    assert_eq!(bed.sockets(), 0);
}

#[test]
fn a_pool_of_a_row_ends_when_it_is_idle_and_its_place_with_it() {
    let Some(bed) = bed(TWO, "1s", "") else {
        return;
    };
    let first = bed.page("a.example", "");
    assert_eq!(bed.sockets(), 1);
    eventually(PATIENCE, "the end of the pool's place", || {
        (bed.sockets() == 0).then_some(())
    });
    let second = bed.page("a.example", "");
    assert_ne!(first, second);
}

#[test]
fn pools_of_rows_go_on_over_a_reload_and_have_its_settings() {
    let Some(mut bed) = bed(TWO, "10m", "") else {
        return;
    };
    let first = bed.page("a.example", "");
    assert!(first.starts_with("33 64M "), "{first}");
    let program = find_php_fpm().unwrap();
    let next = CONFIG
        .replace("{sites}", &bed.sites.path().display().to_string())
        .replace("{idle}", "10m")
        .replace("{php}", &program.display().to_string())
        .replace("{directory}", "")
        .replace("{memory}", "96");
    bed.gateway.reload(&next);
    eventually(PATIENCE, "the settings of now", || {
        let said = bed.page("a.example", "");
        said.starts_with("33 96M ").then_some(())
    });
}

#[test]
fn programs_of_rows_run_after_an_upgrade_and_after_the_spawner_was_lost() {
    let Some(bed) = bed(TWO, "10m", "") else {
        return;
    };
    let who = |host: &str, uid: &str| {
        eventually(PATIENCE, "a program of the row", || {
            let reply = bed.get(host, "/who.cgi");
            (reply.status == 200).then(|| assert_eq!(reply.text().trim(), uid))
        });
    };
    bed.page("a.example", "");
    who("a.example", "33");
    bed.gateway.told(&["upgrade"]);
    // One of which nobody ran before, a pool that was there, and one that was not.
    who("b.example", "34");
    for (host, uid) in [("a.example", "33 "), ("b.example", "34 ")] {
        assert!(bed.page(host, "").starts_with(uid), "{host}");
    }
    let pools = bed.gateway.directory().path().join("pools");
    let own = std::fs::read_dir(pools)
        .unwrap()
        .flatten()
        .map(|it| it.path());
    let own: Vec<_> = own.filter(|path| path.is_dir()).collect();
    assert!(!own.is_empty());
    for directory in &own {
        std::fs::write(directory.join("kept"), "of before").unwrap();
    }
    kill(bed.gateway.spawner_pid());
    who("a.example", "33");
    assert!(bed.page("a.example", "").starts_with("33 "));
    assert!(own.iter().all(|directory| directory.join("kept").exists()));
}

/// What a tenant's page does to memcached: reads a place, and writes to another.
const THIEF: &str = r#"<?php
$link = stream_socket_client('tcp://' . $_GET['at']);
fwrite($link, "get $_GET[from]\r\n");
$line = fgets($link);
$value = '';
if (preg_match('/^VALUE \S+ \d+ (\d+)/', $line, $found)) {
  $value = stream_get_contents($link, (int)$found[1]);
  fgets($link); fgets($link);
}
if (isset($_GET['put'])) $value = $_GET['put'];
fwrite($link, "set $_GET[to] 0 60 " . strlen($value) . "\r\n$value\r\n");
echo strlen($value), ' ', trim(fgets($link));
"#;

#[test]
fn a_page_writes_rows_into_memcached_and_nothing_changes() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let directory = format!("memcached = \"{}\"", memcached.address());
    let Some(bed) = bed(TWO, "10m", &directory) else {
        return;
    };
    bed.sites.write("www-data/thief.php", THIEF);
    let own = bed.page("b.example", "");
    assert!(own.starts_with("34 "), "{own}");
    bed.page("a.example", "");
    let steal = |query: &str| {
        let path = format!("/thief.php?at={}&{query}", memcached.address());
        let reply = bed.get("a.example", &path);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.text()
    };
    let row = "%7B%22tenant%22%3A%22anna%22%2C%22user%22%3A%22www-data%22%2C%22home%22%3A%22www-data%22%2C%22php%22%3A%228.3%22%7D";
    for place in [
        "b.example",
        "customers:b.example",
        "nagaya:customers:b.example",
    ] {
        assert!(steal(&format!("from=x&to={place}&put={row}")).ends_with("STORED"));
    }
    // Its own signed row, in the place of the other's.
    let theft = "from=nagaya:customers:a.example&to=nagaya:customers:b.example";
    eventually(PATIENCE, "a row of its own in memcached", || {
        let said = steal(theft);
        (said.ends_with("STORED") && !said.starts_with("0 ")).then_some(())
    });
    let until = std::time::Instant::now() + Duration::from_secs(3);
    while std::time::Instant::now() < until {
        let said = bed.page("b.example", "");
        assert!(said.starts_with("34 "), "{said}");
    }
}
