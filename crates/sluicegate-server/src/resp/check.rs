//! The configured rules over RESP: `SG.CHECK resource identifier [COST n] [TENANT t] [TIER x] [PEEK]`, and `SG.REPORT
//! resource identifier [COST n] [TENANT t] [TIER x]` for usage that has already happened.
//!
//! The reply is `[allowed, limit, remaining, retry_after_ms, reset_after_ms, rule]`, for the tightest limit as in
//! the HTTP API. Values that do not apply are null. A report gets the reply of a peek after it.

use sluicegate::core::Cost;
use sluicegate::{Decision, Request, Retry};

use super::parse::Words;
use super::reply::Replies;
use super::throttle::Shown;

/// The two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// `SG.CHECK`.
    Check,
    /// `SG.REPORT`.
    Report,
}

impl Name {
    const fn lower(self) -> &'static str {
        match self {
            Self::Check => "sg.check",
            Self::Report => "sg.report",
        }
    }

    const fn usage(self) -> &'static str {
        match self {
            Self::Check => "use SG.CHECK resource identifier [COST n] [TENANT t] [TIER x] [PEEK]",
            Self::Report => "use SG.REPORT resource identifier [COST n] [TENANT t] [TIER x]",
        }
    }
}

/// A syntactically valid command. The library validates the names.
#[derive(Debug)]
pub(super) struct Check<'w> {
    request: Request<'w>,
    is_peek: bool,
}

/// A syntax error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    /// Too few words.
    #[error("wrong number of arguments for '{}' command; {}", .0.lower(), .0.usage())]
    Words(Name),
    /// A word that is not text.
    #[error("{field} is not valid UTF-8")]
    NotText {
        /// The name of the word.
        field: &'static str,
    },
    /// An unknown option, or one without its value.
    #[error("syntax error at '{word}'; {}", .name.usage())]
    Option {
        /// The command.
        name: Name,
        /// As sent, shortened.
        word: String,
    },
    /// A repeated option.
    #[error("syntax error: {option} stands twice")]
    Twice {
        /// Its name.
        option: &'static str,
    },
    /// An invalid cost.
    #[error("value is not an integer or out of range: COST is '{value}'; use a whole number from 0 to 4294967295")]
    Cost {
        /// As sent, shortened.
        value: String,
    },
}

impl<'w> Check<'w> {
    /// Reads the words after the command's name.
    pub(super) fn read(name: Name, words: &'w Words<'_>) -> Result<Self, Invalid> {
        let [resource, identifier, options @ ..] = &words[1..] else {
            return Err(Invalid::Words(name));
        };
        let request = Request::new(text("resource", resource)?, text("identifier", identifier)?);
        let mut check = Self { request, is_peek: false };
        let (mut cost, mut tenant, mut tier) = (None, None, None);
        let mut rest = options;
        while let [word, after @ ..] = rest {
            let is = |option: &str| word.eq_ignore_ascii_case(option.as_bytes());
            rest = if is("PEEK") && name == Name::Check {
                if std::mem::replace(&mut check.is_peek, true) {
                    return Err(Invalid::Twice { option: "PEEK" });
                }
                after
            } else {
                let bad = || Invalid::Option { name, word: Shown(word).to_string() };
                let [value, after @ ..] = after else { return Err(bad()) };
                match () {
                    () if is("COST") => once("COST", &mut cost, cost_of(value)?)?,
                    () if is("TENANT") => once("TENANT", &mut tenant, text("TENANT", value)?)?,
                    () if is("TIER") => once("TIER", &mut tier, text("TIER", value)?)?,
                    () => return Err(bad()),
                }
                after
            };
        }
        check.request = Request { tenant: tenant.unwrap_or(check.request.tenant), tier, cost, ..check.request };
        Ok(check)
    }

    /// The request for the limiter.
    pub(super) fn request(&self) -> &Request<'w> {
        &self.request
    }

    /// Whether it charges nothing.
    pub(super) fn is_peek(&self) -> bool {
        self.is_peek
    }
}

/// Writes the reply.
pub(super) fn write(decision: &Decision, replies: &mut Replies) {
    let tightest = decision.tightest();
    replies.array(6);
    replies.integer(i64::from(decision.is_allowed()));
    let number = |replies: &mut Replies, value: Option<u64>| match value {
        Some(value) => replies.unsigned(value),
        None => replies.null(),
    };
    number(replies, tightest.map(|report| report.verdict.limit));
    number(replies, decision.remaining());
    match decision.retry() {
        None => replies.integer(0),
        Some(Retry::After(wait)) => replies.unsigned(wait.ceil_millis()),
        Some(Retry::Never) if tightest.is_some() => replies.integer(-1),
        // No rule covers the request, so no cost would fit.
        Some(Retry::Never) => replies.null(),
    }
    number(replies, tightest.map(|report| report.verdict.reset_after.ceil_millis()));
    match tightest {
        Some(report) => replies.bulk(report.rule),
        None => replies.null(),
    }
}

fn once<T>(option: &'static str, slot: &mut Option<T>, value: T) -> Result<(), Invalid> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Invalid::Twice { option }),
    }
}

fn text<'w>(field: &'static str, word: &'w [u8]) -> Result<&'w str, Invalid> {
    std::str::from_utf8(word).map_err(|_| Invalid::NotText { field })
}

fn cost_of(word: &[u8]) -> Result<Cost, Invalid> {
    let units = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    units.map(Cost::new).ok_or_else(|| Invalid::Cost { value: Shown(word).to_string() })
}

#[cfg(test)]
mod tests {
    use sluicegate::clock::ManualClock;
    use sluicegate::core::{Micros, Quota, Rate, Timestamp, TokenBucket};
    use sluicegate::pattern::Pattern;
    use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
    use sluicegate::store::memory::MemoryOptions;
    use sluicegate::{Limiter, MemoryStore};

    use super::super::parse::Parser;
    use super::super::reply::Version;
    use super::*;

    type TestLimiter = Limiter<MemoryStore, ManualClock>;

    /// A burst of four and three per second for `api.*`.
    fn limiter(unmatched: Unmatched) -> TestLimiter {
        let rate = Rate::new(3, Micros::from_secs(1)).expect("valid");
        let quota = Quota::from(TokenBucket::new(4, rate).expect("valid"));
        let mut rule = Rule::new("api", Limits::all("api", [(None, quota)]));
        rule.selector.resource = Some(Pattern::new("api.*"));
        let rules = RuleSet::new(vec![rule], vec!["pro".into()], unmatched).expect("valid rules");
        let now = Timestamp::now(1_705_312_800_000_000);
        Limiter::new(rules, MemoryStore::new(MemoryOptions::default(), now), ManualClock::at(now))
    }

    async fn ask(limiter: &TestLimiter, line: &[u8], version: Version) -> String {
        let line = [line, b"\r\n"].concat();
        let (words, _) = Parser::default().next(&line).expect("a line").expect("all of it");
        let name = if line.to_ascii_lowercase().starts_with(b"sg.report") { Name::Report } else { Name::Check };
        let check = Check::read(name, &words).expect("a command");
        let decision = match (name, check.is_peek()) {
            (Name::Report, _) => limiter.report(check.request()).await,
            (Name::Check, true) => limiter.peek(check.request()).await,
            (Name::Check, false) => limiter.check(check.request()).await,
        };
        let mut replies = Replies::default();
        replies.set_version(version);
        write(&decision.expect("a decision"), &mut replies);
        String::from_utf8_lossy(replies.as_bytes()).replace("\r\n", " ")
    }

    #[tokio::test]
    async fn the_reply_describes_the_tightest_limit() {
        let limiter = limiter(Unmatched::Allow);
        for (line, expected) in [
            ("SG.CHECK api.read a", "*6 :1 :4 :3 :0 :334 $3 api "),
            ("sg.check api.read a cost 3 tenant default", "*6 :1 :4 :0 :0 :1334 $3 api "),
            ("SG.CHECK api.read a PEEK", "*6 :0 :4 :0 :334 :1334 $3 api "),
            ("SG.CHECK api.read a COST 2", "*6 :0 :4 :0 :667 :1334 $3 api "),
            ("SG.CHECK api.read a COST 0", "*6 :1 :4 :0 :0 :1334 $3 api "),
            ("SG.CHECK api.read a COST 5", "*6 :0 :4 :0 :-1 :1334 $3 api "),
            ("SG.CHECK api.read a TENANT other TIER pro COST 4", "*6 :1 :4 :0 :0 :1334 $3 api "),
            ("SG.CHECK else a", "*6 :1 $-1 $-1 :0 $-1 $-1 "),
        ] {
            assert_eq!(ask(&limiter, line.as_bytes(), Version::Resp2).await, expected, "{line}");
        }
        assert_eq!(ask(&limiter, b"SG.CHECK else a", Version::Resp3).await, "*6 :1 _ _ :0 _ _ ");
    }

    #[tokio::test]
    async fn a_report_is_charged_in_full_and_answered_as_a_peek() {
        let limiter = limiter(Unmatched::Allow);
        for (line, expected) in [
            ("SG.REPORT api.read a", "*6 :1 :4 :3 :0 :334 $3 api "),
            ("sg.report api.read a cost 9 tenant default", "*6 :0 :4 :0 :-1 :3334 $3 api "),
            ("SG.CHECK api.read a PEEK", "*6 :0 :4 :0 :2334 :3334 $3 api "),
            ("SG.REPORT api.read a COST 0", "*6 :1 :4 :0 :0 :3334 $3 api "),
            ("SG.REPORT else a COST 7", "*6 :1 $-1 $-1 :0 $-1 $-1 "),
        ] {
            assert_eq!(ask(&limiter, line.as_bytes(), Version::Resp2).await, expected, "{line}");
        }
        let words = |line: &'static [u8]| Parser::default().next(line).expect("a line").expect("all of it").0;
        let peek = words(b"SG.REPORT r i PEEK\r\n");
        let invalid = Check::read(Name::Report, &peek).expect_err("no report peeks").to_string();
        assert_eq!(
            invalid,
            "syntax error at 'PEEK'; use SG.REPORT resource identifier [COST n] [TENANT t] [TIER x]"
        );
    }

    #[tokio::test]
    async fn unmatched_requests_can_be_denied_without_a_wait() {
        let limiter = limiter(Unmatched::Deny);
        assert_eq!(ask(&limiter, b"SG.CHECK else a", Version::Resp3).await, "*6 :0 _ _ _ _ _ ");
    }

    #[test]
    fn an_invalid_command_gets_a_reason() {
        for (line, expected) in [
            (&b"SG.CHECK"[..], Invalid::Words(Name::Check)),
            (b"SG.CHECK r", Invalid::Words(Name::Check)),
            (b"SG.CHECK r \xff", Invalid::NotText { field: "identifier" }),
            (b"SG.CHECK \xff i", Invalid::NotText { field: "resource" }),
            (b"SG.CHECK r i TIER \xff", Invalid::NotText { field: "TIER" }),
            (b"SG.CHECK r i COST", Invalid::Option { name: Name::Check, word: "COST".to_owned() }),
            (b"SG.CHECK r i COSTS 1", Invalid::Option { name: Name::Check, word: "COSTS".to_owned() }),
            (b"SG.CHECK r i PEEK peek", Invalid::Twice { option: "PEEK" }),
            (b"SG.CHECK r i COST 1 COST 1", Invalid::Twice { option: "COST" }),
            (b"SG.CHECK r i COST -1", Invalid::Cost { value: "-1".to_owned() }),
            (b"SG.CHECK r i COST 4294967296", Invalid::Cost { value: "4294967296".to_owned() }),
            (b"SG.CHECK r i COST 1.5", Invalid::Cost { value: "1.5".to_owned() }),
        ] {
            let line = [line, b"\r\n"].concat();
            let (words, _) = Parser::default().next(&line).expect("a line").expect("all of it");
            assert_eq!(Check::read(Name::Check, &words).map(|_| ()), Err(expected), "{}", line.escape_ascii());
        }
    }
}
