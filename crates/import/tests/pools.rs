//! php-fpm's pools that sites take over.

use import::{Fate, ImportOptions, Imported, PoolFile, apache, nginx};

use crate::properties::passes;
use crate::said;

const HOSTS: &str = "<VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/a\n<FilesMatch \\.php$>\n\
    SetHandler \"proxy:unix:/run/php/alice.sock|fcgi://localhost\"\n</FilesMatch>\n</VirtualHost>";
const POOLS: &str = "; of alice\n[alice]\nuser = alice\ngroup = alice\nlisten = /run/php/$pool.sock\npm = ondemand\n\
    pm.max_children = 6\npm.max_requests = 500\nrequest_terminate_timeout = 90s\nslowlog = /srv/slow\n\
    php_admin_value[memory_limit] = 256M ; enough\nphp_flag[display_errors] = off\nenv[STAGE] = test\n\
    [bob]\nuser = bob\nlisten = 127.0.0.1:9001\n";

fn read(hosts: &str, own_pools: bool) -> Imported {
    read_with(hosts, POOLS, own_pools)
}

fn read_with(hosts: &str, pools: &str, own_pools: bool) -> Imported {
    let options = ImportOptions {
        own_pools,
        pools: vec![PoolFile {
            name: "/etc/php/8.2/fpm/pool.d/alice.conf".to_owned(),
            text: pools.to_owned(),
        }],
        ..ImportOptions::default()
    };
    let imported = apache(hosts.as_bytes(), &options).unwrap();
    passes(&imported);
    imported
}

#[test]
fn a_site_that_asks_a_pool_takes_its_user_and_settings() {
    let imported = read(HOSTS, true);
    let site = crate::site_of(&imported);
    for expected in [
        "user = \"alice\"",
        "pool = { processes = 6, requests = 500, time = \"90s\", admin = { memory_limit = \"256M\", display_errors = false } }",
        "env = { STAGE = \"test\" }",
        "handler = { php = true }",
    ] {
        assert!(site.contains(expected), "{expected}\n{site}");
    }
    assert_eq!(said(&imported, "pm.max_children").0, Fate::Carried);
    assert_eq!(said(&imported, "php_flag").0, Fate::Different);
    assert_eq!(said(&imported, "slowlog").0, Fate::NotCarried);
    assert_eq!(said(&imported, "user = bob").0, Fate::NotNeeded);
}

#[test]
fn php_fpm_stays_where_nobody_asks_for_pools_or_a_site_has_two() {
    let imported = read(HOSTS, false);
    let site = crate::site_of(&imported);
    assert!(
        site.contains("fastcgi = \"unix:/run/php/alice.sock\""),
        "{site}"
    );
    assert!(!site.contains("user ="), "{site}");
    assert_eq!(said(&imported, "user = alice").0, Fate::NotNeeded);
    let two = HOSTS.replace(
        "</VirtualHost>",
        "<Directory /srv/a/bob>\n<FilesMatch \\.php$>\nSetHandler \"proxy:fcgi://127.0.0.1:9001\"\n</FilesMatch>\n\
         </Directory>\n</VirtualHost>",
    );
    let imported = read(&two, true);
    let site = crate::site_of(&imported);
    // The directory's comes first as Apache merges them.
    assert!(
        site.contains("user = \"bob\"") && site.contains("php = true"),
        "{site}"
    );
    assert!(
        site.contains("fastcgi = \"unix:/run/php/alice.sock\""),
        "{site}"
    );
}

#[test]
fn php_fpm_stays_where_a_wall_of_its_pool_cannot_be_had() {
    for wall in [
        "chroot = /srv",
        "include = /etc/php/walls.conf",
        "php_admin_value[open_basedir] = \\srv",
        "security.limit_extensions = .html",
    ] {
        let pools = POOLS.replace("pm = ondemand\n", &format!("pm = ondemand\n{wall}\n"));
        let imported = read_with(HOSTS, &pools, true);
        let site = crate::site_of(&imported);
        let stays = "handler = { fastcgi = \"unix:/run/php/alice.sock\" }";
        assert!(
            site.contains(stays) && !site.contains("user ="),
            "{wall}\n{site}"
        );
        assert!(
            said(&imported, "SetHandler").1.contains("php-fpm stays"),
            "{wall}"
        );
    }
    let long = format!(
        "pm = ondemand\nphp_admin_value[disable_functions] = {}\n",
        "exec,".repeat(500)
    );
    let imported = read_with(HOSTS, &POOLS.replace("pm = ondemand\n", &long), true);
    assert!(crate::site_of(&imported).contains("disable_functions = \"exec,"));
}

#[test]
fn what_php_is_told_by_nginx_it_is_told_in_a_pool_of_ours() {
    let text = "http { server { listen 80; server_name a.example; root /srv/a;\n location ~ \\.php$ { fastcgi_param STAGE test;\n\
        fastcgi_param HTTP_X_USER \"\";\n fastcgi_param HTTP_X_ROLE guest;\n fastcgi_pass unix:/run/php/alice.sock; } } }";
    let mut options = ImportOptions {
        own_pools: true,
        ..ImportOptions::default()
    };
    // As whom it would run is not known.
    let imported = nginx(text.as_bytes(), &options).unwrap();
    let site = crate::site_of(&imported);
    assert!(
        site.contains("fastcgi = \"unix:/run/php/alice.sock\""),
        "{site}"
    );
    assert!(said(&imported, "fastcgi_pass").1.contains("--pools"));
    options.pools = vec![PoolFile {
        name: "alice.conf".to_owned(),
        text: POOLS.to_owned(),
    }];
    let imported = nginx(text.as_bytes(), &options).unwrap();
    passes(&imported);
    let site = crate::site_of(&imported);
    for expected in [
        "handler = { php = true }",
        "user = \"alice\"",
        "env = { STAGE = \"test\" }\n",
        "request_headers = { remove = [\"X-USER\"], set = { X-ROLE = \"guest\" } }",
    ] {
        assert!(site.contains(expected), "{expected}\n{site}");
    }
}
