//! The JSON shapes of the decision API.
//!
//! [`request`] parses request bodies: strictly, in one pass, with the invalid field in every error. [`decision`] writes
//! response bodies. The library's types do not know JSON.

pub(crate) mod decision;
pub(crate) mod request;
