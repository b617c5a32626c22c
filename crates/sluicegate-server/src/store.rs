//! The store of this server: embedded, or Redis, shared with other servers.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluicegate::MemoryStore;
use sluicegate::core::Timestamp;
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::redis::{OptionsError, RedisOptions, RedisStore};
use sluicegate::store::{Charge, Health, InProcessStore, Reply, Savings, Store, StoreError, UnchargedUsage};

use crate::config::redis::RedisSettings;
use crate::settings::StoreUrl;

/// The store of this server.
#[derive(Debug)]
pub(crate) enum ServerStore {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis or Valkey.
    Redis(Box<RedisStore>),
}

/// An invalid store configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreFault {
    /// A file with a certificate or a key is unreadable.
    #[error("`redis.{key}`: cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Unreadable {
        /// The key in the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Contradictory options.
    #[error("the store cannot be used: {0}")]
    Options(#[from] OptionsError),
}

impl ServerStore {
    /// The store of `url`. Needs a runtime; does not wait for a connection.
    pub(crate) fn open(
        url: &StoreUrl,
        memory: MemoryOptions,
        redis: &RedisSettings,
        now: Timestamp,
    ) -> Result<Self, StoreFault> {
        match url {
            StoreUrl::Memory => Ok(Self::Memory(MemoryStore::new(memory, now))),
            StoreUrl::Redis(options) => {
                let options = with_certificates(redis.refine(options.as_ref().clone()), redis)?;
                Ok(Self::Redis(Box::new(RedisStore::start(&options, redis.encoder.clone())?)))
            }
        }
    }

    /// Its name in spans and the overview.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// Whether it is remote, so that concurrent calls pay off.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Redis(_) => true,
        }
    }

    /// The embedded store, if this is one.
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(store) => Some(store),
            Self::Redis(_) => None,
        }
    }

    /// The shared store, if this is one.
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store),
        }
    }
}

fn with_certificates(mut options: RedisOptions, settings: &RedisSettings) -> Result<RedisOptions, StoreFault> {
    if let Some(path) = &settings.ca_file {
        options = options.certificate_authorities(read("ca_file", path)?);
    }
    if let Some((certificate, key)) = &settings.client_files {
        options = options.client_certificate(read("certificate_file", certificate)?, read("key_file", key)?);
    }
    Ok(options)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, StoreFault> {
    std::fs::read(path).map_err(|source| StoreFault::Unreadable { key, path: path.to_owned(), source })
}

/// A call to Redis is a large, deep future. Boxed, it does not enlarge the future of the embedded store, which needs no
/// allocation.
impl Store for ServerStore {
    async fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        match self {
            Self::Memory(store) => store.charge(charges, now, deadline).await,
            Self::Redis(store) => Box::pin(store.charge(charges, now, deadline)).await,
        }
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, deadline: Duration) -> Result<Reply, StoreError> {
        match self {
            Self::Memory(store) => store.peek(charges, now, deadline).await,
            Self::Redis(store) => Box::pin(store.peek(charges, now, deadline)).await,
        }
    }

    async fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        match self {
            Self::Memory(store) => store.refund(charges, now, deadline).await,
            Self::Redis(store) => Box::pin(store.refund(charges, now, deadline)).await,
        }
    }

    async fn report(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        match self {
            Self::Memory(store) => store.report(charges, now, deadline).await,
            Self::Redis(store) => Box::pin(store.report(charges, now, deadline)).await,
        }
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        match self {
            Self::Memory(store) => store.reset(charges, now, deadline).await,
            Self::Redis(store) => Box::pin(store.reset(charges, now, deadline)).await,
        }
    }

    fn charge_later(&self, charges: &[Charge<'_>], error: &mut StoreError) {
        match self {
            Self::Memory(store) => store.charge_later(charges, error),
            Self::Redis(store) => store.charge_later(charges, error),
        }
    }

    fn in_process(&self) -> Option<&dyn InProcessStore> {
        match self {
            Self::Memory(store) => Some(store),
            Self::Redis(_) => None,
        }
    }

    fn uncharged_usage(&self) -> UnchargedUsage {
        match self {
            Self::Memory(store) => store.uncharged_usage(),
            Self::Redis(store) => store.uncharged_usage(),
        }
    }

    fn tracked_keys(&self) -> Option<u64> {
        match self {
            Self::Memory(store) => store.tracked_keys(),
            Self::Redis(store) => store.tracked_keys(),
        }
    }

    fn can_fail(&self) -> bool {
        match self {
            Self::Memory(store) => store.can_fail(),
            Self::Redis(store) => store.can_fail(),
        }
    }

    fn charges_ahead(&self) -> bool {
        match self {
            Self::Memory(store) => store.charges_ahead(),
            Self::Redis(store) => store.charges_ahead(),
        }
    }

    fn health(&self) -> Health {
        match self {
            Self::Memory(store) => store.health(),
            Self::Redis(store) => store.health(),
        }
    }

    fn savings(&self) -> Savings {
        match self {
            Self::Memory(store) => store.savings(),
            Self::Redis(store) => store.savings(),
        }
    }
}
