//! What a connection's handshake has come to, for everybody who asks later: logs, programs, rules.

use std::cell::OnceCell;

use config::model::TlsClientFact;

use ipc::certificates::Source;

use super::client_certificate::ClientCertificate;
use super::session::Agreed;

/// What is known of the TLS of a connection.
#[derive(Debug)]
pub struct TlsFacts {
    /// What was agreed on.
    pub(crate) agreed: Agreed,
    /// The host the client asked for, as sites are looked up; `None` where it said none.
    pub(crate) name: Option<Box<str>>,
    /// The policy it came under.
    pub(crate) policy: [u8; 32],
    /// Where the certificate is from that was shown; `None` where a script chose it.
    pub(crate) source: Option<Source>,
    /// How long the handshake took, in microseconds of processors.
    pub(crate) cpu_us: u64,
    /// What the client's certificate says, read when somebody first asks.
    pub(crate) client: OnceCell<Option<Box<ClientCertificate>>>,
}

impl TlsFacts {
    /// The certificate that the client has shown.
    pub(crate) fn client(&self) -> Option<&ClientCertificate> {
        let read = || {
            let der = self.agreed.client_certificate.as_deref()?;
            ClientCertificate::read(der).map(Box::new)
        };
        self.client.get_or_init(read).as_deref()
    }

    /// Appends what the client's certificate says of this; tells whether there is something to say.
    pub(crate) fn push_client(&self, fact: TlsClientFact, out: &mut Vec<u8>) -> bool {
        match self.client() {
            Some(client) => client.push(fact, out),
            None if fact == TlsClientFact::Verify => out.extend_from_slice(b"NONE"),
            None => return false,
        }
        true
    }
}
