//! The fixtures do what they say: servers start, answer, die, stand still and come back.

mod fault_proxy;
mod redis_server;
