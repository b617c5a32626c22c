//! The concrete types of this server's limiter and gate: its store, the system clock and the server's observer.

use std::sync::Arc;

use sluicegate::Limiter;
use sluicegate::clock::SystemClock;
use sluicegate::gate::Gate;

use crate::store::ServerStore;
use crate::telemetry::observer::ServerObserver;

/// The limiter of this server.
pub(crate) type ServerLimiter = Limiter<ServerStore, SystemClock, Arc<ServerObserver>>;

/// The gate of this server: identity and path in front of the limiter.
pub(crate) type ServerGate = Gate<ServerStore, SystemClock, Arc<ServerObserver>>;
