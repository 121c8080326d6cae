//! The request a script is run for: made up from options.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use script::{Phase, Property, TlsProperty, Trial};

use super::RunOptions;

/// The client's port where none is said.
const PORT: u16 = 40_000;

/// Method and target.
#[derive(Debug, Clone)]
pub(super) struct RequestLine {
    method: String,
    target: String,
}

/// A field.
#[derive(Debug, Clone)]
pub(super) struct Field {
    name: String,
    value: String,
}

/// Reads `GET /x.php`; a version behind it is passed over.
pub(super) fn line(text: &str) -> Result<RequestLine, String> {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), None | Some("HTTP/1.1" | "HTTP/1.0"), None)
            if target.starts_with('/') =>
        {
            Ok(RequestLine {
                method: method.to_owned(),
                target: target.to_owned(),
            })
        }
        _ => Err("a request is a method and a target: 'GET /x.php?id=1'".to_owned()),
    }
}

/// Reads `Name: value`.
pub(super) fn field(text: &str) -> Result<Field, String> {
    match text.split_once(':') {
        Some((name, value)) if !name.is_empty() && !name.contains(' ') => Ok(Field {
            name: name.to_owned(),
            value: value.trim().to_owned(),
        }),
        _ => Err("a field is a name and a value: 'Accept-Language: ja'".to_owned()),
    }
}

/// Reads `203.0.113.7`, `203.0.113.7:40000` or `[2001:db8::7]:40000`.
pub(super) fn client(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    let address = address.or_else(|_| text.parse());
    address.map_err(|_| "a client is an address: 203.0.113.7, [2001:db8::7]:40000".to_owned())
}

/// Reads the name of a directory; scripts see it whole, as a site's root is.
pub(super) fn root(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| config::reason(&error))
}

/// Reads `NAME=VALUE`, or `NAME` for what the environment holds.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => match std::env::var_os(text) {
            Some(value) => (text, value.to_string_lossy().into_owned()),
            None => return Err(format!("{text} is not set here: write {text}=VALUE")),
        },
    };
    match name.is_empty() {
        true => Err("a variable is a name and a value: PLAN=gold".to_owned()),
        false => Ok((name.to_owned(), value)),
    }
}

/// The request; `None` in phases that have none.
pub(super) fn request(options: &RunOptions) -> Option<Trial> {
    if options.phase.is_of_vm() {
        return None;
    }
    let RequestLine { method, target } = &options.request;
    let mut trial = Trial::get(target);
    let mut set = |property, value: &str| {
        trial.properties.insert(property, value.into());
    };
    set(Property::Method, method);
    set(
        Property::RequestLine,
        &format!("{method} {target} HTTP/1.1"),
    );
    for property in [Property::Host, Property::HttpHost, Property::SiteName] {
        set(property, &options.host);
    }
    let (client, root) = (options.client, options.root.to_string_lossy());
    let path = target.split_once('?').map_or(&**target, |(path, _)| path);
    set(Property::RemoteAddress, &client.ip().to_string());
    set(Property::RemotePort, &client.port().to_string());
    set(Property::DocumentRoot, &root);
    let below = root.strip_suffix('/').unwrap_or(&root);
    set(Property::Filename, &format!("{below}{path}"));
    if !options.body.is_empty() {
        set(Property::ContentLength, &options.body.len().to_string());
    }
    if matches!(
        options.phase,
        Phase::HeaderFilter | Phase::BodyFilter | Phase::Log
    ) {
        set(Property::Status, &options.status.to_string());
    }
    if options.phase == Phase::SslHandshake {
        set(Property::Tls(TlsProperty::ServerName), &options.host);
        set(Property::Tls(TlsProperty::Protocol), "TLSv1.3");
    }
    if options.phase == Phase::BodyFilter {
        set(Property::Body, &options.reply);
    }
    trial.body = options.body.clone().into_bytes();
    trial.fields_in = vec![(b"Host".to_vec(), options.host.clone().into_bytes())];
    for field in &options.fields {
        let (name, value) = (field.name.clone(), field.value.clone());
        trial.fields_in.push((name.into(), value.into()));
    }
    Some(trial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_method_and_a_target() {
        let read = |text| line(text).map(|line| (line.method, line.target));
        let expected = Ok(("GET".to_owned(), "/a?b=c".to_owned()));
        assert_eq!(read("GET /a?b=c"), expected);
        assert_eq!(read(" GET  /a?b=c HTTP/1.1"), expected);
        for wrong in ["", "GET", "/a", "GET a", "GET /a b", "GET /a HTTP/1.1 x"] {
            assert!(line(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_is_an_address_with_or_without_a_port() {
        let read = |text| client(text).map(|address| address.to_string());
        for (text, expected) in [
            ("203.0.113.7", "203.0.113.7:40000"),
            ("203.0.113.7:1", "203.0.113.7:1"),
            ("2001:db8::7", "[2001:db8::7]:40000"),
            ("[2001:db8::7]:1", "[2001:db8::7]:1"),
        ] {
            assert_eq!(read(text), Ok(expected.to_owned()));
        }
        for wrong in ["", "example.jp", "1.2.3", "1.2.3.4:99999"] {
            assert!(client(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_variable_has_a_value_or_the_one_it_has_here() {
        let gold = ("PLAN".to_owned(), "a=b".to_owned());
        assert_eq!(variable("PLAN=a=b"), Ok(gold));
        assert!(variable("PATH").is_ok_and(|(name, value)| name == "PATH" && !value.is_empty()));
        for wrong in ["", "=x", "NAGAYA_THAT_NOBODY_SETS"] {
            assert!(variable(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_field_is_a_name_and_a_value() {
        let read = |text| field(text).map(|field| (field.name, field.value));
        let expected = Ok(("X-A".to_owned(), "b: c".to_owned()));
        assert_eq!(read("X-A: b: c "), expected);
        for wrong in ["", "X-A", ": b", "X A: b"] {
            assert!(field(wrong).is_err(), "{wrong}");
        }
    }
}
