//! What comes of nginx's directives, one row each.

use import::{Fate, ImportOptions, Imported, nginx};

use crate::properties::passes;
use crate::{said, site_of};

/// A site whose server says this beside its address, name and root.
pub(crate) fn import(body: &str) -> (Imported, String) {
    let zones = "limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s; limit_conn_zone $host zone=two:1m;";
    let upstreams =
        "upstream app { server 127.0.0.1:9000 weight=2; server 127.0.0.1:9001; least_conn; }";
    let server = format!("server {{ listen 80; server_name a.example; root /srv/a; {body} }}");
    let early = "map \"$ssl_early_data:$http_x\" $early { 1:a 425; }";
    let text = format!("http {{ {zones} {upstreams} {early} {server} }}");
    let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
    passes(&imported);
    let site = site_of(&imported);
    (imported, site)
}

#[test]
fn a_site_with_php_is_what_one_would_write() {
    let (imported, site) = import(
        "index index.php; client_max_body_size 64m;
        location / { try_files $uri $uri/ /index.php?$args; }
        location ~ \\.php$ { try_files $uri =404; fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param HTTPS $https if_not_empty;
            fastcgi_pass unix:/run/php.sock; }
        location ~ /\\.ht { deny all; }",
    );
    let expected = r#"[[sites]]
hosts = ["a.example"]
root = "/srv/a"
index = ["index.php"]
symlinks = "allow"
caps = { body_bytes = "64MiB" }

[[sites.rules]]
match = { not = [{ path_regex = "\\.php$" }, { path_regex = "/\\.ht" }] }
rewrite = [{ from = "^", to = "/index.php", unless = ["file", "directory"] }, { from = "\\.php/", to = "/index.php", unless = ["directory"] }]

[[sites.rules]]
match = { path_regex = "/\\.ht", not = { path_regex = "\\.php$" } }
deny = "all"

[[sites.rules]]
match = { file = "*.php", path_regex = "\\.php$|/$" }
handler = { fastcgi = "unix:/run/php.sock" }"#;
    assert_eq!(site, expected);
    let worst = imported.lines.iter().map(|line| line.fate).max();
    assert_eq!(worst, Some(Fate::Different), "{:#?}", imported.lines);
}

/// What a server says, and what of it must stand in the site.
const ROWS: &[(&str, &str)] = &[
    // Files.
    (
        "location /img/ { alias /srv/pictures/; }",
        "[[sites.mounts]]\npath = \"/img\"\nroot = \"/srv/pictures\"",
    ),
    (
        "location /img/ { root /srv/data; }",
        "[[sites.mounts]]\npath = \"/img\"\nroot = \"/srv/data/img\"",
    ),
    ("autoindex on;", "files = { listing = true }"),
    (
        "location /app/ { try_files $uri $uri/ /app/index.html; }",
        "match = { path = \"/app/*\" }\nrewrite = [{ from = \"^\", to = \"/app/index.html\", query = \"drop\", unless = [\"file\", \"directory\"] }]",
    ),
    (
        "error_page 404 /errors/404.html;",
        "error_pages = { 404 = \"/srv/a/errors/404.html\" }",
    ),
    // Answers.
    (
        "return 301 https://b.example$request_uri;",
        "handler = { redirect = \"https://b.example${uri}\", status = 301 }",
    ),
    (
        "location = /ping { return 200 pong; }",
        "match = { path = \"/ping\" }\nhandler = { respond = { status = 200, body = \"pong\" } }",
    ),
    (
        "location /gone { return 410; }",
        "match = { path = \"/gone*\" }\nhandler = { respond = { status = 410 } }",
    ),
    (
        "rewrite ^/media/(\\d+)$ /show.php?media=$1 last;",
        "rewrite = [{ from = \"^/media/(\\\\d+)$\", to = \"/show.php?media=${1}\", query = \"append\", last = true }]",
    ),
    (
        "rewrite ^/old/(.*)$ /new/$1 permanent;",
        "match = { path_regex = \"^/old/(.*)$\" }\nhandler = { redirect = \"/new/${1}\", status = 301 }",
    ),
    (
        "rewrite ^(.*)$ https://b.example$1 permanent;",
        "handler = { redirect = \"https://b.example${uri}\", status = 301 }",
    ),
    (
        "if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }",
        "match = { not = { method = [\"GET\", \"HEAD\", \"POST\"] } }\nhandler = { respond = { status = 405 } }",
    ),
    (
        "if (!-e $request_filename) { rewrite ^/(.*)$ /index.php?q=$1 last; }",
        "rewrite = [{ from = \"^/(.*)$\", to = \"/index.php?q=${1}\", query = \"append\", unless = [\"file\", \"directory\"], last = true }]",
    ),
    (
        "if ($http_user_agent ~* (bot|crawl)) { return 403; }",
        "match = { header = { user-agent = { regex = \"(?i)(bot|crawl)\" } } }\nhandler = { respond = { status = 403 } }",
    ),
    // Back ends.
    (
        "location / { proxy_pass http://127.0.0.1:3000; proxy_set_header Host $host; }",
        "handler = { proxy = { upstream = \"http://127.0.0.1:3000\", buffer_request = true } }",
    ),
    (
        "location / { proxy_pass http://127.0.0.1:3000; }",
        "handler = { proxy = { upstream = \"http://127.0.0.1:3000\", host = \"upstream\", buffer_request = true } }",
    ),
    (
        "location /app/ { proxy_pass http://app/; proxy_buffering off; }",
        "match = { path = \"/app/*\" }\nhandler = { proxy = { upstream = \"app\", strip_prefix = \"/app\", host = \"upstream\", \
         buffer_reply = false, buffer_request = true } }",
    ),
    (
        "location /app/ { proxy_pass http://127.0.0.1:1/v2/; }",
        "strip_prefix = \"/app\", add_prefix = \"/v2\"",
    ),
    (
        "location /app { proxy_pass http://127.0.0.1:1/; }",
        "match = { path_regex = \"^/app(.*)$\" }\nhandler = { proxy = { upstream = \"http://127.0.0.1:1\", path = \"/${1}\"",
    ),
    (
        "location / { proxy_set_header X-Real-IP $remote_addr; proxy_pass http://unix:/run/app.sock; proxy_read_timeout 5m; }",
        "timeouts = { upstream_read = \"5m\" }",
    ),
    (
        "location / { try_files $uri @app; } location @app { proxy_pass http://app; }",
        "match = { not = { exists = true, not = { path_regex = \"/$\" } } }\nhandler = { proxy = { upstream = \"app\"",
    ),
    (
        "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; fastcgi_param SCRIPT_FILENAME /app/public$fastcgi_script_name; \
      fastcgi_param STAGE test; }",
        "handler = { fastcgi = { address = \"127.0.0.1:9000\", root = \"/app/public\", params = { set = { STAGE = \"test\" } } } }",
    ),
    (
        "location ~* ^/app/.+\\.(php|phtml)(/|$) { fastcgi_pass 127.0.0.1:9000; }",
        "match = { file = [\"/srv/a/app/*.php\", \"/srv/a/app/*.phtml\"], path_regex = ",
    ),
    // Who may come in.
    (
        "allow 192.0.2.0/24; deny all;",
        "allow = [\"192.0.2.0/24\"]",
    ),
    (
        "deny 192.0.2.7; allow 192.0.2.0/24; deny all;",
        "allow = [\"192.0.2.0/24\"]\ndeny = [\"192.0.2.7\"]",
    ),
    ("deny 203.0.113.7;", "deny = [\"203.0.113.7\"]"),
    (
        "location /staff { auth_basic Staff; auth_basic_user_file htpasswd; }",
        "match = { path = \"/staff*\" }\nauth = { realm = \"Staff\", file = \"/etc/nginx/htpasswd\" }",
    ),
    (
        "location /api { limit_except GET { deny all; } }",
        "match = { path = \"/api*\", not = { method = [\"GET\", \"HEAD\"] } }\ndeny = \"all\"",
    ),
    (
        "limit_req zone=one burst=5 nodelay;",
        "limits = [{ key = \"client\", rate = \"5/s\", burst = 6, status = 503 }]",
    ),
    (
        "limit_conn two 10; limit_conn_status 429;",
        "limits = [{ key = \"site\", concurrent = 10, status = 429 }]",
    ),
    (
        "location /in { internal; }",
        "match = { path = \"/in*\" }\ndeny = \"all\"",
    ),
    // Fields, ages, records.
    (
        "add_header X-A b always;",
        "reply_headers = { add = { X-A = \"b\" } }",
    ),
    (
        "location ~* \\.(jpg|css)$ { expires +30d; }",
        "match = { path_regex = \"(?i)\\\\.(jpg|css)$\" }\nexpires = \"30d\"",
    ),
    ("access_log off;", "log = { access = \"\" }"),
    (
        "gzip on; gzip_types text/css; gzip_min_length 256;",
        "compress = { types = [\"text/css\", \"text/html\"], min_bytes = \"256\" }",
    ),
    ("underscores_in_headers on;", "underscore_fields = \"keep\""),
    ("merge_slashes off;", "slashes = \"keep\""),
    ("keepalive_timeout 5s;", "timeouts = { idle = \"5s\" }"),
];

#[test]
fn each_directive_comes_to_what_one_would_write() {
    let mut wrong = Vec::new();
    for (body, expected) in ROWS {
        let (_, site) = import(body);
        if !site.contains(expected) {
            wrong.push(format!("{body}\n-- lacks --\n{expected}\n-- in --\n{site}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What is about access and cannot be carried, and for what of the site nobody may come in then.
const CLOSED: &[(&str, &str)] = &[
    ("auth_request /auth;", ""),
    (
        "location /a { auth_request /auth; }",
        "match = { path = \"/a*\" }\n",
    ),
    (
        "location ~ ^/a { access_by_lua_block { if x { } } }",
        "match = { path_regex = \"^/a\" }\n",
    ),
    ("if ($args ~ evil) { return 403; }", ""),
    (
        "location /a { if ($geoip_country = XX) { return 444; } }",
        "match = { path = \"/a*\" }\n",
    ),
    (
        "location /a { auth_basic x; }",
        "match = { path = \"/a*\" }\n",
    ),
    (
        "location /a { auth_basic x; auth_basic_user_file $dir/x; }",
        "match = { path = \"/a*\" }\n",
    ),
    (
        "location /a { deny unix:; }",
        "match = { path = \"/a*\" }\n",
    ),
    (
        "location /a { uwsgi_pass 127.0.0.1:1; }",
        "match = { path = \"/a*\" }\n",
    ),
    (
        "location /a { proxy_pass http://$x; }",
        "match = { path = \"/a*\" }\n",
    ),
    (
        "location = /a { alias /srv/x; }",
        "match = { path = \"/a\" }\n",
    ),
    ("location ~ (x { deny all; }", ""),
];

#[test]
fn nothing_is_opened_that_was_closed() {
    for (body, members) in CLOSED {
        let (imported, site) = import(body);
        let expected = format!("{members}deny = \"all\"");
        assert!(site.contains(&expected), "{body}\n{site}");
        assert!(imported.asks_for_a_look(), "{body}");
    }
}

#[test]
fn a_location_is_closed_for_the_paths_for_which_nginx_would_choose_it() {
    let (_, site) = import(
        "location / { deny all; } location /pub/ { allow all; } location = /x { allow 192.0.2.1; deny all; } \
         location ~ \\.css$ { } location ^~ /pub/in/ { deny all; }",
    );
    let expected = "match = { not = [{ path = [\"/pub/*\", \"/x\", \"/pub/in/*\"] }, { path_regex = \"\\\\.css$\" }] }\ndeny = \"all\"";
    assert!(site.contains(expected), "{site}");
    assert!(
        site.contains("match = { path = \"/pub/in/*\" }\ndeny = \"all\""),
        "{site}"
    );
    assert!(
        site.contains("match = { path = \"/x\" }\nallow = [\"192.0.2.1\"]"),
        "{site}"
    );
    assert!(
        !site.contains("match = { path = \"/pub/*\" }\ndeny"),
        "{site}"
    );
}

#[test]
fn what_a_location_asks_for_is_asked_for_before_a_program_is_come_to() {
    let (_, site) = import(
        "index index.php; location / { auth_basic x; auth_basic_user_file /etc/pw; } \
         location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }",
    );
    let access = site.find("match = { not = { path_regex = \"\\\\.php$\" } }\nauth = ");
    let program = site.find("match = { file = \"*.php\", path_regex = ");
    assert!(access.is_some() && access < program, "{site}");
}

/// Rows of what must and what must not stand in a site, where a line is about more than its own
/// location.
const CHOSEN: &[(&str, &[&str], &[&str])] = &[
    // What stands in a location is asked before what stands beside it, and in no other.
    (
        "location / { location ~* \\.(jpg|css)$ { expires max; } } \
         location /vstats/ { auth_basic x; auth_basic_user_file /h/pw; }",
        &[
            "match = { path = \"/vstats/*\" }\nauth = ",
            "match = { path_regex = \"(?i)\\\\.(jpg|css)$\", not = { path = \"/vstats/*\" } }\nexpires",
        ],
        &[],
    ),
    (
        "location ~ \\.php$ { fastcgi_pass 127.0.0.1:1; } location /uploads/ { location ~ \\.php$ { deny all; } }",
        &[
            "match = { path = \"/uploads/*\", path_regex = \"\\\\.php$\" }\ndeny = \"all\"",
            "not = { path = \"/uploads/*\", path_regex = \"\\\\.php$\" } }\nhandler = { fastcgi",
        ],
        &[],
    ),
    (
        "location ^~ /a/ { } location /a/b/ { } location ~ \\.php$ { deny all; }",
        &["not = { path = \"/a/*\", not = { path = \"/a/b/*\" } } }\ndeny = \"all\""],
        &[],
    ),
    // In a named location what stands behind a `return` is never reached, and what leads away from some
    // paths leaves the others alone.
    (
        "location / { try_files $uri @app; } location @app { return 403; rewrite ^/(.*)$ https://b.example/$1 permanent; }",
        &["handler = { respond = { status = 403 } }"],
        &["b.example"],
    ),
    (
        "location / { try_files $uri @app; } location @app { rewrite ^/old$ https://b.example/ permanent; \
         proxy_pass http://app; }",
        &[
            "path_regex = \"^/old$\" }\nhandler = { redirect = \"https://b.example/\", status = 301 }",
            "handler = { proxy = ",
        ],
        &[],
    ),
    (
        "location / { try_files $uri @app; } location @app { rewrite ^/old$ /new last; \
         rewrite ^ https://b.example/ permanent; proxy_pass http://app; }",
        &["rewrite = [{ from = \"^/old$\", to = \"/new\", last = true }]"],
        &["b.example"],
    ),
    // Who is let in is asked in a named location, too.
    (
        "location / { try_files $uri @app; } location @app { auth_basic x; auth_basic_user_file /p; deny all; \
         proxy_pass http://app; }",
        &[
            "not = { path_regex = \"/$\" } } }\nauth = { realm = \"x\", file = \"/p\" }\ndeny = \"all\"\nhandler",
        ],
        &[],
    ),
    (
        "location / { try_files $uri @app; } location @app { auth_request /x; proxy_pass http://app; }",
        &["deny = \"all\""],
        &[],
    ),
    (
        "location /a/ { auth_request /x; location ~ \\.php$ { fastcgi_pass 127.0.0.1:1; } }",
        &[
            "match = { file = \"*.php\", path = \"/a/*\", path_regex = \"\\\\.php$\" }\nhandler = { fastcgi = \"127.0.0.1:1\" }\ndeny = \"all\"",
        ],
        &[],
    ),
    // A directory's index is another location's.
    (
        "location = /index.html { deny all; }",
        &["match = { file = \"/srv/a/index.html\", path = \"*/\" }\ndeny = \"all\""],
        &[],
    ),
    // Files.
    (
        "location /uploads/ { } location / { root /srv/a/public; }",
        &[
            "root = \"/srv/a/public\"",
            "path = \"/uploads\"\nroot = \"/srv/a/uploads\"",
        ],
        &[],
    ),
    (
        "location /p { alias /usr/share/p/; location /p/(.+\\.(jpg|css))$ { root /usr/share/p/; } }",
        &["path = \"/p\"\nroot = \"/usr/share/p\""],
        &["root = \"/usr/share/p/p"],
    ),
    (
        "location / { autoindex on; } location /private/ { autoindex off; }",
        &[],
        &["listing"],
    ),
    (
        "location / { proxy_pass http://app; location ~ \\.css$ { root /srv/b; try_files $uri @app; } } \
         location @app { proxy_pass http://app; }",
        &[
            "root = \"/srv/b\"",
            "match = { path_regex = \"\\\\.css$\", not = { exists = true",
        ],
        &["closed"],
    ),
    // Back ends.
    (
        "location = /health { proxy_pass http://127.0.0.1:9000/status; }",
        &[
            "match = { path = \"/health\" }\nhandler = { proxy = { upstream = \"http://127.0.0.1:9000\", path = \"/status\"",
        ],
        &["path_regex"],
    ),
    (
        "location / { proxy_set_header X-Remote-User $remote_user; proxy_pass http://app; }",
        &["request_headers = { remove = [\"X-Remote-User\"] }"],
        &[],
    ),
    (
        "location ~ \\.php$ { fastcgi_param HTTP_X_USER $remote_user; fastcgi_pass 127.0.0.1:1; }",
        &["request_headers = { remove = [\"X-USER\"] }"],
        &[],
    ),
    (
        "location /app/ { rewrite ^/app/(.*)$ /$1 break; proxy_pass http://app; }",
        &[
            "match = { path = \"/app/*\" }\nhandler = { proxy = { upstream = \"app\", host = \"upstream\", buffer_request = true } }\nrewrite = ",
        ],
        &[],
    ),
    // What an `if` asks.
    (
        "location ~ \\.jpg$ { valid_referers none server_names *.b.example; if ($invalid_referer) { return 403; } }",
        &[
            "header = { Referer = true }, not = { header = { Referer = { regex = \"(?i)^https?://a\\\\.example",
        ],
        &["deny"],
    ),
    (
        "if ($http_user_agent = \"\") { return 403; }",
        &[
            "match = { not = { header = { user-agent = { regex = \".\" } } } }\nhandler = { respond = { status = 403 } }",
        ],
        &["deny"],
    ),
    (
        "if ($early = 425) { return 425; } if ($http_cookie ~ SESS) { set $no_cache 1; }",
        &[],
        &["deny"],
    ),
];

#[test]
fn each_location_is_for_the_paths_for_which_nginx_chooses_it() {
    let mut wrong = Vec::new();
    for (body, there, absent) in CHOSEN {
        let (_, site) = import(body);
        let lacks = there.iter().filter(|text| !site.contains(**text));
        let has = absent.iter().filter(|text| site.contains(**text));
        for text in lacks.chain(has) {
            wrong.push(format!("{body}\n-- {text}\n-- in --\n{site}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_only_one_location_has_as_its_root_is_not_the_sites() {
    let text = "server { listen 80; server_name a.example; location /static/ { root /srv/app; } }";
    let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
    passes(&imported);
    let site = site_of(&imported);
    let (own, mounts) = site.split_once("[[sites.mounts]]").unwrap();
    assert!(!own.contains("root ="), "{site}");
    assert!(mounts.contains("root = \"/srv/app/static\""), "{site}");
}

#[test]
fn ten_thousand_servers_are_read_in_seconds() {
    let server = |number: usize| {
        format!(
            "server {{ listen 80; server_name s{number}.example; root /srv/a; include gone/s{number}.conf*; \
             location / {{ }} location /a/ {{ deny all; }} location ~ \\.css$ {{ expires 1d; }} }}\n"
        )
    };
    let text: String = (0..10_000).map(server).collect();
    let begins = std::time::Instant::now();
    let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
    assert_eq!(imported.files.len(), 10_001);
    // Seconds; what grew with the square of their number took hours.
    let took = begins.elapsed();
    assert!(took.as_secs() < 120, "{took:?}");
}

/// Directives, and the sentence that one of their lines must have.
const TRAPS: &[(&str, &str, &str)] = &[
    (
        "location /a/ { alias /srv/b; }",
        "alias",
        "without its slash",
    ),
    (
        "location ~ \\.php$ { try_files $uri =404; fastcgi_pass 127.0.0.1:1; }",
        "try_files",
        "a file that is there",
    ),
    (
        "if ($http_x) { set $a 1; add_header A b; }",
        "if",
        "no more here than `return` and `rewrite`",
    ),
    (
        "location ~ \\.php$ { root /srv/other; fastcgi_pass 127.0.0.1:1; }",
        "root /srv/other",
        "files are found before rules",
    ),
    (
        "limit_req zone=one burst=5;",
        "limit_req zone",
        "without `nodelay` nginx delays",
    ),
    (
        "location /app { proxy_pass http://127.0.0.1:1/; }",
        "proxy_pass",
        "letter for letter",
    ),
    ("add_header A b;", "add_header", "with errors, too"),
    (
        "satisfy any; auth_basic x; auth_basic_user_file /etc/pw; allow 10.0.0.1; deny all;",
        "satisfy",
        "there is no `any`",
    ),
    ("proxy_cache one;", "proxy_cache", "there is no cache"),
    (
        "access_log /var/log/x.log;",
        "access_log",
        "both servers run",
    ),
];

#[test]
fn each_trap_has_its_sentence() {
    for (body, line, sentence) in TRAPS {
        let (imported, site) = import(body);
        let (fate, note) = said(&imported, line);
        assert!(note.contains(sentence), "{body}: {fate:?}, {note}\n{site}");
    }
    let (_, site) = import("");
    assert!(site.contains("body_bytes = \"1MiB\""), "{site}");
}

#[test]
fn an_inner_add_header_drops_the_outer_ones_as_in_nginx() {
    let (_, site) = import(
        "add_header A outer always; location /in/ { add_header B inner always; } location /out/ { }",
    );
    let rule = |path: &str| {
        let (_, rest) = site
            .split_once(&format!("match = {{ path = \"{path}\" }}\n"))
            .unwrap();
        rest.split("\n\n").next().unwrap().to_owned()
    };
    assert!(
        rule("/in/*").contains("B = \"inner\"") && !rule("/in/*").contains("outer"),
        "{site}"
    );
    assert!(rule("/out/*").contains("A = \"outer\""), "{site}");
    assert!(
        !site.split("\n\n").next().unwrap().contains("A = "),
        "{site}"
    );
}

#[test]
fn clients_that_are_told_by_another_field_are_let_in_by_no_address() {
    let text = "http { set_real_ip_from 10.0.0.0/8; real_ip_header CF-Connecting-IP; server { listen 80; \
        server_name a.example; root /srv/a; allow 10.0.0.0/8; deny all; } }";
    let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
    assert!(
        imported.files[1].text.contains("deny = \"all\""),
        "{}",
        imported.files[1].text
    );
    let believed = text.replace("CF-Connecting-IP", "X-Forwarded-For");
    let imported = nginx(believed.as_bytes(), &ImportOptions::default()).unwrap();
    assert!(
        imported.files[0]
            .text
            .contains("trusted_proxies = [\"10.0.0.0/8\"]"),
        "{}",
        imported.files[0].text
    );
    assert!(imported.files[1].text.contains("allow = [\"10.0.0.0/8\"]"));
}

#[test]
fn files_are_put_in_the_place_of_what_includes_them() {
    let text = "# configuration file /etc/nginx/nginx.conf:\nhttp {\n include sites/*.conf;\n include gone.conf;\n}\n\
        # configuration file /etc/nginx/sites/a.conf:\nserver {\n listen 80; server_name a.example;\n include snippets/php.conf;\n}\n\
        # configuration file /etc/nginx/snippets/php.conf:\nroot /srv/a;\n";
    let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
    let site = &imported.files[1].text;
    assert!(
        site.contains("# /etc/nginx/snippets/php.conf:1: root /srv/a\n"),
        "{site}"
    );
    assert_eq!(said(&imported, "include gone.conf").0, Fate::NotCarried);
    assert_eq!(said(&imported, "include sites").0, Fate::NotNeeded);
    // Files that include themselves come to an end.
    let round = "# configuration file /a:\ninclude /b;\n# configuration file /b:\ninclude /b; include /b;\n";
    let _ = nginx(round.as_bytes(), &ImportOptions::default());
}
