//! The part of SVG that the charts need. Colours follow the reader's light or dark setting, and the chart has its own
//! background, so that it is readable on pages that do not follow the setting.

use std::fmt::Write;

const STYLE: &str = "\
    .back{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}\
    .good{fill:#1a7f5a}.fair{fill:#9a6700}.poor{fill:#b3402f}.line{stroke:#0969da;fill:none}.dot{fill:#0969da}\
    @media(prefers-color-scheme:dark){\
    .back{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#30363d}.axis{stroke:#9198a1}\
    .good{fill:#3fb98a}.fair{fill:#d29922}.poor{fill:#f0705c}.line{stroke:#58a6ff}.dot{fill:#58a6ff}}";

/// A chart under construction.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// The alignment of a text at its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub(super) fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4]) {
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
        ));
    }

    pub(super) fn line(&mut self, class: &str, width: f64, [x1, y1, x2, y2]: [f64; 4]) {
        self.push(format_args!(
            r#"<line class="{class}" stroke-width="{width:.1}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!(r#"<polyline class="{class}" stroke-width="2" points="{}"/>"#, points.join(" ")));
    }

    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64)) {
        self.push(format_args!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#));
    }

    pub(super) fn text(&mut self, class: &str, size: f64, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.push(format_args!(
            r#"<text class="{class}" font-size="{size}" text-anchor="{anchor}" x="{x:.1}" y="{y:.1}">{text}</text>"#
        ));
    }

    /// The whole file; `title` is for screen readers.
    pub(super) fn finish(self, title: &str) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', \
             sans-serif\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"back\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n{body}</svg>\n"
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}
