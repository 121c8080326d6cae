//! Files that refuse what looks like an attack, as security plugins write them: lists of hundreds of
//! words, which every request is held against.
//!
//! The words are of our own choice; the kinds of lines are those that such files have.

use htaccess::STEPS_MAX;

use crate::site::{Asked, Site, get};

/// Words of attacks on queries.
const QUERY: [&str; 48] = [
    "etc/(passwd|shadow|hosts)",
    "proc/self",
    "boot\\.ini",
    "win\\.ini",
    "base64_(en|de)code",
    "eval\\(",
    "gzinflate",
    "str_rot13",
    "shell_exec",
    "passthru",
    "proc_open",
    "popen",
    "phpinfo",
    "assert\\(",
    "create_function",
    "call_user_func",
    "file_get_contents",
    "fopen",
    "curl_exec",
    "allow_url_include",
    "auto_prepend_file",
    "open_basedir",
    "disable_functions",
    "php://(input|filter)",
    "expect://",
    "data:text",
    "javascript:",
    "vbscript:",
    "onload=",
    "onerror=",
    "document\\.cookie",
    "<script",
    "%3Cscript",
    "iframe",
    "union(\\+|%20|\\s)+(all(\\+|%20|\\s)+)?select",
    "information_schema",
    "load_file",
    "into(\\+|%20|\\s)+outfile",
    "benchmark\\(",
    "sleep\\(",
    "waitfor(\\+|%20)delay",
    "xp_cmdshell",
    "drop(\\+|%20)table",
    "concat\\(",
    "char\\(",
    "\\.\\./\\.\\./",
    "%2e%2e%2f",
    "%00",
];

/// Names that scanners look for.
const PATHS: [&str; 40] = [
    "\\.git",
    "\\.svn",
    "\\.hg",
    "\\.env",
    "\\.bash_history",
    "\\.ssh",
    "\\.aws",
    "\\.idea",
    "composer\\.(json|lock)",
    "package\\.json",
    "wp-config\\.(bak|old|orig|save|txt)",
    "dump\\.sql",
    "backup\\.(zip|tar|tgz|sql)",
    "adminer",
    "phpmyadmin",
    "pma",
    "mysqladmin",
    "c99",
    "r57",
    "wso",
    "b374k",
    "alfa",
    "shell",
    "cmd",
    "uploader",
    "fileman",
    "timthumb",
    "thumb\\.php",
    "xmlrpc_x",
    "cgi-bin/test",
    "server-status",
    "jmx-console",
    "manager/html",
    "solr/admin",
    "actuator",
    "console",
    "hudson",
    "jenkins",
    "vendor/phpunit",
    "owa/auth",
];

/// Beginnings of the names of clients that nobody wants.
const CLIENTS: [&str; 60] = [
    "acunetix",
    "ahrefz",
    "alligator",
    "asterias",
    "backdoor",
    "bandit",
    "binlar",
    "blackwidow",
    "blekko",
    "blowfish",
    "bullseye",
    "casper",
    "checkprivacy",
    "chinaclaw",
    "clshttp",
    "cmsworldmap",
    "comodo",
    "copier",
    "craftbot",
    "cosmos",
    "custo",
    "diavol",
    "disco",
    "dotbot",
    "ecatch",
    "eirgrabber",
    "emailsiphon",
    "extractor",
    "feedfinder",
    "flaming",
    "flashget",
    "flicky",
    "foobot",
    "getright",
    "grabnet",
    "grafula",
    "harvest",
    "heritrix",
    "hmview",
    "httrack",
    "icarus6",
    "jakarta",
    "jetcar",
    "kmccrew",
    "larbin",
    "leechftp",
    "libwhisker",
    "masscan",
    "miner",
    "morfeus",
    "netmechanic",
    "nikto",
    "nutch",
    "octopus",
    "pavuk",
    "sqlmap",
    "sucker",
    "webbandit",
    "zermelo",
    "zmeu",
];

fn firewall() -> String {
    let conditions = |of: &str, words: &[&str]| {
        let lists = words.chunks(6).map(|some| some.join("|"));
        let lines = lists.map(|list| format!("RewriteCond %{{{of}}} ({list}) [NC,OR]\n"));
        lines.collect::<String>()
    };
    let mut text = "RewriteEngine On\n".to_owned();
    text += &conditions("QUERY_STRING", &QUERY);
    text += "RewriteCond %{QUERY_STRING} ([a-z0-9]{2000,}) [NC,OR]\n\
             RewriteCond %{QUERY_STRING} (globals|request)(=|\\[|%[a-z0-9]{0,2}) [NC,OR]\n\
             RewriteCond %{QUERY_STRING} (<|%3C)([^s]*s)+cript.*(>|%3E) [NC,OR]\n\
             RewriteCond %{QUERY_STRING} (.*)(localhost|loopback|127\\.0\\.0\\.1)(.*) [NC,OR]\n\
             RewriteCond %{QUERY_STRING} (^.*(:;|\\$_|\\*\\*).*$) [NC]\nRewriteRule .* - [F]\n";
    text += &conditions("REQUEST_URI", &PATHS);
    text += "RewriteCond %{REQUEST_URI} (/)(\\*|~|@|\\^|`|\\||\\{|\\}) [NC,OR]\n\
             RewriteCond %{REQUEST_URI} (.*)(\\.)(bak|inc|old|orig|psd|save|sql|swp)(/|$) [NC,OR]\n\
             RewriteCond %{REQUEST_URI} ([a-z0-9]{2000,}) [NC]\nRewriteRule .* - [F]\n";
    text += &conditions("HTTP_USER_AGENT", &CLIENTS);
    text += "RewriteCond %{HTTP_USER_AGENT} ([a-z0-9]{2000,}) [NC,OR]\n\
             RewriteCond %{HTTP_USER_AGENT} (&lt;|%0a|%0d|%27|%3c|%3e|%00|0x00) [NC]\n\
             RewriteRule .* - [F]\n";
    let referers: Vec<String> = (0..80)
        .map(|at| format!("cheap-{at}-shop\\.example"))
        .collect();
    let referers: Vec<&str> = referers.iter().map(String::as_str).collect();
    text += &conditions("HTTP_REFERER", &referers);
    text += "RewriteCond %{HTTP_REFERER} (semalt|buttons-for)(.*)(website|com) [NC]\nRewriteRule .* - [F]\n\
             RewriteCond %{REQUEST_METHOD} ^(connect|debug|move|trace|track) [NC]\nRewriteRule .* - [F]\n\
             RewriteRule ^index\\.php$ - [L]\n\
             RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n\
             RewriteRule . /index.php [L]\n";
    text
}

fn visit(site: &Site, target: &str) -> Asked {
    let get = get(target)
        .with("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36")
        .with("Referer", "https://www.search.example/results?q=a+shop+with+shoes+and+a+very+long+question");
    site.asked(&get, None)
}

#[test]
fn good_requests_pass_hundreds_of_words_from_the_first_on() {
    let site = Site::new(&firewall()).files(&["index.php", "style.css"]);
    assert_eq!(site.problems(), []);
    let mut query = String::new();
    while query.len() < 600 {
        let at = query.len();
        query += &format!("utm_source=newsletter{at}&colour=dark+blue&size=42%2C5&sort=price&");
    }
    let mut spent = Vec::new();
    for (target, found) in [
        (format!("/shop/shoes?{query}"), "-> /index.php?"),
        (format!("/style.css?{query}"), "200"),
        ("/".to_owned(), "200"),
        ("/a/b/c/d?page=2".to_owned(), "-> /index.php?page=2"),
        (
            format!("/search?q={}", "ab".repeat(300)),
            "-> /index.php?q=",
        ),
        (
            format!("/search?q={}", "selects%20".repeat(60)),
            "-> /index.php?q=",
        ),
        (
            format!("/search?s={}", "ssss".repeat(150)),
            "-> /index.php?s=",
        ),
    ] {
        let asked = visit(&site, &target);
        let short = asked.short();
        assert!(short.starts_with(found), "{target}: {short}");
        spent.push(asked.spent);
    }
    // Three paths of one request: what was asked for, where it leads, and a page of its own.
    let most = spent.iter().max().expect("some");
    assert!(*most < STEPS_MAX / 3, "{spent:?}");
}

#[test]
fn bad_requests_are_refused() {
    let site = Site::new(&firewall()).files(&["index.php"]);
    for target in [
        "/?x=base64_decode(1)",
        "/?file=../../../etc/passwd",
        "/?a=1%20UNION%20ALL%20SELECT%202",
        "/?x=%3CScRipt%3E",
        "/?host=LOCALHOST",
        "/?GLOBALS[a]=1",
        "/.git/config",
        "/old/wp-config.bak",
        "/x/dump.sql/",
        "/a/~",
        &format!("/?{}", "a1".repeat(1_000)),
    ] {
        assert_eq!(visit(&site, target).short(), "403", "{target}");
    }
    let scan = get("/").with("User-Agent", "SQLmap/1.0");
    assert_eq!(site.asked(&scan, None).short(), "403");
    let spam = get("/").with("Referer", "http://cheap-79-shop.example/");
    assert_eq!(site.asked(&spam, None).short(), "403");
}
