//! What a program's binary depends on, as one key: two builds with the same key come to the same program.
//!
//! Not part of a key, and therefore not looked up: programs whose sources or options name files of this machine, which
//! may change; builds for sub-devices, for several devices, or for some of a context's; programs that were not made
//! from source.

use std::env;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use telecl_opencl::{Device, Library, info};
use telecl_sys::*;
use telecl_wire::request::TREE_MARK;

use super::includes::Tree;
use crate::channel::Key;

/// Changes when the same parts come to something else: another form of what is kept, other options that we add. Other
/// versions of telecl have other keys anyway.
const FORMAT: u32 = 1;

/// Settings of compilers, by how their names begin.
const SETTINGS: &[&str] = &["POCL_", "CL_", "CUDA_", "NV", "IGC_", "NEO", "AMD_", "GPU_", "HSA_", "RUSTICL_", "LLVM_"];

/// What was done to make a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Build,
    Compile,
    Link,
}

/// A key in the making.
#[derive(Debug)]
pub(crate) struct Recipe(Sha256);

impl Recipe {
    pub(crate) fn new(step: Step, device: &Device) -> Recipe {
        let mut recipe = Recipe(Sha256::new());
        recipe.add(&FORMAT.to_le_bytes());
        recipe.add(env!("CARGO_PKG_VERSION").as_bytes());
        recipe.add(match step {
            Step::Build => b"build",
            Step::Compile => b"compile",
            Step::Link => b"link",
        });
        recipe.add_device(device);
        recipe.add(settings());
        recipe
    }

    /// A part; its length is part of it, so that no two lists of parts are the same.
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// The options as the driver sent them, with what the include trees hold in place of their numbers; `false` if they
    /// depend on files of this machine.
    pub(crate) fn add_options(&mut self, options: &[u8], trees: &[Tree]) -> bool {
        let mut plain = Vec::new();
        for (index, piece) in options.split(|&byte| byte == TREE_MARK as u8).enumerate() {
            self.add(if index % 2 == 0 { piece } else { b"" });
            if index % 2 == 1 {
                let id = std::str::from_utf8(piece).ok().and_then(|id| id.parse::<u64>().ok());
                let tree = trees.iter().find(|tree| Some(tree.id) == id);
                let Some(digest) = tree.and_then(|tree| tree.digest) else { return false };
                self.add(&digest);
            }
            plain.extend_from_slice(if index % 2 == 0 { piece } else { b"tree" });
        }
        !names_files(&String::from_utf8_lossy(&plain))
    }

    pub(crate) fn key(self) -> Key {
        self.0.finalize().into()
    }

    /// Everything by which a device, its driver and its compiler are told apart.
    fn add_device(&mut self, device: &Device) {
        let platform = device.info(CL_DEVICE_PLATFORM).ok().and_then(|handle| info::number(&handle));
        let platforms = Library::load().ok().and_then(|library| library.platforms().ok()).unwrap_or_default();
        let platform = platforms.into_iter().find(|known| Some(known.raw() as u64) == platform);
        for param in [CL_PLATFORM_NAME, CL_PLATFORM_VERSION, CL_PLATFORM_VENDOR] {
            self.add(&platform.and_then(|platform| platform.info(param).ok()).unwrap_or_default());
        }
        for param in [
            CL_DEVICE_TYPE,
            CL_DEVICE_NAME,
            CL_DEVICE_VENDOR,
            CL_DEVICE_VENDOR_ID,
            CL_DEVICE_VERSION,
            CL_DRIVER_VERSION,
            CL_DEVICE_OPENCL_C_VERSION,
            CL_DEVICE_EXTENSIONS,
            CL_DEVICE_ADDRESS_BITS,
            CL_DEVICE_MAX_WORK_GROUP_SIZE,
            CL_DEVICE_LOCAL_MEM_SIZE,
            CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV,
            CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV,
        ] {
            self.add(&device.info(param).unwrap_or_default());
        }
        let kind = device.info(CL_DEVICE_TYPE).ok().and_then(|kind| info::number(&kind)).unwrap_or(0);
        // Nodes that share a directory may have processors of one name with different instructions.
        self.add(if kind & CL_DEVICE_TYPE_CPU != 0 { processor() } else { b"" });
    }
}

/// What this machine's processor can do.
fn processor() -> &'static [u8] {
    static FLAGS: OnceLock<Vec<u8>> = OnceLock::new();
    FLAGS.get_or_init(|| {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
        line.unwrap_or_default().as_bytes().to_vec()
    })
}

/// Variables that compilers may look at. What they really use is not known, so a change that means nothing may cost a
/// build.
fn settings() -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all: Vec<String> = env::vars_os()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .filter(|setting| SETTINGS.iter().any(|start| setting.starts_with(start)))
            .collect();
        all.sort_unstable();
        all.join("\0").into_bytes()
    })
}

/// Whether options name something that exists on this machine: a directory to look for includes, or a path in a macro.
fn names_files(options: &str) -> bool {
    let mut after_include = false;
    for word in options.split_whitespace() {
        let (include, path) = match word.strip_prefix("-I") {
            Some(path) => (true, path),
            None => (after_include, word.rsplit_once('=').map_or(word, |(_, value)| value)),
        };
        after_include = include && path.is_empty();
        let path = path.trim_matches(['"', '\'']);
        if !path.is_empty() && (include || path.starts_with('/')) && Path::new(path).exists() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::includes::TreeDirectory;
    use super::*;

    fn key(options: &[u8], trees: &[Tree]) -> Option<Key> {
        let mut recipe = Recipe(Sha256::new());
        recipe.add_options(options, trees).then(|| recipe.key())
    }

    fn tree(id: u64, digest: Option<u8>) -> Tree {
        let directory = Arc::new(TreeDirectory(format!("/no/such/tree-{id}")));
        Tree { id, directory, digest: digest.map(|byte| [byte; 32]), _counted: None }
    }

    #[test]
    fn options_count_with_the_content_of_their_trees() {
        let one = key(b"-I \x017\x01 -D X", &[tree(7, Some(1))]);
        assert!(one.is_some());
        assert_eq!(one, key(b"-I \x019\x01 -D X", &[tree(9, Some(1))]), "numbers of trees are the session's own");
        assert_ne!(one, key(b"-I \x017\x01 -D X", &[tree(7, Some(2))]));
        assert_ne!(one, key(b"-I \x017\x01 -D Y", &[tree(7, Some(1))]));
        assert_eq!(key(b"-I \x017\x01", &[tree(7, None)]), None);
        assert_eq!(key(b"-I \x017\x01", &[]), None);
    }

    #[test]
    fn parts_are_not_mixed_up() {
        let key = |parts: &[&[u8]]| {
            let mut recipe = Recipe(Sha256::new());
            parts.iter().for_each(|part| recipe.add(part));
            recipe.key()
        };
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_ne!(key(&[b"ab"]), key(&[b"ab", b""]));
    }

    #[test]
    fn files_of_this_machine_are_noticed() {
        for options in ["-I /tmp", "-I/tmp", "-D P=/tmp", "-DP=\"/tmp\"", "-I .", "-O3 -I  /", "/tmp"] {
            assert!(names_files(options), "{options}");
        }
        for options in ["", "-I /no/such/directory", "-I OpenCL", "-D X=tmp -cl-std=CL1.2", "-D P=tree/x -I tree"] {
            assert!(!names_files(options), "{options}");
        }
    }
}
