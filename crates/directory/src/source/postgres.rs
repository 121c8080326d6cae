//! PostgreSQL: one connection for questions, one for what is listened to.
//!
//! The idea: questions go over one connection, one behind the other without waiting. One that is not
//! answered in time costs the connection, since those behind it wait as well; the next makes another.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use ipc::directory::ServerSettings;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, NoTls, TlsConnect, TlsStream};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Statement};

use super::{Answered, Queries, Question, WRONG_TYPE, tls};

/// How often who listens asks for a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

type AnyError = Box<dyn std::error::Error + Sync + Send>;
/// What is listened to: the text of each message.
pub(crate) type Notices = mpsc::Sender<String>;

/// A database.
pub(crate) struct Postgres {
    login: PostgresLogin,
    wait: Duration,
    pub(super) queries: Queries,
    session: tokio::sync::Mutex<()>,
    open: RefCell<Option<Rc<PostgresSession>>>,
}

/// A connection and the statements prepared on it.
struct PostgresSession {
    client: Client,
    statements: RefCell<HashMap<String, Statement>>,
}

impl Postgres {
    pub(super) fn new(
        server: ServerSettings,
        queries: Queries,
        wait: Duration,
    ) -> Result<Postgres, String> {
        Ok(Postgres {
            login: PostgresLogin::new(server)?,
            wait,
            queries,
            session: tokio::sync::Mutex::new(()),
            open: RefCell::default(),
        })
    }

    /// Closes the connection; who waits on it hears that it failed.
    pub(super) fn give_up(&self) {
        self.open.take();
    }

    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answered, String> {
        let query = self.queries.of_question(question)?;
        let session = self.session().await?;
        let asked = session.ask(&query.text, query.count > 0, question).await;
        asked.map_err(|error| {
            if session.client.is_closed() {
                self.give_up();
            }
            told(&error)
        })
    }

    /// The open connection, or another; one is made at a time.
    async fn session(&self) -> Result<Rc<PostgresSession>, String> {
        let _turn = self.session.lock().await;
        let open = self.open.borrow().clone();
        if let Some(open) = open.filter(|open| !open.client.is_closed()) {
            return Ok(open);
        }
        let (client, _) = self.login.connect(None).await?;
        let session = Rc::new(PostgresSession {
            client,
            statements: RefCell::default(),
        });
        self.open.replace(Some(Rc::clone(&session)));
        Ok(session)
    }

    /// Listens to a channel until the connection ends; `ready` once it does.
    pub(crate) async fn listen(
        &self,
        channel: &str,
        notices: Notices,
        ready: impl FnOnce(),
    ) -> Result<(), String> {
        let connected = tokio::time::timeout(self.wait, async {
            let (client, _) = self.login.connect(Some(notices)).await?;
            // The channel's name is letters, digits and a few more: the configuration has been checked for it.
            let listening = client.batch_execute(&format!("LISTEN \"{channel}\"")).await;
            listening.map(|()| client).map_err(|error| told(&error))
        });
        let client = connected
            .await
            .map_err(|_| "it does not connect in time")??;
        ready();
        // A server that is gone without a word is noticed by that it does not answer.
        loop {
            tokio::time::sleep(SIGN_OF_LIFE).await;
            let answered = tokio::time::timeout(self.wait, client.batch_execute("")).await;
            match answered {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(told(&error)),
                Err(_) => return Err("it is silent".to_owned()),
            }
        }
    }
}

/// A server, and who logs in.
pub(crate) struct PostgresLogin {
    server: ServerSettings,
    tls: Option<Arc<ClientConfig>>,
}

impl PostgresLogin {
    /// Makes one; it connects when it is told to.
    ///
    /// # Errors
    /// No authority vouches for it.
    pub(crate) fn new(server: ServerSettings) -> Result<PostgresLogin, String> {
        let tls = server.tls.as_deref().map(tls::client_config).transpose()?;
        Ok(PostgresLogin { server, tls })
    }

    /// Connects; what is listened to over the connection goes to `notices`. Without its client the connection ends once
    /// all is answered, or where it is aborted.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) async fn connect(
        &self,
        notices: Option<Notices>,
    ) -> Result<(Client, AbortHandle), String> {
        let mut config = Config::new();
        config
            .user(&self.server.user)
            .dbname(&self.server.database)
            .application_name("nagaya");
        if let Some(password) = &self.server.password {
            config.password(password);
        }
        let failed = |error: io::Error| format!("it does not connect: {}", config::reason(&error));
        let Some(port) = self.server.port else {
            let stream = UnixStream::connect(&self.server.host)
                .await
                .map_err(failed)?;
            return login(&config, stream, NoTls, notices).await;
        };
        let stream = TcpStream::connect((self.server.host.as_str(), port))
            .await
            .map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else {
            config.ssl_mode(SslMode::Disable);
            return login(&config, stream, NoTls, notices).await;
        };
        config.ssl_mode(SslMode::Require);
        let name = ServerName::try_from(self.server.host.clone());
        let name = name.map_err(|_| "its name can be in no certificate")?;
        let tls = Tls {
            config: Arc::clone(tls),
            name,
        };
        login(&config, stream, tls, notices).await
    }
}

async fn login<S, T>(
    config: &Config,
    stream: S,
    tls: T,
    notices: Option<Notices>,
) -> Result<(Client, AbortHandle), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: TlsConnect<S>,
    T::Stream: Send + 'static,
{
    let connected = config.connect_raw(stream, tls).await;
    let (client, connection) = connected.map_err(|error| told(&error))?;
    let driving = tokio::spawn(drive(connection, notices));
    Ok((client, driving.abort_handle()))
}

/// Moves bytes until the connection ends. Where messages find no room it ends at once: who listens
/// begins anew, and takes all for changed.
async fn drive<S, T>(mut connection: Connection<S, T>, notices: Option<Notices>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(message), Some(notices)) = (message, &notices)
            && notices.try_send(message.payload().to_owned()).is_err()
        {
            return;
        }
    }
}

impl PostgresSession {
    async fn ask(
        &self,
        sql: &str,
        has_parameter: bool,
        question: Question<'_>,
    ) -> Result<Answered, Error> {
        let known = self.statements.borrow().get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let statement = self.client.prepare(sql).await?;
                self.statements
                    .borrow_mut()
                    .insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        let parameters = has_parameter.then_some(Parameter(question));
        let mut answer = pin!(self.client.query_raw(&statement, parameters.iter()).await?);
        let mut rows = Vec::new();
        while let Some(row) = poll_fn(|context| answer.as_mut().poll_next(context)).await {
            let row = row?;
            let names = row.columns().iter().enumerate();
            let column = names.map(|(at, column)| {
                let cell = row.try_get::<_, TextCell>(at);
                let cell = cell.map_or_else(|_| Err(WRONG_TYPE.to_owned()), |cell| cell.0);
                (column.name().to_owned(), cell)
            });
            rows.push(column.collect());
            if rows.len() >= question.rows_max() {
                break;
            }
        }
        let names = statement.columns().iter();
        Ok(Answered {
            columns: Some(names.map(|it| it.name().to_owned()).collect()),
            rows,
        })
    }
}

/// A question's parameter, as whatever type the query takes it.
#[derive(Debug)]
struct Parameter<'a>(Question<'a>);

impl ToSql for Parameter<'_> {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, AnyError> {
        match (self.0, of) {
            (Question::Since(number), &Type::INT2) => i16::try_from(number)?.to_sql(of, out),
            (Question::Since(number), &Type::INT4) => i32::try_from(number)?.to_sql(of, out),
            (Question::Since(number), &Type::INT8) => number.to_sql(of, out),
            (Question::Since(number), _) => number.to_string().to_sql(of, out),
            (Question::Host(text) | Question::After(text), _) => text.to_sql(of, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value as a text, or why it is none.
struct TextCell(Result<Option<String>, String>);

impl<'a> FromSql<'a> for TextCell {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<TextCell, AnyError> {
        let is_text = [
            Type::TEXT,
            Type::VARCHAR,
            Type::BPCHAR,
            Type::NAME,
            Type::UNKNOWN,
        ]
        .contains(of)
            || matches!(of.kind(), Kind::Enum(_))
            || of.name() == "citext";
        let text = match *of {
            Type::BOOL => bool::from_sql(of, raw)?.to_string(),
            Type::INT2 => i16::from_sql(of, raw)?.to_string(),
            Type::INT4 => i32::from_sql(of, raw)?.to_string(),
            Type::INT8 => i64::from_sql(of, raw)?.to_string(),
            _ if is_text => std::str::from_utf8(raw)?.to_owned(),
            _ => return Ok(TextCell(Err(WRONG_TYPE.to_owned()))),
        };
        Ok(TextCell(Ok(Some(text))))
    }

    fn from_sql_null(_: &Type) -> Result<TextCell, AnyError> {
        Ok(TextCell(Ok(None)))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// What went wrong, without what was asked.
pub(crate) fn told(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("it says: {}", said.message()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// How TLS is begun.
struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// A connection under TLS.
struct SecureStream(tokio_rustls::client::TlsStream<TcpStream>);

impl TlsConnect<TcpStream> for Tls {
    type Stream = SecureStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<SecureStream>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        let connector = tokio_rustls::TlsConnector::from(self.config);
        Box::pin(async move { connector.connect(self.name, stream).await.map(SecureStream) })
    }
}

impl TlsStream for SecureStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for SecureStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
