//! The structure of this workspace, from `cargo metadata`.
//!
//! Unlike the manifests, `cargo metadata` also reflects renamed folders, a target folder from the
//! environment, and platform-specific dependencies.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::Invocation;
use crate::failure::Failure;

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Every feature but `default`, sorted.
    pub(crate) features: Vec<String>,
    /// All dependencies of the package: for every platform, optional ones and build scripts included.
    pub(crate) needs: Vec<String>,
}

impl Workspace {
    /// Reads the metadata of the workspace around the current folder.
    pub(crate) fn find() -> Result<Self, Failure> {
        let metadata = Invocation::cargo().arguments("metadata --no-deps --format-version 1").output()?;
        Self::parse(&metadata)
    }

    pub(crate) fn package(&self, name: &str) -> Result<&Package, Failure> {
        self.packages
            .iter()
            .find(|package| package.name == name)
            .ok_or_else(|| Failure::step(format!("the workspace has no package `{name}`")))
    }

    /// The folder of programs that only tasks need.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    fn parse(metadata: &str) -> Result<Self, Failure> {
        let metadata: Value = serde_json::from_str(metadata)
            .map_err(|error| Failure::step(format!("cannot read `cargo metadata`: {error}")))?;
        Ok(Self {
            root: Path::new(text(&metadata, "workspace_root")?).to_owned(),
            target: Path::new(text(&metadata, "target_directory")?).to_owned(),
            packages: list(&metadata, "packages")?.iter().map(Package::parse).collect::<Result<_, _>>()?,
        })
    }
}

impl Package {
    fn parse(package: &Value) -> Result<Self, Failure> {
        let features = package.get("features").and_then(Value::as_object).ok_or_else(|| missing("features"))?;
        let mut features: Vec<String> = features.keys().filter(|name| *name != "default").cloned().collect();
        features.sort();
        let needs = list(package, "dependencies")?
            .iter()
            .filter(|dependency| dependency.get("kind").and_then(Value::as_str) != Some("dev"))
            .map(|dependency| text(dependency, "name").map(str::to_owned))
            .collect::<Result<_, _>>()?;
        Ok(Self { name: text(package, "name")?.to_owned(), features, needs })
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, Failure> {
    value.get(field).and_then(Value::as_str).ok_or_else(|| missing(field))
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>, Failure> {
    value.get(field).and_then(Value::as_array).ok_or_else(|| missing(field))
}

fn missing(field: &str) -> Failure {
    Failure::step(format!("`cargo metadata` gave no usable `{field}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "workspace_root": "/src", "target_directory": "/out",
        "packages": [{
            "name": "sluicegate",
            "features": {"tower": [], "default": ["redis"], "redis": ["dep:redis"]},
            "dependencies": [
                {"name": "hashbrown", "kind": null, "target": null},
                {"name": "proptest", "kind": "dev", "target": null},
                {"name": "cc", "kind": "build", "target": null},
                {"name": "libc", "kind": null, "target": "cfg(unix)"}
            ]
        }]
    }"#;

    #[test]
    fn features_exclude_default_and_needs_exclude_dev_dependencies() {
        let workspace = Workspace::parse(METADATA).unwrap();
        let package = workspace.package("sluicegate").unwrap();
        assert_eq!(package.features, ["redis", "tower"]);
        assert_eq!(package.needs, ["hashbrown", "cc", "libc"]);
        assert_eq!(workspace.tools(), Path::new("/out/tools"));
    }

    #[test]
    fn a_missing_package_is_named() {
        let failure = Workspace::parse(r#"{"workspace_root": "/src"}"#).unwrap_err();
        assert_eq!(failure.to_string(), "`cargo metadata` gave no usable `target_directory`");
        let failure = Workspace::parse(METADATA).unwrap().package("gate").unwrap_err().to_string();
        assert_eq!(failure, "the workspace has no package `gate`");
    }
}
