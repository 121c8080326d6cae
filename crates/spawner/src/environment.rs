//! What programs get as their environment.
//!
//! The idea: a list of names, not a list of forbidden ones. The server makes the environment, but
//! the spawner has the privileges; so what could change how a program is loaded or run never
//! passes, whoever asks for it.

use std::ffi::CString;

use ipc::order::Failure;

use super::Refusal;

/// RFC 3875's variables and what servers have added to them.
const KNOWN: [&str; 33] = [
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "CONTEXT_DOCUMENT_ROOT",
    "CONTEXT_PREFIX",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "ORIG_PATH_INFO",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "QUERY_STRING",
    "REDIRECT_QUERY_STRING",
    "REDIRECT_STATUS",
    "REDIRECT_URL",
    "REMOTE_ADDR",
    "REMOTE_HOST",
    "REMOTE_IDENT",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_ADMIN",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SIGNATURE",
    "SERVER_SOFTWARE",
];
/// Others that a server may know of a request.
const REQUEST_ID: &str = "UNIQUE_ID";
/// Where a program finds others, unless its rule says.
const PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin";
/// Variables of one program.
const VARIABLES_MAX: usize = 2_048;

/// Checks an environment; `names` are those its rule sets.
pub(super) fn check(
    environment: &[(Vec<u8>, Vec<u8>)],
    names: &[String],
) -> Result<Vec<CString>, Refusal> {
    if environment.len() > VARIABLES_MAX {
        return Err(refused(b"more variables than a program is given"));
    }
    let mut seen: Vec<&[u8]> = environment.iter().map(|(name, _)| &**name).collect();
    seen.sort_unstable();
    if let Some(twice) = seen.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(refused(twice.first().copied().unwrap_or_default()));
    }
    let mut checked = Vec::with_capacity(environment.len() + 1);
    for (name, value) in environment {
        if !may_be_set(name, names) {
            return Err(refused(name));
        }
        let variable = [name.as_slice(), b"=", value].concat();
        checked.push(CString::new(variable).map_err(|_| refused(name))?);
    }
    if seen.binary_search(&b"PATH".as_slice()).is_err() {
        checked.extend(CString::new(PATH));
    }
    Ok(checked)
}

fn may_be_set(name: &[u8], names: &[String]) -> bool {
    if is_never_set(name) {
        return false;
    }
    let is_field = name.strip_prefix(b"HTTP_").is_some_and(|rest| {
        let fits = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        !rest.is_empty() && rest.iter().all(fits)
    });
    // What a request was before it was sent elsewhere inside: no program is loaded or run by it.
    is_field
        || name.starts_with(b"REDIRECT_")
        || KNOWN.iter().any(|known| known.as_bytes() == name)
        || name == REQUEST_ID.as_bytes()
        || names.iter().any(|known| known.as_bytes() == name)
}

/// What no program gets: the loader's variables, and the client's `Proxy` field, which some
/// programs take for their own setting.
fn is_never_set(name: &[u8]) -> bool {
    let is_variable = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.eq_ignore_ascii_case(b"HTTP_PROXY")
        || name.starts_with(b"LD_")
        || name.is_empty()
        || name.first().is_some_and(u8::is_ascii_digit)
        || !name.iter().all(is_variable)
}

fn refused(name: &[u8]) -> Refusal {
    let name = name.escape_ascii();
    Refusal::new(
        Failure::EnvironmentRefused,
        format!("the variable {name} cannot be given to a program"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)], names: &[&str]) -> Result<Vec<String>, String> {
        let pairs = pairs.iter().map(|(name, value)| {
            let bytes = |text: &str| text.as_bytes().to_vec();
            (bytes(name), bytes(value))
        });
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let checked = check(&pairs.collect::<Vec<_>>(), &names);
        let text = |one: CString| one.into_string().unwrap();
        let checked = checked.map(|checked| checked.into_iter().map(text).collect());
        checked.map_err(|refusal| refusal.detail)
    }

    #[test]
    fn what_a_request_makes_passes_and_a_path_is_added() {
        let pairs = [
            ("QUERY_STRING", "-d+allow_url_include=1&a=\u{7f}"),
            ("HTTP_X_2_B", ""),
            ("REDIRECT_HTTP_AUTHORIZATION", "Basic eA=="),
            ("SCRIPT_FILENAME", "/srv/a.cgi"),
        ];
        assert_eq!(
            given(&pairs, &[]).unwrap(),
            [
                "QUERY_STRING=-d+allow_url_include=1&a=\u{7f}",
                "HTTP_X_2_B=",
                "REDIRECT_HTTP_AUTHORIZATION=Basic eA==",
                "SCRIPT_FILENAME=/srv/a.cgi",
                PATH,
            ]
        );
        let own = given(&[("PATH", "/opt/bin"), ("APP", "=")], &["PATH", "APP"]);
        assert_eq!(own.unwrap(), ["PATH=/opt/bin", "APP=="]);
    }

    #[test]
    fn what_is_not_asked_for_by_request_or_rule_does_not_pass() {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "HTTP_PROXY",
            "PATH",
            "HOME",
            "IFS",
            "BASH_ENV",
            "PERL5LIB",
            "GLIBC_TUNABLES",
            "HTTP_",
            "HTTP_a",
            "HTTP_X-Y",
            "",
            "A=B",
            "1A",
            "QUERY_STRING ",
            "REMOTE_ADDR\n",
            "REDIRECT_A=B",
        ] {
            let refused = given(&[(name, "x")], &[]).unwrap_err();
            assert!(refused.contains("cannot be given"), "{name:?}: {refused}");
        }
        // What no rule may set either.
        for name in [
            "LD_PRELOAD",
            "LD_X",
            "HTTP_PROXY",
            "http_proxy",
            "",
            "A=B",
            "9",
        ] {
            assert!(given(&[(name, "x")], &[name]).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_a_program_would_read_in_two_ways_does_not_pass() {
        assert!(given(&[("HTTP_A", "x\0y")], &[]).is_err());
        let twice = given(&[("HTTP_A", "1"), ("HTTPS", "on"), ("HTTP_A", "2")], &[]);
        assert!(twice.unwrap_err().contains("HTTP_A"));
        let names: Vec<_> = (0..=VARIABLES_MAX).map(|at| format!("HTTP_{at}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert!(given(&many, &[]).is_err());
        assert!(given(&many[1..], &[]).is_ok());
    }
}
