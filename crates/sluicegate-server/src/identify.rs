//! Builds the identity sources from the settings: reads the files and secrets that the settings name.
//!
//! Errors are found at the start, which then fails with the file or variable and the remedy. Remote keys do not delay
//! the start: until they are fetched, their tokens are answered with 503.

use std::path::Path;
use std::sync::Arc;

use sluicegate::identify::address::TrustedProxies;
use sluicegate::identify::api_key::{ApiKeys, LiveKeys};
use sluicegate::identify::token::{IssuerOptions, Keys, KeysError, Tokens};
use sluicegate::identify::{Identify, Source};
use sluicegate::rules::file::Environment;

use crate::config::identity::{IdentitySettings, JwtSettings, KeyLocation, SourceSettings};
use crate::jwks::HttpKeySource;

/// Why the identity sources cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentifyError {
    /// A file that cannot be read.
    #[error(
        "identity: cannot read {path}: {source}; check the path, which is relative to where the server was started"
    )]
    File {
        /// The file.
        path: String,
        /// The error.
        source: std::io::Error,
    },
    /// A variable that is not set.
    #[error("identity: the environment variable {name} is not set; put the secret of {issuer} into it")]
    NoSecret {
        /// The variable.
        name: String,
        /// The issuer.
        issuer: String,
    },
    /// Keys that cannot be used.
    #[error("identity: the keys of {issuer} from {from} cannot be used: {source}")]
    Keys {
        /// The issuer.
        issuer: String,
        /// The file or variable.
        from: String,
        /// The error.
        source: KeysError,
    },
    /// Issuers with conflicting settings.
    #[error("identity: {0}")]
    Issuers(String),
}

/// The sources of `settings`, without further API keys.
pub(crate) fn identify(
    settings: IdentitySettings,
    proxies: TrustedProxies,
    environment: &Environment,
) -> Result<Identify, IdentifyError> {
    identify_with(settings, proxies, environment, &Arc::default())
}

/// The sources of `settings`. Every source of verified API keys also accepts the `live` ones.
pub(crate) fn identify_with(
    settings: IdentitySettings,
    proxies: TrustedProxies,
    environment: &Environment,
    live: &Arc<LiveKeys>,
) -> Result<Identify, IdentifyError> {
    let (mut sources, mut issuers, mut place) = (Vec::new(), Vec::new(), None);
    for source in settings.sources {
        match source {
            // All issuers are one source, at the position of the first: the token itself names its issuer.
            SourceSettings::Jwt(jwt) => {
                place.get_or_insert(sources.len());
                issuers.push(issuer(*jwt, environment)?);
            }
            SourceSettings::ApiKey(keys) => {
                let api_keys = ApiKeys::new(keys.header, keys.keys).with_live(Arc::clone(live));
                sources.push(Source::ApiKeys(if keys.is_verified { api_keys } else { api_keys.unverified() }));
            }
            SourceSettings::Ip => sources.push(Source::Address),
        }
    }
    if let Some(place) = place {
        let tokens = Tokens::new(issuers).map_err(|error| IdentifyError::Issuers(error.to_string()))?;
        sources.insert(place, Source::Tokens(tokens));
    }
    Ok(Identify::new(sources).behind(proxies).ipv6_prefix(settings.ipv6_prefix))
}

fn issuer(jwt: JwtSettings, environment: &Environment) -> Result<IssuerOptions, IdentifyError> {
    let JwtSettings { issuer, audience, keys, claim, tier_claim, tenant_claim, namespace, leeway } = jwt;
    let keys = read_keys(&issuer, keys, environment)?;
    let mut options = IssuerOptions::new(issuer, audience, keys);
    options.claim = claim;
    options.tier_claim = tier_claim;
    options.tenant_claim = tenant_claim;
    options.namespace = namespace;
    options.leeway = leeway;
    Ok(options)
}

fn read_keys(issuer: &str, from: KeyLocation, environment: &Environment) -> Result<Keys, IdentifyError> {
    let unusable = |from: &str| {
        let (issuer, from) = (issuer.to_owned(), from.to_owned());
        move |source| IdentifyError::Keys { issuer, from, source }
    };
    match from {
        KeyLocation::SecretEnv(name) => {
            let secret = environment.get(&name).filter(|secret| !secret.is_empty());
            let secret =
                secret.ok_or_else(|| IdentifyError::NoSecret { name: name.clone(), issuer: issuer.to_owned() })?;
            Keys::secret(secret.as_bytes()).map_err(unusable(&name))
        }
        KeyLocation::JwksFile(path) => {
            let shown = path.display().to_string();
            let text = String::from_utf8_lossy(&read(&path)?).into_owned();
            Keys::jwks(&text).map_err(unusable(&shown))
        }
        KeyLocation::PublicKeyFile(path) => {
            Keys::public_key(&read(&path)?).map_err(unusable(&path.display().to_string()))
        }
        KeyLocation::JwksUrl { url, refresh, keep, ca_file } => {
            let shown = url.to_string();
            let authorities = ca_file.map(|path| read(&path)).transpose()?;
            let source = HttpKeySource::new(url, authorities.as_deref()).map_err(unusable(&shown))?;
            Ok(Keys::remote(Arc::new(source), refresh, keep))
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, IdentifyError> {
    std::fs::read(path).map_err(|source| IdentifyError::File { path: path.display().to_string(), source })
}
