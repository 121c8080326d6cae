//! Files of our own hand with what the files of 26 projects say, and what becomes of requests.

use crate::site::{Site, answered, get};

/// A front controller, with the credentials that programs would lack.
const FRONT: &str = r"
<IfModule mod_rewrite.c>
RewriteEngine On
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteBase /
RewriteRule ^index\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
</IfModule>
";

#[test]
fn a_front_controller_gets_what_is_no_file() {
    let site = Site::new(FRONT).files(&["index.php", "style.css", "uploads/a.png"]);
    for (target, found) in [
        ("/", "/"),
        ("/2026/11/post?x=1", "/index.php?x=1"),
        ("/style.css", "/style.css"),
        ("/uploads/a.png", "/uploads/a.png"),
        ("/uploads/", "/uploads/"),
        ("/index.php/route", "/index.php/route"),
    ] {
        assert_eq!(site.followed(target), found, "{target}");
    }
    assert_eq!(site.problems(), []);
    let asked = site.asked(&get("/post").with("Authorization", "Basic eA=="), None);
    assert_eq!(
        asked.variable("HTTP_AUTHORIZATION").as_deref(),
        Some("Basic eA==")
    );
    assert_eq!(
        asked.vary, ["Authorization"; 0],
        "no condition looked at it"
    );
}

#[test]
fn a_page_cache_is_asked_before_the_program() {
    let site = Site::new(&format!(
        r#"
RewriteEngine On
RewriteBase /
RewriteCond %{{HTTPS}} on [OR]
RewriteCond %{{HTTP:X-Forwarded-Proto}} https
RewriteRule .* - [E=KIND:-https]
RewriteCond %{{REQUEST_METHOD}} GET
RewriteCond %{{QUERY_STRING}} =""
RewriteCond %{{HTTP:Cookie}} !(logged_in|wp-postpass_) [NC]
RewriteCond "%{{DOCUMENT_ROOT}}/cache/%{{HTTP_HOST}}%{{REQUEST_URI}}index%{{ENV:KIND}}.html" -f
RewriteRule .* "/cache/%{{HTTP_HOST}}%{{REQUEST_URI}}index%{{ENV:KIND}}.html" [L]
{FRONT}"#
    ));
    let site = site.files(&["cache/example.jp/post/index.html", "index.php"]);
    assert_eq!(site.short("/post/"), "-> /cache/example.jp/post/index.html");
    assert_eq!(site.short("/other/"), "-> /index.php");
    assert_eq!(site.short("/post/?x=1"), "-> /index.php?x=1");
    let known = get("/post/").with("Cookie", "a=b; Logged_In=1");
    assert_eq!(site.asked(&known, None).short(), "-> /index.php");
}

#[test]
fn nobody_may_read_a_directory_however_it_is_said() {
    for text in [
        "Deny from all",
        "deny from all\n",
        "Order deny,allow\nDeny from all",
        "Order Allow,Deny\nDeny from All",
        "Require all denied",
        "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nDeny from all\n</IfModule>",
        "<IfModule authz_core_module>\n  Require all denied\n</IfModule>\n<IfModule !authz_core_module>\n  Deny from all\n</IfModule>",
        "<IfVersion < 2.4>\norder deny,allow\ndeny from all\n</IfVersion>\n<IfVersion >= 2.4>\nRequire all denied\n</IfVersion>",
        "<IfModule !mod_authz_core.c>\nOrder Deny,Allow\nDeny from all\nSatisfy All\n</IfModule>\n<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>",
        "<Files \"*\">\nRequire all denied\n</Files>",
        "<FilesMatch \".*\">\nOrder Allow,Deny\nDeny from all\n</FilesMatch>",
        "RewriteEngine On\nRewriteRule ^ - [F,L]",
        "RewriteEngine On\nRewriteRule .* - [R=404,L]",
        "Redirect 403 /",
        "Options -Indexes\nRequire all denied\n# closed",
        "<Limit GET POST PUT>\nRequire all denied\n</Limit>",
        "<RequireAll>\nRequire all denied\n</RequireAll>",
    ] {
        let site = Site::new("Require all granted")
            .below("data", text)
            .files(&["data/users.db"]);
        let found = site.short("/data/users.db");
        assert!(["403", "404"].contains(&found.as_str()), "{found}: {text}");
        assert_eq!(site.problems(), [], "{text}");
    }
}

#[test]
fn a_directory_of_uploads_runs_nothing() {
    let site = Site::new("").below(
        "files",
        "SetHandler none\nSetHandler default-handler\nOptions None\nOptions +SymLinksIfOwnerMatch\nRemoveHandler .php .phtml\nRemoveType .php\n<IfModule mod_php.c>\nphp_flag engine off\n</IfModule>\n<FilesMatch \"(?i)\\.(php|phar|phtml)$\">\nRequire all denied\n</FilesMatch>",
    );
    let asked = site.ask("/files/evil.PHP");
    assert_eq!(asked.short(), "403");
    let asked = site.ask("/files/picture.png");
    assert_eq!(asked.short(), "200");
    assert_eq!(asked.settings.php_engine(), Some(false));
    assert_eq!(
        asked.settings.describe(b"x.php").handler,
        Some(Some(b"default-handler".to_vec()))
    );
}

#[test]
fn hidden_and_secret_files_are_closed() {
    let text = r#"
<FilesMatch "\.(engine|inc|install|module|profile|po|sh|theme|tpl(\.php)?)(~|\.sw[op]|\.bak)?$|^(\.(?!well-known).*|Entries.*|composer\.(json|lock))$">
  <IfModule mod_authz_core.c>
    Require all denied
  </IfModule>
  <IfModule !mod_authz_core.c>
    Order allow,deny
  </IfModule>
</FilesMatch>
Options -Indexes
<IfModule mod_rewrite.c>
  RewriteEngine on
  RewriteRule "/\.|^\.(?!well-known/)" - [F]
  RewriteCond %{REQUEST_URI} !=/favicon.ico
  RewriteCond %{REQUEST_FILENAME} !-f
  RewriteCond %{REQUEST_FILENAME} !-d
  RewriteRule ^ index.php [L]
  RewriteCond %{REQUEST_URI} !/core/[^/]*\.php$
  RewriteRule "^.+/.*\.php$" - [F]
</IfModule>
"#;
    let site = Site::new(text).files(&["index.php", "core/install.php", "vendor/x.php", "a.inc"]);
    for (target, found) in [
        ("/a.inc", "403"),
        ("/composer.json", "403"),
        ("/.git/config", "403"),
        ("/.well-known/acme", "/index.php"),
        ("/node/1", "/index.php"),
        ("/vendor/x.php", "403"),
        ("/core/install.php", "/core/install.php"),
        ("/favicon.ico", "/favicon.ico"),
    ] {
        assert_eq!(site.followed(target), found, "{target}");
    }
    assert_eq!(site.problems(), []);
}

#[test]
fn attacks_in_queries_are_refused() {
    let text = r"
RewriteEngine On
RewriteCond %{QUERY_STRING} base64_encode[^(]*\([^)]*\) [OR]
RewriteCond %{QUERY_STRING} (<|%3C)([^s]*s)+cript.*(>|%3E) [NC,OR]
RewriteCond %{QUERY_STRING} GLOBALS(=|\[|\%[0-9A-Z]{0,2})
RewriteRule .* index.php [F]
RewriteCond %{HTTP_REFERER} !^$
RewriteCond %{HTTP_REFERER} !^https?://(www\.)?example\.jp/ [NC]
RewriteRule \.(gif|jpe?g|png)$ - [F,NC]
";
    let site = Site::new(text).files(&["a.png"]);
    for (target, found) in [
        ("/?x=base64_encode(1)", "403"),
        ("/?x=%3CScRipt%3E", "403"),
        ("/?GLOBALS[a]=1", "403"),
        ("/?x=plain", "200"),
    ] {
        assert_eq!(site.short(target), found, "{target}");
    }
    let linked = |from| {
        site.asked(&get("/a.png").with("Referer", from), None)
            .short()
    };
    assert_eq!(linked("https://other.jp/"), "403");
    assert_eq!(linked("https://www.EXAMPLE.jp/page"), "200");
}

#[test]
fn a_cloud_sets_fields_in_one_table_and_takes_them_from_the_other() {
    let text = r#"
<IfModule mod_headers.c>
  <IfModule mod_setenvif.c>
    SetEnvIfNoCase Request_URI "\.(css|js)$" IS_ASSET
    SetEnvIfNoCase ^Authorization$ "(.+)" XAUTHORIZATION=$1
    RequestHeader set XAuthorization %{XAUTHORIZATION}e env=XAUTHORIZATION
  </IfModule>
  Header onsuccess unset Referrer-Policy
  Header always set Referrer-Policy "no-referrer"
  Header onsuccess unset X-Frame-Options
  Header always set X-Frame-Options "SAMEORIGIN"
  <FilesMatch "\.(css|js)$">
    <If "%{QUERY_STRING} =~ /(^|&)v=/">
      Header set Cache-Control "max-age=15778463, immutable"
    </If>
    <Else>
      Header set Cache-Control "max-age=15778463"
    </Else>
  </FilesMatch>
</IfModule>
<IfModule mod_rewrite.c>
  RewriteEngine on
  RewriteCond %{HTTP_USER_AGENT} DavClnt
  RewriteRule ^$ /remote.php/webdav/ [L,R=302]
  RewriteRule ^\.well-known/carddav /remote.php/dav/ [R=301,L]
  RewriteRule ^(?:build|tests|config|lib)(?:$|/) - [R=404,L]
</IfModule>
<IfModule mod_dir.c>
  DirectoryIndex index.php index.html
</IfModule>
AddDefaultCharset utf-8
Options -Indexes
"#;
    let site = Site::new(text).files(&["core.js", "index.php"]);
    assert_eq!(site.problems(), []);
    let reply = |target: &str| {
        let reply = answered(200, &[("X-Frame-Options", "DENY")]);
        site.asked(&get(target), Some(reply)).reply.expect("edited")
    };
    let cached = |target: &str| {
        let reply = reply(target);
        let found = reply
            .fields
            .iter()
            .find(|(name, _)| name == b"Cache-Control");
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    assert_eq!(
        cached("/core.js?v=1").as_deref(),
        Some("max-age=15778463, immutable")
    );
    assert_eq!(cached("/core.js").as_deref(), Some("max-age=15778463"));
    assert_eq!(cached("/index.php"), None);
    let fields = reply("/index.php");
    assert_eq!(fields.fields, []);
    assert_eq!(fields.always.len(), 2);
    let asked = site.asked(&get("/").with("Authorization", "Basic eA=="), None);
    let fields = asked.request_fields;
    assert!(fields.contains(&(b"XAuthorization".to_vec(), b"Basic eA==".to_vec())));
    assert_eq!(
        site.short("/.well-known/carddav"),
        "301 http://example.jp/remote.php/dav/"
    );
    assert_eq!(site.short("/lib/x"), "404");
    let dav = get("/").with("User-Agent", "DavClnt");
    assert_eq!(
        site.asked(&dav, None).short(),
        "302 http://example.jp/remote.php/webdav/"
    );
}

#[test]
fn types_and_ages_are_taken() {
    let text = r#"
<IfModule mod_mime.c>
  AddType application/javascript js mjs
  AddType image/svg+xml svg svgz
  AddEncoding gzip svgz
  AddCharset utf-8 .css .js .svg
</IfModule>
<IfModule mod_deflate.c>
  <IfModule mod_filter.c>
    AddOutputFilterByType DEFLATE "text/html" \
      "text/css" \
      "image/svg+xml"
  </IfModule>
</IfModule>
<IfModule mod_expires.c>
  ExpiresActive on
  ExpiresDefault "access plus 1 month"
  ExpiresByType text/html "access plus 0 seconds"
</IfModule>
FileETag None
ServerSignature Off
<IfModule mod_autoindex.c>
  Options -Indexes
  IndexIgnore *
</IfModule>
ErrorDocument 404 /404.html
BrowserMatch "MSIE [1-6]\." no-gzip
LimitRequestBody 10240000
php_value upload_max_filesize 64M
php_flag session.auto_start off
"#;
    let site = Site::new(text);
    assert_eq!(site.problems(), []);
    let settings = site.ask("/").settings;
    let svg = settings.describe(b"x.svgz");
    assert_eq!(svg.media_type, Some(Some(b"image/svg+xml".to_vec())));
    assert_eq!(svg.encodings, [b"gzip".to_vec()]);
    assert_eq!(settings.body_bytes_max(), Some(10_240_000));
    assert_eq!(settings.php().count(), 2);
}

#[test]
fn many_verbose_rules_are_skipped_by_count() {
    let text = r"
RewriteEngine On
RewriteBase /
RewriteCond %{REQUEST_FILENAME} -f [OR]
RewriteCond %{REQUEST_FILENAME} -d
RewriteRule ^.*$ - [S=3]
RewriteRule ^category/(.+?)/?$ /index.php?cat=$1 [QSA,L]
RewriteRule ^(\d{4})/(\d{1,2})/?$ /index.php?year=$1&month=$2 [QSA,L]
RewriteRule ^(.+?)/?$ /index.php?name=$1 [QSA,L]
RewriteRule ^style - [T=text/css]
";
    let site = Site::new(text).files(&["style.css", "index.php"]);
    assert_eq!(site.short("/category/news/"), "-> /index.php?cat=news");
    assert_eq!(
        site.short("/2026/11?x=1"),
        "-> /index.php?year=2026&month=11&x=1"
    );
    assert_eq!(site.short("/hello"), "-> /index.php?name=hello");
    assert_eq!(site.short("/style.css"), "200");
}

#[test]
fn https_and_one_host_are_forced_without_a_loop() {
    let text = r"
RewriteEngine On
RewriteCond %{HTTPS} !=on
RewriteRule ^(.*)$ https://%{HTTP_HOST}/$1 [R=301,L]
RewriteCond %{HTTP_HOST} ^www\.(.+)$ [NC]
RewriteRule ^ https://%1%{REQUEST_URI} [R=301,L,NE]
";
    let site = Site::new(text).files(&["a.html"]);
    assert_eq!(site.short("/a.html?x"), "301 https://example.jp/a.html?x");
    assert_eq!(site.asked(&get("/a.html").over_tls(), None).short(), "200");
    let mut www = get("/a.html").over_tls();
    www.fields = vec![("Host", "www.example.jp")];
    assert_eq!(
        site.asked(&www, None).short(),
        "301 https://example.jp/a.html"
    );
}
