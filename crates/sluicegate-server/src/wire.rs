//! The JSON shapes of the decision API and their conversions, next to each other and nowhere else.
//!
//! [`request`] reads what callers send: strictly, in one pass, and with the field at fault in every refusal.
//! [`answer`] writes what they get. The library's own types know nothing of JSON.

pub(crate) mod answer;
pub(crate) mod request;
