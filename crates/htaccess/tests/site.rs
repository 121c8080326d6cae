//! A site in memory: its `.htaccess` files, the files beside them, and requests to it.

use std::sync::Arc;

use htaccess::settings::Settings;
use htaccess::{
    AllowedOptions, Chain, ChainLevel, Civil, Decision, Ending, Explain, FileFacts, FileKind,
    Overrides, Problem, Question, ReplyTables, RequestFacts, SectionContext, Told, UserTold,
    Variables, compile, compile_section, decide, edit_reply, edit_request,
};

/// The root of every site here.
pub(crate) const ROOT: &str = "/srv/site";

/// A site.
pub(crate) struct Site {
    htaccess: Vec<(String, String)>,
    /// What the virtual host says.
    server: Option<String>,
    files: Vec<String>,
    overrides: Overrides,
    options: AllowedOptions,
}

/// A request.
#[derive(Clone)]
pub(crate) struct Get<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) fields: Vec<(&'a str, &'a str)>,
    pub(crate) is_tls: bool,
    pub(crate) client: &'a str,
    pub(crate) variables: Variables,
    pub(crate) has_ended: bool,
    /// Steps that were taken before.
    pub(crate) spent: u64,
    pub(crate) is_translated: bool,
    pub(crate) is_page: bool,
    /// The target of the request line, where this one is not.
    pub(crate) first: Option<&'a str>,
}

/// A GET of a target.
pub(crate) fn get(target: &str) -> Get<'_> {
    Get {
        method: "GET",
        target,
        fields: vec![("Host", "example.jp")],
        is_tls: false,
        client: "192.0.2.7",
        variables: Variables::default(),
        has_ended: false,
        spent: 0,
        is_translated: false,
        is_page: false,
        first: None,
    }
}

impl<'a> Get<'a> {
    pub(crate) fn with(mut self, name: &'a str, value: &'a str) -> Self {
        self.fields.push((name, value));
        self
    }

    pub(crate) fn from(mut self, client: &'a str) -> Self {
        self.client = client;
        self
    }

    pub(crate) fn by(mut self, method: &'a str) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn over_tls(mut self) -> Self {
        self.is_tls = true;
        self
    }
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ending: Ending,
    pub(crate) query: Option<String>,
    pub(crate) variables: Variables,
    pub(crate) vary: Vec<String>,
    pub(crate) cookies: Vec<String>,
    pub(crate) settings: Settings,
    pub(crate) has_ended: bool,
    pub(crate) server_env: Vec<String>,
    pub(crate) spent: u64,
    pub(crate) is_translated: bool,
    pub(crate) reply: Option<ReplyTables>,
    pub(crate) trace: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) questions: Vec<Question>,
    pub(crate) request_fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Asked {
    /// `200`, `301 http://…`, `-> /index.php?x`.
    pub(crate) fn short(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let query = self
            .query
            .as_ref()
            .map_or_else(String::new, |query| format!("?{query}"));
        match &self.ending {
            Ending::GoOn => "200".to_owned(),
            Ending::Rewritten(path) => format!("-> {}{query}", text(path)),
            Ending::Redirect { status, location } => format!("{status} {}", text(location)),
            Ending::Status(stop) => stop.status.to_string(),
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let value = self.variables.get(name.as_bytes())?;
        Some(String::from_utf8_lossy(value).into_owned())
    }
}

impl Site {
    /// A site with this file in its root.
    pub(crate) fn new(text: &str) -> Self {
        Self {
            htaccess: vec![(format!("{ROOT}/"), text.to_owned())],
            server: None,
            files: Vec::new(),
            overrides: Overrides::all(),
            options: AllowedOptions::of_word(b"FollowSymLinks").expect("there is this option"),
        }
    }

    pub(crate) fn below(mut self, directory: &str, text: &str) -> Self {
        self.htaccess
            .push((format!("{ROOT}/{directory}/"), text.to_owned()));
        self.files.push(format!("{directory}/"));
        self
    }

    /// With these lines in the virtual host.
    pub(crate) fn of_server(mut self, text: &str) -> Self {
        self.server = Some(text.to_owned());
        self
    }

    /// Files, and directories with a slash at their end.
    pub(crate) fn files(mut self, files: &[&str]) -> Self {
        self.files
            .extend(files.iter().map(|file| (*file).to_owned()));
        self
    }

    pub(crate) fn overrides(mut self, words: &[&str]) -> Self {
        let unknown = htaccess::overrides::Unknown::Log;
        self.overrides = Overrides::new(words.iter().copied(), unknown).expect("words are known");
        self
    }

    pub(crate) fn options(mut self, options: AllowedOptions) -> Self {
        self.options = options;
        self
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        let files = self.htaccess.iter();
        let compiled = files.map(|(_, text)| compile(text.as_bytes(), &self.overrides));
        compiled.flat_map(|program| program.problems).collect()
    }

    fn facts(&self, path: &str) -> FileFacts {
        let kind = match path.strip_prefix(ROOT).map(|path| path.trim_matches('/')) {
            None => FileKind::Missing,
            Some("") => FileKind::Directory,
            Some(path) => {
                let below = format!("{path}/");
                let is_directory = self.files.iter().any(|file| file.starts_with(&below));
                match self.files.iter().any(|file| file == path) {
                    true => FileKind::Regular,
                    false if is_directory => FileKind::Directory,
                    false => FileKind::Missing,
                }
            }
        };
        FileFacts {
            kind,
            is_link: path.ends_with("-link"),
            bytes: if path.contains("empty") { 0 } else { 10 },
            is_executable: path.contains("cgi-bin"),
        }
    }

    /// The file that a path means, and what follows it.
    fn resolve(&self, path: &str) -> (String, String) {
        let mut filename = ROOT.to_owned();
        let mut parts = path.split('/').skip(1);
        for part in parts.by_ref() {
            filename = format!("{filename}/{part}");
            let is_there = self.facts(&filename).kind == FileKind::Directory;
            if !is_there && !part.is_empty() {
                break;
            }
        }
        let rest: Vec<&str> = parts.collect();
        let rest = rest.iter().map(|part| format!("/{part}")).collect();
        (filename, rest)
    }

    pub(crate) fn ask(&self, target: &str) -> Asked {
        self.asked(&get(target), None)
    }

    pub(crate) fn short(&self, target: &str) -> String {
        self.ask(target).short()
    }

    /// What comes of it in the end, with each new path in between.
    pub(crate) fn followed(&self, target: &str) -> String {
        let mut get = get(target);
        get.first = Some(target);
        let mut target = target.to_owned();
        for _ in 0..htaccess::REDIRECTS_MAX {
            let asked = self.asked(
                &Get {
                    target: &target,
                    ..get.clone()
                },
                None,
            );
            let Ending::Rewritten(path) = &asked.ending else {
                let query = asked
                    .query
                    .as_ref()
                    .map_or_else(String::new, |it| format!("?{it}"));
                let path = decoded(target.split('?').next().unwrap_or_default());
                return match asked.ending {
                    Ending::GoOn => format!("{path}{query}"),
                    _ => asked.short(),
                };
            };
            let uri = target.split('?').next().unwrap_or_default();
            get.has_ended = asked.has_ended;
            get.spent = asked.spent;
            get.is_translated = asked.is_translated;
            get.variables = match asked.is_translated {
                true => asked.variables,
                false => asked
                    .variables
                    .redirected(uri.as_bytes(), None)
                    .expect("they fit"),
            };
            let query = asked
                .query
                .as_ref()
                .map_or_else(String::new, |it| format!("?{it}"));
            // As the canonical path has them.
            let mut path = String::from_utf8_lossy(path).into_owned();
            while path.contains("//") {
                path = path.replace("//", "/");
            }
            target = format!("{path}{query}");
        }
        "500 loop".to_owned()
    }

    pub(crate) fn asked(&self, get: &Get<'_>, reply: Option<ReplyTables>) -> Asked {
        let (path, query) = match get.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (get.target, None),
        };
        let path = decoded(path);
        let (filename, path_info) = self.resolve(&path);
        let levels = self.htaccess.iter().filter(|(directory, _)| {
            filename.starts_with(directory.as_str()) || filename == directory.trim_end_matches('/')
        });
        let levels = levels.map(|(directory, text)| ChainLevel {
            directory: Arc::from(directory.as_bytes()),
            program: Arc::new(compile(text.as_bytes(), &self.overrides)),
        });
        let of_server = self.server.iter().map(|text| ChainLevel {
            directory: Arc::from(format!("{ROOT}/").as_bytes()),
            program: Arc::new(compile_section(text.as_bytes(), SectionContext::Server)),
        });
        let chain = Chain::new(of_server.chain(levels).collect()).expect("few levels");
        let fields: Vec<(&[u8], &[u8])> = get
            .fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .collect();
        let first = get.first.unwrap_or(get.target);
        let line = format!("{} {first} HTTP/1.1", get.method);
        let port = if get.is_tls { 443 } else { 80 };
        let request = RequestFacts {
            method: get.method.as_bytes(),
            uri: path.as_bytes(),
            query: query.map(str::as_bytes),
            request_line: line.as_bytes(),
            protocol: "HTTP/1.1",
            fields: &fields,
            filename: filename.as_bytes(),
            is_directory: self.facts(&filename).kind == FileKind::Directory,
            path_info: path_info.as_bytes(),
            root: ROOT.as_bytes(),
            context: None,
            is_tls: get.is_tls,
            host: b"example.jp",
            own_hosts: &[b"www.example.jp"],
            port,
            listener_port: port,
            client: get.client.parse().expect("an address"),
            client_port: 40_000,
            peer: "192.0.2.7".parse().expect("an address"),
            server: "192.0.2.1".parse().expect("an address"),
            software: "Nagaya",
            admin: "webmaster@example.jp",
            media_type: None,
            has_ended: get.has_ended,
            is_translated: get.is_translated,
            is_subrequest: get.is_page,
            decided: None,
            variables: &get.variables,
            options: self.options,
            now: Civil {
                year: 2026,
                month: 11,
                day: 27,
                hour: 8,
                minute: 5,
                second: 9,
                weekday: 5,
                epoch_s: 1_795_766_709,
            },
            spent: get.spent,
        };
        self.outcome(&chain, &request, reply)
    }

    fn outcome(
        &self,
        chain: &Chain,
        request: &RequestFacts<'_>,
        reply: Option<ReplyTables>,
    ) -> Asked {
        let mut questions = Vec::new();
        let authorization = request
            .fields
            .iter()
            .find(|(name, _)| *name == b"Authorization");
        let authorization = authorization.map(|(_, value)| *value);
        let answer = |question: &Question| {
            questions.push(question.clone());
            match question {
                Question::File(path) => Told::File(self.facts(&String::from_utf8_lossy(path))),
                Question::User { .. } => Told::User(match authorization {
                    // As a helper of the engine would say it.
                    Some(b"anna") => UserTold::Known {
                        name: b"anna".to_vec(),
                        groups: vec![b"staff".to_vec()],
                    },
                    Some(b"bert") => UserTold::Known {
                        name: b"bert".to_vec(),
                        groups: Vec::new(),
                    },
                    Some(b"broken") => UserTold::Unreadable("/users: no such file".to_owned()),
                    _ => UserTold::Nobody,
                }),
            }
        };
        let decision: Decision = decide(chain, request, Explain::Yes).finish(answer);
        let reply = reply.map(|reply| {
            let missing = |_: &Question| Told::File(FileFacts::MISSING);
            edit_reply(&decision, request, reply)
                .finish(missing)
                .expect("it is edited")
        });
        let owned = |(name, value): &(&[u8], &[u8])| (name.to_vec(), value.to_vec());
        let fields = request.fields.iter().map(owned).collect();
        let missing = |_: &Question| Told::File(FileFacts::MISSING);
        let edited = edit_request(&decision, request, fields).finish(missing);
        let request_fields = edited.expect("they are edited");
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        Asked {
            ending: decision.ending.clone(),
            query: decision.query.as_ref().map(text),
            variables: decision.variables.clone(),
            vary: decision.vary.iter().map(text).collect(),
            cookies: decision.cookies.iter().map(text).collect(),
            settings: (*decision.settings).clone(),
            has_ended: decision.has_ended,
            server_env: decision.server_env.iter().map(text).collect(),
            spent: decision.spent,
            is_translated: decision.is_translated,
            reply,
            trace: decision
                .trace
                .iter()
                .map(|it| format!("{}: {}", it.line, it.text))
                .collect(),
            user: decision.user.as_ref().map(text),
            questions,
            request_fields,
        }
    }
}

fn decoded(path: &str) -> String {
    let mut out = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let byte = after
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[2..];
            }
            None => {
                out.push('%');
                rest = after;
            }
        }
    }
    out + rest
}

/// A reply with these fields.
pub(crate) fn answered(status: u16, fields: &[(&str, &str)]) -> ReplyTables {
    let owned =
        |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    ReplyTables {
        status,
        is_own_error: status >= 400,
        is_error_page: false,
        fields: fields.iter().map(owned).collect(),
        always: Vec::new(),
        changed_s: Some(1_795_000_000),
    }
}
