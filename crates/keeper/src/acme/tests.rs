//! The process against Pebble and a scripted authority; the supervisor is this test.

mod scripted;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use ipc::acme::{Binding, Budgets, CertificateState as Told, ChallengeKind, Demand, Proof};
use ipc::message::Message;
use rcgen::{CertificateParams, KeyPair};
use testkit::PATIENCE;
use testkit::pebble::{Accounts, Pebble};

use super::*;

/// What the supervisor holds, and what it has heard.
struct StandIn {
    link: OwnedFd,
    process: Option<JoinHandle<io::Result<()>>>,
    web: Web,
    keys: HashMap<String, KeyPair>,
    credentials: Option<Blob>,
    order: Option<(String, String)>,
    states: BTreeMap<String, Told>,
    /// What it does not order: which, why, and whether it forgets it.
    refused: Vec<(String, String, bool)>,
    requests: usize,
    accounts: usize,
    /// Names whose proofs are not shown.
    hidden: Vec<String>,
}

/// Answers HTTP-01 on a port.
#[derive(Clone, Default)]
struct Web {
    tokens: Arc<Mutex<HashMap<String, String>>>,
}

impl Web {
    fn start(port: u16) -> Web {
        let web = Web::default();
        let tokens = Arc::clone(&web.tokens);
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &tokens.lock().expect("no panic"));
            }
        });
        web
    }
}

fn answer(mut stream: TcpStream, tokens: &HashMap<String, String>) -> io::Result<()> {
    let mut request = [0; 2_048];
    let bytes = stream.read(&mut request)?;
    let request = String::from_utf8_lossy(&request[..bytes]).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let token = path.strip_prefix("/.well-known/acme-challenge/");
    let body = token.and_then(|token| tokens.get(token)).cloned();
    let status = if body.is_some() { 200 } else { 404 };
    let body = body.unwrap_or_default();
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}", body.len());
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes())
}

impl StandIn {
    fn new(web: Web) -> StandIn {
        let (link, process) = begin();
        StandIn {
            link,
            process: Some(process),
            web,
            keys: HashMap::new(),
            credentials: None,
            order: None,
            refused: Vec::new(),
            states: BTreeMap::new(),
            requests: 0,
            accounts: 0,
            hidden: Vec::new(),
        }
    }

    /// Ends the process, as its death would, and begins another.
    fn restart(&mut self) {
        let (link, process) = begin();
        self.link = link;
        self.states.clear();
        let before = self.process.replace(process).expect("there is one");
        before.join().expect("no panic").expect("it ended well");
    }

    fn say(&self, message: &ToAcme) {
        message.send(self.link.as_fd()).expect("it listens");
    }

    /// Answers the next message; the chain, where it was one.
    fn turn(&mut self, pebble: Option<&Pebble>) -> Option<(String, String)> {
        let readable = os::net::wait_readable(&[self.link.as_fd()], Some(PATIENCE));
        assert_eq!(readable.expect("poll"), [true], "it says nothing more");
        match FromAcme::recv(self.link.as_fd()).expect("a message") {
            FromAcme::Account { credentials, .. } => {
                self.accounts += 1;
                self.credentials = Some(credentials);
            }
            FromAcme::Request { certificate, names } => {
                self.requests += 1;
                let key = KeyPair::generate().expect("a key");
                let params = CertificateParams::new(names).expect("names");
                let request = params.serialize_request(&key).expect("a request");
                let result = Ok(Blob::from(request.der().to_vec()));
                self.keys.insert(certificate.clone(), key);
                self.say(&ToAcme::Requested {
                    certificate,
                    result,
                });
            }
            FromAcme::Publish {
                number,
                name,
                proof,
                ..
            } => {
                if !self.hidden.contains(&name) {
                    self.show(&name, proof, pebble);
                }
                let result = Ok(());
                self.say(&ToAcme::Published { number, result });
            }
            FromAcme::Ordered { account, url, .. } => self.order = Some((account, url)),
            FromAcme::Withdraw { .. } => {}
            FromAcme::Refused {
                certificate,
                why,
                is_forgotten,
            } => self.refused.push((certificate, why, is_forgotten)),
            FromAcme::State(state) => {
                self.states.insert(state.certificate.clone(), state);
            }
            FromAcme::Issued { certificate, chain } => {
                let chain = String::from_utf8(chain.0.to_vec()).expect("PEM");
                return Some((certificate, chain));
            }
        }
        None
    }

    fn show(&self, name: &str, proof: Proof, pebble: Option<&Pebble>) {
        match (proof, pebble) {
            (
                Proof::Http {
                    token,
                    authorization,
                },
                _,
            ) => {
                let mut tokens = self.web.tokens.lock().expect("no panic");
                tokens.insert(token, authorization);
            }
            (Proof::Dns { value }, Some(pebble)) => {
                let name = name.strip_prefix("*.").unwrap_or(name);
                pebble.set_text(&format!("_acme-challenge.{name}."), &value);
            }
            (proof, _) => panic!("nobody wants {proof:?}"),
        }
    }

    /// Goes on until a chain comes, and stores it; what it says.
    fn until_issued(&mut self, pebble: Option<&Pebble>) -> Held {
        let (certificate, chain) = self.until_chain(pebble);
        self.store(&certificate, &chain)
    }

    fn until_chain(&mut self, pebble: Option<&Pebble>) -> (String, String) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(chain) = self.turn(pebble) {
                return chain;
            }
            assert!(Instant::now() < until, "no chain: {:?}", self.states);
        }
    }

    fn store(&mut self, certificate: &str, chain: &str) -> Held {
        let held = held(chain);
        let key = self.keys.get(certificate).expect("its key was made");
        assert!(
            holds(&held.leaf.0, rcgen::PublicKeyData::der_bytes(key)),
            "another key"
        );
        self.order = None;
        self.say(&ToAcme::Stored {
            certificate: certificate.to_owned(),
            result: Ok(held.clone()),
        });
        held
    }

    fn until_state(&mut self, pebble: Option<&Pebble>, certificate: &str) -> Told {
        let tries = |known: &BTreeMap<String, Told>| {
            let told = known.get(certificate);
            told.map_or(0, |told| told.tries + told.rehearsals)
        };
        let before = tries(&self.states);
        let until = Instant::now() + PATIENCE;
        while tries(&self.states) == before {
            let chain = self.turn(pebble);
            assert!(chain.is_none(), "a chain for {certificate}");
            assert!(Instant::now() < until, "nothing is said of {certificate}");
        }
        self.states[certificate].clone()
    }
}

fn holds(der: &[u8], part: &[u8]) -> bool {
    der.windows(part.len()).any(|window| window == part)
}

fn begin() -> (OwnedFd, JoinHandle<io::Result<()>>) {
    let (ours, its) = os::fdpass::pair().expect("a link");
    (ours, std::thread::spawn(move || serve(its)))
}

fn held(chain: &str) -> Held {
    use rustls::pki_types::pem::PemObject;
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).expect("a chain");
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).expect("a certificate");
    let names = parsed
        .subject_alternative_name()
        .expect("sound")
        .expect("there");
    let names = names.value.general_names.iter().map(|name| match name {
        x509_parser::extensions::GeneralName::DNSName(name) => (*name).to_owned(),
        other => panic!("{other:?}"),
    });
    Held {
        names: names.collect(),
        not_before_s: parsed.validity().not_before.timestamp(),
        not_after_s: parsed.validity().not_after.timestamp(),
        leaf: Blob::from(leaf.to_vec()),
    }
}

fn account(pebble: &Pebble, challenge: ChallengeKind) -> Account {
    Account {
        challenges: vec![challenge],
        authorities: pebble.authorities().display().to_string(),
        ..account_at(&pebble.url())
    }
}

fn account_at(directory: &str) -> Account {
    Account {
        name: "test".into(),
        directory: directory.into(),
        contact: vec!["mailto:ops@example.jp".into()],
        binding: None,
        challenges: vec![ChallengeKind::Http01],
        profile: None,
        authorities: String::new(),
        credentials: None,
        is_writer: true,
        budgets: None,
    }
}

fn wanted(certificate: &str, names: &[&str]) -> Wanted {
    Wanted {
        certificate: certificate.into(),
        accounts: vec![0],
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        held: None,
        order: None,
        demand: None,
    }
}

fn plan(account: Account, certificates: Vec<Wanted>) -> ToAcme {
    ToAcme::Plan(Plan {
        accounts: vec![account],
        certificates,
    })
}

#[test]
fn a_certificate_is_ordered_by_http_with_a_bound_account_and_nine_of_ten_nonces_refused() {
    let nonces = [("PEBBLE_WFE_NONCEREJECT", "90")];
    let Some(pebble) = Pebble::start(Accounts::Bound, &nonces) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    let mut account = account(&pebble, ChallengeKind::Http01);
    let (id, key) = pebble.binding();
    account.binding = Some(Binding {
        id: id.into(),
        key: key.into(),
    });
    let names = ["www.example.jp", "example.jp"];
    supervisor.say(&plan(account, vec![wanted("example.jp", &names)]));
    let held = supervisor.until_issued(Some(&pebble));
    let mut got = held.names.clone();
    got.sort();
    assert_eq!(got, ["example.jp", "www.example.jp"]);
    let state = supervisor.until_state(Some(&pebble), "example.jp");
    assert_eq!((state.failures, state.error.as_str()), (0, ""));
    // A third of its life before its end.
    assert!(state.next_try_s > held.not_before_s && state.next_try_s < held.not_after_s);
    assert_eq!((supervisor.accounts, supervisor.requests), (1, 1));
}

#[test]
fn a_name_that_does_not_validate_is_left_out_and_told_and_the_others_are_ordered() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    supervisor.hidden = vec!["hidden.example".into()];
    let names = ["a.example", "hidden.example", "b.example"];
    let account = account(&pebble, ChallengeKind::Http01);
    supervisor.say(&plan(account, vec![wanted("a.example", &names)]));
    let held = supervisor.until_issued(Some(&pebble));
    let mut got = held.names;
    got.sort();
    assert_eq!(got, ["a.example", "b.example"]);
    let told = &supervisor.until_state(Some(&pebble), "a.example");
    assert_eq!(told.left_out.len(), 1);
    let (name, why) = &told.left_out[0];
    assert_eq!(name, "hidden.example");
    assert!(why.contains("404"), "{why}");
}

/// A name that a client asks for, now.
fn demanded(name: &str) -> ToAcme {
    let demand = Demand {
        tenant: "example".into(),
        asked_s: super::now_s(),
        first_s: None,
    };
    ToAcme::Demand(Wanted {
        demand: Some(demand),
        ..wanted(name, &[name])
    })
}

#[test]
fn what_is_demanded_is_ordered_within_the_budgets_and_each_refusal_says_why() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    supervisor.hidden = vec!["hidden.example".into()];
    let account = Account {
        budgets: Some(Budgets {
            per_tenant: 2,
            per_domain: 10,
            in_all: 10,
            unused_s: 1_000,
        }),
        ..account(&pebble, ChallengeKind::Http01)
    };
    supervisor.say(&plan(account, Vec::new()));
    supervisor.say(&demanded("a.example"));
    assert_eq!(supervisor.until_issued(Some(&pebble)).names, ["a.example"]);
    supervisor.say(&demanded("hidden.example"));
    while supervisor.refused.is_empty() {
        assert_eq!(supervisor.turn(Some(&pebble)), None);
    }
    let (name, why, is_forgotten) = supervisor.refused.remove(0);
    assert_eq!((name.as_str(), is_forgotten), ("hidden.example", false));
    assert!(why.contains("404"), "{why}");
    // It rests, and whoever asks for it meanwhile is told at once.
    supervisor.say(&demanded("hidden.example"));
    for index in 0..100 {
        supervisor.say(&demanded(&format!("n{index}.example")));
    }
    while supervisor.refused.len() < 101 {
        assert_eq!(supervisor.turn(Some(&pebble)), None, "nothing is ordered");
    }
    let (name, why, _) = supervisor.refused.remove(0);
    assert_eq!(name, "hidden.example");
    assert!(
        why.contains("404") && why.contains("tried again in"),
        "{why}"
    );
    for (_, why, is_forgotten) in &supervisor.refused {
        assert!(why.starts_with("2 new names of tenant example"), "{why}");
        assert!(is_forgotten);
    }
    assert_eq!(supervisor.requests, 1);
}

#[test]
fn a_wildcard_is_ordered_by_a_record() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::default());
    let account = account(&pebble, ChallengeKind::Dns01);
    let names = ["*.example.org"];
    supervisor.say(&plan(account, vec![wanted("_.example.org", &names)]));
    assert_eq!(supervisor.until_issued(Some(&pebble)).names, names);
}

#[test]
fn a_process_that_dies_before_a_chain_is_stored_is_followed_by_one_that_gets_the_same() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    let mut account = account(&pebble, ChallengeKind::Http01);
    let mut wanted = wanted("a.example", &["a.example"]);
    supervisor.say(&plan(account.clone(), vec![wanted.clone()]));
    let (_, first) = supervisor.until_chain(Some(&pebble));
    supervisor.restart();
    account.credentials = supervisor.credentials.clone();
    wanted.order = supervisor.order.clone();
    supervisor.say(&plan(account, vec![wanted]));
    let (certificate, second) = supervisor.until_chain(Some(&pebble));
    assert_eq!(first, second);
    supervisor.store(&certificate, &second);
    assert_eq!((supervisor.accounts, supervisor.requests), (1, 1));
}

#[test]
fn orders_of_a_hundred_names_wait_until_there_is_room_for_their_proofs() {
    let (ours, _its) = os::fdpass::pair().expect("a link");
    let orders = Rc::new(Orders::new(Link::new(ours).expect("a link")));
    let wanted = (0..9).map(|order| {
        let names = (0..ORDER_NAMES_MAX).map(|name| format!("w{name}.example{order}.jp"));
        Wanted {
            names: names.collect(),
            ..wanted(&format!("w{order}"), &[])
        }
    });
    orders.take(Plan {
        accounts: vec![account_at("https://127.0.0.1:1/directory")],
        certificates: wanted.collect(),
    });
    let (done, _ended) = mpsc::channel(ORDERS_MAX);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let start = || {
        let local = tokio::task::LocalSet::new();
        let begun = async { orders.start_what_is_due(&done) };
        local.block_on(runtime.as_ref().expect("a runtime"), begun);
        orders.state.borrow().under_way.len()
    };
    assert_eq!(start(), NAMES_MAX / ORDER_NAMES_MAX);
    assert_eq!(start(), NAMES_MAX / ORDER_NAMES_MAX);
    let first = orders.state.borrow().under_way.iter().next().cloned();
    orders
        .state
        .borrow_mut()
        .under_way
        .remove(&first.expect("one"));
    assert_eq!(start(), NAMES_MAX / ORDER_NAMES_MAX);
}

#[test]
fn nothing_is_ordered_where_another_machine_writes() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::default());
    let mut account = account(&pebble, ChallengeKind::Http01);
    account.is_writer = false;
    supervisor.say(&plan(account, vec![wanted("a.example", &["a.example"])]));
    let readable = os::net::wait_readable(&[supervisor.link.as_fd()], Some(Duration::from_secs(2)));
    assert_eq!(readable.expect("poll"), [false]);
    supervisor.restart();
}

#[test]
fn names_are_validated_for_an_operator_and_nothing_is_ordered() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    let account = account(&pebble, ChallengeKind::Http01);
    let names = ["a.example", "b.example"];
    supervisor.say(&plan(account, vec![wanted("a.example", &names)]));
    supervisor.until_issued(Some(&pebble));
    supervisor.until_state(Some(&pebble), "a.example");
    let rehearse = |supervisor: &mut StandIn| {
        let certificate = "a.example".to_owned();
        supervisor.say(&ToAcme::Rehearse { certificate });
        supervisor.until_state(Some(&pebble), "a.example")
    };
    let told = rehearse(&mut supervisor);
    assert_eq!(
        (told.rehearsals, told.rehearsal.as_str(), told.tries),
        (1, "", 1)
    );
    assert_eq!(supervisor.requests, 1);
    // What is not known is not rehearsed.
    let certificate = "no.example".to_owned();
    supervisor.say(&ToAcme::Rehearse { certificate });
    assert_eq!(rehearse(&mut supervisor).rehearsals, 2);
}

#[test]
fn a_rehearsal_tells_which_names_would_not_validate() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    supervisor.hidden = vec!["hidden.example".into()];
    let account = account(&pebble, ChallengeKind::Http01);
    // It is served with until long after this test.
    let mut wanted = wanted("a.example", &["a.example", "hidden.example"]);
    wanted.held = Some(Held {
        names: wanted.names.clone(),
        not_before_s: now_s() - 1_000,
        not_after_s: now_s() + 1_000_000,
        leaf: Blob::default(),
    });
    supervisor.say(&plan(account, vec![wanted]));
    let certificate = "a.example".to_owned();
    supervisor.say(&ToAcme::Rehearse { certificate });
    let told = supervisor.until_state(Some(&pebble), "a.example");
    assert!(told.rehearsal.starts_with("hidden.example: "), "{told:?}");
    assert_eq!(
        (told.rehearsals, told.tries, supervisor.requests),
        (1, 0, 0)
    );
}

#[test]
fn rehearsals_beyond_what_leaves_in_ten_seconds_wait_for_their_turn() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    let account = account(&pebble, ChallengeKind::Http01);
    let names: Vec<String> = (0..12).map(|index| format!("w{index}.example")).collect();
    let certificates = names.iter().map(|name| Wanted {
        held: Some(Held {
            names: vec![name.clone()],
            not_before_s: now_s() - 1_000,
            not_after_s: now_s() + 1_000_000,
            leaf: Blob::default(),
        }),
        ..wanted(name, &[name])
    });
    supervisor.say(&plan(account, certificates.collect()));
    for certificate in names.iter().cloned() {
        supervisor.say(&ToAcme::Rehearse { certificate });
    }
    let until = Instant::now() + PATIENCE;
    let has_ended = |supervisor: &StandIn, name: &String| {
        let told = supervisor.states.get(name);
        told.is_some_and(|told| told.rehearsals == 1)
    };
    while !names.iter().all(|name| has_ended(&supervisor, name)) {
        supervisor.turn(Some(&pebble));
        assert!(Instant::now() < until, "{:?}", supervisor.states);
    }
    for name in &names {
        assert_eq!(supervisor.states[name].rehearsal, "", "{name}");
    }
}

#[test]
fn what_an_operator_wants_is_ordered_whatever_is_held() {
    let Some(pebble) = Pebble::start(Accounts::Free, &[]) else {
        return;
    };
    let mut supervisor = StandIn::new(Web::start(pebble.http_port()));
    let account = account(&pebble, ChallengeKind::Http01);
    supervisor.say(&plan(account, vec![wanted("a.example", &["a.example"])]));
    let first = supervisor.until_issued(Some(&pebble));
    supervisor.until_state(Some(&pebble), "a.example");
    let certificate = "a.example".to_owned();
    supervisor.say(&ToAcme::Renew { certificate });
    let second = supervisor.until_issued(Some(&pebble));
    assert_ne!(first.leaf, second.leaf);
}
