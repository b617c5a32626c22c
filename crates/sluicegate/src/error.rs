//! The error of a request that got no decision.

use crate::identity::InvalidText;
use crate::rules::matching::UnknownTier;
use crate::store::StoreError;
use std::fmt;

/// The reason why a request got no decision.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// A name in the request is not valid.
    InvalidText(InvalidText),
    /// The request names a tier that the rules do not define.
    UnknownTier(UnknownTier),
    /// The requests of a batch charge one state with more than the maximum cost.
    TooMuch,
    /// The store failed, and the rules fail closed.
    Store(StoreError),
}

impl CheckError {
    /// The invalid field, if the request caused the error.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Self::InvalidText(error) => Some(error.field),
            Self::UnknownTier(_) => Some("tier"),
            Self::TooMuch => Some("cost"),
            Self::Store(_) => None,
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidText(error) => error.fmt(formatter),
            Self::UnknownTier(error) => error.fmt(formatter),
            Self::TooMuch => {
                let max = u32::MAX;
                write!(formatter, "`cost` adds up to more than {max}: ask for less at once")
            }
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for CheckError {}

impl From<InvalidText> for CheckError {
    fn from(error: InvalidText) -> Self {
        Self::InvalidText(error)
    }
}

impl From<UnknownTier> for CheckError {
    fn from(error: UnknownTier) -> Self {
        Self::UnknownTier(error)
    }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
