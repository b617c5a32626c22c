//! Signed tokens (JWT): verifies them and returns their claims, if their issuer is configured.
//!
//! A token is valid only if one of the configured issuers signed it for this audience, and it is valid now. Every
//! input of this decision is configured: an issuer's keys determine their algorithms, and the header of a token only
//! names one of those keys. The result is cached until the token expires, so the same token costs one hash the next
//! time. Time is an argument.
//!
//! Out of scope: revocation (a valid token stays valid until it expires), encrypted tokens, and fetching anything
//! that a token names.
//!
//! ```
//! use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
//! use sluicegate::core::Timestamp;
//! use sluicegate::identify::token::{IssuerOptions, Keys, TokenErrorKind, Tokens};
//!
//! let secret = b"a secret that only the issuer has.";
//! let issuer = IssuerOptions::new("https://id.example", ["api"], Keys::secret(secret)?);
//! let tokens = Tokens::new(vec![issuer])?;
//!
//! let claims = serde_json::json!({ "iss": "https://id.example", "aud": "api", "sub": "alice", "exp": 1_705_312_860 });
//! let token = encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret))?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let now = Timestamp::now(1_705_312_800_000_000);
//! assert_eq!(&*tokens.verify(&token, now).await?.identifier, "alice");
//!
//! let later = Timestamp::now(1_705_312_860_000_000);
//! let error = tokens.verify(&token, later).await.unwrap_err();
//! assert_eq!(error.kind(), TokenErrorKind::Expired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod claims;
mod claims_cache;
mod error;
mod jwks;

mod keys;
mod members;
mod options;
mod parts;
mod remote;

pub use cache::VERIFIED_MAX;
pub use claims::Claims;
pub use error::{IssuerError, KeysError, TokenError, TokenErrorKind};
pub use jwks::{JWKS_BYTES_MAX, JWKS_KEYS_MAX};
pub use keys::{Keys, RSA_BITS_MAX, RSA_BITS_MIN, SECRET_BYTES_MIN};
pub use options::{
    ISSUERS_MAX, IssuerOptions, KEEP_MAX, LEEWAY_MAX, NAMESPACE_END, REFRESH_MIN, namespace_problem,
};
pub use parts::{KID_BYTES_MAX, TOKEN_BYTES_MAX};
pub use remote::{FETCH_MAX, FetchFuture, FetchOutcome, KeySource, UNKNOWN_PAUSE};

use crate::clock::Clock;
use arc_swap::ArcSwap;
use cache::{Fingerprint, Verified};
use claims::ClaimRequirements;
use claims_cache::{CachedClaims, ClaimNames};
use keys::Origin;
use members::{Member, Members};
use parts::{Header, Parts};
use sluicegate_core::Timestamp;
use std::sync::Arc;

/// All accepted issuers. The `iss` of a token selects one.
#[derive(Debug)]
pub struct Tokens {
    issuers: Vec<Issuer>,
    verified: Verified,
    /// The claims that are cached.
    wanted: ArcSwap<Box<ClaimNames>>,
}

/// One issuer.
#[derive(Debug)]
struct Issuer {
    expected: ClaimRequirements,
    keys: Keys,
}

impl Tokens {
    /// Accepts the tokens of these issuers.
    ///
    /// # Errors
    /// If a setting is out of its bounds, or two issuers have the same name.
    pub fn new(issuers: Vec<IssuerOptions>) -> Result<Self, IssuerError> {
        options::check(&issuers)?;
        let count = issuers.len();
        let issuers = issuers.into_iter().map(|issuer| issuer.into_issuer(count)).collect();
        let wanted = ArcSwap::from_pointee(Box::default());
        Ok(Self { issuers, verified: Verified::new(VERIFIED_MAX), wanted })
    }

    /// Caches the claims of these names, in order, for every token verified from now on.
    pub(super) fn want_claims<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let names: Box<ClaimNames> = names.into_iter().map(Box::from).collect();
        // The same names again do not invalidate the cache.
        if **self.wanted.load() != names {
            self.wanted.store(Arc::new(names));
        }
    }

    /// The claims of a token that was verified before and is still valid at `now`. This costs one hash.
    #[must_use]
    pub fn known(&self, token: &str, now: Timestamp) -> Option<Arc<Claims>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let claims = self.verified.get(&Fingerprint::of(token), now)?;
        claims.kept.is_for(&self.wanted.load()).then_some(claims)
    }

    /// Verifies a token at `now`, whether it is cached or not.
    ///
    /// If the issuer's keys are remote, this may wait some seconds for a fetch: at the start, and when the token
    /// names an unknown key. It then needs a runtime with timers.
    ///
    /// # Errors
    /// If the token is invalid, or cannot be verified.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<Arc<Claims>, TokenError> {
        let parts = Parts::of(token)?;
        let header = Header::read(&parts.header)?;
        // Cheap checks come first: a token for another audience or an expired one needs no signature check and
        // triggers no fetch.
        let (issuer, claims) = self.read(&parts.payload, now)?;
        let key = issuer.keys.signer(&header, &parts.signed, now).await?;
        let claims = Arc::new(claims);
        self.verified.insert(Fingerprint::of(token), Arc::clone(&claims), key);
        Ok(claims)
    }

    /// Runs the key fetches of all issuers with remote keys, for ever. It returns at once if there are none. One task
    /// runs this while others verify. Without it, remote keys are never loaded.
    pub async fn keep_keys_fresh(&self, clock: &dyn Clock) {
        let remotes = self.issuers.iter().filter_map(|issuer| match &issuer.keys.0 {
            Origin::Remote(remote) => Some(remote.keep_fresh(clock)),
            Origin::Fixed(_) => None,
        });
        futures_util::future::join_all(remotes).await;
    }

    /// The claims of an unverified payload, and the issuer that it names.
    fn read(&self, payload: &[u8], now: Timestamp) -> Result<(&Issuer, Claims), TokenError> {
        let members = Members::read(payload);
        let members = members.map_err(|problem| TokenError::malformed(format!("the payload {problem}")))?;
        let name = match members.get("iss") {
            Some(Member::Text(name)) => name,
            Some(_) => return Err(TokenError::claim("iss", "is not a string")),
            None => return Err(TokenError::claim("iss", "is absent")),
        };
        let issuer = self.issuers.iter().find(|issuer| *issuer.expected.issuer == **name);
        let issuer = issuer.ok_or_else(|| {
            TokenError::new(TokenErrorKind::Issuer, "the token's issuer is not one that is trusted here")
        })?;
        let kept = CachedClaims::of(&members, &self.wanted.load_full());
        Ok((issuer, issuer.expected.claims(&members, now, kept)?))
    }
}

/// Reads the header of a token; public for fuzzing.
#[doc(hidden)]
pub fn try_header(json: &[u8]) -> Result<(), TokenError> {
    Header::read(json).map(drop)
}

/// Reads the payload of a token; public for fuzzing.
#[doc(hidden)]
pub fn try_payload(tokens: &Tokens, json: &[u8], now: Timestamp) -> Result<(), TokenError> {
    tokens.read(json, now).map(drop)
}
