//! Writes the Rust code of the project's .proto files, and the description of them that reflection serves.
//!
//! It takes the root of the repository, and writes below it; the test holds what is committed against what would be
//! written. It does not know what the messages are for.

#![expect(clippy::print_stderr, reason = "a tool talks to the person who ran it")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic_prost_build::Builder;

/// Where the .proto files are.
const SOURCES: &str = "proto";
/// The file that names all others.
const SERVICE: &str = "ratelimit.proto";
/// Where the code of the messages goes, which needs nothing around it.
const MESSAGES: &str = "crates/sluicegate-server/src/grpc/messages.rs";
/// Where the description goes.
const DESCRIPTION: &str = "crates/sluicegate-server/src/grpc/descriptors.bin";
/// What the code starts with.
const MESSAGES_HEAD: &str =
    "//! The messages of Envoy's rate limit protocol, as `cargo xtask proto` writes them.\n\n";

/// What is written: a path below the root, and its content.
type Written = (&'static str, Vec<u8>);

fn main() -> ExitCode {
    let Some(root) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: sluicegate-proto ROOT");
        return ExitCode::from(2);
    };
    match write(&root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the .proto files could not be compiled: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(root: &Path) -> Result<(), Box<dyn Error>> {
    for (path, content) in generate(root)? {
        fs::write(root.join(path), content)?;
    }
    Ok(())
}

fn generate(root: &Path) -> Result<[Written; 2], Box<dyn Error>> {
    let described = protox::compile([SERVICE], [root.join(SOURCES)])?;
    let builder = tonic_prost_build::configure().build_client(false).build_server(false);
    let messages = code(builder, &described)?;
    Ok([(MESSAGES, format!("{MESSAGES_HEAD}{messages}").into_bytes()), (DESCRIPTION, described.encode_to_vec())])
}

/// The code that `builder` makes, all in one.
fn code(builder: Builder, described: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    builder.include_file("all.rs").out_dir(folder.path()).compile_fds(described.clone())?;
    inlined(folder.path(), &fs::read_to_string(folder.path().join("all.rs"))?)
}

/// The modules as one file: every line that includes another file is replaced by that file.
fn inlined(folder: &Path, modules: &str) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    for line in modules.lines() {
        let included = line.trim().strip_prefix("include!(\"").and_then(|rest| rest.strip_suffix("\");"));
        match included {
            Some(file) => code.push_str(&fs::read_to_string(folder.join(file))?),
            None => code.push_str(line),
        }
        code.push('\n');
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_what_the_proto_files_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, content) in generate(&root).expect("the files compile") {
            let committed = fs::read(root.join(path)).expect("a committed file");
            assert!(committed == content, "{path} is not what the .proto files say: run `cargo xtask proto`");
        }
    }
}
