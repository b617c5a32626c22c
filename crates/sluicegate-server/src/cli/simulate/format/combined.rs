//! The combined format of Apache and nginx, and the common one, which ends earlier:
//! `192.0.2.7 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326 "referrer" "agent"`.
//!
//! Nothing after the status has a say in a decision, so it is not looked at.

use super::request::{after_status, method_and_target, quoted};
use super::time::CommonTime;
use super::{Fault, Line, present, split_at_byte};

/// A parser for the combined format.
#[derive(Debug, Default)]
pub(crate) struct Combined {
    time: CommonTime,
}

impl Combined {
    pub(crate) fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Line<'a>, Fault> {
        let (client, rest) = split_at_byte(line, b' ').ok_or(Fault::NoTime)?;
        let client = present(client).ok_or(Fault::NoAddress)?;
        let (names, rest) = split_at_byte(rest, b'[').ok_or(Fault::NoTime)?;
        let (time, rest) = split_at_byte(rest, b']').ok_or(Fault::NoTime)?;
        let at_micros = self.time.read(time).ok_or(Fault::BadTime)?;
        let (request, rest) = rest.strip_prefix(b" ").and_then(quoted).ok_or(Fault::NoRequest)?;
        after_status(rest)?;
        let (method, target) = method_and_target(request)?;
        Ok(Line { at_micros, client, method, target, identity: user(names), ..Line::default() })
    }
}

/// The user of `ident user `; a name may have spaces.
fn user(names: &[u8]) -> Option<&[u8]> {
    let (_, user) = split_at_byte(names, b' ')?;
    present(user.strip_suffix(b" ")?)
}
