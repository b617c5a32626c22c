//! HTML, written so that no text can become markup: whatever is not a part of the program goes through
//! [`Markup::text`].

/// A page that is written.
#[derive(Debug, Default)]
pub(super) struct Markup(String);

impl Markup {
    /// Markup of the program's own.
    pub(super) fn raw(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    pub(super) fn open(&mut self, tag: &str, class: &str) {
        self.0.extend(["<", tag]);
        if !class.is_empty() {
            self.0.extend([" class=\"", class, "\""]);
        }
        self.0.push('>');
    }

    pub(super) fn close(&mut self, tag: &str) {
        self.0.extend(["</", tag, ">\n"]);
    }

    /// Any text.
    pub(super) fn text(&mut self, text: &str) {
        escape(&mut self.0, text);
    }

    /// A text of others, kept apart, so that one which is written from right to left does not turn what is around it.
    pub(super) fn name(&mut self, text: &str) {
        self.open("bdi", "");
        self.text(text);
        self.raw("</bdi>");
    }

    pub(super) fn element(&mut self, tag: &str, class: &str, text: &str) {
        self.open(tag, class);
        self.text(text);
        self.close(tag);
    }

    /// Cells of a table.
    pub(super) fn cells(&mut self, texts: &[&str]) {
        texts.iter().for_each(|text| self.element("td", "", text));
    }

    /// A row of cells of one kind.
    pub(super) fn row(&mut self, tag: &str, texts: &[&str]) {
        self.open("tr", "");
        texts.iter().for_each(|text| self.element(tag, "", text));
        self.close("tr");
    }

    /// The whole page.
    pub(super) fn finish(mut self) -> String {
        self.raw("</body></html>\n");
        self.0
    }
}

/// Writes `text` so that it is text in elements and in attributes with double quotes. Characters that HTML may not hold are
/// replaced.
pub(super) fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
}
