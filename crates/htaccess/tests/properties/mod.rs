//! What holds for any bytes, for the property tests and the fuzz targets.

use std::sync::Arc;

use htaccess::{
    AllowedOptions, Chain, ChainLevel, Civil, Ending, Explain, FileFacts, FileKind, Overrides,
    Question, ReplyTables, RequestFacts, SectionContext, Told, UserTold, Variables, compile,
    compile_section, decide, edit_reply,
};

/// Any file, and a request to it: there is an answer, the same each time, and nothing in it that
/// breaks out of a field.
pub(crate) fn htaccess(bytes: &[u8]) {
    let directory: Arc<[u8]> = Arc::from(&b"/srv/"[..]);
    let program = Arc::new(compile(bytes, &Overrides::all()));
    let server = Arc::new(compile_section(bytes, SectionContext::Server));
    let levels = [server, Arc::clone(&program), program].map(|program| ChainLevel {
        directory: Arc::clone(&directory),
        program,
    });
    let chain = Chain::new(levels.into()).expect("few levels");
    for path in [&b"/"[..], b"/a.php", b"/a b/%c\r\nd?e"] {
        let first = outcome(&chain, path);
        assert_eq!(first, outcome(&chain, path), "the same each time");
    }
}

/// Any expression: it is read or refused, and comes to something.
pub(crate) fn htaccess_expression(bytes: &[u8]) {
    let quoted: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| !b"\"\\\n\0".contains(byte))
        .collect();
    let text = [&b"<If \""[..], &quoted, b"\">\nSetEnv a b\n</If>"].concat();
    htaccess(&text);
}

fn outcome(chain: &Chain, path: &[u8]) -> (Ending, ReplyTables) {
    let filename = [&b"/srv"[..], path].concat();
    let variables = Variables::default();
    let request = RequestFacts {
        method: b"GET",
        uri: path,
        query: Some(b"x=1"),
        request_line: b"GET / HTTP/1.1",
        protocol: "HTTP/1.1",
        fields: &[(b"Host", b"example.jp"), (b"X", b"(%{y}$1")],
        filename: &filename,
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
        media_type: Some("text/html"),
        has_ended: false,
        is_translated: false,
        is_subrequest: false,
        decided: None,
        variables: &variables,
        options: AllowedOptions::ALL,
        now: Civil::default(),
        spent: 0,
    };
    let answer = |question: &Question| match question {
        Question::File(path) => {
            assert!(path.starts_with(b"/") && !path.contains(&0));
            Told::File(FileFacts {
                kind: FileKind::Regular,
                is_link: path.len() % 2 == 0,
                bytes: 1,
                is_executable: false,
            })
        }
        Question::User { .. } => Told::User(UserTold::Nobody),
    };
    let decision = decide(chain, &request, Explain::No).finish(answer);
    let is_sendable = |value: &[u8]| !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if let Ending::Redirect { location, .. } = &decision.ending {
        assert!(is_sendable(location), "{location:?}");
    }
    assert!(decision.cookies.iter().all(|cookie| is_sendable(cookie)));
    let mut names = decision.variables.iter().map(|(name, _)| name);
    assert!(names.all(Variables::may_be_set));
    let reply = ReplyTables {
        status: 200,
        is_own_error: false,
        is_error_page: false,
        fields: vec![(b"Content-Type".to_vec(), b"text/html".to_vec())],
        always: Vec::new(),
        changed_s: None,
    };
    let empty = reply.clone();
    let reply = edit_reply(&decision, &request, reply)
        .finish(answer)
        .unwrap_or(empty);
    let mut all = reply.fields.iter().chain(&reply.always);
    assert!(all.all(|(name, value)| is_sendable(name) && is_sendable(value)));
    (decision.ending.clone(), reply)
}
