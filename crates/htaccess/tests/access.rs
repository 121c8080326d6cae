//! Who may have something: 2.2, 2.4 and both; and that no line about it fails open.

use crate::site::{Get, Site, get};

fn short(text: &str, get: &Get<'_>) -> String {
    Site::new(text)
        .files(&["a.html", "secret.inc"])
        .asked(get, None)
        .short()
}

#[test]
fn order_says_who_has_the_last_word() {
    for (text, inside, outside) in [
        ("Deny from all", "403", "403"),
        (
            "Order deny,allow\nDeny from all\nAllow from 10.1",
            "200",
            "403",
        ),
        (
            "Order allow,deny\nAllow from all\nDeny from 10.1.0.0/16",
            "403",
            "200",
        ),
        ("Order allow,deny\nAllow from 10.1.2.3", "200", "403"),
        ("Order allow,deny", "403", "403"),
        ("Order deny,allow", "200", "200"),
        ("Order mutual-failure\nAllow from 10.1", "200", "403"),
        (
            "Order allow,deny\nAllow from 10.1.0.0/255.255.0.0",
            "200",
            "403",
        ),
        (
            "Deny from env=bad\nSetEnvIf Remote_Addr ^10 bad",
            "403",
            "200",
        ),
        (
            "Order allow,deny\nAllow from env=!bad\nSetEnvIf Remote_Addr ^10 bad",
            "403",
            "200",
        ),
        (
            "Order allow,deny\nAllow from friend.example.jp",
            "403",
            "403",
        ),
    ] {
        assert_eq!(
            short(text, &get("/a.html").from("10.1.2.3")),
            inside,
            "{text}"
        );
        assert_eq!(short(text, &get("/a.html")), outside, "{text}");
    }
}

#[test]
fn requirements_are_any_all_or_none_of_their_parts() {
    for (text, inside, outside) in [
        ("Require all denied", "403", "403"),
        ("Require all granted", "200", "200"),
        ("Require ip 10.1", "200", "403"),
        ("Require ip 10.0.0.0/8 2001:db8::/32", "200", "403"),
        ("Require all denied\nRequire ip 10.1", "200", "403"),
        (
            "<RequireAll>\nRequire all granted\nRequire not ip 10.1\n</RequireAll>",
            "403",
            "200",
        ),
        (
            "<RequireAll>\nRequire ip 10\nRequire method GET\n</RequireAll>",
            "200",
            "403",
        ),
        (
            "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire ip 10\n</RequireNone>\n</RequireAll>",
            "403",
            "200",
        ),
        (
            "Require expr %{REMOTE_ADDR} -ipmatch '10.0.0.0/8'",
            "200",
            "403",
        ),
        (
            "Require env friend\nSetEnvIf Remote_Addr ^10 friend",
            "200",
            "403",
        ),
        ("<Limit POST>\nRequire all denied\n</Limit>", "200", "200"),
        ("<Limit GET>\nRequire all denied\n</Limit>", "403", "403"),
        (
            "<LimitExcept POST>\nRequire all denied\n</LimitExcept>",
            "403",
            "403",
        ),
        ("Require host example.org", "403", "403"),
    ] {
        assert_eq!(
            short(text, &get("/a.html").from("10.1.2.3")),
            inside,
            "{text}"
        );
        assert_eq!(short(text, &get("/a.html")), outside, "{text}");
    }
    let limited = "<Limit GET>\nDeny from all\n</Limit>";
    assert_eq!(
        short(limited, &get("/a.html").by("HEAD")),
        "403",
        "what is said of GET"
    );
    assert_eq!(short(limited, &get("/a.html").by("POST")), "200");
    assert_eq!(
        short("Require local", &get("/a.html").from("127.0.0.1")),
        "200"
    );
}

const BASIC: &str = "AuthType Basic\nAuthName \"The staff's\"\nAuthUserFile /srv/site/.htpasswd\n";

#[test]
fn who_asks_is_asked_once_and_only_where_it_matters() {
    let site = |text: &str| Site::new(&format!("{BASIC}{text}")).files(&["a.html"]);
    let anna = get("/a.html").with("Authorization", "anna");
    let bert = get("/a.html").with("Authorization", "bert");
    let nobody = get("/a.html");
    for (text, of_anna, of_bert, of_nobody) in [
        ("Require valid-user", "200", "200", "401"),
        ("Require user anna", "200", "401", "401"),
        (
            "AuthzSendForbiddenOnFailure On\nRequire user anna",
            "200",
            "403",
            "401",
        ),
        (
            "AuthGroupFile /srv/site/.htgroups\nRequire group staff",
            "200",
            "401",
            "401",
        ),
        (
            "Require valid-user\nRequire ip 192.0.2",
            "200",
            "200",
            "200",
        ),
        (
            "Require valid-user\nDeny from all\nSatisfy any",
            "200",
            "200",
            "401",
        ),
        ("Require valid-user\nDeny from all", "403", "403", "403"),
        (
            "Require valid-user\nOrder deny,allow\nSatisfy any",
            "200",
            "200",
            "200",
        ),
        ("Require group staff", "500", "500", "500"),
    ] {
        let site = site(text);
        assert_eq!(site.asked(&anna, None).short(), of_anna, "{text}");
        assert_eq!(site.asked(&bert, None).short(), of_bert, "{text}");
        let asked = site.asked(&nobody, None);
        assert_eq!(asked.short(), of_nobody, "{text}");
        assert!(asked.questions.len() <= 1, "{text}");
    }
    let asked = site("Require valid-user").asked(&anna, None);
    assert_eq!(asked.user.as_deref(), Some("anna"));
    assert_eq!(asked.settings.realm(), Some(&b"The staff's"[..]));
    let broken = get("/a.html").with("Authorization", "broken");
    assert_eq!(
        site("Require valid-user").asked(&broken, None).short(),
        "500"
    );
}

#[test]
fn a_kind_of_authentication_asks_where_something_requires_it() {
    let site = Site::new(&format!(
        "{BASIC}<Files secret.inc>\nRequire valid-user\n</Files>"
    ));
    let site = site.files(&["a.html", "secret.inc"]);
    assert_eq!(site.short("/a.html"), "200");
    assert_eq!(site.short("/secret.inc"), "401");
}

#[test]
fn half_of_an_authentication_is_a_fault_and_never_an_open_door() {
    for text in [
        "Require valid-user",
        "AuthType Basic\nRequire valid-user",
        "AuthType Basic\nAuthName x\nRequire valid-user",
        "AuthType Digest\nAuthName x\nAuthUserFile /f\nRequire valid-user",
        "AuthBasicProvider ldap",
        "Require ldap-group cn=x",
        "Require all",
        "Require",
        "Require not all granted",
        "<RequireAll>\nRequire not host x.org\n</RequireAll>",
        "<RequireAny>\n</RequireAny>",
        "Order allow, deny",
        "Order deny",
        "Deny all",
        "Deny from",
        "Deny from bad.example.org",
        "Deny from 300.1.2.3/8",
        "Satisfy maybe",
        "SSLRequire %{SSL_CIPHER_USEKEYSIZE} >= 128",
        "SSLVerifyClient require",
        "Options -Indexes +Nonsense",
        "Options -Indexes FollowSymLinks",
        "Denny from all",
        "Requires all denied",
        "AuthLDAPUrl ldap://x",
        "RequireSSL",
        "<Limits GET>\nDeny from all\n</Limits>",
        "<Directory />\nRequire all denied\n</Directory>",
        "<If \"-U '/x'\">\nRequire all denied\n</If>",
        "<If \"%{REQUEST_URI} =~ \">\nRequire all denied\n</If>",
        "<Files>\nDeny from all\n</Files>",
        "<Files a b>\nDeny from all\n</Files>",
        "<FilesMatch \"(\">\nDeny from all\n</FilesMatch>",
        "<Else>\nDeny from all\n</Else>",
        "SetHandler no-such-handler",
        "AddHandler lua-script .lua",
        "Action x /cgi",
        "php_admin_flag engine off",
        "RewriteEngine On\nRewriteRule ^x - [F,WAT]",
        "RewriteEngine On\nRewriteCond %{REQUEST_URI} ^( \nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewritRule ^ - [F]",
        "php_flga engine off",
        "<IfModule mod_rewrite.c>\nDeny from all",
        "<IfVersion ~ (>\nDeny from all\n</IfVersion>",
    ] {
        let found = short(text, &get("/a.html"));
        assert!(["403", "500"].contains(&found.as_str()), "{found}: {text}");
        let site = Site::new(text);
        assert!(
            site.problems().iter().any(|it| it.refuses)
                || text.contains("AuthType")
                || text == "Require valid-user",
            "{text}"
        );
    }
}

#[test]
fn a_fault_covers_its_section_and_nothing_more() {
    let site = Site::new(
        "<Files \"*.inc\">\nRequire magic\n</Files>\n<If \"%{QUERY_STRING} == 'x'\">\nOptions Nonsense\n</If>",
    );
    let site = site.files(&["a.html", "secret.inc"]);
    assert_eq!(site.short("/secret.inc"), "500");
    assert_eq!(site.short("/a.html"), "200");
    assert_eq!(site.short("/a.html?x"), "500");
}

#[test]
fn lines_that_an_access_line_depends_on_may_not_be_left_out() {
    for text in [
        "PassEnv X\nDeny from env=X",
        "SetEnvIf User-Agent bad REMOTE_USER_IS\nDeny from env=REMOTE_USER_IS",
        "RewriteEngine On\nRewriteCond /x -U\nRewriteRule ^ - [E=bad:1]\n\
         RewriteCond %{ENV:bad} 1\nRewriteRule ^ - [F]",
    ] {
        assert_eq!(Site::new(text).short("/"), "500", "{text}");
    }
    let env = Site::new("SetEnvIf User-Agent bad bad\nDeny from env=bad").overrides(&["Limit"]);
    assert_eq!(env.short("/"), "500");
    let conditions = Site::new("RewriteEngine On\nRewriteCond %{HTTPS} off\nRewriteRule ^ - [F]");
    let conditions = conditions.overrides(&["RewriteEngine", "RewriteRule"]);
    assert_eq!(conditions.short("/"), "500");
    let engine = Site::new("RewriteEngine On\nRewriteRule ^ - [F]").overrides(&["RewriteRule"]);
    assert_eq!(engine.short("/"), "500");
    let by_rule = "SetEnvIf User-Agent bad bad\nRewriteEngine On\nRewriteCond %{ENV:bad} .\nRewriteRule ^ - [F]";
    let by_rule = Site::new(by_rule).overrides(&["RewriteEngine", "RewriteCond", "RewriteRule"]);
    assert_eq!(by_rule.short("/"), "500");
    let typo = Site::new("RewriteEngine On\nRewriteCondd %{HTTPS} off\nRewriteRule ^ - [F]");
    assert_eq!(typo.short("/"), "500");
    let typo = Site::new("SetEnvIff User-Agent bad bad\nDeny from env=bad");
    assert_eq!(typo.short("/"), "500");
}

#[test]
fn both_syntaxes_by_module_are_one_answer() {
    let text = "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nOrder allow,deny\nDeny from all\n</IfModule>";
    assert_eq!(short(text, &get("/a.html")), "403");
    let text = "<FilesMatch \"\\.(inc|sql)$\">\n<IfModule !mod_authz_core.c>\nDeny from all\n</IfModule>\n<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n</FilesMatch>";
    assert_eq!(short(text, &get("/secret.inc")), "403");
    assert_eq!(short(text, &get("/a.html")), "200");
}

#[test]
fn tls_is_required_where_it_is_said() {
    assert_eq!(short("SSLRequireSSL", &get("/a.html")), "403");
    assert_eq!(short("SSLRequireSSL", &get("/a.html").over_tls()), "200");
}

#[test]
fn handlers_and_types_that_take_a_program_away_are_told() {
    let site =
        Site::new("SetHandler none\nRemoveHandler .php\nphp_flag engine off").files(&["a.php"]);
    let asked = site.ask("/a.php");
    assert_eq!(asked.settings.describe(b"a.php").handler, Some(None));
    assert_eq!(asked.settings.php_engine(), Some(false));
    for (value, is_on) in [
        ("On", true),
        ("1", true),
        ("disabled", false),
        ("none", false),
    ] {
        let site = Site::new(&format!("php_flag engine {value}")).files(&["a.php"]);
        assert_eq!(
            site.ask("/a.php").settings.php_engine(),
            Some(is_on),
            "{value}"
        );
    }
    let site = Site::new("AddType text/plain .php .php5\nForceType text/plain");
    let described = site.ask("/").settings.describe(b"a.php");
    assert_eq!(described.media_type, Some(Some(b"text/plain".to_vec())));
    let site = Site::new("SetHandler \"proxy:unix:/run/x.sock|fcgi://x\"");
    assert_eq!(site.short("/"), "403");
}

#[test]
fn names_of_hosts_are_not_looked_up_so_nobody_is_let_in_for_not_having_one() {
    for text in [
        "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire host evil.example\n</RequireNone>\n</RequireAll>",
        "<RequireAll>\nRequire all granted\n<RequireNone>\n<RequireAny>\nRequire forward-dns evil.example\n\
         </RequireAny>\n</RequireNone>\n</RequireAll>",
        "<RequireNotAll>\nRequire ip 10\n</RequireNotAll>",
    ] {
        assert_eq!(Site::new(text).short("/"), "500", "{text}");
    }
}

#[test]
fn the_name_localhost_is_known_without_looking_it_up() {
    for (text, here, elsewhere) in [
        (
            "Order deny,allow\nDeny from all\nAllow from localhost",
            "200",
            "403",
        ),
        (
            "Order allow,deny\nAllow from all\nDeny from localhost",
            "403",
            "200",
        ),
        ("Require host Localhost", "200", "403"),
        (
            "<RequireAll>\nRequire all granted\nRequire not host localhost\n</RequireAll>",
            "403",
            "200",
        ),
    ] {
        for client in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(short(text, &get("/a.html").from(client)), here, "{text}");
        }
        assert_eq!(
            short(text, &get("/a.html").from("127.0.0.2")),
            elsewhere,
            "{text}"
        );
    }
}

#[test]
fn what_an_unknown_module_may_set_is_not_taken_for_unset() {
    for text in [
        "GeoIPEnable On\nSetEnvIf GEOIP_COUNTRY_CODE ^CN Block\nDeny from env=Block",
        "MaxMindDBEnv CODE DB/country\nRewriteEngine On\nRewriteCond %{ENV:CODE} ^CN\nRewriteRule ^ - [F]",
        "GeoIPEnable On\nRequire expr reqenv('CODE') != 'CN'",
        "GeoIPEnable On\n<If \"reqenv('CODE') == 'CN'\">\nRequire all denied\n</If>",
        "GeoIPEnable On\n<If \"%{ENV:CODE} == 'JP'\">\nHeader set a b\n</If>\n<Else>\nRequire all denied\n</Else>",
        "SetEnvIf OID(\"2.16.840.1.113730.1.13\") \"(.*)\" seen=$1\nOrder allow,deny\nAllow from all\nDeny from env=seen",
        "Require expr osenv('X') == ''",
    ] {
        assert_eq!(Site::new(text).short("/"), "500", "{text}");
    }
    // What does not ask for variables is no matter of theirs.
    for text in [
        "GeoIPEnable On\n<If \"%{REQUEST_URI} =~ m#^/private#\">\nRequire all denied\n</If>",
        "GeoIPEnable On\nRewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} bot\nRewriteRule ^ - [F]",
        "GeoIPEnable On\nRequire expr %{REQUEST_METHOD} == 'GET'",
    ] {
        assert_eq!(Site::new(text).short("/"), "200", "{text}");
    }
}

#[test]
fn a_line_left_out_above_or_below_refuses_what_depends_on_it() {
    let few = &[
        "Limit",
        "AuthConfig",
        "RewriteEngine",
        "RewriteCond",
        "RewriteRule",
    ];
    let (sets, denies) = (
        "SetEnvIf User-Agent bad bad",
        "Order allow,deny\nAllow from all\nDeny from env=bad",
    );
    for (above, below) in [
        (sets, denies),
        (denies, sets),
        (
            sets,
            "<RequireAll>\nRequire all granted\nRequire not env bad\n</RequireAll>",
        ),
        (
            "RewriteOptions Inherit",
            "RewriteEngine On\nRewriteRule ^ - [F]",
        ),
    ] {
        let site = Site::new(above).below("sub", below).overrides(few);
        let asked = site.ask("/sub/");
        assert_eq!(asked.short(), "500", "{above} / {below}");
        let htaccess::Ending::Status(stop) = &asked.ending else {
            panic!("{asked:?}");
        };
        assert!(stop.line > 0 && stop.directory.is_some(), "{stop:?}");
        if above == sets {
            assert_eq!(site.short("/other"), "200", "what does not depend on it");
        }
    }
}

#[test]
fn methods_are_named_as_they_are_and_head_is_one_with_get() {
    for (text, method, found) in [
        ("<Limit HEAD>\nDeny from all\n</Limit>", "HEAD", "403"),
        ("<Limit HEAD>\nDeny from all\n</Limit>", "GET", "403"),
        ("<Limit HEAD>\nDeny from all\n</Limit>", "POST", "200"),
        (
            "<LimitExcept HEAD>\nDeny from all\n</LimitExcept>",
            "GET",
            "200",
        ),
        (
            "<LimitExcept HEAD>\nDeny from all\n</LimitExcept>",
            "POST",
            "403",
        ),
        (
            "<LimitExcept get>\nDeny from all\n</LimitExcept>",
            "GET",
            "403",
        ),
    ] {
        assert_eq!(
            short(text, &get("/a.html").by(method)),
            found,
            "{text}: {method}"
        );
    }
}

#[test]
fn a_map_that_is_not_had_lets_nobody_in() {
    let refuses =
        "RewriteEngine On\nRewriteCond ${block:%{REMOTE_ADDR}|ok} !=ok\nRewriteRule ^ - [F]";
    assert_eq!(Site::new(refuses).short("/"), "500");
    let sends = "RewriteEngine On\nRewriteRule ^(.*)$ /${pages:$1|none} [L]";
    let site = Site::new(sends);
    assert_eq!(site.short("/a"), "200", "left out");
    assert_eq!(site.problems().len(), 1);
    let sets = "RewriteEngine On\nRewriteRule ^ - [E=kind:${kinds:%{REMOTE_ADDR}|good}]\n\
                RewriteCond %{ENV:kind} bad\nRewriteRule ^ - [F]";
    assert_eq!(Site::new(sets).short("/"), "500");
}

#[test]
fn who_asks_is_never_what_a_field_of_the_request_says() {
    let text =
        "SetEnvIf Remote_User ^admin$ admin\nOrder deny,allow\nDeny from all\nAllow from env=admin";
    let asked = get("/a.html").with("Remote_User", "admin");
    assert_eq!(short(text, &asked), "403");
}
