//! The Redis client: delivers script calls to one server, to the primary that Sentinel names, or to the nodes of a
//! Cluster.
//!
//! [`transport`] is the interface that the rest of the store uses. [`call`] defines a script call and its reply. Below
//! them, [`servers`] picks a node by its [`topology`], and a [`node`] keeps its connections, its circuit [`breaker`] and
//! its health probe. A call ends by its deadline, and its error reports whether the script may have run.
//!
//! Nothing here knows limits, keys or decisions.

pub(crate) mod address;
pub(crate) mod backoff;
pub(crate) mod breaker;
pub(crate) mod call;
pub(crate) mod credentials;
pub(crate) mod dialer;
pub(crate) mod error;
pub(crate) mod heartbeat;
pub(crate) mod link;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod server_clock;
pub(crate) mod servers;
pub(crate) mod silence;
pub(crate) mod socket_activity;
pub(crate) mod tls;
pub(crate) mod topology;
pub(crate) mod transport;
