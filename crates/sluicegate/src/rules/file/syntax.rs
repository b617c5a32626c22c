//! The options of the YAML parser, and error messages for its errors.

use super::problem::ValueError;
use super::tree::DEPTH_MAX;
use granit_parser::{ErrorKind, Options, ScanError};

/// Tight bounds, no directives, and no abort at an undefined alias.
pub(super) fn options() -> Options {
    granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    }
}

/// The error for text that is not YAML. The parser stops there, so this is always the last problem of a file.
pub(super) fn explain(error: &ScanError) -> ValueError {
    let remedy = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return too_deep(),
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::InvalidBlockEntryWhitespace
        | ErrorKind::InvalidMappingValueWhitespace => "indent with spaces, not with tabs",
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::MisplacedFlowCollectionEnd
        | ErrorKind::MismatchedFlowCollectionEnd { .. } => "give every [ its ] and every { its }",
        ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator => {
            "separate with commas, and put values that hold { } [ ] or ${NAME} in quotes here"
        }
        ErrorKind::MappingValueNotAllowed | ErrorKind::UnexpectedCharacter { .. } => {
            "put the value in quotes, or check the indentation"
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => "close the quotes",
        ErrorKind::UnknownQuotedScalarEscape => "write \\\\ for a backslash, or use single quotes",
        ErrorKind::MissingAnchorOrAliasName => "put a value that starts with * or & in quotes, for example \"*\"",
        ErrorKind::DirectiveDisallowed => "remove the line that starts with %",
        _ => "check the indentation, the quotes and the brackets here",
    };
    ValueError::new(format!("not valid YAML: {}", error.info()), remedy)
}

pub(super) fn too_deep() -> ValueError {
    let message = format!("more than {DEPTH_MAX} levels of nesting, aliases written out");
    ValueError::new(message, "nest less: rules need seven levels")
}
