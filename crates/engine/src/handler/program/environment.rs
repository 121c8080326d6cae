//! What a program is told of a request: the exchange, as `fastcgi::environment` wants to see it.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use config::model::Template;
use fastcgi::environment::{Client, Environment, Request, Script, Server, Trust, variable_name_ok};
use htaccess::Variables;
use wire::{Framing, strip_hop_by_hop};

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::resolve::resolved::Resolved;
use crate::rules;
use crate::stage::Routed;
use crate::template;
use crate::tls::facts::TlsFacts;

/// How the gateway calls itself towards programs.
const SOFTWARE: &[u8] = b"nagaya";

/// Makes the variables of the exchange's request for the program `resolved`, and changes them as
/// `env` of its site and rules and then `params` say. `root` is the site's own root as the
/// program sees it, where that is another one; `spooled_bytes` the body's length where it was taken
/// beforehand. `lists_names` says whether the program gets such variables alone as its kind has, and
/// those that the configuration names.
///
/// # Errors
/// 431 where they are too long together, 400 where a value cannot be told, 500 where an expression
/// was given up on which one depends.
pub(in super::super) fn environment(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    resolved: &Resolved,
    root: Option<&Path>,
    params: &[(String, Option<Template>)],
    spooled_bytes: Option<u64>,
    lists_names: bool,
) -> Result<Environment> {
    strip_hop_by_hop(&mut exchange.request.head.fields);
    let exchange = &*exchange;
    let Some(tree) = routed.site.tree(resolved.tree) else {
        return Err(Error::refused(404, "no_root"));
    };
    let root = root.filter(|_| tree.path.is_empty());
    let script = Script {
        prefix: tree.path.as_bytes(),
        root: trimmed(root.unwrap_or(&tree.root.path)),
        relative: resolved.relative(),
        path_info: resolved.path_info(),
    };
    let seen = seen(exchange, script, &routed.site.name, spooled_bytes);
    let caps = &routed.serving.generation.process.caps;
    let mut environment = Environment::of(&seen, caps.env_bytes)?;
    if let Some(tls) = &exchange.request.tls {
        tls_variables(tls, &mut environment)?;
    }
    if let Some(applied) = &exchange.route.htaccess {
        tell_variables(&applied.decision.variables, lists_names, &mut environment)?;
        // PHP would run what it names, which is there where Apache's `Action` has led to PHP.
        if environment.get(b"REDIRECT_URL").is_some() {
            environment.remove(b"PATH_TRANSLATED");
        }
    }
    let layers = routed.layers(&exchange.route);
    let env = layers.flat_map(|layer| layer.variables(exchange));
    let env = env.map(|(variable, values)| (&variable.name, variable.value.as_ref(), values));
    let values = exchange.route.values(&exchange.request);
    let params = params.iter();
    let params = params.map(|(name, template)| (name, template.as_ref(), values));
    let mut value = Vec::new();
    for (name, template, values) in env.chain(params) {
        match template {
            None => environment.remove(name.as_bytes()),
            Some(template) => {
                value.clear();
                template::expand(template, values, &mut value);
                environment.set(name.as_bytes(), &value)?;
            }
        }
    }
    rules::check_given_up(&exchange.request)?;
    Ok(environment)
}

/// What `.htaccess` files have set, under names that a variable may have. What a program is told of
/// its request in any case stays as it is, but for how the request came to it. Where names are listed
/// others than those of fields and of requests before would have it refused.
fn tell_variables(
    variables: &Variables,
    lists_names: bool,
    environment: &mut Environment,
) -> Result<()> {
    for (name, value) in variables.iter() {
        let plain = |byte: &u8| match byte.is_ascii_alphanumeric() {
            true => *byte,
            false => b'_',
        };
        let name: Vec<u8> = name.iter().map(plain).collect();
        let is_told = environment.get(&name).is_some() && !name.starts_with(b"REDIRECT_");
        let is_listed = name.starts_with(b"REDIRECT_")
            || name.strip_prefix(b"HTTP_").is_some_and(|rest| {
                let fits = |byte: &u8| !byte.is_ascii_lowercase();
                !rest.is_empty() && rest.iter().all(fits)
            });
        if (is_listed || !lists_names) && !is_told && !value.contains(&0) && variable_name_ok(&name)
        {
            environment.set(&name, value)?;
        }
    }
    Ok(())
}

/// What programs are told of TLS, under the names that Apache gives it (mod_ssl).
fn tls_variables(tls: &TlsFacts, environment: &mut Environment) -> Result<()> {
    let agreed = &tls.agreed;
    environment.set(b"SSL_PROTOCOL", agreed.version.as_bytes())?;
    environment.set(b"SSL_CIPHER", agreed.cipher.as_bytes())?;
    environment.set(
        b"SSL_TLS_SNI",
        tls.name.as_deref().unwrap_or_default().as_bytes(),
    )?;
    let resumed: &[u8] = if agreed.is_resumed {
        b"Resumed"
    } else {
        b"Initial"
    };
    environment.set(b"SSL_SESSION_RESUMED", resumed)?;
    let Some(client) = tls.client() else {
        environment.set(b"SSL_CLIENT_VERIFY", b"NONE")?;
        return Ok(());
    };
    for (name, value) in [
        ("SSL_CLIENT_VERIFY", "SUCCESS"),
        ("SSL_CLIENT_S_DN", &client.subject),
        ("SSL_CLIENT_S_DN_CN", &client.common_name),
        ("SSL_CLIENT_I_DN", &client.issuer),
        ("SSL_CLIENT_M_SERIAL", &client.serial),
        ("SSL_CLIENT_V_START", &client.not_before),
        ("SSL_CLIENT_V_END", &client.not_after),
        ("SSL_CLIENT_CERT", &client.pem),
    ] {
        environment.set(name.as_bytes(), value.as_bytes())?;
    }
    Ok(())
}

fn seen<'a>(
    exchange: &'a Exchange,
    script: Script<'a>,
    site: &'a str,
    spooled_bytes: Option<u64>,
) -> Request<'a> {
    let (request, head) = (&exchange.request, &exchange.request.head);
    let user = &exchange.record.user;
    let host = match head.host() {
        "" => site,
        host => host,
    };
    Request {
        method: head.method_bytes(),
        sent_path_wire: head.sent_path_wire(),
        sent_query: head.sent_query(),
        query: head.query(),
        version: head.version,
        fields: &head.fields,
        authority: head.authority(),
        body_bytes: match head.framing {
            Framing::None => None,
            Framing::Length(length) => Some(length),
            Framing::Chunked => spooled_bytes,
        },
        id: request.id.as_bytes(),
        peer: match request.peer_trusted {
            true => Trust::Trusted,
            false => Trust::Untrusted,
        },
        script,
        server: Server {
            name: host.as_bytes(),
            address: known(request.peer.local_ip),
            port: request.port(),
            scheme: request.scheme(),
            software: SOFTWARE,
        },
        client: Client {
            address: known(request.client),
            // The port of another machine's connection to our proxy is not known.
            port: (request.client == request.peer.address.ip())
                .then(|| request.peer.address.port())
                .filter(|port| *port != 0),
            user: (!user.is_empty()).then_some(user.as_bytes()),
        },
    }
}

/// Without a slash at its end.
fn trimmed(root: &Path) -> &[u8] {
    let mut root = root.as_os_str().as_bytes();
    while let [rest @ .., b'/'] = root {
        root = rest;
    }
    root
}

/// `None` behind a Unix socket.
fn known(address: IpAddr) -> Option<IpAddr> {
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use crate::exchange::request::Peer;
    use crate::fixture::{exchange, peer};

    #[test]
    fn behind_a_unix_socket_the_port_is_that_of_the_url() {
        for (at, host, expected) in [
            (Peer::LOCAL, "a", 80),
            (Peer::LOCAL, "a:8443", 8443),
            (Peer::LOCAL, "[::1]", 80),
            (Peer::LOCAL, "[::1]:81", 81),
            (peer("192.0.2.1:5000"), "a:8443", 8080),
        ] {
            let exchange = exchange(at, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(exchange.request.port(), expected, "{host}");
        }
    }
}
