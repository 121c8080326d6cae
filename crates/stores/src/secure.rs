//! TLS to a store: whose certificates are believed, and who is to be there.

use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How TLS is spoken to a store. Two are the same where they were made as one.
#[derive(Clone)]
pub struct ServerTls(pub Arc<ClientConfig>);

impl ServerTls {
    /// Agrees on keys with a server that is to be this host.
    pub(crate) async fn begin(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> io::Result<Box<TlsStream<TcpStream>>> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let problem = format!("`{host}` is no name a certificate can have");
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        })?;
        let connector = TlsConnector::from(Arc::clone(&self.0));
        let begun = connector.connect(name, stream).await;
        begun.map(Box::new).map_err(spelled)
    }
}

/// What comes that is no TLS is told in words.
fn spelled(error: io::Error) -> io::Error {
    use rustls::{Error, InvalidMessage::InvalidContentType};
    let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidMessage(InvalidContentType)) => {
            io::Error::new(error.kind(), "the server speaks no TLS there")
        }
        _ => error,
    }
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ServerTls {}

impl Hash for ServerTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
