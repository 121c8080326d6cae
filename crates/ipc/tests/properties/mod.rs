//! What holds for any bytes whatever that come over a link: the bodies shared by property tests, fuzz targets and corpora.
//!
//! Each function takes the bytes of one case and panics where a promise is broken.

use ipc::acme::{FromAcme, ToAcme};
use ipc::certificates::CertificateSet;
use ipc::keeper::{FromKeeper, Judged, ToKeeper};
use ipc::signing::{Answer, Asked, Question};

/// What the keeper is told and says is bounded, and nothing is a question that TLS does not sign.
pub(crate) fn keeper_messages(bytes: &[u8]) {
    if let Ok(question) = Question::decode(bytes) {
        assert!(bytes.len() <= 512);
        if let Asked::Sign(sign) = question.what {
            let message = sign.parts.message().expect("what TLS signs");
            assert!(message.len() <= 64 + 34 + 97 + 4);
        }
    }
    if let Ok((_, Answer::Signature { bytes, .. })) = Answer::decode(bytes) {
        assert!(bytes.len() <= 2_048);
    }
    let _ = ToKeeper::decode(bytes);
    match FromKeeper::decode(bytes) {
        Ok(FromKeeper::Judged { verdicts }) => {
            assert!(verdicts.iter().flatten().all(is_bounded));
            assert!(
                verdicts
                    .iter()
                    .all(|it| it.as_ref().err().is_none_or(|it| it.len() < 10_000))
            );
        }
        Ok(FromKeeper::Local { result: Ok(local) }) => assert!(is_bounded(&local.certificate)),
        Ok(FromKeeper::Challenge { result: Ok(judged) }) => assert!(is_bounded(&judged)),
        _ => {}
    }
    if let Ok(set) = CertificateSet::of_bytes(bytes) {
        let places = set.certificates.iter().flat_map(|it| &it.chain);
        assert!(
            places
                .into_iter()
                .all(|place| (*place as usize) < set.blobs.len())
        );
    }
}

fn is_bounded(judged: &Judged) -> bool {
    (1..=10).contains(&judged.chain.len()) && judged.names.iter().all(|name| name.len() <= 300)
}

/// What the acme process is told and says is bounded.
pub(crate) fn acme_messages(bytes: &[u8]) {
    let _ = ToAcme::decode(bytes);
    if let Ok(FromAcme::Request { names, .. }) = FromAcme::decode(bytes) {
        assert!(names.len() <= 100 && names.iter().all(|name| name.len() <= 300));
    }
}
