//! Redis Sentinel: it names the primary of a service, and announces a failover.
//!
//! The client listens to one sentinel at a time. It queries that sentinel again as soon as a call or a connection
//! suggests a failover. It moves to the next sentinel if this one does not answer, or if the server that it names
//! cannot be used.

use super::{address_of, probe_key};
use crate::store::ErrorClass;
use crate::store::redis::client::address::Address;
use crate::store::redis::client::backoff::{Backoff, Reached, jittered};
use crate::store::redis::client::dialer::Dialer;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::client::node::{Node, NodeContext};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The query interval while the primary is healthy, in case an announcement was missed.
const PAUSE_WELL: Duration = Duration::from_secs(10);
/// The query interval while the primary cannot be used.
const PAUSE_UNWELL: Duration = Duration::from_millis(200);
/// The shortest interval between two queries.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The primary of a service, as its sentinels name it.
pub(crate) struct Sentinel {
    view: Arc<SentinelView>,
    _tasks: JoinSet<()>,
}

struct SentinelView {
    context: Arc<NodeContext>,
    dialer: Dialer,
    sentinels: Vec<Address>,
    service: String,
    primary: watch::Sender<Option<Arc<Node>>>,
    last_error: Mutex<Option<(ErrorClass, String)>>,
}

impl Sentinel {
    /// Starts to query the sentinels, on the current runtime.
    pub(crate) fn start(
        sentinels: Vec<Address>,
        service: String,
        dialer: Dialer,
        context: Arc<NodeContext>,
    ) -> Self {
        let (primary, last_error) = (watch::Sender::new(None), Mutex::new(None));
        let view = Arc::new(SentinelView { context, dialer, sentinels, service, primary, last_error });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_asking(Arc::clone(&view)));
        Self { view, _tasks: tasks }
    }

    /// The primary, as soon as a sentinel has named one.
    pub(crate) async fn primary(&self, deadline: Instant) -> Result<Arc<Node>, CallError> {
        if let Some(node) = self.known() {
            return Ok(node);
        }
        let mut primary = self.view.primary.subscribe();
        if let Ok(Ok(node)) = timeout_at(deadline, primary.wait_for(Option::is_some)).await
            && let Some(node) = node.clone()
        {
            return Ok(node);
        }
        let (class, why) = self.error().unwrap_or((ErrorClass::Timeout, "none has answered yet".to_owned()));
        Err(CallError::of_server(class, Executed::No, format!("the sentinels: {why}")))
    }

    /// The primary, if a sentinel has named one.
    pub(crate) fn known(&self) -> Option<Arc<Node>> {
        self.view.primary.borrow().clone()
    }

    /// Why no primary is known.
    pub(crate) fn error(&self) -> Option<(ErrorClass, String)> {
        self.view.last_error.lock().clone()
    }
}

impl SentinelView {
    fn is_well(&self) -> bool {
        self.primary.borrow().as_ref().is_some_and(|node| node.error().is_none())
    }

    /// Uses this server from now on. Calls in flight end on the previous one.
    fn take(&self, address: Address) {
        *self.last_error.lock() = None;
        if self.primary.borrow().as_ref().is_some_and(|node| *node.address() == address) {
            return;
        }
        let node = Node::start(address, Arc::clone(&self.context), Some(probe_key(&self.context, 0)));
        self.primary.send_replace(Some(Arc::new(node)));
        self.context.begin_generation();
    }

    fn note(&self, error: CallError) {
        *self.last_error.lock() = Some((error.class, error.message));
    }
}

async fn keep_asking(view: Arc<SentinelView>) {
    let doubt = Arc::clone(&view.context.doubt);
    let dialer = view.dialer.listening(move |announcement: PushInfo| {
        if announcement.kind == PushKind::Message {
            doubt.notify_one();
        }
        Ok::<(), ()>(())
    });
    let mut backoff = Backoff::new();
    let start = fastrand::usize(..view.sentinels.len());
    for sentinel in view.sentinels.iter().cycle().skip(start) {
        match listen(&view, &dialer, sentinel).await {
            Ok(()) => backoff = Backoff::new(),
            Err(error) => {
                view.note(error.at(sentinel));
                sleep(backoff.next(Reached::No)).await;
            }
        }
    }
}

/// Listens to one sentinel until it fails, or until another one should be tried.
async fn listen(view: &SentinelView, dialer: &Dialer, sentinel: &Address) -> Result<(), CallError> {
    let (connection, driver, _) = dialer.open(sentinel).await?;
    tokio::select! {
        () = driver => Err(CallError::of_server(ErrorClass::Connection, Executed::No, "the connection was lost")),
        result = converse(view, connection) => result,
    }
}

async fn converse(view: &SentinelView, mut connection: MultiplexedConnection) -> Result<(), CallError> {
    // The subscription precedes the query, so that no failover falls between the two.
    let subscribed = timeout(view.context.read_timeout, connection.subscribe("+switch-master")).await;
    subscribed.map_err(|_| silent())?.map_err(|error| CallError::from_connection(&error))?;
    let mut was_well = true;
    loop {
        let named = ask(view, &mut connection).await?;
        let same = view.primary.borrow().as_ref().is_some_and(|node| *node.address() == named);
        view.take(named);
        if same && !was_well && !view.is_well() {
            return Ok(());
        }
        sleep(PAUSE_MIN).await;
        was_well = view.is_well();
        tokio::select! {
            () = sleep(jittered(if was_well { PAUSE_WELL } else { PAUSE_UNWELL })) => {}
            () = view.context.doubt.notified() => {}
        }
    }
}

async fn ask(view: &SentinelView, connection: &mut MultiplexedConnection) -> Result<Address, CallError> {
    let mut command = Cmd::new();
    command.arg("SENTINEL").arg("get-master-addr-by-name").arg(&view.service);
    let answer = timeout(view.context.read_timeout, connection.send_packed_command(&command)).await;
    match answer.map_err(|_| silent())?.map_err(|error| CallError::from_connection(&error))? {
        Value::Nil => {
            let message = format!("no service `{}` is known here", view.service);
            Err(CallError::of_server(ErrorClass::Unusable, Executed::No, message))
        }
        Value::ServerError(error) => Err(CallError::from_reply(&error)),
        value => {
            let words: Option<(String, String)> = redis::from_redis_value(value).ok();
            words.and_then(|(host, port)| address_of(&host, &port)).ok_or_else(|| {
                CallError::of_server(ErrorClass::Protocol, Executed::No, "it returned an invalid address")
            })
        }
    }
}

fn silent() -> CallError {
    CallError::of_server(ErrorClass::Timeout, Executed::No, "no answer")
}
