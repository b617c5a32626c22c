//! How it is established who asks: what a request shows, and what is believed of it.

pub mod token;
