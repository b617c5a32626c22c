//! Generates the Rust code of the project's .proto files, and the descriptor that gRPC reflection serves.
//!
//! The argument is the root of the repository; output goes below it. A test compares the committed files with a new
//! generation. The program is independent of the content of the messages.

#![expect(clippy::print_stderr, reason = "a tool talks to the person who ran it")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic_prost_build::Builder;

/// The folder of the .proto files.
const SOURCES: &str = "proto";
/// The file that imports all others.
const SERVICE: &str = "ratelimit.proto";
/// The output file of the message code, which depends on no other code.
const MESSAGES: &str = "crates/sluicegate-server/src/grpc/messages.rs";
/// The output file of the descriptor.
const DESCRIPTION: &str = "crates/sluicegate-server/src/grpc/descriptors.bin";
/// The header of the generated code.
const MESSAGES_HEAD: &str =
    "//! The messages of Envoy's rate limit protocol, as `cargo xtask proto` writes them.\n\n";

/// An output file: a path below the root, and its content.
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

/// The code that `builder` generates, as one file.
fn code(builder: Builder, described: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    builder.include_file("all.rs").out_dir(folder.path()).compile_fds(described.clone())?;
    inlined(folder.path(), &fs::read_to_string(folder.path().join("all.rs"))?)
}

/// Combines the modules: every line that includes another file is replaced by that file.
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
    fn committed_files_match_the_proto_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, content) in generate(&root).expect("the files compile") {
            let committed = fs::read(root.join(path)).expect("a committed file");
            assert!(committed == content, "{path} is not what the .proto files say: run `cargo xtask proto`");
        }
    }
}
