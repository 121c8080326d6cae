//! Reading: includes, the files that keys name, and what happens when they cannot be read.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use config::model::Model;
use config::{Diagnostics, Sources, load};

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";

/// A directory of files, removed at the end.
struct Directory {
    path: PathBuf,
}

impl Directory {
    fn with(files: &[(&str, &str)]) -> Directory {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("nagaya-config-{}-{number}", std::process::id());
        let directory = Directory {
            path: std::env::temp_dir().join(name),
        };
        std::fs::create_dir_all(&directory.path).expect("a directory");
        files
            .iter()
            .for_each(|(name, text)| directory.write(name, text.as_bytes()));
        directory
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().expect("the test's own files"))
            .expect("the test's own files");
        std::fs::write(path, bytes).expect("the test's own files");
    }

    fn read(&self) -> Sources {
        Sources::read(&self.path.join("nagaya.toml")).expect("the test's own files")
    }

    fn problems(&self) -> Diagnostics {
        load(&self.read()).expect_err("broken")
    }

    /// The problems, each as `FILE:LINE message`.
    fn told(&self) -> Vec<String> {
        let told = |problem: &config::Problem| {
            let place = problem.place.as_ref().expect("the test's own files");
            let file = Path::new(&place.file);
            let file = file
                .strip_prefix(&self.path)
                .unwrap_or(file)
                .display()
                .to_string();
            let message = problem
                .message
                .replace(&format!("{}/", self.path.display()), "");
            format!("{file}:{} {message}", place.line)
        };
        self.problems().problems().iter().map(told).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).expect("the test's own files");
    }
}

fn site(host: &str) -> String {
    format!("[[sites]]\nhosts = [\"{host}\"]\nrules = [{{ handler = {{ redirect = \"/\" }} }}]\n")
}

fn first_hosts(sources: &Sources) -> Vec<String> {
    let model = load(sources).unwrap_or_else(|problems| panic!("{problems}"));
    model
        .sites
        .iter()
        .map(|site| format!("{:?}", site.hosts[0]))
        .collect()
}

#[test]
fn includes_are_relative_to_their_file_sorted_and_read_once() {
    let main = format!(
        "include = [\"sites.d/*.toml\", \"sites.d/a.toml\"]\n{LISTEN}{}",
        site("main")
    );
    let nested = format!(
        "include = [\"more/[xy]?.toml\", \"../nagaya.toml\"]\n{}",
        site("b")
    );
    let directory = Directory::with(&[
        ("nagaya.toml", &main),
        ("sites.d/b.toml", &nested),
        ("sites.d/a.toml", &site("a")),
        ("sites.d/.hidden.toml", "broken ="),
        ("sites.d/c.toml.old", "broken ="),
        ("sites.d/more/y1.toml", &site("y1")),
        ("sites.d/more/x1.toml", &site("x1")),
        ("sites.d/more/z1.toml", "broken ="),
    ]);
    let hosts = first_hosts(&directory.read());
    let expected = ["main", "a", "b", "x1", "y1"].map(|host| format!("Exact({host:?})"));
    assert_eq!(hosts, expected);
}

#[test]
fn a_glob_over_directories_finds_files_in_each() {
    let main = format!("include = [\"*/site.toml\"]\n{LISTEN}");
    let directory = Directory::with(&[
        ("nagaya.toml", &main),
        ("two/site.toml", &site("two")),
        ("one/site.toml", &site("one")),
        ("three/other.toml", "broken ="),
    ]);
    assert_eq!(
        first_hosts(&directory.read()),
        ["Exact(\"one\")", "Exact(\"two\")"]
    );
}

#[test]
fn nothing_matching_in_a_directory_is_fine() {
    let main = format!("include = [\"sites.d/*.toml\"]\n{LISTEN}{}", site("main"));
    let directory = Directory::with(&[("nagaya.toml", &main), ("sites.d/readme", "")]);
    assert_eq!(first_hosts(&directory.read()).len(), 1);
}

#[test]
fn an_include_that_cannot_be_read_is_a_problem_at_its_key() {
    let main = format!("{LISTEN}workerss = 2\n");
    let main = format!(
        "include = [\"none.toml\",\n\"none.d/*.toml\",\n\"latin.toml\", \"site[.toml\"]\n{main}"
    );
    let directory = Directory::with(&[("nagaya.toml", &main)]);
    directory.write("latin.toml", b"user = \"www\"\n# caf\xe9\n");
    let told = directory.told();
    let expected = [
        "nagaya.toml:1 cannot include `none.toml`: no such file or directory",
        "nagaya.toml:2 cannot include `none.d`: no such file or directory",
        "nagaya.toml:3 cannot include `latin.toml`: not UTF-8 on line 2",
        "nagaya.toml:3 cannot include `site[.toml`: the class begun by `[` has no `]`; a bracket itself is `[[]`",
        "nagaya.toml:6 unknown key `workerss` in `[[listen]]`",
    ];
    // That no site is left is not told: one may stand in what could not be read.
    assert_eq!(told, expected);
}

#[test]
fn a_host_in_two_files_names_both() {
    let main = format!("include = [\"sites.d/*.toml\"]\n{LISTEN}");
    let again = format!("\n{}", site("Example.JP."));
    let directory = Directory::with(&[
        ("nagaya.toml", &main),
        ("sites.d/a.toml", &site("example.jp")),
        ("sites.d/b.toml", &again),
    ]);
    let problems = directory.problems();
    assert_eq!(problems.count(), 1);
    let problem = &problems.problems()[0];
    let place = problem.place.as_ref().unwrap();
    let (_, first) = problem.other.as_ref().unwrap();
    assert!(
        place.file.ends_with("sites.d/b.toml") && place.line == 3,
        "{problems}"
    );
    assert!(
        first.file.ends_with("sites.d/a.toml") && first.line == 2,
        "{problems}"
    );
}

#[test]
fn a_key_of_the_process_in_two_files_names_both() {
    let main = format!(
        "include = [\"more.toml\"]\nworkers = 2\n{LISTEN}{}",
        site("a")
    );
    let directory = Directory::with(&[("nagaya.toml", &main), ("more.toml", "workers = 3\n")]);
    assert_eq!(
        directory.told(),
        ["more.toml:1 `workers` is set in two files"]
    );
    assert!(
        directory
            .problems()
            .to_string()
            .contains("set here as well")
    );
}

#[test]
fn files_and_directories_that_are_not_there_are_problems_at_their_keys() {
    let main = format!(
        "{LISTEN}[[sites]]\nhosts = [\"*\"]\nroot = \"www\"\nauth = {{ file = \"passwords\" }}\n\
         error_pages = {{ \"404\" = \"none.html\", \"500\" = \"pages\" }}\n\
         [[sites.rules]]\nauth = {{ file = \"nagaya.toml\" }}\n\
         [[sites]]\nhosts = [\"b\"]\nroot = \"nagaya.toml\"\n\
         [[sites]]\nhosts = [\"c\"]\nroot = \"htdoc\"\n"
    );
    let directory = Directory::with(&[("nagaya.toml", &main)]);
    std::fs::create_dir(directory.path.join("pages")).unwrap();
    std::fs::create_dir(directory.path.join("htdocs")).unwrap();
    let told = directory.told();
    for expected in [
        "nagaya.toml:5 directory `www`: no such file or directory",
        "nagaya.toml:6 cannot read `passwords`: no such file or directory",
        "nagaya.toml:7 cannot read `none.html`: no such file or directory",
        "nagaya.toml:7 an error page must be an `.html`, `.json`, `.svg` or `.txt` file",
        "nagaya.toml:9 password file `nagaya.toml:1`: no `:` between user and hash",
        "nagaya.toml:12 directory `nagaya.toml`: not a directory",
        "nagaya.toml:15 directory `htdoc`: no such file or directory; did you mean `htdocs`?",
    ] {
        assert!(
            told.iter().any(|problem| problem == expected),
            "{expected}\n{told:#?}"
        );
    }
}

#[test]
fn the_pages_of_limits_are_read_wherever_a_limit_may_stand() {
    let limit = |page: &str| format!("limits = [{{ concurrent = 2, page = \"{page}\" }}]\n");
    let main = [
        limit("top.html").as_str(),
        LISTEN,
        "[tenants.t]\n",
        &limit("tenant.txt"),
        "[upstreams.u]\nservers = [\"127.0.0.1:1\"]\n",
        &limit("upstream.json"),
        "[[sites]]\nhosts = [\"*\"]\ntenant = \"t\"\n",
        &limit("site.html"),
        "[[sites.rules]]\nhandler = { proxy = \"u\" }\n",
        &limit("rule.html"),
    ]
    .concat();
    let pages = [
        "top.html",
        "tenant.txt",
        "upstream.json",
        "site.html",
        "rule.html",
    ];
    let mut files = vec![("nagaya.toml", main.as_str())];
    files.extend(pages.map(|page| (page, page)));
    let directory = Directory::with(&files);
    let model = load(&directory.read()).unwrap();
    let site = &model.sites[0];
    let levels = [
        &model.limits,
        &model.tenants[0].limits,
        &model.upstreams[0].limits,
        &site.limits,
        &site.rules[0].limits,
    ];
    for (level, page) in levels.into_iter().zip(pages) {
        let read = level[0].page.as_ref().expect(page);
        assert_eq!(&*read.body, page.as_bytes());
    }
    std::fs::remove_file(directory.path.join("rule.html")).unwrap();
    let told = directory.told().join("\n");
    assert!(told.contains("cannot read `rule.html`"), "{told}");
}

/// A configuration in `conf` and its scripts beside it, at every place there is; one is a link.
fn scripted() -> Directory {
    let main = format!(
        "include = [\"conf/*.toml\"]\n{LISTEN}[scripts]\ninit = \"hooks/init.rb\"\n\
         access = [\"hooks/a.rb\", {{ file = \"hooks/b.rb\", cache = \"always\" }}]\n\
         [tenants.t]\nscripts = {{ log = \"hooks/tenant.rb\" }}\n"
    );
    let included = format!(
        "{}scripts = {{ rewrite = \"../hooks/site.rb\" }}\n\
         [[sites.rules]]\nscripts = {{ header_filter = \"rule.rb\" }}\n\
         handler = {{ proxy = {{ script = \"../hooks/set.rb\" }} }}\n\
         [[sites.rules]]\nhandler = {{ script = {{ file = \"../hooks/content.rb\" }} }}\n",
        "[[sites]]\nhosts = [\"*\"]\ntenant = \"t\"\n"
    );
    let hooks = ["init", "a", "tenant", "site", "set", "content", "real"];
    let hooks = hooks.map(|name| format!("hooks/{name}.rb"));
    let mut files = vec![
        ("nagaya.toml", main.as_str()),
        ("conf/site.toml", included.as_str()),
        ("conf/rule.rb", "conf/rule.rb"),
    ];
    files.extend(hooks.iter().map(|hook| (hook.as_str(), hook.as_str())));
    let directory = Directory::with(&files);
    let link = directory.path.join("hooks/b.rb");
    std::os::unix::fs::symlink("real.rb", link).expect("the test's own files");
    directory
}

#[test]
fn scripts_are_read_wherever_one_may_stand_and_known_by_all_their_names() {
    let directory = scripted();
    let bytes = directory.read().to_bytes();
    let model = load(&Sources::from_bytes(&bytes).unwrap()).unwrap();
    for script in model.all_scripts() {
        let config::model::Source::File(file) = &script.source else {
            panic!("{script:?}");
        };
        let text = std::fs::read(&file.path).unwrap();
        assert_eq!(file.text.as_deref(), Some(&*text), "{script:?}");
    }
    assert_eq!(model.all_scripts().count(), 8);
    let canonical = std::fs::canonicalize(&directory.path).unwrap();
    let files: Vec<_> = model.guarded.iter().map(|file| file.path.clone()).collect();
    assert!(model.guarded.iter().all(|file| file.identity.is_some()));
    assert!(
        files.contains(&canonical.join("hooks/real.rb")),
        "{files:?}"
    );
    for name in ["hooks/a.rb", "hooks/b.rb", "conf/rule.rb"] {
        assert!(files.contains(&directory.path.join(name)), "{files:?}");
    }
}

#[test]
fn every_file_below_a_library_is_read_and_guarded() {
    let main = format!("{LISTEN}[scripts]\nlib = \"lib\"\n{}", site("a.test"));
    let files = [
        ("nagaya.toml", main.as_str()),
        ("lib/b.rb", "B = 1"),
        ("lib/a/c.rb", "C = 1"),
        ("lib/a/text.txt", "no Ruby"),
    ];
    let directory = Directory::with(&files);
    let bytes = directory.read().to_bytes();
    let model = load(&Sources::from_bytes(&bytes).unwrap()).unwrap();
    let lib = directory.path.join("lib");
    let library = &model.scripts.lib[0];
    assert_eq!(library.directory, lib);
    let text = |name: &str| {
        let mut files = library.files.iter();
        let file = files.find(|file| file.path == lib.join(name));
        file.and_then(|file| file.text.as_deref())
    };
    assert_eq!(
        (text("b.rb"), text("a/c.rb")),
        (Some(&b"B = 1"[..]), Some(&b"C = 1"[..]))
    );
    assert_eq!(library.files.len(), 2);
    let guarded = |name: &str| model.guarded.iter().any(|file| file.path == lib.join(name));
    assert!(guarded("b.rb") && guarded("a/c.rb") && !guarded("a/text.txt"));
    std::os::unix::fs::symlink("/etc/passwd", lib.join("out.rb")).unwrap();
    let expected =
        "nagaya.toml:4 cannot read library `lib`: `lib/out.rb` is a link that leads out of it";
    assert_eq!(directory.told(), [expected]);
    let files = format!(
        "{LISTEN}[scripts]\ncache_files = [\"kept\"]\n{}",
        site("a.test")
    );
    directory.write("nagaya.toml", files.as_bytes());
    let expected = "nagaya.toml:4 no directory `kept`: no such file or directory";
    assert_eq!(directory.told(), [expected]);
    directory.write("nagaya.toml", main.as_bytes());
    std::fs::rename(&lib, directory.path.join("libs")).unwrap();
    let expected =
        "nagaya.toml:4 cannot read library `lib`: no such file or directory; did you mean `libs`?";
    assert_eq!(directory.told(), [expected]);
}

#[test]
fn a_script_that_cannot_be_read_is_a_problem_where_it_is_named() {
    let directory = scripted();
    let missing = [
        "hooks/init.rb",
        "hooks/b.rb",
        "hooks/set.rb",
        "conf/rule.rb",
    ];
    for name in missing {
        std::fs::remove_file(directory.path.join(name)).unwrap();
    }
    std::fs::create_dir(directory.path.join("hooks/b.rb")).unwrap();
    directory.write("hooks/a.rb", &vec![b'#'; (1 << 20) + 1]);
    directory.write("hooks/sets.rb", b"");
    let expected = [
        "nagaya.toml:5 cannot read script `hooks/init.rb`: no such file or directory",
        "nagaya.toml:6 `hooks/a.rb` is larger than 1MiB",
        "nagaya.toml:6 cannot read script `hooks/b.rb`: a directory, not a file",
        "conf/site.toml:6 cannot read script `conf/rule.rb`: no such file or directory",
        "conf/site.toml:7 cannot read script `hooks/set.rb`: no such file or directory; did you mean `sets.rb`?",
    ];
    assert_eq!(directory.told(), expected);
}

#[test]
fn files_of_maps_are_judged_where_they_are_named_and_by_who_reads_the_configuration() {
    let maps =
        "[maps.a]\nfile = \"gone.txt\"\n[maps.b]\nfile = \".\"\n[maps.c]\nfile = \"c.txt\"\n";
    let main = format!("{LISTEN}{}{maps}", site("a"));
    let directory = Directory::with(&[("nagaya.toml", &main)]);
    directory.write("c.txt", b"# x\na 1\nb\n c\nd \t\n\ne 2");
    let told = directory.told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("gone.txt`: no such file"), "{told:?}");
    assert!(told[1].contains("a directory, not a file"), "{told:?}");
    directory.write("gone.txt", b"");
    directory.write(
        "nagaya.toml",
        main.replace("\".\"", "\"gone.txt\"").as_bytes(),
    );
    let sources = directory.read();
    let (_, warnings) = config::load_and_warn(&sources).unwrap();
    let warnings = warnings.to_string();
    let expected = "c.txt:3`: a key without a value, and 1 more of these";
    assert!(warnings.contains(expected), "{warnings}");
    // Another process reads the files for itself.
    std::fs::remove_file(directory.path.join("c.txt")).unwrap();
    let elsewhere = Sources::from_bytes(&sources.to_bytes()).unwrap();
    assert!(load(&elsewhere).is_ok());
}

#[test]
fn a_script_compiled_for_every_request_need_not_be_there_yet() {
    let script = "{ file = \"later.rb\", cache = \"never\" }";
    let main = format!("{LISTEN}{}scripts = {{ access = {script} }}\n", site("a"));
    let main = main.replace("rules = ", "root = \".\"\nrules = ");
    let directory = Directory::with(&[("nagaya.toml", &main)]);
    let model = load(&directory.read()).unwrap();
    let [later] = &model.guarded[..] else {
        panic!("{:?}", model.guarded);
    };
    assert_eq!(later.path, directory.path.join("later.rb"));
    assert_eq!(later.identity, None);
}

#[test]
fn logs_and_sockets_need_their_directory() {
    let main = "control = { socket = \"run/control\" }\n\
         [log]\naccess = \"logs/$host.log\"\n\
         [[listen]]\naddress = \"unix:/nonexistent/socket\"\n\
         [[sites]]\nhosts = [\"*\"]\nroot = \".\"\nlog = { access = \"nagaya.toml/x\" }\n";
    let directory = Directory::with(&[("nagaya.toml", main)]);
    let none = "no such file or directory";
    assert_eq!(
        directory.told(),
        [
            format!("nagaya.toml:1 directory `run`: {none}"),
            format!("nagaya.toml:3 directory `logs`: {none}"),
            format!("nagaya.toml:5 directory `/nonexistent`: {none}"),
            "nagaya.toml:9 directory `nagaya.toml`: not a directory".to_owned(),
        ]
    );
    let told = directory.problems().to_string();
    assert!(told.contains("help: create it"), "{told}");
}

#[test]
fn logs_and_sockets_may_be_made_where_their_directory_is() {
    let site = "[[sites]]\nhosts = [\"*\"]\nroot = \".\"\n";
    for written in [
        format!(
            "{LISTEN}[control]\nsocket = \"run/control\"\n[log]\naccess = \"run/$site.log\"\n{site}"
        ),
        format!(
            "{LISTEN}[control]\nsocket = \"control\"\n[log]\naccess = \"./run/../access.log\"\n{site}"
        ),
        format!("{LISTEN}[log]\naccess = \"/var/$host/access.log\"\n{site}"),
        format!("{LISTEN}[log]\naccess = \"/dev/stdout\"\n{site}log = {{ access = \"-\" }}\n"),
        format!(
            "[[listen]]\naddress = \"unix:/tmp/nagaya.sock\"\n{site}log = {{ access = \"\" }}\n"
        ),
    ] {
        let directory = Directory::with(&[("nagaya.toml", &written), ("run/x", "")]);
        if let Err(problems) = load(&directory.read()) {
            panic!("{written}\n{problems}");
        }
    }
}

#[test]
fn a_user_nobody_knows_is_a_problem_where_it_is_named() {
    let rest = format!("{LISTEN}{}", site("a"));
    let named = Directory::with(&[("nagaya.toml", &format!("user = \"alice\"\n{rest}"))]);
    let unnamed = Directory::with(&[("nagaya.toml", &rest)]);
    let told = |directory: &Directory| {
        let mut sources = directory.read();
        assert!(load(&sources).is_ok(), "nobody was asked yet");
        sources.look_up_users(|_| Ok(()));
        assert!(load(&sources).is_ok());
        sources.look_up_users(|_| Err("no such user".to_owned()));
        load(&sources).expect_err("no such user").to_string()
    };
    let cannot = |name| format!("the server cannot become user `{name}`: no such user");
    assert!(told(&named).contains(&cannot("alice")) && told(&named).contains("nagaya.toml:1:8"));
    assert!(told(&unnamed).contains(&cannot("nobody")));
}

/// A site of `user` with one rule, read from a file, and the users `known` looked up.
fn with_program(user: &str, handler: &str, known: &[&str]) -> Result<Model, Diagnostics> {
    let site = format!("[[sites]]\nhosts = [\"a.jp\"]\nroot = \".\"\n{user}\n");
    let text = format!("{LISTEN}{site}[[sites.rules]]\nhandler = {handler}\n");
    let mut sources = Directory::with(&[("nagaya.toml", &text)]).read();
    sources.look_up_users(|name| match known.contains(&name) {
        true => Ok(()),
        false => Err("no such user".to_owned()),
    });
    load(&sources)
}

#[test]
fn a_root_that_is_misspelt_is_told_and_not_that_there_is_none() {
    let text = format!("{LISTEN}[[sites]]\nhosts = [\"a.jp\"]\nrot = \".\"\n");
    let sources = Directory::with(&[("nagaya.toml", &text)]).read();
    let told = load(&sources).expect_err("no such key").to_string();
    assert!(
        told.contains("`root`") && !told.contains("neither"),
        "{told}"
    );
}

#[test]
fn the_user_of_an_alerts_program_is_looked_up() {
    let alert = "[recorder]\ndirectory = \".\"\n[[alerts]]\nfigure = \"load1\"\nabove = 1\nrun = [\"./page\"]\nuser = \"nosuch\"\n";
    let text = format!("{LISTEN}{}{alert}", site("a"));
    let mut sources = Directory::with(&[("nagaya.toml", &text)]).read();
    sources.look_up_users(|name| match name {
        "nosuch" => Err("no such user".to_owned()),
        _ => Ok(()),
    });
    let told = load(&sources).expect_err("no such user").to_string();
    let expected = "programs cannot run as user `nosuch`: no such user";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn programs_run_as_the_sites_user_or_as_the_servers() {
    let known = ["alice", "nobody"];
    for (user, expected) in [("user = \"alice\"", "alice"), ("", "nobody")] {
        let model = with_program(user, "{ cgi = true }", &known).expect("both are known");
        assert_eq!(model.sites[0].user, expected);
    }
}

#[test]
fn a_sites_user_that_is_not_there_matters_only_where_programs_run() {
    let with = |handler| with_program("user = \"bob\"", handler, &["nobody"]);
    assert!(with("{ static = true }").is_ok());
    assert!(with("{ fastcgi = \"127.0.0.1:9000\" }").is_ok());
    let told = with("{ cgi = true }").expect_err("no bob").to_string();
    let expected = "programs cannot run as user `bob`: no such user";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn the_servers_user_is_looked_up_beside_those_of_sites() {
    let told = with_program("user = \"alice\"", "{ cgi = true }", &["alice"]);
    let told = told.expect_err("no nobody").to_string();
    let expected = "the server cannot become user `nobody`";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_directory_beside_the_configuration_is_found() {
    let main = format!(
        "{LISTEN}[[sites]]\nhosts = [\"*\"]\nroot = \"./deep/../www/html\"\nwithin = \"www\"\n"
    );
    let directory = Directory::with(&[("nagaya.toml", &main), ("www/html/index.html", "")]);
    let model = load(&directory.read()).unwrap();
    let root = model.sites[0].root.clone().unwrap();
    assert_eq!(root.path, directory.path.join("www/html"));
    assert_eq!(root.within, directory.path.join("www"));
}

#[test]
fn sources_stand_for_the_files_in_another_process() {
    let main = format!(
        "include = [\"sites.d/*.toml\"]\n{LISTEN}[[sites]]\nhosts = [\"*\"]\nroot = \".\"\n\
         auth = {{ file = \"passwords\" }}\nerror_pages = {{ \"404\" = \"404.html\" }}\n"
    );
    let directory = Directory::with(&[
        ("nagaya.toml", &main),
        ("sites.d/a.toml", &site("a")),
        (
            "passwords",
            "alice:$apr1$abcdefgh$0123456789abcdefghijkl\n# a comment\n\nbob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n",
        ),
        ("404.html", "<h1>gone</h1>"),
    ]);
    let sources = directory.read();
    let bytes = sources.to_bytes();
    let path = directory.path.clone();
    drop(directory);
    let model = load(&Sources::from_bytes(&bytes).unwrap()).unwrap();
    assert_eq!(model, load(&sources).unwrap());
    assert_eq!(&*model.sites[0].error_pages[&404].body, b"<h1>gone</h1>");
    let auth = model.sites[0].settings.auth.clone().unwrap();
    assert_eq!(auth.users.keys().collect::<Vec<_>>(), ["alice", "bob"]);
    assert_eq!(auth.file, path.join("passwords"));
    assert!(Sources::from_bytes(&[&bytes[..], b"x"].concat()).is_err());
}

#[test]
fn a_missing_configuration_says_so() {
    let problems = Sources::read(Path::new("/nowhere/nagaya.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        problems.contains("cannot read `/nowhere/nagaya.toml`: no such file or directory"),
        "{problems}"
    );
}

/// Ten thousand sites in a hundred files. Prints what it took; how long is no matter of right and wrong.
#[test]
fn ten_thousand_sites_load() {
    const FILES: usize = 100;
    const SITES: usize = 100 * FILES;
    let site = |number: usize| {
        format!(
            "[[sites]]\nhosts = [\"site{number}.example.jp\", \"www.site{number}.example.jp\"]\nroot = \".\"\n\
             [[sites.rules]]\nmatch = {{ path = \"/api/*\" }}\nhandler = {{ proxy = \"http://127.0.0.1:9000\" }}\n"
        )
    };
    let main = format!("include = [\"sites.d/*.toml\"]\n{LISTEN}");
    let directory = Directory::with(&[("nagaya.toml", &main)]);
    for file in 0..FILES {
        let sites = file * SITES / FILES..(file + 1) * SITES / FILES;
        let text: String = sites.map(site).collect();
        directory.write(&format!("sites.d/{file:03}.toml"), text.as_bytes());
    }
    let start = Instant::now();
    let sources = directory.read();
    let read = start.elapsed();
    let before = resident_kib();
    let start = Instant::now();
    let model = load(&sources).unwrap();
    let loaded = start.elapsed();
    assert_eq!(model.sites.len(), SITES);
    assert_eq!(model.upstreams.len(), 1);
    println!(
        "{SITES} sites: read {read:?}, load {loaded:?}, resident {} KiB more",
        resident_kib().saturating_sub(before)
    );
}

fn resident_kib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4
}

#[test]
fn the_control_socket_is_known_whatever_else_is_wrong() {
    let control = "[control]\nsocket = \"run/control\"\n";
    let site = "[[sites]]\nhosts = [\"a\"]\nroot = \"/nonexistent\"\nworkers = [[[\n";
    for files in [
        vec![("nagaya.toml", format!("{control}{site}"))],
        vec![
            ("nagaya.toml", format!("include = [\"b.toml\"]\n{site}")),
            ("b.toml", control.to_owned()),
        ],
    ] {
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, &**text)).collect();
        let directory = Directory::with(&files);
        let sources = directory.read();
        assert!(load(&sources).is_err());
        let expected = directory.path.join("run/control");
        assert_eq!(sources.control_socket(), Some(expected));
    }
    let without = Directory::with(&[("nagaya.toml", "[control]\nsocket = \"\"\n")]);
    assert_eq!(without.read().control_socket(), None);
}

#[test]
fn a_socket_of_php_is_the_same_by_whatever_links_it_is_named() {
    let directory = Directory::with(&[]);
    let at = |name: &str| directory.path.join(name).display().to_string();
    directory.write("run/php8.sock", b"");
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, directory.path.join(name)).expect("the test's own files");
    };
    link("run", "var-run");
    link("php8.sock", "run/php.sock");
    for (one, other, count) in [
        ("run/php8.sock", "run/php.sock", 1),
        ("run/php.sock", "var-run/php8.sock", 1),
        ("run/not-yet.sock", "var-run/not-yet.sock", 1),
        ("run/php8.sock", "run/not-yet.sock", 0),
    ] {
        let (root, one, other) = (at("run"), at(one), at(other));
        let text = format!(
            "{LISTEN}[upstreams.php]\nprotocol = \"fastcgi\"\nservers = [\"unix:{one}\"]\n\
             [[sites]]\nhosts = [\"a.jp\"]\nroot = \"{root}\"\nenv = {{ PHP_VALUE = \"a=b\" }}\n\
             rules = [{{ handler = {{ fastcgi = \"php\" }} }}]\n\
             [[sites]]\nhosts = [\"b.jp\"]\nroot = \"{root}\"\n\
             rules = [{{ handler = {{ fastcgi = {{ address = \"unix:{other}\" }} }} }}]\n"
        );
        directory.write("nagaya.toml", text.as_bytes());
        let sources = directory.read();
        let found = load(&sources).map_or_else(|problems| problems.count(), |_| 0);
        assert_eq!(found, count, "{one} {other}");
        let packed = Sources::from_bytes(&sources.to_bytes()).expect("whole bytes");
        assert_eq!(load(&packed).is_err(), count > 0, "another process agrees");
    }
}

#[test]
fn a_file_of_denied_clients_is_looked_at_beforehand() {
    let deny = |file: &str| format!("deny = [\"10.0.0.1\", {{ file = \"{file}\" }}]\n");
    let main = format!(
        "{LISTEN}[[sites]]\nhosts = [\"*\"]\nroot = \".\"\n{}[[sites.rules]]\n{}[[sites.rules]]\n{}",
        deny("denied"),
        deny("denied"),
        "deny = { file = \"wrong\" }\n"
    );
    let files = [
        ("nagaya.toml", &*main),
        ("denied", "# nobody\n"),
        ("wrong", "10.0.0.0/8\n10.0.0.1/8\nx\n"),
    ];
    let directory = Directory::with(&files);
    let (model, warnings) = config::load_and_warn(&directory.read()).unwrap();
    assert_eq!(
        model.denied,
        ["denied", "wrong"].map(|it| directory.path.join(it))
    );
    assert_eq!(model.sites[0].settings.deny_files, [0]);
    let rule = |at: usize| &model.sites[0].rules[at].settings;
    assert_eq!(
        (&*rule(0).deny_files, &*rule(1).deny_files),
        (&[0][..], &[1][..])
    );
    let warned = warnings.to_string();
    let (wrong, told) = (
        directory.path.join("wrong"),
        "no address or network; lines like it: 2",
    );
    assert!(
        warned.contains(&format!("`{}:2`: {told}", wrong.display())),
        "{warned}"
    );
    std::fs::remove_file(directory.path.join("denied")).unwrap();
    // Who runs has what it said.
    let (_, warnings) = config::load_and_warn(&directory.read()).unwrap();
    let told = "cannot read the clients of";
    assert!(warnings.to_string().contains(told), "{warnings}");
}
