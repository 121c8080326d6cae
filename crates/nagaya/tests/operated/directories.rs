//! Directories as an operator has them: their process, and what is looked for in their tables.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{
    Gateway, PATIENCE, Reply, ScriptedUpstream, Step, TempDir, eventually, lacks_root, processes,
};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[directories.customers]
source = "file:{dir}/rows.csv"
[[sites]]
hosts = ["*"]
tenant = "own"
rules = [{ handler = { respond = { body = "fine" } } }]
"#;

#[test]
fn the_directory_process_is_another_after_it_died_and_gone_with_its_directories() {
    let mut gateway = Gateway::with_config(BINARY, CONFIG).start();
    // One that dies before it was given its settings was never there.
    eventually(
        PATIENCE,
        "a directory process that was told what to do",
        || {
            let said = gateway.stderr();
            said.contains("directory process started").then_some(())
        },
    );
    let first = gateway.child_called("directory");
    let pid = Pid::from_raw(i32::try_from(first).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    processes::await_ended(first);
    let second = gateway.child_called("directory");
    assert_ne!(first, second);
    let without = CONFIG.replace(
        "[directories.customers]\nsource = \"file:{dir}/rows.csv\"\n",
        "",
    );
    gateway.reload(&without);
    processes::await_ended(second);
    assert!(
        gateway.stderr().contains("lost the directory process"),
        "{}",
        gateway.stderr()
    );
}

#[test]
fn every_wrong_row_is_listed_and_tables_are_asked_for_that() {
    let directory = TempDir::new();
    let rows =
        "host,tenant\na.example,anna\nb.example,own\nc.example,../x\nd.example,x\nd.example,y\n";
    directory.write("rows.csv", rows);
    let text = CONFIG.replace("{dir}", directory.path().to_str().unwrap());
    let config = directory.write("nagaya.toml", text.replace("{port}", "1"));
    let checked = |words: &[&str]| {
        let config = config.to_str().unwrap();
        let command = Command::new(BINARY)
            .args(["directory", "check", "-c", config])
            .args(words)
            .output();
        let output = command.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    assert_eq!(checked(&[]), (Some(0), "customers: answers\n".to_owned()));
    let (status, said) = checked(&["--all"]);
    assert_eq!(status, Some(1), "{said}");
    for wrong in [
        "rows 5, wrong 3",
        "b.example: its tenant",
        "c.example: column `tenant`",
        "d.example: there are two rows",
    ] {
        assert!(said.contains(wrong), "{wrong}: {said}");
    }
    std::fs::remove_file(directory.path().join("rows.csv")).unwrap();
    eventually(PATIENCE, "a missing table to be told", || {
        let (status, said) = checked(&[]);
        (status == Some(1) && said.contains("no such file")).then_some(())
    });
}

#[test]
fn a_table_that_root_alone_can_read_is_told_of() {
    if lacks_root("files that others cannot read") {
        return;
    }
    let directory = TempDir::new();
    let rows = directory.write("rows.csv", "host,tenant\na.example,anna\n");
    std::fs::set_permissions(&rows, Permissions::from_mode(0o600)).unwrap();
    let text = CONFIG.replace("{dir}", directory.path().to_str().unwrap());
    let config = directory.write("nagaya.toml", text.replace("{port}", "1"));
    let checked = || {
        let command = Command::new(BINARY)
            .args(["directory", "check", "-c"])
            .arg(&config)
            .output();
        String::from_utf8(command.unwrap().stderr).unwrap()
    };
    let said = checked();
    assert!(said.contains("who asks for rows, cannot read"), "{said}");
    std::fs::set_permissions(&rows, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(checked(), "");
}

#[test]
fn a_snapshot_that_could_not_be_written_is_tried_again_with_a_reload() {
    if lacks_root("another user for the process") {
        return;
    }
    let snapshot = "[directories.customers]\nsnapshot = \"{dir}/kept/rows\"";
    let config = CONFIG.replace("[directories.customers]", snapshot);
    let prepared = Gateway::with_config(BINARY, &config);
    prepared.directory().write("rows.csv", "host,tenant\n");
    let kept = prepared.directory().path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    let gateway = prepared.start();
    gateway.wait_for_message("the snapshot cannot be used");
    let first = gateway.child_called("directory");
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = uid.unwrap().split_whitespace().next().unwrap();
    chown(&kept, Some(uid.parse().unwrap()), None).unwrap();
    gateway.signal(Signal::HUP);
    processes::await_ended(first);
    eventually(PATIENCE, "the snapshot", || {
        kept.join("rows").exists().then_some(())
    });
}

/// Sites of rows, and one that is written.
const SITES: &str = r#"
workers = 2
[control]
socket = "{dir}/control.sock"
[[listen]]
address = "127.0.0.1:{port}"
[directories.customers]
source = "file:{dir}/rows.csv"
keep = "1s"
missing = "1s"
uid_min = 1
[plans.small]
limits = [{ key = "tenant", rate = "2/d" }]
[[sites]]
hosts = { directory = "customers" }
tenant = "$row.tenant"
user = "$row.user"
plan = "$row.plan"
root = "{dir}/sites/$row.user"
  [[sites.rules]]
  match = { path = "/elsewhere" }
  handler = { proxy = "$row.upstream", allow = ["0.0.0.0/0"] }
  [[sites.rules]]
  match = { row = "upstream" }
  handler = { proxy = "$row.upstream", allow = ["127.0.0.0/8"] }
  reply_headers = { set = { X-Tenant = "$row.tenant" } }
[[sites]]
hosts = ["own.example"]
tenant = "own"
rules = [{ handler = { respond = { body = "own" } } }]
"#;

const COLUMNS: &str = "host,tenant,user,upstream,plan,redirect,suspended";

fn served(rows: &str, prepare: impl FnOnce(&TempDir)) -> Gateway {
    let prepared = Gateway::with_config(BINARY, SITES);
    let directory = prepared.directory();
    directory.write("rows.csv", format!("{COLUMNS}\n{rows}"));
    prepare(directory);
    prepared.start()
}

/// What `nagaya directory` says.
pub(super) fn operate(gateway: &Gateway, words: &[&str]) -> String {
    let (_, out, err) = gateway.command(&[&["directory"], words].concat());
    out + &err
}

/// Whoever wants to know what `.htaccess` files say to a host of rows is told that this is not asked for here.
fn assert_unexplained(gateway: &Gateway, host: &str) {
    let (_, _, said) = gateway.command(&["htaccess", "explain", &format!("http://{host}/")]);
    assert!(
        said.contains("customers would be asked for its row"),
        "{said}"
    );
}

/// What a host is answered once it is answered so; rows are asked for again while that takes.
fn await_status(gateway: &Gateway, host: &str, path: &str, status: u16) -> Reply {
    let what = format!("{status} of {host}{path}");
    eventually(PATIENCE, &what, || {
        let reply = gateway.get(host, path);
        (reply.status == status).then_some(reply)
    })
}

/// Waits until the tenant of a host stands among those who take most, as itself.
fn await_in_top(gateway: &Gateway, host: &str, tenant: &str) {
    eventually(PATIENCE, "it among those who take most", || {
        assert_eq!(gateway.get(host, "/").status, 200);
        let top = gateway.command(&["top", "--json"]).1;
        let top: serde_json::Value = serde_json::from_str(&top).unwrap();
        let of = |name: &str| top.as_array()?.iter().find(|it| it["tenant"] == name);
        assert!(of("directory:customers").is_none() && of("$row.tenant").is_none());
        of(tenant)?["requests_per_s"].as_f64().map(drop)
    });
}

#[test]
fn rows_make_sites_of_tenants_and_outlive_what_they_came_from() {
    let back_end = ScriptedUpstream::start(|seen| {
        vec![Step::reply(
            200,
            format!("for {}", seen.head.field("host").unwrap_or("nobody")),
        )]
    });
    let rows = format!(
        "a.example,anna,games,{back_end},,,\nb.example,ben,mail,{back_end},small,,\n\
         b2.example,ben,mail,{back_end},small,,\nc.example,cleo,news,{back_end},small,,\n\
         old.example,anna,games,,,a.example,\nno.example,anna,games,{back_end},,,1\n\
         own.example,thief,games,{back_end},,,\n",
        back_end = back_end.address()
    );
    let gateway = served(&rows, |_| ());
    assert_unexplained(&gateway, "a.example");
    let reply = await_status(&gateway, "a.example", "/", 200);
    assert_eq!(reply.text(), "for a.example");
    assert_eq!(reply.head.field("x-tenant"), Some("anna"));
    for (hosts, statuses) in [
        (["b.example", "b2.example", "b.example"], [200, 200, 503]),
        (["c.example", "c.example", "c.example"], [200, 200, 503]),
    ] {
        let asked = hosts.map(|host| gateway.get(host, "/").status);
        assert_eq!(asked, statuses, "{hosts:?}");
    }
    let reply = gateway.get("old.example", "/x?y=z");
    assert_eq!(reply.status, 301);
    assert_eq!(reply.head.field("location"), Some("http://a.example/x?y=z"));
    assert_eq!(gateway.get("no.example", "/").status, 503);
    assert_eq!(gateway.get("own.example", "/").text(), "own");
    assert_eq!(gateway.get("never.example", "/").status, 421);
    assert_eq!(gateway.get("a.example", "/elsewhere").status, 503);

    let said = operate(&gateway, &["show", "a.example"]);
    assert!(said.contains("tenant = \"anna\""), "{said}");
    let said = operate(&gateway, &["show", "never.example"]);
    assert!(said.contains("no row"), "{said}");
    let said = operate(&gateway, &["forget", "never.example"]);
    let forgotten = "nothing is kept of never.example: its next request waits for its row\n";
    assert_eq!(said, forgotten);
    let said = operate(&gateway, &["show", "own.example"]);
    let own = "a site of the configuration has it: own.example";
    assert!(said.contains(own), "{said}");
    let said = operate(&gateway, &[]);
    assert!(
        said.contains("customers") && said.contains(" up "),
        "{said}"
    );

    await_in_top(&gateway, "a.example", "anna");

    std::fs::remove_file(gateway.directory().path().join("rows.csv")).unwrap();
    let first = gateway.child_called("directory");
    kill_process(
        Pid::from_raw(i32::try_from(first).unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    processes::await_ended(first);
    assert_eq!(gateway.get("a.example", "/").status, 200);
    let second = gateway.child_called("directory");
    assert_ne!(first, second);
    let reply = gateway.get("fresh.example", "/");
    assert_eq!(reply.status, 503, "nobody knows, and no other site answers");
    assert_eq!(gateway.get("a.example", "/").status, 200);
    let rows = format!(
        "{COLUMNS}\nfresh.example,fay,games,{},,,\n",
        back_end.address()
    );
    gateway.directory().write("rows.csv", rows);
    await_status(&gateway, "fresh.example", "/", 200);
    await_status(&gateway, "a.example", "/", 421);
}

#[test]
fn files_of_a_row_are_its_users_alone_and_wrong_rows_reach_nothing() {
    if lacks_root("files of other users") {
        return;
    }
    let rows = "a.example,anna,games,,,,\nb.example,ben,mail,,,,\nc.example,cleo,news,,,,\n\
                up.example,ugo,../mail,,,,\nown-tenant.example,own,games,,,,\n\
                ours.example,olga,nobody,,,,\nplan.example,paul,games,,large,,\n\
                twice.example,t,games,,,,\ntwice.example,u,games,,,,\n";
    let gateway = served(rows, |directory| {
        for (name, owner) in [("games", 5), ("mail", 8), ("news", 8)] {
            let home = format!("sites/{name}");
            directory.write(&format!("{home}/index.html"), name);
            let home = directory.path().join(home);
            std::os::unix::fs::chown(home, Some(owner), None).unwrap();
        }
    });
    assert_eq!(
        await_status(&gateway, "a.example", "/", 200).text(),
        "games"
    );
    assert_eq!(gateway.get("b.example", "/").text(), "mail");
    assert_eq!(
        gateway.get("c.example", "/").status,
        403,
        "news has a directory of mail's"
    );
    for host in ["up", "own-tenant", "ours", "plan", "twice"] {
        let host = format!("{host}.example");
        assert_eq!(gateway.get(&host, "/").status, 503, "{host}");
    }
    for why in ["column `user`", "tenant `own`", "no plan", "two rows"] {
        gateway.wait_for_message(why);
    }
    for (host, made) in [
        ("a", "makes a site of tenant anna, root "),
        ("plan", "it cannot be used: there is no plan"),
    ] {
        let said = operate(&gateway, &["show", &format!("{host}.example")]);
        assert!(said.contains(made), "{said}");
    }
    // What rows lack for their site is known before anybody is served by them.
    std::fs::remove_dir_all(gateway.directory().path().join("sites/games")).unwrap();
    let (_, _, said) = gateway.command(&["directory", "check", "--all"]);
    for wrong in [
        "a.example: its root",
        "c.example: its root",
        "plan.example: there is no plan \"large\"",
    ] {
        assert!(said.contains(wrong), "{wrong}: {said}");
    }
    assert!(!said.contains("b.example:"), "{said}");
}
