//! As much of SVG as the report needs, in whole numbers: all lengths are tenths of the picture's unit.

use std::fmt::Write as _;

use super::markup::{Markup, escape};

/// A picture that is drawn.
#[derive(Debug)]
pub(super) struct Svg {
    width: i64,
    height: i64,
    label: String,
    body: String,
}

/// Where a text stands to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Tenths, as SVG writes them.
struct Tenths(i64);

impl std::fmt::Display for Tenths {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        match (self.0.unsigned_abs() / 10, self.0.unsigned_abs() % 10) {
            (whole, 0) => write!(formatter, "{sign}{whole}"),
            (whole, tenths) => write!(formatter, "{sign}{whole}.{tenths}"),
        }
    }
}

impl Svg {
    /// An empty picture; `label` says to those who do not see it what it shows.
    pub(super) fn new(width: i64, height: i64, label: &str) -> Self {
        Self { width, height, label: label.to_owned(), body: String::new() }
    }

    pub(super) fn rect(&mut self, class: &str, [x, y, width, height]: [i64; 4]) {
        let [x, y, width, height] = [x, y, width, height].map(Tenths);
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.body, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#);
    }

    /// A rectangle that is so many hundredths opaque.
    pub(super) fn shade(&mut self, class: &str, [x, y, width, height]: [i64; 4], hundredths: u64) {
        let [x, y, width, height] = [x, y, width, height].map(Tenths);
        let opacity = hundredths.min(99);
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" fill-opacity=".{opacity:02}"/>"#
        );
    }

    pub(super) fn line(&mut self, class: &str, [x1, y1, x2, y2]: [i64; 4]) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(Tenths);
        let _ = write!(self.body, r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#);
    }

    pub(super) fn text(&mut self, class: &str, anchor: Anchor, [x, y]: [i64; 2], text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let [x, y] = [x, y].map(Tenths);
        let _ = write!(self.body, r#"<text class="{class}" text-anchor="{anchor}" x="{x}" y="{y}">"#);
        escape(&mut self.body, text);
        self.body.push_str("</text>");
    }

    /// What `draw` draws, with a title that browsers show when somebody points at it.
    pub(super) fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        self.body.push_str("<g><title>");
        escape(&mut self.body, title);
        self.body.push_str("</title>");
        draw(self);
        self.body.push_str("</g>\n");
    }

    /// Puts the picture on a page.
    pub(super) fn put(self, page: &mut Markup) {
        let (width, height) = (Tenths(self.width), Tenths(self.height));
        page.raw("<div class=\"scroll\">");
        page.raw(&format!(r#"<svg viewBox="0 0 {width} {height}" role="img" aria-label=""#));
        page.text(&self.label);
        page.raw("\">");
        page.raw(&self.body);
        page.raw("</svg></div>\n");
    }
}

/// The smallest of 1, 2 and 5 with zeros that is not below `most`: where an axis ends.
pub(super) fn axis_end(most: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for digit in [1, 2, 5] {
            let end = power.saturating_mul(digit);
            if end >= most || end == u64::MAX {
                return end.max(1);
            }
        }
        power = power.saturating_mul(10);
    }
}

/// `length` times `part` of `whole`, rounded, and visible if there is anything at all.
pub(super) fn scaled(length: i64, part: u64, whole: u64) -> i64 {
    let product = i128::from(length) * i128::from(part);
    let scaled = i64::try_from(product / i128::from(whole.max(1))).unwrap_or(length);
    if part > 0 { scaled.max(2) } else { 0 }
}
