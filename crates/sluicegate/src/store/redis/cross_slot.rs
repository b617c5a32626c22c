//! Requests over keys that cannot share one script call, because they lie in different slots of a Cluster.
//!
//! [`reserve`] charges the parts of a request in order. [`reservation`] holds the parts that are charged so far and
//! releases them if a later part denies. [`usage`] first charges what is charged in any case.

pub(crate) mod reservation;
pub(crate) mod reserve;
pub(crate) mod usage;
