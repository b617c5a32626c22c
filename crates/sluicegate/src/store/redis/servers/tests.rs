//! Calls against real servers.
