//! `.htaccess` files and requests that are made up, out of lines that real files are made of.

use std::fmt::Write as _;

use fastrand::Rng;

/// What stands in the site; programs are called `info.cgi`.
pub(crate) const FILES: [&str; 17] = [
    "index.html",
    "front.html",
    "plain.txt",
    "a b.txt",
    "style.css",
    "pic.png",
    "secret.bak",
    "x.js",
    "sub/index.html",
    "sub/page.txt",
    "sub/front.html",
    "sub/deep/page.txt",
    "noindex/x.txt",
    "other/front.html",
    "data.json",
    "page.html.gz",
    "hello.de.html",
];

const BASES: [&str; 3] = ["RewriteBase /", "RewriteBase /sub/", "RewriteBase /else"];

const REWRITE_OPTIONS: [&str; 5] = [
    "RewriteOptions Inherit",
    "RewriteOptions InheritBefore",
    "RewriteOptions InheritDown",
    "RewriteOptions IgnoreInherit",
    "RewriteOptions MergeBase",
];

const CONDITIONS: [&str; 38] = [
    "%{REQUEST_FILENAME} !-f",
    "%{REQUEST_FILENAME} -f",
    "%{REQUEST_FILENAME} !-d",
    "%{REQUEST_FILENAME} -d",
    "%{REQUEST_FILENAME} -s",
    "%{REQUEST_FILENAME}.txt -f",
    "%{DOCUMENT_ROOT}/sub/$1 -f",
    "%{DOCUMENT_ROOT}%{REQUEST_URI} -d",
    "%{QUERY_STRING} ^a=1",
    "%{QUERY_STRING} ^$",
    "%{QUERY_STRING} x=(\\d+)",
    "%{QUERY_STRING} (?:^|&)y=([^&]*)",
    "%{QUERY_STRING} =\"\"",
    "%{QUERY_STRING} !=a=1",
    "%{REQUEST_URI} ^/sub/",
    "%{REQUEST_URI} \\.txt$",
    "%{REQUEST_URI} !^/plain",
    "%{REQUEST_URI} ^/([a-z]+)/([a-z]+)",
    "%{REQUEST_URI} >/n",
    "%{REQUEST_URI} <=/plain.txt",
    "%{REQUEST_URI} !(\\.html|\\.css)$",
    "%{REQUEST_URI}::$1 ^(.*?/)(.*)::\\2$",
    "%{HTTP_HOST} ^(.*)\\.test$",
    "%{HTTP_HOST} !^www\\.",
    "%{HTTP:X-T} yes",
    "%{REQUEST_METHOD} ^(GET|HEAD)$",
    "%{REQUEST_METHOD} POST",
    "%{THE_REQUEST} \\s/old",
    "%{THE_REQUEST} ^[A-Z]{3,9}\\ (.+)\\ HTTP/",
    "%{ENV:HTTP_Q} ^v",
    "%{ENV:REDIRECT_STATUS} ^$",
    "%{ENV:REDIRECT_STATUS} 200",
    "$1 ^p",
    "%{HTTP_COOKIE} c=(\\w+)",
    "%{REMOTE_ADDR} ^127\\.",
    "%{HTTPS} off",
    "expr \"%{QUERY_STRING} =~ /x=(\\d+)/ || %{REQUEST_URI} == '/plain.txt'\"",
    "%{IS_SUBREQ} true",
];

const CONDITION_FLAGS: [&str; 8] = ["", "", "", "", " [OR]", " [NC]", " [NC,OR]", " [NV]"];

const PATTERNS: [&str; 26] = [
    "^(.*)$",
    "^(.+)\\.txt$",
    "^old/?(.*)$",
    "^$",
    "^sub/(.*)$",
    ".",
    "^",
    "^plain\\.txt$",
    "^([a-z]+)/([a-z]+)\\.txt$",
    "!\\.css$",
    "\\.bak$",
    "^q-(\\w+)$",
    "^/?missing",
    "^(?!sub)(.*)\\.js$",
    "^page\\.txt$",
    "^([^/]+)/?$",
    "^a\\ b",
    "^(sub|other)/",
    "^index\\.html$",
    "^(?:.*/)?(p[^/]*)$",
    "^(.*)\\.html/?(.*)$",
    "^deep(/.*)?$",
    "^(\\w)(\\w*)",
    "^m/([^.]+)\\.(gif|png)$",
    "(?i)^PLAIN",
    "^p\\xc3\\xa9$",
];

const TARGETS: [&str; 34] = [
    "-",
    "-",
    "/plain.txt",
    "front.html",
    "/sub/page.txt",
    "sub/$1",
    "$1.txt",
    "/info.cgi",
    "info.cgi/$1",
    "info.cgi",
    "/info.cgi?u=$1",
    "http://a.test/x/$1",
    "http://b.test/$1?z=1",
    "//b.test/x",
    "/sub/page.txt?k=%1",
    "plain.txt?",
    "/sub/$2",
    "/info.cgi/a%20b?r=$0",
    "page.txt",
    "/index.html",
    "/missing/$1",
    "info.cgi?q=%{QUERY_STRING}&h=%{HTTP_HOST}",
    "/other/front.html#top",
    "/sub/info.cgi/%1?p=$1&q=%2",
    "info.cgi?uri=%{REQUEST_URI}",
    "/info.cgi/$1/%{HTTP:X-T}",
    "%{REQUEST_URI}.txt",
    "%{DOCUMENT_ROOT}/sub/page.txt",
    "./plain.txt",
    "/sub/../plain.txt",
    "?n=1",
    "/sub/",
    "/sub",
    "https://%{HTTP_HOST}%{REQUEST_URI}",
];

const RULE_FLAGS: [&str; 48] = [
    "",
    "",
    "[L]",
    "[L]",
    "[L]",
    "[R,L]",
    "[R=301,L]",
    "[QSA,L]",
    "[QSA]",
    "[F]",
    "[G]",
    "[NC,L]",
    "[END]",
    "[S=1]",
    "[S=2]",
    "[C]",
    "[E=HTTP_Q:v$1]",
    "[PT,L]",
    "[PT]",
    "[L,QSD]",
    "[R=302,NE,L]",
    "[R=404,L]",
    "[E=HTTP_Q:v1,L]",
    "[R=307,QSA,L]",
    "[B,L]",
    "[BNP,L]",
    "[BCTLS,L]",
    "[DPI,L]",
    "[E=!HTTP_Q]",
    "[E=HTTP_Q]",
    "[NS,L]",
    "[L,NC,QSA]",
    "[T=text/x-t,L]",
    "[T=text/x-t]",
    "[CO=seen:$1:a.test]",
    "[CO=seen:1:a.test:0:/:secure:httponly,L]",
    "[R=permanent,L]",
    "[R=temp]",
    "[R=seeother,QSD,L]",
    "[R=410]",
    "[R=403,L]",
    "[R=400,L]",
    "[N=3]",
    "[last]",
    "[qsappend,last]",
    "[redirect=301,noescape,last]",
    "[forbidden,nocase]",
    "[QSL,L]",
];

const ACCESS: [&str; 29] = [
    "Require all granted",
    "Require all denied",
    "Require ip 127.0.0.0/8",
    "Require ip 10.0.0.0/8",
    "Require ip 10 127.0",
    "Require local",
    "Require method GET",
    "Require host a.test",
    "Require expr %{QUERY_STRING} =~ /a=/",
    "Require expr \"%{REQUEST_METHOD} == 'GET' && %{REQUEST_URI} -strmatch '/s*'\"",
    "<RequireAll>\nRequire all granted\nRequire not ip 127.0.0.1\n</RequireAll>",
    "<RequireAll>\nRequire all granted\nRequire not env HTTP_Q\n</RequireAll>",
    "<RequireAny>\nRequire ip 10.0.0.1\nRequire method GET\n</RequireAny>",
    "<RequireAny>\n<RequireAll>\nRequire valid-user\nRequire method GET HEAD\n</RequireAll>\nRequire env HTTP_Q\n</RequireAny>",
    "Order allow,deny\nDeny from all",
    "Order allow,deny\nAllow from all",
    "Order deny,allow\nDeny from all\nAllow from 127.0.0.1",
    "Order deny,allow\nDeny from env=HTTP_Q",
    "Order allow,deny\nAllow from all\nDeny from env=HTTP_Q",
    "Order deny,allow\nDeny from all\nAllow from env=!HTTP_Q",
    "Deny from all\nSatisfy Any\nRequire valid-user",
    "Deny from all\nSatisfy All",
    "Order deny,allow\nDeny from 127.0.0.0/255.0.0.0",
    "Require env HTTP_Q",
    "<RequireAll>\n<RequireNone>\nRequire env HTTP_Q\n</RequireNone>\nRequire all granted\n</RequireAll>",
    "AuthType Basic\nAuthName \"some where\"\nAuthUserFile {at}/users\nRequire valid-user",
    "AuthType Basic\nAuthName x\nAuthUserFile {at}/users\nAuthGroupFile {at}/groups\nRequire group staff",
    "AuthType Basic\nAuthName x\nAuthUserFile {at}/users\nRequire user bob carol\nRequire ip 10.1.2.3",
    "AuthMerging And\nRequire valid-user",
];

/// Lines that may stand alone or in a section.
const SETTINGS: [&str; 62] = [
    "Header set X-A one",
    "Header append X-A two",
    "Header unset X-A",
    "Header always set X-B \"%{HTTP_Q}e\"",
    "Header always unset X-B",
    "Header always append X-B three",
    "Header set X-A yes env=HTTP_Q",
    "Header set X-A no env=!HTTP_Q",
    "Header set X-A \"expr=%{REQUEST_URI}-%{QUERY_STRING}\"",
    "Header set X-A here \"expr=%{REQUEST_STATUS} == 200\"",
    "Header edit X-A (o)(n) $2-$1",
    "Header edit* X-A [aeiou] *",
    "Header merge X-A one",
    "Header setifempty X-A new",
    "Header add X-A more",
    "Header onsuccess set X-B ok",
    "Header echo ^X-T$",
    "Header set Cache-Control \"max-age=60, public\"",
    "Header unset Cache-Control",
    "RequestHeader set X-T changed",
    "RequestHeader unset Cookie",
    "RequestHeader append X-T more",
    "RequestHeader edit Cookie c=(.) d=$1",
    "RequestHeader set X-T yes env=HTTP_Q",
    "ForceType text/x-f",
    "AddType text/x-a .txt",
    "AddType application/x-b js css",
    "RemoveType .css",
    "AddCharset utf-8 .txt .html",
    "AddDefaultCharset Off",
    "AddDefaultCharset utf-8",
    "AddLanguage de .de",
    "DefaultLanguage en",
    "AddEncoding x-gzip .gz",
    "RemoveEncoding .gz",
    "AddHandler cgi-script .cgi",
    "SetEnv HTTP_Q v",
    "SetEnv HTTP_R \"two words\"",
    "SetEnvIf X-T yes HTTP_Q=v",
    "SetEnvIf X-T ^(.)(.*) HTTP_Q=$2$1 HTTP_R",
    "SetEnvIfNoCase Request_URI \\.TXT$ HTTP_Q=vu",
    "SetEnvIf Request_URI ^/sub HTTP_Q=sub !HTTP_R",
    "SetEnvIf HTTP_Q ^v HTTP_R=chained",
    "SetEnvIf Cookie c= HTTP_Q=cookie",
    "SetEnvIf Request_Method POST !HTTP_Q",
    "SetEnvIf Remote_Addr ^127 HTTP_R=near",
    "SetEnvIfExpr \"%{QUERY_STRING} =~ /x=(\\d+)/\" HTTP_Q=$1",
    "BrowserMatch ^Mozilla HTTP_Q=browser",
    "BrowserMatchNoCase bot !HTTP_Q HTTP_R=bot",
    "UnsetEnv HTTP_Q",
    "ExpiresActive On\nExpiresByType text/css \"access plus 1 hour\"",
    "ExpiresActive On\nExpiresDefault \"access plus 10 minutes\"",
    "ExpiresActive On\nExpiresByType text/html A600\nExpiresDefault A30",
    "ExpiresActive Off",
    "ErrorDocument 404 /front.html",
    "ErrorDocument 403 \"no\"",
    "ErrorDocument 404 http://b.test/gone",
    "ErrorDocument 403 /sub/info.cgi?why=403",
    "ErrorDocument 404 default",
    "Options -Indexes",
    "Options +Indexes",
    "LimitRequestBody 100",
];

const REDIRECTS: [&str; 13] = [
    "Redirect 301 /old /sub/page.txt",
    "Redirect /old/ /other/",
    "RedirectMatch 302 ^/m/(.*)$ /$1",
    "Redirect gone /gone.txt",
    "RedirectMatch 410 \\.js$",
    "Redirect /seeother http://b.test/x",
    "RedirectPermanent /sub/deep /other",
    "RedirectTemp /q-abc http://b.test/y?z=1",
    "Redirect 403 /data.json",
    "Redirect 307 /missing /plain.txt",
    "RedirectMatch permanent \"^/([a-z]+)/$\" /$1.txt?from=$1",
    "RedirectMatch (.*)\\.bak$ /x$1#f",
    "Redirect seeother /sub /other/",
];

const PAGES: [&str; 11] = [
    "DirectoryIndex front.html index.html",
    "DirectoryIndex none.html",
    "DirectoryIndex disabled",
    "DirectoryIndex none /front.html",
    "DirectoryIndex info.cgi",
    "FallbackResource /front.html",
    "FallbackResource /info.cgi",
    "FallbackResource disabled",
    "DirectorySlash Off",
    "AcceptPathInfo Off",
    "AcceptPathInfo On",
];

const SECTIONS: [(&str, &str); 25] = [
    ("<Files plain.txt>", "</Files>"),
    ("<Files \"*.cgi\">", "</Files>"),
    ("<Files \"?????.*\">", "</Files>"),
    ("<Files ~ \"\\.(css|js)$\">", "</Files>"),
    ("<FilesMatch \"\\.(bak|css)$\">", "</FilesMatch>"),
    ("<FilesMatch \"^(?!index)\">", "</FilesMatch>"),
    ("<FilesMatch ^p>", "</FilesMatch>"),
    ("<FilesMatch \"^$\">", "</FilesMatch>"),
    ("<If \"%{REQUEST_URI} =~ m#^/sub/#\">", "</If>"),
    (
        "<If \"%{QUERY_STRING} == 'x=1' || -n req('X-T')\">",
        "</If>",
    ),
    (
        "<If \"%{REQUEST_FILENAME} =~ /page/ && !(%{QUERY_STRING} -in {'a=1', 'b'})\">",
        "</If>",
    ),
    ("<If \"-f %{REQUEST_FILENAME}\">", "</If>"),
    ("<If \"%{HTTP_COOKIE} =~ /c=abc/\">", "</If>"),
    ("<If \"true\">\n<Files *.txt>", "</Files>\n</If>"),
    (
        "<If \"%{QUERY_STRING} -eq 1 || tolower(%{REQUEST_URI}) == '/plain.txt'\">",
        "</If>",
    ),
    (
        "<If \"%{REQUEST_METHOD} == 'POST'\">\nSetEnv HTTP_Q post\n</If>\n<Else>",
        "</Else>",
    ),
    (
        "<If \"%{REQUEST_URI} == '/'\">\nHeader set X-A root\n</If>\n<ElseIf \"%{REQUEST_URI} -strmatch '*.txt'\">",
        "</ElseIf>",
    ),
    (
        "<If \"true\">\n<If \"%{REQUEST_URI} -strmatch '*.txt'\">",
        "</If>\nHeader append X-A outer\n</If>\n<If \"true\">\nHeader append X-A last\n</If>",
    ),
    ("<Limit POST>", "</Limit>"),
    ("<Limit GET>", "</Limit>"),
    ("<LimitExcept GET>", "</LimitExcept>"),
    ("<IfModule mod_rewrite.c>", "</IfModule>"),
    ("<IfModule !mod_authz_core.c>", "</IfModule>"),
    (
        "<IfModule headers_module>\n<Files *.css>",
        "</Files>\n</IfModule>",
    ),
    ("<IfVersion >= 2.4>", "</IfVersion>"),
];

const PATHS: [&str; 52] = [
    "/",
    "/index.html",
    "/plain.txt",
    "/plain",
    "/a%20b.txt",
    "/style.css",
    "/pic.png",
    "/x.js",
    "/secret.bak",
    "/page.html.gz",
    "/hello.de.html",
    "/sub",
    "/sub/",
    "/sub/page.txt",
    "/sub/page",
    "/sub/go",
    "/sub/deep/page.txt",
    "/sub/deep/",
    "/sub/deep",
    "/sub/index.html",
    "/noindex",
    "/noindex/",
    "/noindex/x.txt",
    "/missing",
    "/missing/deep",
    "/old",
    "/old/page.txt",
    "/m/a.gif",
    "/gone.txt",
    "/seeother/y",
    "/q-abc",
    "/plain.txt/extra",
    "/front.html/a/b",
    "/%2e%2e/etc",
    "/sub//page.txt",
    "//sub/page.txt",
    "/sub/../plain.txt",
    "/sub/./page.txt",
    "/data.json",
    "/info.cgi",
    "/info.cgi/p/i",
    "/info.cgi/p%2Bi",
    "/sub/info.cgi/x%20y",
    "/other/",
    "/p%C3%A9",
    "/a%3Fb",
    "/x%25y",
    "/a+b&c=d",
    "/sub/missing.txt",
    "/PLAIN.TXT",
    "/plain.txt%20",
    "/p/./q/../x;y=1",
];

const QUERIES: [&str; 14] = [
    "",
    "",
    "",
    "",
    "?a=1",
    "?x=1",
    "?x=12&y=%20",
    "?u=%C3%A9&a+b",
    "?",
    "?y=a%26b&x=7",
    "?a=1?b=2",
    "?1",
    "?y=%3Cb%3E",
    "?a=1&&b",
];

const FIELDS: [&str; 10] = [
    "",
    "",
    "",
    "X-T: yes\r\n",
    "Cookie: c=abc\r\n",
    "User-Agent: Mozilla/5.0\r\n",
    "User-Agent: a Bot\r\nX-T: no\r\n",
    "Authorization: Basic YW5uOnNlY3JldA==\r\n",
    "Authorization: Basic YW5uOndyb25n\r\n",
    "Authorization: Basic Ym9iOnNlY3JldA==\r\nX-T: yes\r\n",
];

fn one<'a>(random: &mut Rng, of: &[&'a str]) -> &'a str {
    of[random.usize(..of.len())]
}

fn rewriting(random: &mut Rng, text: &mut String) {
    text.push_str("RewriteEngine On\n");
    if random.u8(..5) == 0 {
        writeln!(text, "{}", one(random, &BASES)).unwrap();
    }
    if random.u8(..8) == 0 {
        writeln!(text, "{}", one(random, &REWRITE_OPTIONS)).unwrap();
    }
    for _ in 0..random.usize(1..=4) {
        for _ in 0..random.usize(..=2) {
            let (what, flags) = (one(random, &CONDITIONS), one(random, &CONDITION_FLAGS));
            writeln!(text, "RewriteCond {what}{flags}").unwrap();
        }
        let (pattern, target) = (one(random, &PATTERNS), one(random, &TARGETS));
        let flags = one(random, &RULE_FLAGS);
        writeln!(text, "RewriteRule \"{pattern}\" \"{target}\" {flags}").unwrap();
    }
}

/// The lines of a file, in which `{at}` stands for the directory of the files of users.
pub(crate) fn lines(random: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..random.usize(1..=4) {
        match random.u8(..12) {
            0..=4 => {
                rewriting(random, &mut text);
                continue;
            }
            5 => text.push_str(one(random, &ACCESS)),
            6 => {
                let (begin, end) = SECTIONS[random.usize(..SECTIONS.len())];
                let inner = match begin.starts_with("<Limit") || random.bool() {
                    true => one(random, &ACCESS),
                    false => one(random, &SETTINGS),
                };
                write!(text, "{begin}\n{inner}\n{end}").unwrap();
            }
            7 => text.push_str(one(random, &REDIRECTS)),
            8 => text.push_str(one(random, &PAGES)),
            _ => text.push_str(one(random, &SETTINGS)),
        }
        text.push('\n');
    }
    text
}

/// A request without its last fields.
pub(crate) fn request(random: &mut Rng) -> String {
    let path = one(random, &PATHS);
    let query = one(random, &QUERIES);
    // A file has no other method here.
    let method = match (path.contains("info.cgi"), random.u8(..10)) {
        (true, 0..=4) => "POST",
        (false, 0) => "HEAD",
        _ => "GET",
    };
    let field = one(random, &FIELDS);
    let body = match method {
        "POST" => "Content-Length: 0\r\n",
        _ => "",
    };
    format!("{method} {path}{query} HTTP/1.1\r\n{field}{body}")
}
