//! What a configuration says of a fleet's store.

use std::path::PathBuf;

use config::model::{FleetStore, ServerAddress};

use crate::written;

fn text(store: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\n\
         limits = [{{ concurrent = 2, scope = \"fleet\" }}]\n[fleet]\nstore = \"{store}\"\n"
    )
}

fn store(store: &str) -> FleetStore {
    let model = written::model(&text(store));
    model.fleet.expect("a fleet").store
}

#[test]
fn a_store_is_an_address_a_socket_or_what_sentinels_say() {
    let usual = store("redis://127.0.0.1");
    assert_eq!(usual.addresses.len(), 1);
    assert_eq!(
        (usual.database, usual.tls, usual.sentinel),
        (0, false, None)
    );
    let secured =
        store("redis://web@valkey.internal:7000/3?password_file=word&tls=on&ca=/etc/ca.pem");
    let host = "valkey.internal".to_owned();
    let address = ServerAddress::Name { host, port: 7_000 };
    assert_eq!(secured.addresses, [address]);
    assert_eq!((secured.database, secured.tls), (3, true));
    let file = |path: &str| Some(PathBuf::from(path));
    assert_eq!(secured.password_file, file("/word"));
    assert_eq!(secured.authorities, file("/etc/ca.pem"));
    let socket = store("redis:///1?socket=/run/valkey.sock");
    let path = ServerAddress::Unix("/run/valkey.sock".into());
    assert_eq!((socket.addresses, socket.database), (vec![path], 1));
    let watched = store("redis://127.0.0.1,127.0.0.2:7000,[::1]/0?sentinel=main");
    let addresses = ["127.0.0.1:26379", "127.0.0.2:7000", "[::1]:26379"];
    let addresses = addresses.map(|it| ServerAddress::Tcp(it.parse().expect("an address")));
    assert_eq!(watched.addresses, addresses);
    assert_eq!(watched.sentinel.as_deref(), Some("main"));
}

#[test]
fn what_is_no_store_is_refused() {
    let many = format!("redis://{}/0?sentinel=a", ["a"; 17].join(","));
    for (store, said) in [
        ("rediss://a", "is no store"),
        ("redis://a:b@c", "password_file"),
        ("redis://a@b", "has a password"),
        ("redis://a/b", "a database is a number"),
        ("redis://a?x=1", "no option of a store"),
        ("redis://a?ca=b", "without TLS"),
        ("redis://a?sentinel=", "what Sentinels watch"),
        ("redis://a?tls=perhaps", "`on` or `off`"),
        ("redis://a?socket=/b", "not both"),
        ("redis://?socket=/b&tls=on", "of a socket"),
        ("redis://a,b/0", "1 addresses at most"),
        (&many, "16 addresses at most"),
    ] {
        let problems = written::problems(&written::sources(&text(store)));
        assert!(problems.contains(said), "{store}: {problems}");
    }
}

#[test]
fn limits_that_lack_a_fleet_are_told_of_once() {
    let limits =
        "limits = [{ concurrent = 5, scope = \"fleet\" }, { rate = \"1/s\", scope = \"fleet\" }]";
    let site = |host: &str| format!("[[sites]]\nhosts = [\"{host}\"]\nroot = \"/tmp\"\n{limits}\n");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:1\"\n{}{}",
        site("a.test"),
        site("b.test")
    );
    let problems = written::problems(&written::sources(&text));
    assert_eq!(
        problems.matches("there is no `[fleet]`").count(),
        1,
        "{problems}"
    );
}

#[test]
fn a_store_that_is_asked_over_a_network_in_the_clear_is_warned_of() {
    for (store, is_warned) in [
        ("redis://127.0.0.1", false),
        ("redis://10.0.0.5", true),
        ("redis://10.0.0.5?tls=on", false),
        ("redis://127.0.0.1/0?sentinel=main", true),
        ("redis://10.0.0.6/0?sentinel=main&tls=on", false),
    ] {
        let warnings = written::warnings(&written::sources(&text(store)));
        assert_eq!(warnings.contains("over TLS"), is_warned, "{store}");
    }
}
