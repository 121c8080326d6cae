//! TLS as ApacheBench is told about it, `-Z` `-f` `-E` `-I`, and as it tells of it.
//!
//! OpenSSL has names of its own for cipher suites up to TLS 1.2; both they and the standard's are
//! taken, and OpenSSL's are shown, for scripts compare them.

use std::net::IpAddr;

use super::flags::Flags;
use super::refusal::{Refusal, refuse_plainly};
use load::client::{Tls, TlsFacts, TlsResume, TlsVersion};

/// Suites the generator knows: the standard's name and OpenSSL's.
const SUITES: [(&str, &str); 9] = [
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

/// How many of them are TLS 1.3's; OpenSSL offers these whatever `-Z` says, unless `-f TLS1.3`.
const OF_VERSION_1_3: usize = 3;

/// What is asked for, of a server with this name.
pub(crate) fn asked(flags: &Flags, name: &str) -> Result<Tls, Refusal> {
    let versions = versions(flags.protocol.as_deref())?;
    let mut suites = match &flags.suites {
        Some(text) => suites(text)?,
        None => Vec::new(),
    };
    if !suites.is_empty() && versions != [TlsVersion::V13] {
        let newest = SUITES.iter().take(OF_VERSION_1_3);
        suites.extend(newest.map(|(name, _)| (*name).to_owned()));
        suites.dedup();
    }
    Ok(Tls {
        name: name.to_owned(),
        more_names: Vec::new(),
        sni: flags.sni && is_name(name),
        versions,
        suites,
        groups: Vec::new(),
        identity: flags.identity.clone(),
        resume: TlsResume::Never,
    })
}

/// Whether it may be sent as SNI: an address may not.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.parse::<IpAddr>().is_err()
}

fn versions(protocol: Option<&str>) -> Result<Vec<TlsVersion>, Refusal> {
    let Some(protocol) = protocol else {
        return Ok(Vec::new());
    };
    match protocol.to_ascii_uppercase().as_str() {
        "ALL" => Ok(Vec::new()),
        "TLS1.2" => Ok(vec![TlsVersion::V12]),
        "TLS1.3" => Ok(vec![TlsVersion::V13]),
        "SSL2" | "SSL3" | "TLS1" | "TLS1.0" | "TLS1.1" => refuse_plainly(
            1,
            format!("-f {protocol}: too old to be spoken here; TLS1.2, TLS1.3 and ALL are"),
        ),
        _ => refuse_plainly(1, format!("-f {protocol}: write TLS1.2, TLS1.3 or ALL")),
    }
}

fn suites(text: &str) -> Result<Vec<String>, Refusal> {
    let known = |wanted: &str| {
        SUITES
            .iter()
            .find(|(ours, theirs)| [*ours, *theirs].contains(&wanted))
    };
    let names = text.split([':', ',', ' ']).filter(|name| !name.is_empty());
    names
        .map(|name| match known(name) {
            Some((ours, _)) => Ok((*ours).to_owned()),
            None => {
                let all: Vec<_> = SUITES.iter().map(|(_, theirs)| *theirs).collect();
                refuse_plainly(
                    1,
                    format!(
                        "-Z: `{name}` is not spoken here; these are: {}",
                        all.join(":")
                    ),
                )
            }
        })
        .collect()
}

/// What `SSL/TLS Protocol` says.
pub(crate) fn shown(facts: &TlsFacts) -> String {
    let suite = SUITES
        .iter()
        .find(|(ours, _)| *ours == facts.suite)
        .map_or(facts.suite.as_str(), |(_, theirs)| theirs);
    format!(
        "{},{suite},{},{}",
        facts.version, facts.server_key_bits, facts.cipher_bits
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(suites: Option<&str>, protocol: Option<&str>) -> Flags {
        Flags {
            suites: suites.map(str::to_owned),
            protocol: protocol.map(str::to_owned),
            ..Flags::default()
        }
    }

    #[test]
    fn suites_have_either_name_and_leave_the_newest_in() {
        for name in [
            "ECDHE-RSA-AES128-GCM-SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ] {
            let tls = asked(&flags(Some(name), None), "a").expect("known");
            assert_eq!(tls.suites.len(), 4, "{:?}", tls.suites);
            assert_eq!(tls.suites[0], "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
        }
        let only = flags(Some("TLS_AES_128_GCM_SHA256"), Some("tls1.3"));
        assert_eq!(
            asked(&only, "a").expect("known").suites,
            ["TLS_AES_128_GCM_SHA256"]
        );
        assert!(
            asked(&flags(None, None), "a")
                .expect("known")
                .suites
                .is_empty()
        );
    }

    #[test]
    fn what_is_not_spoken_is_said() {
        for (suites, protocol, words) in [
            (Some("RC4-SHA"), None, "`RC4-SHA` is not spoken"),
            (None, Some("TLS1.1"), "too old"),
            (None, Some("quic"), "write TLS1.2"),
        ] {
            let refusal = asked(&flags(suites, protocol), "a").expect_err("unknown");
            assert!(refusal.words.contains(words), "{}", refusal.words);
        }
    }

    #[test]
    fn an_address_is_never_sent_as_a_name() {
        for (name, sni) in [
            ("a", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("", false),
        ] {
            assert_eq!(
                asked(&flags(None, None), name).expect("known").sni,
                sni,
                "{name}"
            );
        }
        let silent = Flags {
            sni: false,
            ..Flags::default()
        };
        assert!(!asked(&silent, "a").expect("known").sni);
    }

    #[test]
    fn suites_are_shown_as_openssl_calls_them() {
        let mut facts = TlsFacts {
            version: "TLSv1.2".into(),
            suite: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384".into(),
            server_key_bits: 2048,
            cipher_bits: 256,
            temporary_key: None,
        };
        assert_eq!(
            shown(&facts),
            "TLSv1.2,ECDHE-RSA-AES256-GCM-SHA384,2048,256"
        );
        facts.suite = "OTHER".into();
        assert_eq!(shown(&facts), "TLSv1.2,OTHER,2048,256");
    }
}
