//! SVG pictures for the report. All lengths are whole tenths of the picture's unit.

use std::fmt::Write as _;

use maud::{Markup, Render, html};

use super::report::{EscapedText, grouped};
use super::tally::RequestCount;

/// The size of a bar chart and of the area for its bars, in tenths.
const SIZE: [i64; 2] = [7_200, 1_900];
const LEFT: i64 = 560;
const TOP: i64 = 100;
const AREA: [i64; 2] = [6_500, 1_500];

/// The position of a label relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextAnchor {
    Start,
    Middle,
    End,
}

/// A length in tenths, rendered as a decimal number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenths(pub(super) i64);

impl Render for Tenths {
    fn render_to(&self, buffer: &mut String) {
        let sign = if self.0 < 0 { "-" } else { "" };
        // Writing to a string cannot fail.
        let _ = match (self.0.unsigned_abs() / 10, self.0.unsigned_abs() % 10) {
            (whole, 0) => write!(buffer, "{sign}{whole}"),
            (whole, tenths) => write!(buffer, "{sign}{whole}.{tenths}"),
        };
    }
}

/// A picture. Screen readers read `label` aloud.
pub(super) fn picture(width: i64, height: i64, label: &str, content: &Markup) -> Markup {
    html! {
        div.scroll {
            svg viewBox={ "0 0 " (Tenths(width)) " " (Tenths(height)) } role="img" aria-label=(EscapedText(label)) { (content) }
        }
    }
}

/// A rectangle.
pub(super) fn rect(class: &str, [x, y, width, height]: [i64; 4]) -> Markup {
    let [x, y, width, height] = [x, y, width, height].map(Tenths);
    html! { rect class=(class) x=(x) y=(y) width=(width) height=(height) {} }
}

/// A rectangle with an opacity of at most 99 hundredths.
pub(super) fn shade(class: &str, [x, y, width, height]: [i64; 4], hundredths: u64) -> Markup {
    let [x, y, width, height] = [x, y, width, height].map(Tenths);
    let opacity = format!(".{:02}", hundredths.min(99));
    html! { rect class=(class) x=(x) y=(y) width=(width) height=(height) fill-opacity=(opacity) {} }
}

/// A label of an axis.
pub(super) fn axis_label(anchor: TextAnchor, [x, y]: [i64; 2], text: &str) -> Markup {
    let anchor = match anchor {
        TextAnchor::Start => "start",
        TextAnchor::Middle => "middle",
        TextAnchor::End => "end",
    };
    html! { text.axis text-anchor=(anchor) x=(Tenths(x)) y=(Tenths(y)) { (EscapedText(text)) } }
}

/// A group with a tooltip.
pub(super) fn titled(title: &str, content: &Markup) -> Markup {
    html! { g { title { (EscapedText(title)) } (content) } }
}

/// One bar of a chart.
pub(super) struct Bar {
    /// The tooltip, without the counts.
    pub(super) title: String,
    pub(super) count: RequestCount,
}

/// Draws one bar per count, allowed requests below and denied requests above, with `ticks` as labels below some bars.
pub(super) fn bar_chart(label: &str, bars: &[Bar], ticks: &[(usize, String)]) -> Markup {
    let total = bars.iter().map(|bar| bar.count).fold(RequestCount::default(), RequestCount::and);
    let label = format!("{label}: {} allowed, {} denied", total.allowed, total.denied);
    let end = axis_end(bars.iter().map(|bar| bar.count.total()).max().unwrap_or_default());
    let columns = bars.len().max(1) as i64;
    let x_of = |index: usize| LEFT + AREA[0] * index as i64 / columns;
    let content = html! {
        (grid(end))
        @for (index, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.count.total() > 0) {
            @let width = (x_of(index + 1) - x_of(index)).clamp(4, 300);
            (drawn(bar, x_of(index), width - width / 8, end))
        }
        @for (index, text) in ticks { (axis_label(TextAnchor::Start, [x_of(*index), SIZE[1] - 100], text)) }
    };
    picture(SIZE[0], SIZE[1], &label, &content)
}

fn drawn(bar: &Bar, x: i64, width: i64, end: u64) -> Markup {
    let Bar { title, count } = bar;
    let (allowed, denied) = (scaled(AREA[1], count.allowed, end), scaled(AREA[1], count.denied, end));
    let foot = TOP + AREA[1];
    let title = format!("{title}: {} allowed, {} denied", grouped(count.allowed), grouped(count.denied));
    let content = html! {
        @if allowed > 0 { (rect("ok", [x, foot - allowed, width, allowed])) }
        @if denied > 0 { (rect("no", [x, foot - allowed - denied, width, denied])) }
    };
    titled(&title, &content)
}

fn grid(end: u64) -> Markup {
    let lines = [(end, TOP), (end / 2, TOP + AREA[1] / 2), (0, TOP + AREA[1])];
    html! {
        @for (value, y) in lines {
            line.grid x1=(Tenths(LEFT)) y1=(Tenths(y)) x2=(Tenths(LEFT + AREA[0])) y2=(Tenths(y)) {}
            @if end > 1 || value != end / 2 { (axis_label(TextAnchor::End, [LEFT - 60, y + 35], &grouped(value))) }
        }
    }
}

/// The end of an axis: the smallest number of the form 1, 2 or 5 times a power of ten that is at least `most`.
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

/// `length · part / whole`, rounded down. A part above zero gets at least 2 tenths, so that it stays visible.
pub(super) fn scaled(length: i64, part: u64, whole: u64) -> i64 {
    let product = i128::from(length) * i128::from(part);
    let scaled = i64::try_from(product / i128::from(whole.max(1))).unwrap_or(length);
    if part > 0 { scaled.max(2) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_pictures_are_escaped() {
        let content = titled("<b>", &axis_label(TextAnchor::End, [1, -15], "</text>"));
        assert_eq!(
            picture(10, 25, "\"><script>", &content).into_string(),
            "<div class=\"scroll\"><svg viewBox=\"0 0 1 2.5\" role=\"img\" aria-label=\"&quot;&gt;&lt;script&gt;\">\
             <g><title>&lt;b&gt;</title><text class=\"axis\" text-anchor=\"end\" x=\"0.1\" y=\"-1.5\">&lt;/text&gt;</text></g>\
             </svg></div>"
        );
    }

    #[test]
    fn axes_end_at_round_numbers_and_small_parts_stay_visible() {
        assert_eq!([0, 1, 3, 5, 6, 11, 499, u64::MAX].map(axis_end)[..7], [1, 1, 5, 5, 10, 20, 500]);
        assert_eq!([(0, 9), (1, 1_000), (5, 10)].map(|(part, whole)| scaled(100, part, whole)), [0, 2, 50]);
    }
}
