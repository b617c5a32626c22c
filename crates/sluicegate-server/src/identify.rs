//! From settings to the sources that know callers: reads the files and the secrets that the settings name.
//!
//! What is wrong with them is found at the start, and refuses it with the file or variable and the remedy. Keys that
//! are fetched are no reason not to start: until they are there, their tokens are answered with 503.

use std::path::Path;
use std::sync::Arc;

use sluicegate::identify::address::TrustedProxies;
use sluicegate::identify::api_key::{ApiKeys, LiveKeys};
use sluicegate::identify::token::{IssuerOptions, Keys, KeysError, Tokens};
use sluicegate::identify::{Identify, Source};
use sluicegate::rules::file::Environment;

use crate::config::identity::{IdentitySettings, JwtSettings, KeysFrom, SourceSettings};
use crate::jwks::HttpKeySource;

/// Why callers cannot be known as the settings say.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentifyError {
    /// A file that cannot be read.
    #[error(
        "identity: cannot read {path}: {source}; check the path, which is relative to where the server was started"
    )]
    File {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A variable that is not there.
    #[error("identity: the environment variable {name} is not set; put the secret of {issuer} into it")]
    NoSecret {
        /// The variable.
        name: String,
        /// Whose secret.
        issuer: String,
    },
    /// Keys that are none.
    #[error("identity: the keys of {issuer} from {from} cannot be used: {source}")]
    Keys {
        /// Whose keys.
        issuer: String,
        /// Where they are.
        from: String,
        /// What is wrong.
        source: KeysError,
    },
    /// Issuers that do not go together.
    #[error("identity: {0}")]
    Issuers(String),
}

/// The sources that `settings` describe, with no API keys but theirs.
pub(crate) fn identify(
    settings: IdentitySettings,
    proxies: TrustedProxies,
    environment: &Environment,
) -> Result<Identify, IdentifyError> {
    identify_with(settings, proxies, environment, &Arc::default())
}

/// The sources that `settings` describe. Wherever they take API keys that must be known, `live` are known, too.
pub(crate) fn identify_with(
    settings: IdentitySettings,
    proxies: TrustedProxies,
    environment: &Environment,
    live: &Arc<LiveKeys>,
) -> Result<Identify, IdentifyError> {
    let (mut sources, mut issuers, mut place) = (Vec::new(), Vec::new(), None);
    for source in settings.sources {
        match source {
            // All issuers are one source, where the first of them stands: a token says itself whose it is.
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
    let JwtSettings { issuer, audience, keys, claim, tier_claim, tenant_claim, leeway } = jwt;
    let keys = read_keys(&issuer, keys, environment)?;
    let mut options = IssuerOptions::new(issuer, audience, keys);
    options.claim = claim;
    options.tier_claim = tier_claim;
    options.tenant_claim = tenant_claim;
    options.leeway = leeway;
    Ok(options)
}

fn read_keys(issuer: &str, from: KeysFrom, environment: &Environment) -> Result<Keys, IdentifyError> {
    let unusable = |from: &str| {
        let (issuer, from) = (issuer.to_owned(), from.to_owned());
        move |source| IdentifyError::Keys { issuer, from, source }
    };
    match from {
        KeysFrom::SecretEnv(name) => {
            let secret = environment.get(&name).filter(|secret| !secret.is_empty());
            let secret =
                secret.ok_or_else(|| IdentifyError::NoSecret { name: name.clone(), issuer: issuer.to_owned() })?;
            Keys::secret(secret.as_bytes()).map_err(unusable(&name))
        }
        KeysFrom::JwksFile(path) => {
            let shown = path.display().to_string();
            let text = String::from_utf8_lossy(&read(&path)?).into_owned();
            Keys::jwks(&text).map_err(unusable(&shown))
        }
        KeysFrom::PublicKeyFile(path) => {
            Keys::public_key(&read(&path)?).map_err(unusable(&path.display().to_string()))
        }
        KeysFrom::JwksUrl { url, refresh, keep, ca_file } => {
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
