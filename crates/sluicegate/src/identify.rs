//! Who sends a request, found out from its head and its connection.
//!
//! [`address`] finds the client's address behind proxies.

pub mod address;
