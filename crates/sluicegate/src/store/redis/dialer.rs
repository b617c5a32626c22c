//! Opens connections: TCP, TLS, name and password.

use super::super::ErrorClass;
use super::address::Address;
use super::error::{Ran, Trouble};
use super::options::{OptionsError, RedisOptions};
use super::password::Credentials;
use super::tls;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The most calls that a connection takes in without anybody waiting.
const BUFFER_MAX: usize = 1 << 20;

/// What moves the bytes of a connection. The connection lives as long as this is polled, and no longer, whoever
/// still waits for an answer.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Opens connections to servers of one kind.
#[derive(Clone)]
pub(super) struct Dialer {
    encryption: Option<TlsConnector>,
    introduction: RedisConnectionInfo,
    configuration: AsyncConnectionConfig,
    timeout: Duration,
    opened: Arc<AtomicU64>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Dialer {
    /// For the servers that hold the state.
    pub(super) fn for_servers(options: &RedisOptions, database: u16) -> Result<Self, OptionsError> {
        let introduction = introduction(options.credentials.as_ref()).set_db(database.into());
        Self::new(options, introduction)
    }

    /// For the sentinels, which announce changes to whoever listens.
    pub(super) fn for_sentinels(options: &RedisOptions) -> Result<Self, OptionsError> {
        let introduction = introduction(options.sentinel_credentials.as_ref());
        Self::new(options, introduction.set_protocol(ProtocolVersion::RESP3))
    }

    fn new(options: &RedisOptions, introduction: RedisConnectionInfo) -> Result<Self, OptionsError> {
        let encryption = if options.encrypted { Some(tls::connector(&options.certificates)?) } else { None };
        // Deadlines and the number of calls in flight are ours to keep, so that nothing waits inside.
        let configuration = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(options.in_flight_max.get().saturating_mul(2).clamp(64, BUFFER_MAX));
        Ok(Self {
            encryption,
            introduction,
            configuration,
            timeout: options.connect_timeout,
            opened: Arc::default(),
        })
    }

    /// The same, with somebody who is told what the server announces.
    pub(super) fn listening(&self, listener: impl AsyncPushSender) -> Self {
        Self { configuration: self.configuration.clone().set_push_sender(listener), ..self.clone() }
    }

    /// Opens a connection. The name and the password have been accepted when it returns.
    pub(super) async fn open(&self, address: &Address) -> Result<(MultiplexedConnection, Driver), Trouble> {
        let opened = tokio::time::timeout(self.timeout, self.open_without_limit(address)).await;
        opened.unwrap_or_else(|_| {
            let message = format!("no connection within {} ms", self.timeout.as_millis());
            Err(Trouble::with_server(ErrorClass::Timeout, Ran::No, message))
        })
    }

    async fn open_without_limit(&self, address: &Address) -> Result<(MultiplexedConnection, Driver), Trouble> {
        let stream = self.reach(address).await.map_err(unreachable)?;
        let connection =
            MultiplexedConnection::new_with_config(&self.introduction, stream, self.configuration.clone()).await;
        let (connection, driver) = connection.map_err(|error| Trouble::broken(&error))?;
        self.opened.fetch_add(1, Ordering::Release);
        Ok((connection, Box::pin(driver)))
    }

    /// How many connections were opened, by this and by all that were made of it.
    pub(super) fn opened(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.opened)
    }

    async fn reach(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        // A call is one small packet that somebody waits for: it must not wait for a second one.
        stream.set_nodelay(true)?;
        let Some(encryption) = &self.encryption else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let stream = encryption.connect(name, stream).await;
        let stream = stream.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
        Ok(Box::new(stream))
    }
}

fn unreachable(error: io::Error) -> Trouble {
    Trouble::with_server(ErrorClass::Connection, Ran::No, error.to_string())
}

fn introduction(credentials: Option<&Credentials>) -> RedisConnectionInfo {
    // The version of a client library is nobody's business, and the command that tells it may be forbidden to us.
    let introduction = RedisConnectionInfo::default().set_skip_set_lib_name();
    let Some(Credentials { user, password }) = credentials else { return introduction };
    let introduction = introduction.set_password(password.reveal());
    match user {
        Some(user) => introduction.set_username(user),
        None => introduction,
    }
}
