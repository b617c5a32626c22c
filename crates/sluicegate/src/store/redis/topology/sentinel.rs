//! Sentinels: they name the server that is the primary of a service, and announce when another becomes it.
//!
//! One sentinel at a time is listened to. It is asked at once when anything suggests a change, and the next one is
//! asked when it does not answer or when what it names cannot be used.

use super::{address_of, probe_key};
use crate::store::ErrorClass;
use crate::store::redis::address::Address;
use crate::store::redis::dialer::Dialer;
use crate::store::redis::error::{Ran, Trouble};
use crate::store::redis::node::{Common, Node};
use crate::store::redis::pause::{Backoff, Heard, jittered};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How often a sentinel is asked while all is well, in case an announcement was missed.
const PAUSE_WELL: Duration = Duration::from_secs(10);
/// How often a sentinel is asked while the primary cannot be used.
const PAUSE_UNWELL: Duration = Duration::from_millis(200);
/// How soon a sentinel is asked again at the earliest.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The primary of a service, as its sentinels name it.
pub(in crate::store::redis) struct Sentinel {
    view: Arc<View>,
    _tasks: JoinSet<()>,
}

struct View {
    common: Arc<Common>,
    dialer: Dialer,
    sentinels: Vec<Address>,
    service: String,
    primary: watch::Sender<Option<Arc<Node>>>,
    last_trouble: Mutex<Option<(ErrorClass, String)>>,
}

impl Sentinel {
    /// Starts to ask the sentinels, on the current runtime.
    pub(in crate::store::redis) fn start(
        sentinels: Vec<Address>,
        service: String,
        dialer: Dialer,
        common: Arc<Common>,
    ) -> Self {
        let (primary, last_trouble) = (watch::Sender::new(None), Mutex::new(None));
        let view = Arc::new(View { common, dialer, sentinels, service, primary, last_trouble });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_asking(Arc::clone(&view)));
        Self { view, _tasks: tasks }
    }

    /// The primary, as soon as a sentinel has named one.
    pub(in crate::store::redis) async fn primary(&self, deadline: Instant) -> Result<Arc<Node>, Trouble> {
        if let Some(node) = self.known() {
            return Ok(node);
        }
        let mut primary = self.view.primary.subscribe();
        if let Ok(Ok(node)) = timeout_at(deadline, primary.wait_for(Option::is_some)).await
            && let Some(node) = node.clone()
        {
            return Ok(node);
        }
        let (class, why) = self.trouble().unwrap_or((ErrorClass::Timeout, "none has answered yet".to_owned()));
        Err(Trouble::with_server(class, Ran::No, format!("the sentinels: {why}")))
    }

    /// The primary, if a sentinel has named one.
    pub(in crate::store::redis) fn known(&self) -> Option<Arc<Node>> {
        self.view.primary.borrow().clone()
    }

    /// Why no primary is known.
    pub(in crate::store::redis) fn trouble(&self) -> Option<(ErrorClass, String)> {
        self.view.last_trouble.lock().clone()
    }
}

impl View {
    fn is_well(&self) -> bool {
        self.primary.borrow().as_ref().is_some_and(|node| node.trouble().is_none())
    }

    /// Uses the named server from now on. Calls that are under way end where they are.
    fn take(&self, address: Address) {
        *self.last_trouble.lock() = None;
        if self.primary.borrow().as_ref().is_some_and(|node| *node.address() == address) {
            return;
        }
        let node = Node::start(address, Arc::clone(&self.common), Some(probe_key(&self.common, 0)));
        self.primary.send_replace(Some(Arc::new(node)));
        self.common.begin_era();
    }

    fn note(&self, trouble: Trouble) {
        *self.last_trouble.lock() = Some((trouble.class, trouble.message));
    }
}

async fn keep_asking(view: Arc<View>) {
    let doubt = Arc::clone(&view.common.doubt);
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
            Err(trouble) => {
                view.note(trouble.at(sentinel));
                sleep(backoff.next(Heard::No)).await;
            }
        }
    }
}

/// Listens to one sentinel until it fails, or until another might know better.
async fn listen(view: &View, dialer: &Dialer, sentinel: &Address) -> Result<(), Trouble> {
    let (connection, driver) = dialer.open(sentinel).await?;
    tokio::select! {
        () = driver => Err(Trouble::with_server(ErrorClass::Connection, Ran::No, "the connection was lost")),
        result = converse(view, connection) => result,
    }
}

async fn converse(view: &View, mut connection: MultiplexedConnection) -> Result<(), Trouble> {
    // Listening starts before the question, so that no change falls between the two.
    let subscribed = timeout(view.common.read_timeout, connection.subscribe("+switch-master")).await;
    subscribed.map_err(|_| silent())?.map_err(|error| Trouble::broken(&error))?;
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
            () = view.common.doubt.notified() => {}
        }
    }
}

async fn ask(view: &View, connection: &mut MultiplexedConnection) -> Result<Address, Trouble> {
    let mut command = Cmd::new();
    command.arg("SENTINEL").arg("get-master-addr-by-name").arg(&view.service);
    let answer = timeout(view.common.read_timeout, connection.send_packed_command(&command)).await;
    match answer.map_err(|_| silent())?.map_err(|error| Trouble::broken(&error))? {
        Value::Nil => {
            let message = format!("no service `{}` is known here", view.service);
            Err(Trouble::with_server(ErrorClass::Unusable, Ran::No, message))
        }
        Value::ServerError(error) => Err(Trouble::reported(&error)),
        value => {
            let words: Option<(String, String)> = redis::from_redis_value(value).ok();
            words.and_then(|(host, port)| address_of(&host, &port)).ok_or_else(|| {
                Trouble::with_server(ErrorClass::Protocol, Ran::No, "what it names makes no sense as an address")
            })
        }
    }
}

fn silent() -> Trouble {
    Trouble::with_server(ErrorClass::Timeout, Ran::No, "no answer")
}
