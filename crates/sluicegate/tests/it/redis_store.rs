//! The shared store on a real server: the suite of all stores, and what only it promises.
