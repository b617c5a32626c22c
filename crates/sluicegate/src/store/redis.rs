//! The shared store: state in Redis or Valkey, one atomic script call per decision.

mod call;
