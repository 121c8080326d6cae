//! What comes of Apache's directives, one row each.

use import::{Fate, ImportOptions, Imported, apache};

use crate::properties::passes;
use crate::{said, site_of};

fn read(text: &str) -> Imported {
    let imported = apache(text.as_bytes(), &ImportOptions::default()).unwrap();
    passes(&imported);
    imported
}

/// A site whose virtual host says this beside its name and root, without comments.
pub(crate) fn import(body: &str) -> (Imported, String) {
    let text = format!(
        "Listen 80\n<Proxy balancer://app>\nBalancerMember http://127.0.0.1:9000\n</Proxy>\n<VirtualHost *:80>\n\
         ServerName a.example\nDocumentRoot /srv/a\n{body}\n</VirtualHost>\n"
    );
    let imported = read(&text);
    let site = site_of(&imported);
    (imported, site)
}

/// What a virtual host says, and what of it must stand in the site.
const ROWS: &[(&str, &str)] = &[
    // Files.
    (
        "DirectoryIndex index.php index.html",
        "index = [\"index.php\", \"index.html\"]",
    ),
    (
        "<Directory /srv/a>\nOptions Indexes FollowSymLinks\n</Directory>",
        "symlinks = \"allow\"\nwithin = \"/\"\nhtaccess = { override = [], directories = [{ path = \"/\", text = '''\nAddDefaultCharset Off\n''', context = \"server\" }, \
         { path = \"/srv/a\", text = '''\nOptions Indexes FollowSymLinks\n''' }] }",
    ),
    (
        "Alias /img/ /srv/pictures/",
        "[[sites.mounts]]\npath = \"/img\"\nroot = \"/srv/pictures\"",
    ),
    (
        "FallbackResource /index.php",
        "path = \"/\", text = '''\nFallbackResource /index.php\nAddDefaultCharset Off\n'''",
    ),
    (
        "<Directory /srv/a>\nRewriteEngine On\nRewriteBase /\nRewriteRule ^index\\.php$ - [L]\nRewriteCond %{REQUEST_FILENAME} !-f\n\
      RewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n</Directory>",
        "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n'''",
    ),
    (
        "ErrorDocument 404 /errors/404.html",
        "error_pages = { 404 = \"/srv/a/errors/404.html\" }",
    ),
    // Who may come in.
    (
        "<Location /staff>\nRequire ip 192.0.2.0/24 10.1\n</Location>",
        "match = { path = [\"/staff\", \"/staff/*\"] }\nallow = [\"192.0.2.0/24\", \"10.1.0.0/16\"]",
    ),
    (
        "<Directory /srv/a/in>\nOrder deny,allow\nDeny from all\nAllow from 192.0.2.7\n</Directory>",
        "path = \"/srv/a/in\", text = '''\nOrder deny,allow\nDeny from all\nAllow from 192.0.2.7\n'''",
    ),
    (
        "<FilesMatch \"\\.(sql|log)$\">\nRequire all denied\n</FilesMatch>",
        "path = \"/\", text = '''\n<FilesMatch \"\\.(sql|log)$\">\nRequire all denied\n</FilesMatch>\nAddDefaultCharset Off\n'''",
    ),
    (
        "<FilesMatch ^\\.ht>\nRequire all denied\n</FilesMatch>",
        "path = \"/\", text = '''\n<FilesMatch ^\\.ht>\nRequire all denied\n</FilesMatch>\nAddDefaultCharset Off\n'''",
    ),
    (
        "<Location /api>\n<LimitExcept GET>\nRequire all denied\n</LimitExcept>\n</Location>",
        "match = { path = [\"/api\", \"/api/*\"], not = { method = [\"GET\", \"HEAD\"] } }\ndeny = \"all\"",
    ),
    (
        "<Location /x>\nAuthType Basic\nAuthName \"Staff only\"\nAuthUserFile /etc/pw\nRequire valid-user\n</Location>",
        "match = { path = [\"/x\", \"/x/*\"] }\nauth = { realm = \"Staff only\", file = \"/etc/pw\" }",
    ),
    (
        "<Location />\n<RequireAll>\nRequire all granted\nRequire not ip 203.0.113.7\n</RequireAll>\n</Location>",
        "deny = [\"203.0.113.7\"]",
    ),
    (
        "ProxyPass /a http://127.0.0.1:9000/\n<Proxy *>\nRequire ip 10.0.0.0/8\n</Proxy>",
        "match = { path = [\"/a\", \"/a/*\"] }\nallow = [\"10.0.0.0/8\"]",
    ),
    // What `.htaccess` files may say.
    (
        "<Directory />\nAllowOverride None\n</Directory>\n<Directory /srv>\nAllowOverride FileInfo Options=Indexes\n\
      AllowOverrideList Require\n</Directory>",
        "htaccess = { override = [\"FileInfo\", \"Options=Indexes\", \"Require\"]",
    ),
    (
        "<Directory /srv/a/up>\nAllowOverride All\n</Directory>",
        "{ path = \"/srv/a/up\", override = [\"All\"] }] }",
    ),
    (
        "<Directory />\nAllowOverride None\n</Directory>\n<Directory /srv/a>\nAllowOverride All\n</Directory>\n\
      Alias /pma /usr/share/pma\n<Directory /srv/a/*/up>\nAllowOverride None\nSetHandler none\n</Directory>",
        "{ path = \"/usr/share/pma\", override = [] }, \
         { path = \"/srv/a/*/up\", override = [], text = '''",
    ),
    // Leading elsewhere.
    (
        "Redirect permanent /old /new\nRedirectMatch 301 ^/blog/(.*)$ https://b.example/$1",
        "directories = [{ path = \"/\", text = '''\nRedirect permanent /old /new\nRedirectMatch 301 ^/blog/(.*)$ https://b.example/$1\nAddDefaultCharset Off\n''', context = \"server\" }]",
    ),
    (
        "ProxyPass /app/img !\nProxyPass /app http://127.0.0.1:9000/app",
        "match = { path = [\"/app\", \"/app/*\"], not = [{ path = [\"/app/img\", \"/app/img/*\"] }] }\nhandler = { proxy",
    ),
    (
        "RewriteEngine On\nRewriteRule ^/admin - [L]\nRewriteCond %{QUERY_STRING} x\nRewriteRule ^/(.*)$ http://127.0.0.1:9000/$1 [P,NC]",
        "RewriteRule ^/admin - [L]\nRewriteCond %{QUERY_STRING} x\nRewriteRule \"^/(.*)$\" - [E=forward_1:1,END,NC]\n",
    ),
    (
        "RewriteEngine On\nRewriteRule ^/(.*)$ http://127.0.0.1:9000/$1 [P]",
        "match = { server_env = \"forward_1\", path_regex = \"^/(.*)$\" }\nhandler = { proxy = { upstream = \"http://127.0.0.1:9000\", path = \"/${1}\", host = \"upstream\" } }",
    ),
    // What is forwarded is the path that rewriting has come to.
    (
        "RewriteEngine On\nRewriteRule ^/admin /denied.html\nRewriteRule ^/(.*)$ http://127.0.0.1:9000/$1 [P]",
        "RewriteRule ^/admin /denied.html\nRewriteRule \"^/(.*)$\" - [E=forward_1:1,END]\n",
    ),
    (
        "RewriteEngine On\nRewriteRule ^/a$ /b.html\nProxyPass / http://127.0.0.1:9000/",
        "match = { server_env = \"proxied_1\" }\nhandler = { proxy",
    ),
    (
        "RewriteEngine On\nRewriteRule ^/a$ /app/b [PT,QSA]\nRewriteRule ^/c - [F]\nProxyPass /app http://127.0.0.1:9000/",
        "RewriteRule ^/a$ /app/b [QSA,S=1]\nRewriteRule ^/c - [F]\nAddDefaultCharset Off\nRewriteEngine On\n\
         RewriteCond %{ENV:translated} !1\nRewriteRule \"^/app(?:/|$)\" - [E=proxied_1:1,END]\n",
    ),
    (
        "RewriteEngine On\nRewriteRule ^/(.*)$ ajp://127.0.0.1:9000/$1 [P]",
        "RewriteRule \"^/(.*)$\" - [F]\n",
    ),
    (
        "RewriteEngine On\nRewriteRule ^/article/([0-9]+)$ /article.php?id=$1 [L,QSA]",
        "path = \"/\", text = '''\nRewriteEngine On\nRewriteRule ^/article/([0-9]+)$ /article.php?id=$1 [L,QSA]\nAddDefaultCharset Off\n''', context = \"server\"",
    ),
    (
        "<Directory /srv/a/wiki>\nRewriteEngine On\nRewriteRule ^page/(.*)$ index.php?p=$1 [L]\n</Directory>",
        "path = \"/srv/a/wiki\", text = '''\nRewriteEngine On\nRewriteRule ^page/(.*)$ index.php?p=$1 [L]\n'''",
    ),
    (
        "RewriteEngine On\nRewriteCond %{HTTP_HOST} ^www\\. [NC]\nRewriteRule ^ https://a.example%{REQUEST_URI} [R=301,L]",
        "path = \"/\", text = '''\nRewriteEngine On\nRewriteCond %{HTTP_HOST} ^www\\. [NC]\nRewriteRule ^ https://a.example%{REQUEST_URI} [R=301,L]\nAddDefaultCharset Off\n''', context = \"server\"",
    ),
    (
        "RewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} bot [NC]\nRewriteRule ^ - [F]",
        "path = \"/\", text = '''\nRewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} bot [NC]\nRewriteRule ^ - [F]\nAddDefaultCharset Off\n''', context = \"server\"",
    ),
    // Programs and back ends.
    (
        "<FilesMatch \"\\.php$\">\nSetHandler \"proxy:unix:/run/php.sock|fcgi://localhost\"\n</FilesMatch>",
        "match = { file_regex = \"\\\\.php$\" }\nhandler = { fastcgi = \"unix:/run/php.sock\" }",
    ),
    (
        "<FilesMatch \".+\\.ph(?:ar|p|tml)$\">\nSetHandler proxy:fcgi://127.0.0.1:9000\n</FilesMatch>",
        "match = { file_regex = \".+\\\\.ph(?:ar|p|tml)$\" }",
    ),
    (
        "ProxyPassMatch ^/(.*\\.php(/.*)?)$ fcgi://127.0.0.1:9000/srv/a/$1",
        "handler = { fastcgi = \"127.0.0.1:9000\" }",
    ),
    (
        "ScriptAlias /cgi-bin/ /usr/lib/cgi-bin/",
        "match = { path = \"/cgi-bin/*\" }\nhandler = { cgi = true }",
    ),
    (
        "AddHandler cgi-script .cgi",
        "match = { file = \"*.cgi\" }\nhandler = { cgi = true }",
    ),
    // Whatever path has led to the file.
    (
        "<Directory /srv/a/bin>\nAddHandler cgi-script .pl .cgi\nOptions +ExecCGI\n</Directory>",
        "match = { file = [\"/srv/a/bin/*.pl\", \"/srv/a/bin/*.cgi\"] }\nhandler = { cgi = true }",
    ),
    (
        "ProxyPass /app/ http://127.0.0.1:9000/",
        "match = { path = [\"/app\", \"/app/*\"] }\nhandler = { proxy = { upstream = \"http://127.0.0.1:9000\", strip_prefix = \"/app\", \
         host = \"upstream\" } }",
    ),
    (
        "ProxyPreserveHost On\nProxyPass / balancer://app/",
        "handler = { proxy = { upstream = \"app\" } }",
    ),
    ("SuexecUserGroup alice alice", "user = \"alice\""),
    ("AssignUserID alice alice", "user = \"alice\""),
    (
        "<Directory /srv/a/uploads>\nphp_admin_flag engine off\n</Directory>",
        "path = \"/srv/a/uploads\", text = '''\nphp_admin_flag engine off\n'''",
    ),
    // Fields, ages, records.
    (
        "Header always set X-A b",
        "reply_headers = { set = { X-A = \"b\" } }",
    ),
    (
        "Header setifempty X-A b\nHeader append Vary A\nHeader append Vary B",
        "reply_headers = { default = { X-A = \"b\" }, add = { Vary = [\"A\", \"B\"] } }",
    ),
    (
        "RequestHeader unset Proxy",
        "request_headers = { remove = [\"Proxy\"] }",
    ),
    (
        "ExpiresActive On\nExpiresByType text/css \"access plus 1 week\"\nExpiresDefault A3600",
        "expires = { text/css",
    ),
    (
        "LimitRequestBody 1048576\nProxyTimeout 300",
        "caps = { body_bytes = \"1MiB\" }\ntimeouts = { upstream_read = \"5m\" }",
    ),
    (
        "CustomLog /var/log/a.log combined",
        "log = { access = \"/var/log/a.log\" }",
    ),
];

#[test]
fn each_directive_comes_to_what_one_would_write() {
    let mut wrong = Vec::new();
    for (body, expected) in ROWS {
        let (_, site) = import(body);
        let expected =
            expected.replace("{ text/css", "{ \"text/css\" = \"7d\", default = \"1h\" }");
        if !site.contains(&expected) {
            wrong.push(format!("{body}\n-- lacks --\n{expected}\n-- in --\n{site}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What is about access and cannot be carried, and for what of the site nobody may come in then.
const CLOSED: &[(&str, &str)] = &[
    (
        "<Location /a>\nRequire host example.org\n</Location>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "<Location /a>\nAuthType Digest\nAuthUserFile /etc/pw\nRequire valid-user\n</Location>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "<Location /a>\nRequire user alice\n</Location>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "<Location /a>\nRequireSomething x\n</Location>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "<Location /a>\nOrder allow,deny\nAllow from all\nDeny from example.org\n</Location>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "<Location /a>\nSSLVerifyClient require\n</Location>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "ProxyPass /a http://127.0.0.1:9000/\n<ProxyMatch ^http>\nRequire all denied\n</ProxyMatch>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "<Location /a>\nSSLRequireSSL\n</Location>",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
    (
        "<LocationMatch \"(x\">\nRequire all denied\n</LocationMatch>",
        "",
    ),
    (
        "ProxyPass /a ajp://127.0.0.1:8009/",
        "match = { path = [\"/a\", \"/a/*\"] }\n",
    ),
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
fn sections_of_directories_stand_in_apaches_order_and_locations_beside_them() {
    let (_, site) = import(
        "<Directory /srv/a/in>\nRequire all denied\n</Directory>\n<Directory /srv/a>\nRequire all granted\n</Directory>\n\
         <Directory />\nRequire all denied\n</Directory>\n<Directory /srv/b>\nRequire all granted\n</Directory>\n\
         <Location /in>\nRequire all denied\n</Location>\n<Location /in/pub>\nRequire all granted\n</Location>",
    );
    let at = |path: &str| site.find(&format!("path = \"{path}\"")).unwrap();
    assert!(
        at("/") < at("/srv/a") && at("/srv/a") < at("/srv/a/in"),
        "{site}"
    );
    assert!(!site.contains("/srv/b"), "{site}");
    let rule = "match = { path = [\"/in\", \"/in/*\"], not = { path = [\"/in/pub\", \"/in/pub/*\"] } }\ndeny = \"all\"";
    assert!(site.contains(rule), "{site}");
}

/// Lines of sections, and what stands in the text in their place: what is not understood closes.
const TEXTS: &[(&str, &str)] = &[
    (
        "<Directory /srv/a/in>\nAuthType Digest\nRequire valid-user\n</Directory>",
        "<Directory /srv/a/in\n<If \"true\">\nOrder deny,allow\nDeny from all\nSatisfy All\nRequire all denied\n</If>\n",
    ),
    (
        "<Directory /srv/a/in>\nSSLRequire %{SSL_CIPHER_USEKEYSIZE} >= 128\n</Directory>",
        "match = { path = [\"/in\", \"/in/*\"] }\ndeny = \"all\"",
    ),
    (
        "<Directory /srv/a/in>\n<Limit POST>\nAuthType Digest\n</Limit>\n</Directory>",
        "<Limit POST>\nOrder deny,allow\nDeny from all\n",
    ),
    (
        "<Directory /srv/a>\n<If \"%{SOMETHING} ~~ 1\">\nSetHandler none\n</If>\n</Directory>",
        "\ndeny = \"all\"\n",
    ),
    (
        "GeoIPEnable On\nSetEnvIf GEOIP_COUNTRY_CODE ^CN Block\n<Directory /srv/a/in>\nDeny from env=Block\n</Directory>",
        "GeoIPEnable On\nSetEnvIf GEOIP_COUNTRY_CODE ^CN Block\n",
    ),
    (
        "<Directory /srv/a/in>\nSSLVerifyClient require\nHeader set X-A b\n</Directory>",
        "Header set X-A b\n<If \"true\">\nOrder deny,allow\nDeny from all\n",
    ),
    (
        "<Directory /srv/*/in>\nRequire all denied\n</Directory>",
        "path = \"/srv/a/in\"",
    ),
    (
        "<Directory /srv/a/*/in>\nRequire all denied\n</Directory>",
        "path = \"/srv/a/*/in\", text = '''\n# :8: <Directory /srv/a/*/in\nRequire all denied\n",
    ),
    (
        "<DirectoryMatch \"/(config|inc)$\">\nOrder allow,deny\nDeny from all\n</DirectoryMatch>",
        "<If \"%{REQUEST_FILENAME} =~ m#/(config|inc)(?:/|$)#\">\n<If \"true\">\nOrder deny,allow\nDeny from all\n",
    ),
    (
        "RewriteEngine On\nRewriteCond %{LA-U:REMOTE_USER} x\nRewriteRule !^/pub - [F]",
        "RewriteRule \"!^/pub\" - [F]\n",
    ),
    (
        "AddHandler cgi-script .cgi\n<Directory /srv/a/up>\nRemoveHandler .cgi\nOptions -ExecCGI\n</Directory>",
        "Options FollowSymLinks\nAddHandler cgi-script .cgi\n",
    ),
    (
        "ProxyPass /app http://127.0.0.1:9000/\n<Directory /srv/a>\nRewriteEngine On\nRewriteRule . /index.php\n</Directory>",
        "RewriteEngine On\nRewriteRule \"^/app(?:/|$)\" - [E=proxied_1:1,END]\n",
    ),
    (
        "<Location /list>\nOptions -Indexes\n</Location>",
        "<If \"%{REQUEST_URI} =~ m#^/list(?:/|$)#\">\nOptions -Indexes\n</If>\n",
    ),
    (
        "RequestHeader set X-Remote-User %{REMOTE_USER}e",
        "RequestHeader set X-Remote-User %{REMOTE_USER}e\n",
    ),
    (
        "<IfDefine GUARD>\n<Directory /srv/a/in>\nRequire ip 10.0.0.0/8\n</Directory>\n</IfDefine>",
        "Require ip 10.0.0.0/8\n",
    ),
];

#[test]
fn what_stands_in_sections_is_obeyed_or_closed() {
    for (body, expected) in TEXTS {
        let (imported, _) = import(body);
        let site = imported.files.iter().find(|file| file.name == "a.example");
        assert!(
            site.unwrap().text.contains(expected),
            "{body}\n{}",
            site.unwrap().text
        );
    }
}

#[test]
fn a_host_that_forwards_all_has_no_files_and_what_it_says_of_all_paths() {
    let (_, site) = import(
        "ProxyPass / http://127.0.0.1:9000/\n<FilesMatch \"^[^.]+\\.(bak|sql)$\">\nRequire all denied\n</FilesMatch>\n\
         RewriteEngine On\nRewriteRule !^/(js|css)/ - [F]\nRequestHeader set X-Remote-User %{REMOTE_USER}e",
    );
    let text = "RewriteEngine On\nRewriteRule !^/(js|css)/ - [F]\nRequestHeader set X-Remote-User %{REMOTE_USER}e\n\
        <FilesMatch \"^[^.]+\\.(bak|sql)$\">\nRequire all denied\n</FilesMatch>\n''', context = \"server\"";
    assert!(site.contains(text), "{site}");
    assert!(
        !site.contains("root =") && !site.contains("deny ="),
        "{site}"
    );
}

#[test]
fn of_several_handlers_for_a_file_the_last_one_runs_it() {
    let php = |socket: &str| {
        format!(
            "<FilesMatch \\.php$>\nSetHandler \"proxy:unix:/run/{socket}.sock|fcgi://localhost\"\n</FilesMatch>\n"
        )
    };
    let (_, site) = import(&(php("shared") + &php("alice")));
    let at = |socket: &str| site.find(&format!("/run/{socket}.sock"));
    assert!(at("alice").unwrap() < at("shared").unwrap(), "{site}");
}

#[test]
fn hosts_are_put_together_and_the_first_one_takes_no_strangers() {
    let plain = "<VirtualHost *:80>\nServerName a.example\nRedirect permanent / https://a.example/\n</VirtualHost>\n";
    let tls = "<VirtualHost *:443>\nServerName a.example\nDocumentRoot /srv/a\nSSLEngine On\nSSLCertificateFile /etc/a.pem\n\
        SSLCertificateKeyFile /etc/a.key\n</VirtualHost>\n";
    let imported = read(&format!("Listen 80\nListen 443\n{plain}{tls}"));
    let site = &imported.files[1].text;
    assert!(
        site.contains(
            "tls = { certificate = \"/etc/a.pem\", key = \"/etc/a.key\", redirect = true }"
        ),
        "{site}"
    );
    assert!(
        imported.files[0]
            .text
            .contains("address = \"0.0.0.0:443\"\ntls = true"),
        "{}",
        imported.files[0].text
    );
    assert!(
        imported.lines.iter().any(|line| line.note.contains("421")),
        "{:#?}",
        imported.lines
    );
    let unnamed = read("<VirtualHost *:80>\nDocumentRoot /srv/a\n</VirtualHost>");
    assert!(unnamed.files[0].text.contains("hosts = [\"*\"]"));
}

/// Lines, and the sentence that one of them must have.
const TRAPS: &[(&str, &str, &str)] = &[
    (
        "<Directory /srv/a>\nOptions +Includes\n</Directory>",
        "Options",
        "no server-side includes",
    ),
    (
        "php_admin_value memory_limit 1G",
        "php_admin_value",
        "php_admin_value[NAME] = VALUE",
    ),
    (
        "ScriptAlias /cgi-bin/ /usr/lib/cgi-bin/",
        "ScriptAlias",
        "site's `user`",
    ),
    ("UseCanonicalName On", "UseCanonicalName", "needs no word"),
    (
        "CustomLog /var/log/a.log \"%h %D %{X}i\"",
        "CustomLog",
        "without %D, %{X}i",
    ),
    ("SecRule ARGS evil deny", "SecRule", "ModSecurity"),
    (
        "SetHandler application/x-httpd-php",
        "SetHandler",
        "--own-pools",
    ),
    (
        "AssignUserID root root",
        "AssignUserID",
        "do not run as root",
    ),
];

#[test]
fn each_trap_has_its_sentence() {
    for (body, line, sentence) in TRAPS {
        let (imported, site) = import(body);
        let (fate, note) = said(&imported, line);
        assert!(note.contains(sentence), "{body}: {fate:?}, {note}\n{site}");
    }
}

#[test]
fn settings_of_php_go_to_a_pool_of_ours_where_that_is_wanted() {
    let text = "<VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/a\nAssignUserID alice alice\n\
        php_admin_value memory_limit 256M\n<FilesMatch \\.php$>\nSetHandler application/x-httpd-php\n</FilesMatch>\n</VirtualHost>";
    let options = ImportOptions {
        own_pools: true,
        ..ImportOptions::default()
    };
    let imported = apache(text.as_bytes(), &options).unwrap();
    passes(&imported);
    let site = &imported.files[0].text;
    assert!(
        site.contains("pool = { admin = { memory_limit = \"256M\" } }"),
        "{site}"
    );
    assert!(
        site.contains("match = { file_regex = \"\\\\.php$\" }\nhandler = { php = true }"),
        "{site}"
    );
}

#[test]
fn lines_are_those_of_the_files_that_were_dumped() {
    let text = "# In file: /etc/apache2/sites-enabled/a.conf\n#   7:\n<VirtualHost *:80>\n  #   8:\n  ServerName a.example\n  #   9:\n  \
        DocumentRoot /srv/a\n</VirtualHost>\nSyntax OK\n";
    let imported = read(text);
    let site = &imported.files[0].text;
    assert!(
        site.contains("# /etc/apache2/sites-enabled/a.conf:9: DocumentRoot /srv/a\n"),
        "{site}"
    );
}

#[test]
fn sections_that_ask_about_the_server_are_read_as_the_gateway_stands_for_it() {
    let (_, site) = import(
        "<IfModule mod_rewrite.c>\nFallbackResource /a.php\n</IfModule>\n<IfModule !mod_authz_core.c>\nOrder allow,deny\nDeny from all\n\
         </IfModule>\n<IfVersion >= 2.3>\nDirectoryIndex b.php\n</IfVersion>\n<IfModule LiteSpeed>\nDirectoryIndex c.php\n</IfModule>",
    );
    assert!(
        site.contains("FallbackResource /a.php\n") && site.contains("index = [\"b.php\"]"),
        "{site}"
    );
    assert!(!site.contains("deny") && !site.contains("c.php"), "{site}");
}

#[test]
fn the_usual_name_of_htaccess_files_needs_no_word_and_another_is_told() {
    for (name, fate, word) in [
        (".htaccess", Fate::NotNeeded, "that name here"),
        (".access", Fate::NotCarried, "rename those"),
    ] {
        let text = format!(
            "AccessFileName {name}\n<VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/a\n\
             RewriteEngine On\nRewriteRule ^/a$ /b\n</VirtualHost>\n"
        );
        let imported = read(&text);
        let (found, note) = said(&imported, "AccessFileName");
        assert!(found == fate && note.contains(word), "{found:?}: {note}");
        let site = imported.files.last().unwrap();
        assert!(!site.text.contains("AccessFileName"), "{}", site.text);
    }
}

#[test]
fn sites_have_no_logs_of_their_own_where_those_are_still_anothers() {
    let text = "<VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/a\nCustomLog /var/log/a.log combined\n\
        ErrorLog /var/log/a.err\n</VirtualHost>";
    for (without_logs, expected) in [(false, true), (true, false)] {
        let options = ImportOptions {
            without_logs,
            ..ImportOptions::default()
        };
        let imported = apache(text.as_bytes(), &options).unwrap();
        passes(&imported);
        let has_log = imported.files[0].text.contains("log = {");
        assert_eq!(has_log, expected, "{}", imported.files[0].text);
    }
}
