//! Opens connections: TCP, TLS and authentication.

use crate::store::ErrorClass;
use crate::store::redis::client::address::Address;
use crate::store::redis::client::credentials::Credentials;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::client::options::{OptionsError, RedisOptions};
use crate::store::redis::client::socket_activity::{MonitoredStream, SocketActivity, peek_handle_of};
use crate::store::redis::client::tls;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The most calls that a connection buffers before senders wait.
const BUFFER_MAX: usize = 1 << 20;

/// The future that moves the bytes of a connection. The connection lives exactly as long as this future is polled.
pub(crate) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection, its driver, and its socket activity.
pub(crate) type Opened = (MultiplexedConnection, Driver, Arc<SocketActivity>);

/// Opens connections to servers of one kind.
#[derive(Clone)]
pub(crate) struct Dialer {
    encryption: Option<TlsConnector>,
    introduction: RedisConnectionInfo,
    configuration: AsyncConnectionConfig,
    timeout: Duration,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Dialer {
    /// The dialer for servers that hold state.
    pub(crate) fn for_servers(options: &RedisOptions, database: u16) -> Result<Self, OptionsError> {
        let introduction = introduction(options.credentials.as_ref()).set_db(database.into());
        Self::new(options, introduction)
    }

    /// The dialer for sentinels, which push announcements (RESP3).
    pub(crate) fn for_sentinels(options: &RedisOptions) -> Result<Self, OptionsError> {
        let introduction = introduction(options.sentinel_credentials.as_ref());
        Self::new(options, introduction.set_protocol(ProtocolVersion::RESP3))
    }

    fn new(options: &RedisOptions, introduction: RedisConnectionInfo) -> Result<Self, OptionsError> {
        let encryption = if options.encrypted { Some(tls::connector(&options.certificates)?) } else { None };
        // This client enforces deadlines and the number of calls in flight by itself, so the library must not queue.
        let configuration = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(options.in_flight_max.get().saturating_mul(2).clamp(64, BUFFER_MAX));
        Ok(Self { encryption, introduction, configuration, timeout: options.connect_timeout })
    }

    /// The same dialer, with a receiver for push messages.
    pub(crate) fn listening(&self, listener: impl AsyncPushSender) -> Self {
        Self { configuration: self.configuration.clone().set_push_sender(listener), ..self.clone() }
    }

    /// Opens a connection. When it returns, the server has accepted the credentials.
    pub(crate) async fn open(&self, address: &Address) -> Result<Opened, CallError> {
        let opened = tokio::time::timeout(self.timeout, self.open_without_limit(address)).await;
        opened.unwrap_or_else(|_| {
            let message = format!("no connection within {} ms", self.timeout.as_millis());
            Err(CallError::of_server(ErrorClass::Timeout, Executed::No, message))
        })
    }

    async fn open_without_limit(&self, address: &Address) -> Result<Opened, CallError> {
        let (stream, peek_handle) = self.reach(address).await.map_err(unreachable)?;
        let (stream, activity) = MonitoredStream::new(stream, peek_handle);
        let connection =
            MultiplexedConnection::new_with_config(&self.introduction, stream, self.configuration.clone()).await;
        let (connection, driver) = connection.map_err(|error| CallError::from_connection(&error))?;
        Ok((connection, Box::pin(driver), activity))
    }

    async fn reach(&self, address: &Address) -> io::Result<(Box<dyn Stream>, Option<std::net::TcpStream>)> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        // A call is one small packet with a latency target, so it must not wait for a second packet.
        stream.set_nodelay(true)?;
        let peek_handle = peek_handle_of(&stream);
        let Some(encryption) = &self.encryption else { return Ok((Box::new(stream), peek_handle)) };
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let stream = encryption.connect(name, stream).await;
        let stream = stream.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
        Ok((Box::new(stream), peek_handle))
    }
}

fn unreachable(error: io::Error) -> CallError {
    CallError::of_server(ErrorClass::Connection, Executed::No, error.to_string())
}

fn introduction(credentials: Option<&Credentials>) -> RedisConnectionInfo {
    // The library's name and version are of no use to the server, and `CLIENT SETINFO` may be forbidden.
    let introduction = RedisConnectionInfo::default().set_skip_set_lib_name();
    let Some(Credentials { user, password }) = credentials else { return introduction };
    let introduction = introduction.set_password(password.reveal());
    match user {
        Some(user) => introduction.set_username(user),
        None => introduction,
    }
}
