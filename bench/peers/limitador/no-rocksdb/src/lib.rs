//! A database that cannot be opened. limitador does not compile with its Redis storage unless its disk storage is compiled
//! too, and RocksDB itself takes a quarter of an hour and a C++ compiler; the benchmark never uses it. These are the names
//! that limitador mentions: opening fails, and everything behind that cannot be reached.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

/// Why nothing can be opened.
#[derive(Debug)]
pub struct Error;

#[derive(Debug, PartialEq, Eq)]
pub enum ErrorKind {
    NotSupported,
    TimedOut,
    TryAgain,
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::NotSupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("this build has no RocksDB")
    }
}

impl std::error::Error for Error {}

pub enum CompactionDecision {
    Keep,
    Remove,
}

pub enum DBCompressionType {
    None,
    Bz2,
}

pub enum IteratorMode {
    Start,
}

pub struct MultiThreaded;

/// No value of this type exists.
enum Never {}

pub struct DBWithThreadMode<T> {
    never: Never,
    mode: PhantomData<T>,
}

pub type DB = DBWithThreadMode<MultiThreaded>;

/// What merges are given; there are none.
pub struct MergeOperands(());

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Empty<&'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::empty()
    }
}

#[derive(Default)]
pub struct Options(());

impl Options {
    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision + Send + 'static,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>> + Clone + Send + Sync + 'static,
    {
    }

    pub fn create_if_missing(&mut self, _: bool) {}
}

type Entry = Result<(Box<[u8]>, Box<[u8]>), Error>;

impl<T> DBWithThreadMode<T> {
    pub fn open(_: &Options, _: impl AsRef<Path>) -> Result<Self, Error> {
        Err(Error)
    }

    pub fn get(&self, _: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        match self.never {}
    }

    pub fn merge(&self, _: impl AsRef<[u8]>, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.never {}
    }

    pub fn delete(&self, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.never {}
    }

    pub fn prefix_iterator(&self, _: impl AsRef<[u8]>) -> std::vec::IntoIter<Entry> {
        match self.never {}
    }

    pub fn iterator(&self, _: IteratorMode) -> std::vec::IntoIter<Entry> {
        let _ = &self.mode;
        match self.never {}
    }
}
