//! The blocks of `docs/forward-auth.md`, exactly as on the page.

const PAGE: &str = include_str!("../../../../../docs/forward-auth.md");

/// The block number `index` in this language under a heading.
pub(crate) fn block(heading: &str, language: &str, index: usize) -> String {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the heading is on the page");
    let section = section.split("\n## ").next().unwrap_or_default();
    let opening = format!("\n```{language}\n");
    let block =
        section.split(&opening).nth(index + 1).unwrap_or_else(|| panic!("{heading} has no {language} {index}"));
    let (block, _) = block.split_once("\n```\n").expect("the block ends");
    format!("{block}\n")
}

/// The text with addresses of the page replaced by those of a test; each must be there.
pub(crate) fn at(mut text: String, addresses: &[(&str, &str)]) -> String {
    for (shown, real) in addresses {
        assert!(text.contains(shown), "{shown} is not in:\n{text}");
        text = text.replace(shown, real);
    }
    text
}
