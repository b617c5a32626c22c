//! Files as text: YAML, and so JSON, into values that cannot be wrong, or into [`Problems`]: all of them at
//! once, each with its place, its path, the value and the remedy.
//!
//! | module | what it holds |
//! |---|---|
//! | [`tree`] | the text as a tree in which every key and value knows its place, and its bounds |
//! | [`reader`], [`section`] | typed readers over the tree, which report and go on |
//! | [`problem`] | what is wrong, and how it is shown |
//! | [`value`] | durations, rates, names, patterns: from text to types |

mod expand;
pub mod problem;
pub mod reader;
pub mod section;
mod suggest;
mod syntax;
pub mod tree;
pub mod value;

pub use expand::Environment;
pub use problem::{Place, Problem, Problems, Wrong};
pub use reader::{Document, Reader};
pub use section::{Pair, Section};
