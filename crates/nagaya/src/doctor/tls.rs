//! What a configuration with TLS wants of the machine: a clock that is right, memory for keys that is not swapped out,
//! and for certificates from authorities a store, and port 80 where authorities ask.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use config::model::{AcmeChallenge, HostPattern, ListenAddress, Model};
use config::reason;
use os::calendar;

use super::{Finding, finding};

/// Names that are tried: one stands for all of a machine's.
const NAMES_MAX: usize = 3;
/// How long looking up a name, and asking for it, may take.
const PATIENCE: Duration = Duration::from_secs(4);
/// Where authorities ask.
const PORT: u16 = 80;
/// Bytes of a reply that are looked at.
const REPLY_BYTES: usize = 512;
/// When this program was young: no clock is right that shows less. 2026-01-01.
const YOUNG_S: u64 = 1_767_225_600;

/// Looks at all of it, where a listener speaks TLS.
pub(super) fn look(model: &Model) -> Vec<Finding> {
    if model
        .listeners
        .iter()
        .all(|listener| listener.tls.is_none())
    {
        return Vec::new();
    }
    let mut findings = vec![clock(), memory()];
    findings.extend(model.acme.iter().map(|acme| store(&acme.name, &acme.store)));
    findings.extend(ports(model));
    findings
}

fn clock() -> Finding {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let is_old = since_1970.map_or(true, |since| since.as_secs() < YOUNG_S);
    let detail = match (is_old, calendar::is_synchronized()) {
        (true, _) => {
            "it shows a time before this program was made: every certificate is judged wrongly"
        }
        (false, true) => "something keeps it at the world's time",
        (false, false) => "nothing keeps it at the world's time: certificates are judged by it",
    };
    let is_right = !is_old && calendar::is_synchronized();
    finding(
        "clock",
        is_right,
        detail,
        "timedatectl set-ntp true, or install chrony",
    )
}

fn memory() -> Finding {
    let is_free = os::confine::may_lock_memory();
    let detail = match is_free {
        true => "the keeper may lock it",
        false => "the keeper may not lock it: keys may be swapped out",
    };
    let remedy = "systemctl edit nagaya: [Service] LimitMEMLOCK=infinity; in a shell, as root: ulimit -l unlimited";
    finding("memory of private keys", is_free, detail, remedy)
}

fn store(account: &str, directory: &std::path::Path) -> Finding {
    let what = format!("store of acme.{account}");
    let (there, writable) = os::file::writable(directory);
    let (shown, there) = (directory.display(), there.display());
    match writable {
        Ok(()) => finding(&what, true, &format!("{shown} can be written"), ""),
        Err(error) => finding(
            &what,
            false,
            &format!("{shown} cannot be written: {there}: {}", reason(&error)),
            "ask as whoever starts the gateway (sudo nagaya doctor), or name another store in [acme]",
        ),
    }
}

/// Asks a few names as an authority would, by HTTP-01.
fn ports(model: &Model) -> Vec<Finding> {
    let asks = |account: usize| {
        let account = model.acme.get(account);
        account.is_some_and(|acme| acme.challenges.contains(&AcmeChallenge::Http01))
    };
    let sites = model.sites.iter();
    let sites = sites.filter(|site| site.tls.acme.is_some_and(asks));
    let names = sites
        .flat_map(|site| &site.hosts)
        .filter_map(|host| match host {
            HostPattern::Exact(name) => Some(name.clone()),
            HostPattern::Below(_) | HostPattern::Any => None,
        });
    let names: Vec<String> = names.take(NAMES_MAX).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let is_port =
        |address: &ListenAddress| matches!(address, ListenAddress::Tcp(it) if it.port() == PORT);
    if !model
        .listeners
        .iter()
        .any(|listener| is_port(&listener.address))
    {
        return vec![finding(
            "port 80",
            false,
            "no listener has it: authorities ask there (HTTP-01), unless something sends them on",
            "[[listen]] address = \"0.0.0.0:80\"",
        )];
    }
    names.into_iter().map(port).collect()
}

fn port(name: String) -> Finding {
    let what = format!("port 80 of {name}");
    let (say, said) = mpsc::channel();
    // Looking up a name cannot be given up; whoever waits for it can.
    std::thread::spawn(move || {
        let _ = say.send(ask(&name, PORT));
    });
    let said = said.recv_timeout(PATIENCE * 3);
    let said = said.unwrap_or_else(|_| Err("nothing came back in time".to_owned()));
    match said {
        Ok(address) => finding(
            &what,
            true,
            &format!("answered from {address}, as seen from here"),
            "",
        ),
        Err(why) => finding(
            &what,
            false,
            &format!("{why}, as seen from here"),
            "look at its DNS and at firewalls; a gateway that does not run answers nobody; some networks hide a machine from itself",
        ),
    }
}

/// Asks for a token that nobody has published; any reply over HTTP will do.
fn ask(name: &str, port: u16) -> Result<SocketAddr, String> {
    let found = (name, port).to_socket_addrs();
    let mut found = found.map_err(|error| format!("its name is not found: {}", reason(&error)))?;
    let address = found.next().ok_or("its name has no address")?;
    let asked = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = format!(
            "GET /.well-known/acme-challenge/nagaya-doctor HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut reply = vec![0; REPLY_BYTES];
        let count = stream.read(&mut reply)?;
        reply.truncate(count);
        Ok(reply)
    };
    match asked() {
        Ok(reply) if reply.starts_with(b"HTTP/1.") => Ok(address),
        Ok(_) => Err(format!("{address} does not speak HTTP")),
        Err(error) => Err(format!("{address}: {}", reason(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use config::Sources;

    use super::super::CheckState;
    use super::*;

    fn looked(text: &str) -> Vec<(String, CheckState)> {
        let model = config::load(&Sources::from_text("nagaya.toml", text));
        let model = model.unwrap_or_else(|problems| panic!("{problems}"));
        let found = look(&model).into_iter();
        found.map(|it| (it.what, it.state)).collect()
    }

    #[test]
    fn only_who_speaks_tls_is_told_of_clock_keys_store_and_port() {
        let site = "[[sites]]\nhosts = [\"a.invalid\"]\nrules = [{ handler = { respond = { body = \"x\" } } }]\n";
        let plain = format!("[[listen]]\naddress = \"127.0.0.1:8080\"\n{site}");
        assert_eq!(looked(&plain).len(), 0);
        let store = std::env::temp_dir().join("nagaya-doctor/no/such/store");
        let tls = format!(
            "[[listen]]\naddress = \"127.0.0.1:8443\"\ntls = true\n[acme.le]\ndirectory = \"https://ca.invalid/\"\n\
             store = \"{}\"\n{site}tls = {{ acme = \"le\" }}\n",
            store.display()
        );
        let found = looked(&tls);
        let names: Vec<_> = found.iter().map(|(what, _)| what.as_str()).collect();
        let expected = [
            "clock",
            "memory of private keys",
            "store of acme.le",
            "port 80",
        ];
        assert_eq!(names, expected);
        assert_eq!(found[2].1, CheckState::Fine, "what is missing can be made");
        assert_eq!(found[3].1, CheckState::Lacking);
        assert!(!store.exists(), "nothing is changed by looking");
        // Root may write there; whoever is not root may not.
        for place in ["/proc/nagaya/store", "/sys/nagaya"] {
            let found = super::store("le", std::path::Path::new(place));
            assert_eq!(found.state, CheckState::Lacking, "{place}");
        }
    }

    #[test]
    fn any_reply_over_http_shows_that_a_port_is_reached_and_nothing_else_does() {
        for (reply, is_reached) in [
            ("HTTP/1.1 404 Not Found\r\n\r\n", true),
            ("SSH-2.0-x\r\n", false),
            ("", false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let answering = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut request = [0; 1_024];
                let count = stream.read(&mut request).expect("a request");
                let _ = stream.write_all(reply.as_bytes());
                String::from_utf8_lossy(&request[..count]).into_owned()
            });
            assert_eq!(ask("127.0.0.1", port).is_ok(), is_reached, "{reply}");
            assert!(
                answering
                    .join()
                    .expect("no panic")
                    .contains("Host: 127.0.0.1")
            );
        }
        assert!(ask("no.such.name.invalid", 80).is_err());
    }
}
