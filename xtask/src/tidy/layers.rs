//! The rule that keeps each crate free of import cycles: a module uses only modules of lower layers.
//!
//! The crate root declares the layers itself: the list below the heading `Layers` in its module
//! documentation names every top-level module once, the lowest first. The order is total, so a module may use the
//! modules to its left in the same item. Tests and comments may import any module.

use std::collections::HashMap;

use super::{Problem, SourceFile, Tree};

const ROOTS: &[&str] =
    &["crates/sluicegate-core/src/lib.rs", "crates/sluicegate/src/lib.rs", "crates/sluicegate-server/src/main.rs"];

/// Every module that the root declares has a place in the list, and imports only modules before it.
pub(super) fn imports_follow_the_layers(tree: &Tree<'_>) -> Vec<Problem> {
    ROOTS.iter().filter_map(|root| tree.file(root)).flat_map(|root| problems_of(tree, root)).collect()
}

fn problems_of(tree: &Tree<'_>, root: &SourceFile) -> Vec<Problem> {
    let layers = Layers::read(&root.text);
    let mut problems: Vec<Problem> = layers
        .without_a_place()
        .map(|(line, module)| root.problem(line, format!("`{module}` is missing from the list of layers above")))
        .collect();
    let (folder, _) = root.path.rsplit_once('/').unwrap_or_default();
    for file in tree.rust_files() {
        let Some(within) = file.path.strip_prefix(folder).and_then(|path| path.strip_prefix('/')) else {
            continue;
        };
        let (module, depth) = top_level(within);
        let Some(&place) = layers.places.get(module) else { continue };
        if is_for_tests(within) {
            continue;
        }
        for (line, used) in uses(&file.text, depth) {
            let used = layers.module_of(used);
            if layers.places.get(used).is_some_and(|&used| used > place) {
                let message = format!("`{module}` imports `{used}`, which is in a higher layer ({})", root.path);
                problems.push(file.problem(line, message));
            }
        }
    }
    problems
}

/// The order of the top-level modules of one crate.
struct Layers<'a> {
    /// The position of each module, counted from the lowest.
    places: HashMap<&'a str, usize>,
    /// Modules in production code, each with the line that declares it.
    declared: Vec<(usize, &'a str)>,
    /// Names that the root re-exports, each with the module that defines it.
    exports: HashMap<&'a str, &'a str>,
}

impl<'a> Layers<'a> {
    fn read(root: &'a str) -> Self {
        let mut layers = Self { places: HashMap::new(), declared: Vec::new(), exports: HashMap::new() };
        let (mut is_section, mut is_list) = (false, false);
        for doc in root.lines().filter_map(|line| line.strip_prefix("//!")) {
            let doc = doc.trim();
            if doc.starts_with('#') {
                is_section = doc.trim_start_matches('#').trim() == "Layers";
                is_list = false;
            } else if is_section {
                // An item may go on in further lines; an empty line ends the list.
                is_list = !doc.is_empty() && (is_list || doc.starts_with('-'));
                let modules = if is_list { doc } else { "" };
                for module in modules.split('`').skip(1).step_by(2) {
                    let place = layers.places.len();
                    layers.places.insert(module, place);
                }
            }
        }
        for (number, line) in (1..).zip(root.lines()) {
            let line = without_visibility(line);
            if let Some(module) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                layers.declared.push((number, module));
            }
            if let Some((module, names)) = line.strip_prefix("use ").and_then(|path| path.split_once("::")) {
                let names = names.split(|part: char| !part.is_alphanumeric() && part != '_');
                layers.exports.extend(names.map(|name| (name, module)));
            }
        }
        layers
    }

    fn without_a_place(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let has_no_place = |&(_, module): &(usize, &str)| {
            !self.places.contains_key(module) && !is_for_tests(&format!("{module}.rs"))
        };
        self.declared.iter().copied().filter(has_no_place)
    }

    /// The module behind a name of the crate root.
    fn module_of(&self, name: &'a str) -> &'a str {
        match self.places.contains_key(name) {
            true => name,
            false => self.exports.get(name).copied().unwrap_or(name),
        }
    }
}

/// The top-level module of a file, and how many modules deep the file is: 1 for the top-level module itself.
fn top_level(path: &str) -> (&str, usize) {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let depth = path.split('/').filter(|&part| part != "mod").count();
    (path.split('/').next().unwrap_or(path), depth)
}

fn is_for_tests(path: &str) -> bool {
    path.split('/').any(|part| {
        matches!(part.strip_suffix(".rs").unwrap_or(part), "tests" | "testing" | "models" | "main" | "lib")
    })
}

/// Every top-level name that production code of the file uses, with its line.
fn uses(text: &str, depth: usize) -> Vec<(usize, &str)> {
    let to_root = "super::".repeat(depth);
    let mut found = Vec::new();
    let mut group: Option<i32> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("#[cfg(")
            && line.contains("test")
            && !line.contains("not(test")
            && opens_module(text, number)
        {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        if let Some(open) = group {
            found.extend(names_of_group(code, open).into_iter().map(|name| (number, name)));
            let depth = open + depth_change(code);
            group = (depth > 0).then_some(depth);
            continue;
        }
        for prefix in ["crate::", &to_root] {
            for (start, _) in code.match_indices(prefix) {
                let before = code[..start].chars().next_back();
                if before.is_some_and(|before| before.is_alphanumeric() || matches!(before, '_' | ':')) {
                    continue;
                }
                let rest = &code[start + prefix.len()..];
                match rest.strip_prefix('{') {
                    None => found.push((number, identifier(rest))),
                    Some(inside) => {
                        found.extend(names_of_group(inside, 1).into_iter().map(|name| (number, name)));
                        let depth = 1 + depth_change(inside);
                        group = (depth > 0).then_some(depth);
                    }
                }
            }
        }
    }
    found.retain(|(_, name)| !name.is_empty() && *name != "super");
    found
}

/// Whether a module follows the attribute on this line, counted from 1.
fn opens_module(text: &str, attribute: usize) -> bool {
    let following = text.lines().skip(attribute).find(|line| !line.starts_with("#["));
    following.is_some_and(|line| without_visibility(line).starts_with("mod ") && line.ends_with('{'))
}

/// The names that stand directly in the braces of `crate::{…}`, of which so many are open.
fn names_of_group(code: &str, open: i32) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut depth, mut is_first) = (open, true);
    for (start, character) in code.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' => is_first = true,
            _ if character.is_whitespace() => {}
            _ if is_first && depth == 1 => {
                names.push(identifier(&code[start..]));
                is_first = false;
            }
            _ => is_first = false,
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn depth_change(code: &str) -> i32 {
    code.chars().map(|character| i32::from(character == '{') - i32::from(character == '}')).sum()
}

fn identifier(code: &str) -> &str {
    let end = code.find(|part: char| !part.is_alphanumeric() && part != '_').unwrap_or(code.len());
    &code[..end]
}

fn without_visibility(line: &str) -> &str {
    ["pub(crate) ", "pub "].iter().find_map(|visibility| line.strip_prefix(visibility)).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const ROOT: &str = "crates/sluicegate/src/lib.rs";
    const LIB: &str = "//! A library.\n//!\n//! # Layers\n//!\n//! Checked by `xtask`.\n//!\n//! - base: `error`,\n//!   `time`\n//! - `rules`\n//! - `store`\n\n\
                       pub mod error;\nmod rules;\nmod store;\npub mod time;\n#[cfg(test)]\nmod testing;\n\
                       pub use store::{Memory, Place as P};\n";

    fn problems(path: &str, text: &str) -> Vec<String> {
        let path = format!("crates/sluicegate/src/{path}");
        found(imports_follow_the_layers, &[(ROOT, LIB), (&path, text)])
            .iter()
            .map(|problem| problem.strip_prefix("crates/sluicegate/src/").unwrap_or(problem).to_owned())
            .collect()
    }

    #[test]
    fn imports_of_lower_layers_are_allowed() {
        let text = "//! See [`crate::store`].\nuse crate::error::A;\nuse crate::{error::B, time};\nuse super::time::C;\n\
                    // crate::store::D\nuse std::collections::HashMap;\nuse not_crate::store;\n\
                    #[cfg(test)]\nmod tests {\n    use crate::store::E;\n}\n";
        assert_eq!(problems("rules.rs", text), Vec::<String>::new());
        assert_eq!(problems("time.rs", "use crate::error::A;\n"), Vec::<String>::new());
        assert_eq!(problems("rules/tests.rs", "use crate::store::A;\n"), Vec::<String>::new());
    }

    #[test]
    fn imports_of_higher_layers_are_found_in_every_form() {
        for text in [
            "use crate::store::A;\n",
            "use crate::{error::B, store::A};\n",
            "use crate::Memory;\n",
            "use super::store::A;\n",
            "fn f() -> crate::store::A {}\n",
            "#[cfg(test)]\nfn early() {}\nuse crate::store::A;\n",
        ] {
            let line = text.lines().count();
            let expected =
                format!("rules.rs:{line}: `rules` imports `store`, which is in a higher layer ({ROOT})");
            assert_eq!(problems("rules.rs", text), [expected], "{text}");
        }
        let text = "use crate::{\n    error::{\n        store,\n    },\n    store::A,\n};\n";
        assert_eq!(problems("rules.rs", text).len(), 1);
        assert_eq!(problems("rules/deep.rs", "use super::super::store::A;\nuse super::store;\n").len(), 1);
        assert_eq!(problems("error.rs", "use crate::time::A;\n").len(), 1);
    }

    #[test]
    fn every_module_needs_a_layer() {
        let lib = LIB.replace("`rules`", "");
        assert_eq!(
            found(imports_follow_the_layers, &[(ROOT, &lib)]),
            [format!("{ROOT}:13: `rules` is missing from the list of layers above")]
        );
    }
}
