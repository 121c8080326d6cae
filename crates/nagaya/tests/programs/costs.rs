//! What runs of files cost, measured of PHP in pools and of CGI programs, and gone by.

use testkit::{Gateway, PATIENCE, eventually};

use crate::fixtures::limited::ask;
use crate::fixtures::pools::{Wish, bed};
use crate::fixtures::programs;

/// Takes 60 ms of a processor.
const HEAVY: &str = r#"<?php
function taken() { $r = getrusage(); return $r['ru_utime.tv_sec'] * 1e6 + $r['ru_utime.tv_usec'] + $r['ru_stime.tv_sec'] * 1e6 + $r['ru_stime.tv_usec']; }
$begun = taken();
while (taken() - $begun < 60000) { for ($i = 0; $i < 1000; $i++) { $x = sqrt($i); } }
echo 'heavy';
"#;

/// Says what another site's file has cost, as php-fpm would.
const LIAR: &str = r#"<?php
$line = "nagaya-cost 100.00 90000000 {$_GET['file']}\n";
foreach (['php://stderr', '/proc/self/fd/2'] as $name) {
  $to = @fopen($name, 'w');
  for ($i = 0; $to && $i < 50; $i++) { fwrite($to, $line); }
}
for ($i = 0; $i < 50; $i++) { error_log(trim($line)); }
foreach (scandir('/proc/self/fd') as $fd) {
  if (!str_starts_with((string)@readlink("/proc/self/fd/$fd"), 'pipe:')) continue;
  if ($to = @fopen("/proc/self/fd/$fd", 'w')) { for ($i = 0; $i < 50; $i++) { fwrite($to, $line); } }
}
echo 'lied';
"#;

const LIMITS: &str = "limits = [{ name = \"each\", key = \"file\", concurrent = 1000, mode = \"shadow\" }, \
    { name = \"heavy\", rate = \"1/d\", match = { cost_above = \"20ms\" } }]";

/// What a run of a file takes in microseconds, as an operator is told it.
fn cost_us(gateway: &Gateway, file: &str) -> Option<u64> {
    let answer = ask(gateway, "limits top 100 json");
    let mut keys = answer.split("{\"limit\":");
    // Long names lose their middle.
    let (_, name) = file.rsplit_once('/').unwrap();
    let key = keys.find(|key| key.contains(&format!("{name}\"")))?;
    let (_, rest) = key.split_once("\"cost_us\":")?;
    rest.split(['}', ',']).next()?.parse().ok()
}

#[test]
fn php_that_costs_much_is_told_apart_and_nobody_else_can_say_so() {
    let files = [
        ("app/heavy.php", HEAVY),
        ("app/light.php", "<?php echo 'light';"),
        ("other/index.php", LIAR),
    ];
    let wish = Wish {
        app: LIMITS,
        files: &files,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let light = bed.site.path().join("app/light.php");
    for _ in 0..25 {
        assert_eq!(bed.get("/light.php").status, 200);
    }
    let path = format!("/index.php?file={}", light.display());
    assert_eq!(bed.get_of("other.test", &path).text(), "lied");
    for number in 0..19 {
        let answer = bed.get("/heavy.php");
        assert_eq!(answer.status, 200, "unknown is cheap: {number}");
    }
    eventually(PATIENCE, "what costs much is known", || {
        (bed.get("/heavy.php").status == 503).then_some(())
    });
    let heavy_us = cost_us(&bed.gateway, "/heavy.php").unwrap();
    assert!((30_000..500_000).contains(&heavy_us), "{heavy_us}");
    let light_us = eventually(PATIENCE, "what little costs is known", || {
        cost_us(&bed.gateway, "/light.php")
    });
    assert!(light_us < 20_000, "{light_us}");
    assert_eq!(bed.get("/light.php").status, 200);
}

const CGI: &str = r#"
workers = 2
[[listen]]
address = "127.0.0.1:{port}"
[control]
socket = "{dir}/control"
[[sites]]
hosts = ["cgi.test"]
root = "{dir}/www"
{limits}
rules = [{ match = { file = "*.cgi" }, handler = { cgi = true } }]
"#;

/// Takes some tens of milliseconds of a processor.
const BURNS: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n\
    i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo burnt\n";

#[test]
fn programs_that_cost_much_are_told_apart() {
    let builder = programs::builder_of(CGI, "", "", "");
    let builder = builder.with("limits", LIMITS);
    for (name, text) in [
        ("burns.cgi", BURNS),
        (
            "light.cgi",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nlight'\n",
        ),
    ] {
        programs::program(builder.directory().path(), name, text);
    }
    let gateway = builder.start();
    let get = |name: &str| programs::get(&gateway, &format!("/{name}")).status;
    for number in 0..20 {
        assert_eq!(get("burns.cgi"), 200, "unknown is cheap: {number}");
        assert_eq!(get("light.cgi"), 200);
    }
    eventually(PATIENCE, "what costs much is known", || {
        (get("burns.cgi") == 503).then_some(())
    });
    assert_eq!(get("light.cgi"), 200);
    let burns_us = cost_us(&gateway, "/burns.cgi").unwrap();
    assert!(burns_us > cost_us(&gateway, "/light.cgi").unwrap());
}
