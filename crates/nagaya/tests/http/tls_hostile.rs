//! TLS with clients that are slow, odd or mean harm, after their handshake: what they get is right, and nobody waits
//! for them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::{ScriptedUpstream, Seen, Step};

use crate::fixtures::tls;
use crate::tls::{FINE, gateway, gateway_under, gateway_with, python};

/// A body of so many bytes, no two parts of which are alike.
fn body(bytes: usize) -> Vec<u8> {
    let word = |number: u32| number.wrapping_mul(2_654_435_761).to_le_bytes();
    (0..).flat_map(word).take(bytes).collect()
}

fn target(seen: &Seen) -> &str {
    seen.head.line.split(' ').nth(1).unwrap_or_default()
}

/// As a back end sends it, in chunks of a size that fits nowhere.
fn chunked(body: &[u8]) -> Vec<u8> {
    let mut sent = b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in body.chunks(70_001) {
        sent.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        sent.extend(piece);
        sent.extend(b"\r\n");
    }
    sent.extend(b"0\r\n\r\n");
    sent
}

#[test]
fn what_was_set_aside_for_a_slow_client_reaches_it_whole() {
    let sound = body(3_000_000);
    let (plain, pieces) = (sound.clone(), chunked(&sound));
    let upstream = ScriptedUpstream::start(move |seen| {
        vec![match target(seen) {
            "/length" => Step::reply(200, &plain),
            _ => Step::Send(pieces.clone()),
        }]
    });
    let sites = format!(
        "[[sites]]\nhosts = [\"a.example\"]\n\
         rules = [{{ handler = {{ proxy = {{ upstream = \"http://{}\", buffer_reply = \"8MiB\" }} }} }}]\n",
        upstream.address()
    );
    let (_gateway, to) = gateway("true", &sites);
    let script = r#"
import hashlib, itertools, struct, time
whole = b"".join(struct.pack("<I", at * 2654435761 % 2**32) for at in range(750000))
def slow(host):
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(25)
    plain.connect(("127.0.0.1", port))
    return context().wrap_socket(plain, server_hostname=host)
def unchunked(data):
    out, at = [], 0
    while True:
        end = data.index(b"\r\n", at)
        length = int(data[at:end], 16)
        if length == 0: return b"".join(out), data[end:]
        out.append(data[end + 2:end + 2 + length])
        assert data[end + 2 + length:end + 4 + length] == b"\r\n"
        at = end + 4 + length
for path in ("/length", "/chunks"):
    tls = slow("a.example")
    tls.sendall(f"GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n".encode())
    parts = []
    for turn in itertools.count():
        part = tls.recv(20000)
        if not part: break
        parts.append(part)
        if turn < 40: time.sleep(0.02)
    head, data = b"".join(parts).split(b"\r\n\r\n", 1)
    if path == "/chunks": data, rest = unchunked(data)
    print(path, len(data), data == whole)
"#;
    let told = python(to, script, &[]);
    assert_eq!(told, "/length 3000000 True\n/chunks 3000000 True\n");
}

/// A client that names groups of which ours is not the one it has a key for is asked again (RFC 8446, 4.1.4). Its
/// second hello costs as much as another's first.
#[test]
fn a_second_hello_waits_for_the_keeper_without_a_worker() {
    let sites = format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}");
    let (gateway, to) = gateway_under("workers = 1\n", "true", &sites, |_| ());
    let asked_again = || {
        Command::new("openssl")
            .args(["s_client", "-groups", "P-521:P-256", "-connect"])
            .args([&to.to_string(), "-servername", "a.example"])
            .args(["-tls1_3", "-trace"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs")
    };
    let shown = |client: std::process::Child| {
        let output = client.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = shown(asked_again());
    assert!(text.matches("ClientHello, Length").count() == 2, "{text}");
    assert!(text.contains("New, TLSv1.3"), "{text}");
    let keeper = Pid::from_raw(i32::try_from(gateway.keeper_pid()).expect("an id")).expect("an id");
    kill_process(keeper, Signal::STOP).expect("stopped");
    let mut waiting = asked_again();
    let until = Instant::now() + Duration::from_secs(4);
    let mut slowest = Duration::ZERO;
    while Instant::now() < until && waiting.try_wait().expect("its state").is_none() {
        let begun = Instant::now();
        let reply = gateway.ask(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        drop(reply);
        slowest = slowest.max(begun.elapsed());
    }
    kill_process(keeper, Signal::CONT).expect("on its way again");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    shown(waiting);
    assert!(shown(asked_again()).contains("New, TLSv1.3"));
}

#[test]
fn a_reply_that_breaks_off_has_no_end_that_looks_like_its_own() {
    let upstream = ScriptedUpstream::start(|_| {
        let begun = b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        vec![Step::Send(begun.to_vec()), Step::Close]
    });
    let sites = format!(
        "[[sites]]\nhosts = [\"a.example\"]\nrules = [{{ handler = {{ proxy = \"http://{}\" }} }}]\n",
        upstream.address()
    );
    let (_gateway, to) = gateway("true", &sites);
    let script = r#"
plain = socket.create_connection(("127.0.0.1", port), 25)
tls = context().wrap_socket(plain, server_hostname="a.example", suppress_ragged_eofs=False)
tls.sendall(b"GET / HTTP/1.0\r\nHost: a.example\r\n\r\n")
try:
    while tls.recv(65536): pass
    print("a clean end")
except (ssl.SSLError, ConnectionError):
    print("broken off")
"#;
    assert_eq!(python(to, script, &[]), "broken off\n");
}

/// Keys that a pattern leads to, through links and by other names, lie below a site's root.
#[test]
fn keys_where_certificates_are_looked_for_are_never_served() {
    let sites = "[[sites]]\nhosts = [\"a.example\"]\nroot = \"{dir}\"\n\
        tls = { certificate = \"{dir}/live/own/fullchain.pem\", key = \"{dir}/live/own/privkey.pem\" }\n";
    let (gateway, to) = gateway_with("true", sites, |directory| {
        for name in ["a.example", "own"] {
            let (archive, live) = (directory.join("archive"), directory.join("live").join(name));
            let archive = archive.join(name);
            std::fs::create_dir_all(&archive).expect("a directory");
            std::fs::create_dir_all(&live).expect("a directory");
            tls::certificate(&archive.join("privkey1.pem"), &[name, "a.example"]);
            for link in ["fullchain.pem", "privkey.pem"] {
                let to = format!("../../archive/{name}/privkey1.pem");
                std::os::unix::fs::symlink(to, live.join(link)).expect("a link");
            }
        }
        std::fs::write(directory.join("other.pem"), "no key").expect("a file");
        std::fs::copy(directory.join("all.pem"), directory.join("all.pem.bak")).expect("a copy");
    });
    let script = r#"
tls = connect(context(), "a.example")
for path in sys.argv[2:]: print(path, ask(tls, "a.example", path)[0])
"#;
    let guarded = [
        "/all.pem",
        "/all.pem.bak",
        "/live/a.example/privkey.pem",
        "/archive/a.example/privkey1.pem",
        "/live/own/privkey.pem",
        "/archive/own/privkey1.pem",
    ];
    let told = python(to, script, &[&guarded[..], &["/other.pem"]].concat());
    let expected = guarded.map(|path| format!("{path} 404\n")).concat();
    assert_eq!(told, expected + "/other.pem 200\n");
    drop(gateway);
}

/// A tenant that writes its certificate itself may write any name into it.
#[test]
fn a_certificate_of_one_tenants_site_is_shown_for_no_other_tenant() {
    let sites = format!(
        "[tenants.one]\n[tenants.two]\n\
         [[sites]]\nhosts = [\"a.example\"]\ntenant = \"one\"\n{FINE}\
         tls = {{ certificate = \"{{dir}}/one.pem\" }}\n\
         [[sites]]\nhosts = [\"b.example\"]\ntenant = \"two\"\n{FINE}\
         [[sites]]\nhosts = [\"a.elsewhere\"]\ntenant = \"one\"\n{FINE}\
         [[sites]]\nhosts = [\"b.elsewhere\"]\ntenant = \"two\"\n{FINE}"
    );
    let (gateway, to) = gateway_with("true", &sites, |directory| {
        tls::certificate(
            &directory.join("one.pem"),
            &["a.example", "b.example", "*.elsewhere"],
        );
    });
    let script = r#"
files = {name: ssl.PEM_cert_to_DER_cert(open(f"{sys.argv[2]}/{name}.pem").read().split("-----BEGIN PRIVATE")[0]) for name in ("one", "all")}
for host in ("a.example", "b.example", "a.elsewhere", "b.elsewhere"):
    try:
        shown = connect(context(), host).getpeercert(True)
        print(host, [name for name in files if files[name] == shown])
    except ssl.SSLError as error: print(host, error.reason)
"#;
    let directory = gateway.directory().path().display().to_string();
    assert_eq!(
        python(to, script, &[&directory]),
        "a.example ['one']\nb.example ['all']\na.elsewhere ['one']\nb.elsewhere TLSV1_UNRECOGNIZED_NAME\n"
    );
}

#[test]
fn a_tunnel_carries_both_ways_over_tls_whatever_its_pace() {
    let upstream = ScriptedUpstream::start(|_| {
        let upgraded =
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
        vec![Step::Send(upgraded.to_vec()), Step::Echo]
    });
    let sites = format!(
        "[[sites]]\nhosts = [\"a.example\"]\nrules = [{{ handler = {{ proxy = \"http://{}\" }} }}]\n",
        upstream.address()
    );
    let (_gateway, to) = gateway("true", &sites);
    let script = r#"
import os, time
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    tls = connect(context(version), "a.example")
    tls.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    head = b""
    while b"\r\n\r\n" not in head: head += more(tls)
    assert head.startswith(b"HTTP/1.1 101"), head
    sent = os.urandom(1500000)
    # Nothing is read for a while, so that both directions are full.
    tls.setblocking(False)
    at, got, stalled = 0, b"", 0
    while len(got) < len(sent):
        if at < len(sent):
            try: at += tls.send(sent[at:at + 30000]); stalled = 0
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError): stalled += 1
        if at == len(sent) or stalled > 20:
            try: got += tls.recv(50000)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError): time.sleep(0.001)
        elif stalled: time.sleep(0.01)
    print(tls.version(), got == sent)
"#;
    assert_eq!(python(to, script, &[]), "TLSv1.2 True\nTLSv1.3 True\n");
}

#[test]
fn many_requests_in_one_flight_and_a_large_upload_are_answered_in_order() {
    let upstream =
        ScriptedUpstream::start(|seen| vec![Step::ReadBody, Step::reply(200, target(seen))]);
    let sites = format!(
        "[[sites]]\nhosts = [\"a.example\"]\nrules = [{{ handler = {{ proxy = \"http://{}\" }} }}]\n",
        upstream.address()
    );
    let (_gateway, to) = gateway("true", &sites);
    let script = r#"
import select
upload = b"".join(at.to_bytes(4, "little") for at in range(1000000))
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    tls = connect(context(version), "a.example")
    flight = b"".join(f"GET /{at} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode() for at in range(50))
    flight += f"POST /up HTTP/1.1\r\nHost: a.example\r\nContent-Length: {len(upload)}\r\n\r\n".encode() + upload
    flight += b"GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
    # One thread: OpenSSL does not read and write a connection on two at once.
    tls.setblocking(False)
    data, at = b"", 0
    while True:
        select.select([tls], [tls] if at < len(flight) else [], [], 25)
        try: at += tls.send(flight[at:at + 100000]) if at < len(flight) else 0
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError): pass
        try: part = tls.recv(65536)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError): continue
        if not part: break
        data += part
    bodies = [reply.split(b"\r\n\r\n", 1)[1] for reply in data.split(b"HTTP/1.1 200")[1:]]
    expected = [b"/%d" % at for at in range(50)] + [b"/up", b"/last"]
    print(tls.version(), bodies == expected or (data[-300:], at))
"#;
    assert_eq!(python(to, script, &[]), "TLSv1.2 True\nTLSv1.3 True\n");
    let upload: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let seen = upstream.take_seen();
    let uploads = seen.iter().filter(|seen| target(seen) == "/up");
    let whole = uploads.map(|seen| seen.body == upload);
    assert_eq!(whole.collect::<Vec<_>>(), [true, true]);
}
