//! Prints what hostile files cost: to be read, and to be asked once; in milliseconds and in steps.
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::sync::Arc;
use std::time::Instant;

use htaccess::{
    AllowedOptions, Chain, ChainLevel, Civil, Ending, Explain, FileFacts, Overrides, Question,
    RequestFacts, Told, UserTold, Variables, compile, decide,
};

const RUNS: u32 = 20;

fn main() {
    for (name, text) in plain().into_iter().chain(costly()) {
        show(name, &text);
    }
}

/// So many lines, each with its number.
fn lines(count: usize, line: &str) -> String {
    let lines = (0..count).map(|at| line.replace("{}", &at.to_string()));
    format!("RewriteEngine On\n{}", lines.collect::<String>())
}

fn plain() -> Vec<(&'static str, String)> {
    let rules = lines(4_000, "RewriteRule ^old-{}/(.*)$ /new/$1 [R=301,L]\n");
    let patterns = lines(4_000, "RedirectMatch ^/old-{}/(.*)$ /new/$1\n");
    let words: Vec<String> = (0..600).map(|at| format!("{}word{at}", at % 97)).collect();
    let firewall = words.chunks(12).map(|some| {
        let words = some.join("|");
        format!("RewriteCond %{{QUERY_STRING}} (.*)({words})(.*) [NC,OR]\n")
    });
    let firewall = firewall.collect::<String>();
    vec![
        ("half written", format!("{rules}<Files x>\n")),
        ("4,000 rules", rules),
        ("4,000 redirects by pattern", patterns),
        (
            "4,000 redirects",
            lines(4_000, "Redirect 301 /old-{} /new\n"),
        ),
        (
            "4,000 addresses",
            "Deny from 10.1.2.3 10.2.3.0/24\n".repeat(4_000),
        ),
        (
            "1,360 sections",
            "<Files x>\nSetEnv a b\n</Files>\n".repeat(1_360),
        ),
        (
            "600 words in 50 conditions",
            format!("RewriteEngine On\n{firewall}RewriteCond a b\nRewriteRule ^ - [F]\n"),
        ),
    ]
}

fn costly() -> Vec<(&'static str, String)> {
    let conditions = |pattern: &str| {
        let condition = format!("RewriteCond %{{QUERY_STRING}} {pattern}\nRewriteRule ^ -\n");
        lines(2_000, &condition)
    };
    let hashes = ["sha1(%{HTTP:X})"; 400].join(".");
    let unset: String = (0..500).map(|at| format!(" n{at}")).collect();
    let names = lines(4_000, "Xq{} a\n");
    vec![
        ("(a|a)*b, looked for ahead", conditions("^(?=(a|a)*b)")),
        ("(a+)+ and back", conditions("^(a+)+\\1b")),
        ("(.*)(.*)(.*)(.*)x", conditions("(.*)(.*)(.*)(.*)x")),
        (
            "400 hashes of 8 KB",
            format!(
                "RewriteEngine On\nRewriteCond expr \"{hashes} == 'a'\"\nRewriteRule ^ - [F]\n"
            ),
        ),
        (
            "merged requirements",
            "<Files *>\nAuthMerging And\nRequire all granted\n</Files>\n".repeat(1_000),
        ),
        (
            "merged variables",
            format!("<Files *>\nUnsetEnv{unset}\n</Files>\n").repeat(60),
        ),
        (
            "32 <If>, 4,000 names",
            "<If true>\n".repeat(32) + &names + &"</If>\n".repeat(32),
        ),
    ]
}

fn show(name: &str, text: &str) {
    let all = Overrides::all();
    let begun = Instant::now();
    for _ in 0..RUNS {
        compile(text.as_bytes(), &all);
    }
    let read_ms = begun.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS);
    let program = Arc::new(compile(text.as_bytes(), &all));
    let directory = Arc::from(&b"/srv/"[..]);
    let Ok(chain) = Chain::new(vec![ChainLevel { directory, program }]) else {
        println!("{name:28} read {read_ms:7.3} ms, too large");
        return;
    };
    let begun = Instant::now();
    let mut last = None;
    for _ in 0..RUNS {
        last = Some(ask(&chain));
    }
    let asked_ms = begun.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS);
    let (spent, ending) = last.unwrap_or_default();
    println!("{name:28} read {read_ms:7.3} ms, asked {asked_ms:6.3} ms, {spent:7} steps: {ending}");
}

fn ask(chain: &Chain) -> (u64, String) {
    let variables = Variables::default();
    let (query, long) = ("a".repeat(2_000), "x".repeat(8_000));
    let fields = [(&b"Host"[..], &b"example.jp"[..]), (b"X", long.as_bytes())];
    let request = RequestFacts {
        method: b"GET",
        uri: b"/a",
        query: Some(query.as_bytes()),
        request_line: b"GET /a HTTP/1.1",
        protocol: "HTTP/1.1",
        fields: &fields,
        filename: b"/srv/a",
        is_directory: false,
        path_info: b"",
        root: b"/srv",
        context: None,
        is_tls: false,
        host: b"example.jp",
        own_hosts: &[],
        port: 80,
        listener_port: 80,
        client: [192, 0, 2, 7].into(),
        client_port: 1,
        peer: [192, 0, 2, 7].into(),
        server: [192, 0, 2, 1].into(),
        software: "Nagaya",
        admin: "",
        media_type: None,
        has_ended: false,
        is_translated: false,
        is_subrequest: false,
        decided: None,
        variables: &variables,
        options: AllowedOptions::ALL,
        now: Civil::default(),
        spent: 0,
    };
    let decision = decide(chain, &request, Explain::No).finish(|question| match question {
        Question::File(_) => Told::File(FileFacts::MISSING),
        Question::User { .. } => Told::User(UserTold::Nobody),
    });
    let ending = match &decision.ending {
        Ending::Status(stop) => format!("{} {}", stop.status, stop.reason),
        other => format!("{other:?}"),
    };
    (decision.spent, ending)
}
