//! Signed tokens (JWT): who their bearer is, if their issuer is one that is trusted here.
//!
//! A token is believed only if one of the configured issuers has signed it, for us, and it is good now. Everything that
//! decides this comes from our side: the issuer's keys say which algorithms they are good for, and the header of a token
//! only names one of those keys. What was verified is remembered until it expires, so that the same token costs a hash
//! the next time. Time is an argument.
//!
//! What this does not do: revocation (a good token is good until it expires), encrypted tokens, fetching anything that a
//! token names.
//!
//! ```
//! use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
//! use sluicegate::core::Timestamp;
//! use sluicegate::identify::token::{IssuerOptions, Keys, TokenErrorKind, Tokens};
//!
//! let secret = b"a secret that nobody else knows.";
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
mod error;
mod jwks;
mod kept;
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
pub use options::{ISSUERS_MAX, IssuerOptions, KEEP_MAX, LEEWAY_MAX, REFRESH_MIN};
pub use parts::{KID_BYTES_MAX, TOKEN_BYTES_MAX};
pub use remote::{FETCH_MAX, Fetched, Fetching, KeySource, UNKNOWN_PAUSE};

use crate::clock::Clock;
use arc_swap::ArcSwap;
use cache::{Fingerprint, Verified};
use claims::Expected;
use kept::{Kept, Wanted};
use keys::Origin;
use members::{Member, Members};
use parts::{Header, Parts};
use sluicegate_core::Timestamp;
use std::sync::Arc;

/// All issuers whose tokens are accepted. A token's `iss` chooses among them.
#[derive(Debug)]
pub struct Tokens {
    issuers: Vec<Issuer>,
    verified: Verified,
    /// The claims that are kept.
    wanted: ArcSwap<Box<Wanted>>,
}

/// One issuer.
#[derive(Debug)]
struct Issuer {
    expected: Expected,
    keys: Keys,
}

impl Tokens {
    /// Accepts the tokens of these issuers.
    ///
    /// # Errors
    /// If a setting is out of its bounds, or two issuers have the same name.
    pub fn new(issuers: Vec<IssuerOptions>) -> Result<Self, IssuerError> {
        options::check(&issuers)?;
        let issuers = issuers.into_iter().map(IssuerOptions::into_issuer).collect();
        let wanted = ArcSwap::from_pointee(Box::default());
        Ok(Self { issuers, verified: Verified::new(VERIFIED_MAX), wanted })
    }

    /// Keeps the claims of these names, in order, from every token that is verified from now on.
    pub(super) fn want_claims<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let names: Box<Wanted> = names.into_iter().map(Box::from).collect();
        // The same names again are no reason to verify anything anew.
        if **self.wanted.load() != names {
            self.wanted.store(Arc::new(names));
        }
    }

    /// The claims of a token that was verified before and still is good at `now`. This costs one hash.
    #[must_use]
    pub fn known(&self, token: &str, now: Timestamp) -> Option<Arc<Claims>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let claims = self.verified.get(&Fingerprint::of(token), now)?;
        claims.kept.is_for(&self.wanted.load()).then_some(claims)
    }

    /// Verifies a token at `now`, whether it is known or not.
    ///
    /// Where the issuer's keys are remote, this may wait for them to be fetched, at most some seconds: at the start, and
    /// when the token names a key that is not known. It needs a runtime with time then.
    ///
    /// # Errors
    /// If the token is not to be believed, or nothing can be said about it.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<Arc<Claims>, TokenError> {
        let parts = Parts::of(token)?;
        let header = Header::read(&parts.header)?;
        // What is free comes before what costs: a token that is not for us or has expired needs no signature to be
        // refused, and asks nobody for a key.
        let (issuer, claims) = self.read(&parts.payload, now)?;
        let key = issuer.keys.signer(&header, &parts.signed, now).await?;
        let claims = Arc::new(claims);
        self.verified.insert(Fingerprint::of(token), Arc::clone(&claims), key);
        Ok(claims)
    }

    /// Fetches the keys of all issuers whose keys are remote, for ever; returns at once if there are none. One task runs
    /// this while the others verify. Without it, keys that are remote are never there.
    pub async fn keep_keys_fresh(&self, clock: &dyn Clock) {
        let remotes = self.issuers.iter().filter_map(|issuer| match &issuer.keys.0 {
            Origin::Remote(remote) => Some(remote.keep_fresh(clock)),
            Origin::Fixed(_) => None,
        });
        futures_util::future::join_all(remotes).await;
    }

    /// The claims of a payload that nobody has verified yet, and who is said to have issued it.
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
        let kept = Kept::of(&members, &self.wanted.load_full());
        Ok((issuer, issuer.expected.claims(&members, now, kept)?))
    }
}

/// Reads the header of a token, for whoever wants to try it on all sorts of bytes.
#[doc(hidden)]
pub fn try_header(json: &[u8]) -> Result<(), TokenError> {
    Header::read(json).map(drop)
}

/// Reads the payload of a token, likewise.
#[doc(hidden)]
pub fn try_payload(tokens: &Tokens, json: &[u8], now: Timestamp) -> Result<(), TokenError> {
    tokens.read(json, now).map(drop)
}
