//! Why a request got no decision, and whose fault that is.

use crate::identity::InvalidText;
use crate::rules::matching::UnknownTier;
use crate::store::StoreError;
use std::fmt;

/// Why a request got no decision.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The request names something that cannot be a name.
    InvalidText(InvalidText),
    /// The request names a tier that does not exist.
    UnknownTier(UnknownTier),
    /// Several requests together ask one state for more than a cost can be.
    TooMuch,
    /// The store could not decide, and no policy decided in its stead.
    Store(StoreError),
}

impl CheckError {
    /// The field of the request that is wrong, if it is the request's fault.
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
