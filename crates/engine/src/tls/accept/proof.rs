//! What an authority is shown that looks whether a name is ours.

use limits::handshake::StepKind;
use rustls::pki_types::CertificateDer;

use super::{Handshake, Over, Shown, UNRECOGNIZED_NAME};

impl Handshake<'_> {
    /// Shows an authority the certificate of a challenge, and closes (RFC 8737, 3).
    pub(super) async fn prove(&mut self, site: Option<u32>, received: Vec<u8>) -> Result<(), Over> {
        let challenges = &self.worker.shared.challenges;
        let proof = self.name.as_deref();
        let proof = proof.and_then(|name| challenges.handshake(name));
        let policy = self.serving.generation.policies.of_authorities().cloned();
        let (Some(proof), Some(policy)) = (proof, policy) else {
            return Err(Over {
                last_word: UNRECOGNIZED_NAME,
                ..Over::of("no_certificate", "no challenge is published for it")
            });
        };
        let who = self.who(site, StepKind::Full);
        let _permit = self.admit(site)?;
        let shown = Shown {
            chain: vec![CertificateDer::from(proof.certificate.0.to_vec())],
            key: proof.key,
            kind: proof.kind,
        };
        let stepped = self.begin(shown, &policy, who, received).await?;
        let (mut session, mut unsent) = self.finish(stepped, &policy, who).await?;
        session.close(&mut unsent);
        self.send(&mut unsent).await
    }
}
