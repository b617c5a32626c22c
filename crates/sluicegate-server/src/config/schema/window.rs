//! The part of the schema about windows: lengths of time, and those of a calendar.

use serde_json::{Value, json};
use sluicegate::calendar::{MONTH_DAY_MAX, WEEKDAYS};
use sluicegate::rules::file::window::{CALENDAR_WINDOWS, TIMEZONE_DEFAULT};

use super::{described, integer, reference, text, word_of, words};

/// The window of a limit that may be of a calendar.
pub(super) fn window() -> Value {
    json!({
        "description": "How long the window is; or of which calendar: its months, weeks, days or hours.",
        "anyOf": [reference("duration"), word_of(CALENDAR_WINDOWS)],
        "examples": ["1h", "month"],
    })
}

/// The window of a limit that knows no calendar.
pub(super) fn length() -> Value {
    described("duration", "How long the window is.", &["1h"])
}

/// Whose calendar. Which names there are is for the reader to say.
pub(super) fn timezone() -> Value {
    let mut zone = text("The time zone of a calendar.", &json!({ "pattern": "^[A-Za-z0-9_+/-]{1,64}$" }));
    zone["default"] = json!(TIMEZONE_DEFAULT);
    zone["examples"] = json!(["Europe/Berlin"]);
    zone
}

/// Where months or weeks of a calendar begin.
pub(super) fn anchor() -> Value {
    json!({
        "description": "The day of the month, 1 to 31, or of the week on which a window of a calendar begins.",
        "anyOf": [month_anchor(), week_anchor()],
        "examples": [15, "sunday"],
    })
}

fn month_anchor() -> Value {
    integer("The day of the month; a shorter month begins on its last.", 1, MONTH_DAY_MAX.into(), &[1, 31])
}

fn week_anchor() -> Value {
    words("The day of the week.", WEEKDAYS, "monday")
}

/// Which of the keys of a fixed window go together.
pub(super) fn together() -> Value {
    let window_is = |window: Value| json!({ "properties": { "window": window }, "required": ["window"] });
    json!([
        {
            "if": window_is(json!({ "type": "string", "pattern": "^[0-9]" })),
            "then": { "properties": { "timezone": false, "anchor": false } },
        },
        { "if": window_is(word_of(CALENDAR_WINDOWS)), "then": { "properties": { "align": false } } },
        { "if": window_is(json!({ "const": "month" })), "then": { "properties": { "anchor": month_anchor() } } },
        { "if": window_is(json!({ "const": "week" })), "then": { "properties": { "anchor": week_anchor() } } },
        {
            "if": window_is(json!({ "enum": ["day", "hour"] })),
            "then": { "properties": { "anchor": false } },
        },
    ])
}
