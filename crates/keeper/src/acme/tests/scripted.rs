//! Windows, profiles and refusals, which Pebble does not have: an authority that is a script.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use serde_json::{Value, json};
use testkit::{ScriptedUpstream, Seen, Step};

use super::*;

/// What the authority does, and what it was asked for.
#[derive(Default)]
struct Script {
    /// The window it suggests, as RFC 3339 writes it.
    window: Option<(&'static str, &'static str)>,
    /// Orders are refused for so many seconds.
    refuses_s: Option<u32>,
    chain: String,
    /// What orders are said to replace.
    replaces: Option<String>,
}

struct Scripted {
    upstream: ScriptedUpstream,
    script: Arc<Mutex<Script>>,
}

impl Scripted {
    fn start(script: Script) -> Scripted {
        let script = Arc::new(Mutex::new(script));
        let ours = Arc::clone(&script);
        let upstream = ScriptedUpstream::start(move |seen| {
            let script = ours.lock().expect("no panic");
            vec![Step::ReadBody, script.reply(seen)]
        });
        Scripted { upstream, script }
    }

    fn account(&self) -> Account {
        Account {
            name: "test".into(),
            directory: format!("http://{}/dir", self.upstream.address()),
            contact: Vec::new(),
            binding: None,
            challenges: vec![ChallengeKind::Http01],
            profile: None,
            authorities: String::new(),
            credentials: None,
            is_writer: true,
            budgets: None,
        }
    }

    /// What was ordered since this was asked last.
    fn ordered(&self) -> Vec<Value> {
        let seen = self.upstream.take_seen();
        let orders = seen.iter().filter(|seen| target(seen) == "/order");
        orders.map(|seen| said_in(&seen.body)).collect()
    }
}

impl Script {
    fn reply(&self, seen: &Seen) -> Step {
        let host = seen.head.field("host").unwrap_or_default();
        let at = |path: &str| format!("http://{host}/{path}");
        let order = json!({"status": "valid", "authorizations": [], "identifiers": [],
            "finalize": at("finalize"), "certificate": at("chain"), "replaces": self.replaces})
        .to_string();
        match target(seen) {
            "/dir" => answer_with(
                200,
                "",
                &json!({
                    "newNonce": at("nonce"), "newAccount": at("account"), "newOrder": at("order"),
                    "renewalInfo": at("ari"), "meta": {"profiles": {"shortlived": "six days"}},
                })
                .to_string(),
            ),
            "/nonce" => answer_with(200, "", ""),
            "/account" => answer_with(201, &format!("Location: {}\r\n", at("account/1")), "{}"),
            "/order" => {
                if let Some(rest_s) = self.refuses_s {
                    let problem = json!({"type": "urn:ietf:params:acme:error:rateLimited",
                        "detail": "too many certificates"});
                    let rest = format!("Retry-After: {rest_s}\r\n");
                    return answer_with(429, &rest, &problem.to_string());
                }
                let place = format!("Location: {}\r\n", at("order/1"));
                answer_with(201, &place, &order)
            }
            "/chain" => answer_with(200, "", &self.chain),
            "/order/1" => answer_with(200, "", &order),
            path if path.starts_with("/ari/") => match self.window {
                Some((start, end)) => {
                    let info = json!({"suggestedWindow": {"start": start, "end": end}});
                    answer_with(200, "Retry-After: 21600\r\n", &info.to_string())
                }
                None => answer_with(404, "", "{}"),
            },
            path => panic!("nobody asks for {path}"),
        }
    }
}

fn target(seen: &Seen) -> &str {
    seen.head.line.split(' ').nth(1).unwrap_or_default()
}

fn answer_with(status: u16, fields: &str, body: &str) -> Step {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nReplay-Nonce: n\r\nContent-Length: {length}\r\n");
    Step::Send(format!("{head}{fields}\r\n{body}").into_bytes())
}

/// What a signed request says.
fn said_in(body: &[u8]) -> Value {
    let signed: Value = serde_json::from_slice(body).expect("JSON");
    let said = signed["payload"].as_str().expect("a payload");
    let said = BASE64_URL_SAFE_NO_PAD.decode(said).expect("base64url");
    serde_json::from_slice(&said).expect("JSON")
}

/// A certificate that says who has signed it.
fn chain() -> String {
    let authority = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::Issuer::new(params, authority);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["a.example".into()]).expect("a name");
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer).expect("signed");
    pem(certificate.der())
}

fn pem(der: &[u8]) -> String {
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// Says that a chain is stored, valid for ninety days from now on.
fn say_stored(supervisor: &StandIn, (certificate, chain): (String, String)) {
    let mut held = held(&chain);
    held.not_before_s = now_s();
    held.not_after_s = now_s() + 90 * 86_400;
    let result = Ok(held);
    supervisor.say(&ToAcme::Stored {
        certificate,
        result,
    });
}

#[test]
fn an_authoritys_window_is_kept_to_and_the_order_says_what_it_replaces() {
    let past = ("2025-01-02T04:00:00Z", "2025-01-03T04:00:00Z");
    let chain = chain();
    let identifier = identifier_of(&held(&chain)).expect("it says who has signed it");
    let authority = Scripted::start(Script {
        window: Some(past),
        replaces: Some(identifier.to_string()),
        chain,
        ..Script::default()
    });
    let mut supervisor = StandIn::new(Web::default());
    let account = authority.account();
    supervisor.say(&plan(account, vec![wanted("a.example", &["a.example"])]));
    let first = supervisor.until_chain(None);
    say_stored(&supervisor, first);
    // It is fresh, and ordered again because the authority wants that.
    let second = supervisor.until_chain(None);
    authority.script.lock().expect("no panic").window = None;
    say_stored(&supervisor, second);
    supervisor.until_state(None, "a.example");
    let [first, second] = &authority.ordered()[..] else {
        panic!("two orders");
    };
    assert_eq!(first.get("replaces"), None);
    assert_eq!(second["replaces"], identifier.to_string());
}

#[test]
fn a_profile_is_ordered_by_name_and_one_that_is_not_there_is_told() {
    let authority = Scripted::start(Script {
        chain: chain(),
        ..Script::default()
    });
    let mut supervisor = StandIn::new(Web::default());
    let mut account = authority.account();
    account.profile = Some("shortlived".into());
    let certificates = vec![wanted("a.example", &["a.example"])];
    supervisor.say(&plan(account.clone(), certificates.clone()));
    let chain = supervisor.until_chain(None);
    say_stored(&supervisor, chain);
    supervisor.until_state(None, "a.example");
    assert_eq!(authority.ordered()[0]["profile"], "shortlived");
    account.profile = Some("longlived".into());
    supervisor.restart();
    supervisor.say(&plan(account, certificates));
    let told = supervisor.until_state(None, "a.example");
    assert_eq!(
        told.error,
        "the authority has no profile longlived; it has: shortlived"
    );
    assert_eq!((told.failures, authority.ordered().len()), (1, 0));
}

#[test]
fn an_authority_that_refuses_is_left_alone_for_as_long_as_it_asks() {
    let authority = Scripted::start(Script {
        refuses_s: Some(7_200),
        ..Script::default()
    });
    let mut supervisor = StandIn::new(Web::default());
    let account = authority.account();
    let begun_s = now_s();
    supervisor.say(&plan(account, vec![wanted("a.example", &["a.example"])]));
    let told = supervisor.until_state(None, "a.example");
    assert!(
        told.error.contains("too many certificates"),
        "{}",
        told.error
    );
    let rest_s = told.next_try_s - begun_s;
    assert!((7_200..7_300).contains(&rest_s), "{rest_s}");
}

#[test]
fn another_authority_has_its_turn_where_the_first_one_fails() {
    let mut plan = Plan::default();
    let authority = Scripted::start(Script {
        chain: chain(),
        ..Script::default()
    });
    let mut first = authority.account();
    // Nobody listens there.
    first.directory = "http://127.0.0.1:1/dir".into();
    let mut second = authority.account();
    second.name = "second".into();
    plan.accounts = vec![first, second];
    let mut wanted = wanted("a.example", &["a.example"]);
    wanted.accounts = vec![0, 1];
    plan.certificates = vec![wanted];
    let mut supervisor = StandIn::new(Web::default());
    supervisor.say(&ToAcme::Plan(plan));
    for failures in 1..=3 {
        let told = supervisor.until_state(None, "a.example");
        assert_eq!(told.failures, failures);
        assert!(told.error.contains("account test"), "{}", told.error);
        let certificate = "a.example".to_owned();
        supervisor.say(&ToAcme::Renew { certificate });
    }
    let chain = supervisor.until_chain(None);
    say_stored(&supervisor, chain);
    assert_eq!(supervisor.until_state(None, "a.example").failures, 0);
}
