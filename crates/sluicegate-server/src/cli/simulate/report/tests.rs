//! The parts of the report that can be looked at without a browser.

use super::markup::{Markup, escape};
use super::over_time::length;
use super::svg::{Anchor, Svg, axis_end, scaled};
use super::*;

#[test]
fn no_text_becomes_markup() {
    let mut text = String::new();
    escape(&mut text, "<script>\"a\" & 'b'</script>\0\u{1b}[31m é");
    assert_eq!(text, "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\u{fffd}\u{fffd}[31m é");
    let mut page = Markup::default();
    let mut svg = Svg::new(10, 25, "\"><script>");
    svg.titled("<b>", |svg| svg.text("axis", Anchor::End, [1, -15], "</text>"));
    svg.put(&mut page);
    page.name("<i>");
    assert_eq!(
        page.finish(),
        "<div class=\"scroll\"><svg viewBox=\"0 0 1 2.5\" role=\"img\" aria-label=\"&quot;&gt;&lt;script&gt;\">\
         <g><title>&lt;b&gt;</title><text class=\"axis\" text-anchor=\"end\" x=\"0.1\" y=\"-1.5\">&lt;/text&gt;</text></g>\n\
         </svg></div>\n<bdi>&lt;i&gt;</bdi></body></html>\n"
    );
}

#[test]
fn numbers_are_shown_as_people_read_them() {
    assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    assert_eq!([0, 999, 1_000].map(grouped), ["0", "999", "1\u{202f}000"]);
    assert_eq!([0, 1, 3, 5, 6, 11, 499, u64::MAX].map(axis_end)[..7], [1, 1, 5, 5, 10, 20, 500]);
    assert_eq!([(0, 9), (1, 1_000), (5, 10)].map(|(part, whole)| scaled(100, part, whole)), [0, 2, 50]);
    assert_eq!(
        [1, 60, 7_200, 64, 4_096].map(|s| length(s * 1_000_000)),
        ["1 s", "1 min", "2 h", "1 min 4 s", "1 h 8 min 16 s"]
    );
}
