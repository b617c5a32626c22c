//! The fixtures do what they say: servers start, answer, die, stand still and come back.

mod redis_server;
