//! Include files: stored by the hash of their content, laid out as trees, named in build options.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};
use telecl_opencl::{ClError, ClResult};
use telecl_sys::{CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY};
use telecl_wire::request::{MakeTree, Message, StoreFile, TREE_MARK, TreeFile};
use tracing::debug;

use super::link::About;
use super::session::Session;

/// What one session may store. Real programs need a few megabytes.
const MOST_BYTES: u64 = 1 << 30;
const MOST_FILES: usize = 1 << 16;
const LONGEST_PATH: usize = 1024;

/// Include trees and their directories.
pub(crate) type Trees = Vec<(u64, String)>;

/// The session's include files, below its scratch directory, which the broker removes in the end.
#[derive(Debug)]
pub(crate) struct Includes {
    scratch: PathBuf,
    files: HashMap<[u8; 32], PathBuf>,
    bytes: u64,
    /// Directories of the trees, or that a tree could not be made.
    trees: HashMap<u64, Option<PathBuf>>,
}

impl Includes {
    pub(crate) fn new(scratch: PathBuf) -> Includes {
        Includes { scratch, files: HashMap::new(), bytes: 0, trees: HashMap::new() }
    }

    fn store(&mut self, hash: [u8; 32], content: &[u8]) -> io::Result<()> {
        if self.files.contains_key(&hash) {
            return Ok(());
        }
        if <[u8; 32]>::from(Sha256::digest(content)) != hash {
            return Err(refused("the content does not have the hash that was announced"));
        }
        let bytes = self.bytes + content.len() as u64;
        if bytes > MOST_BYTES || self.files.len() >= MOST_FILES {
            return Err(refused("the session has stored too many files"));
        }
        let directory = self.scratch.join("files");
        make_directory(&directory)?;
        let path = directory.join(self.files.len().to_string());
        File::create(&path)?.write_all(content)?;
        self.bytes = bytes;
        self.files.insert(hash, path);
        Ok(())
    }

    fn make(&mut self, tree: u64, files: &[TreeFile<'_>]) -> io::Result<()> {
        self.remove_tree(tree);
        self.trees.insert(tree, None);
        if files.len() > MOST_FILES {
            return Err(refused("the tree has too many files"));
        }
        let root = self.scratch.join(format!("tree-{tree}"));
        make_directory(&root)?;
        for file in files {
            let path = root.join(checked_path(file.path)?);
            let stored = self.files.get(&file.hash).ok_or_else(|| refused("a file of the tree was not stored"))?;
            if let Some(parent) = path.parent() {
                make_directory(parent)?;
            }
            // The same content may be in many trees.
            fs::hard_link(stored, &path)?;
        }
        self.trees.insert(tree, Some(root));
        Ok(())
    }

    pub(crate) fn remove_tree(&mut self, tree: u64) {
        if let Some(Some(root)) = self.trees.remove(&tree) {
            // The broker removes what is left.
            let _ = fs::remove_dir_all(root);
        }
    }

    /// Whether a tree was made.
    pub(crate) fn check_tree(&self, tree: u64) -> ClResult<()> {
        match self.trees.get(&tree) {
            Some(Some(_)) => Ok(()),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }

    /// Puts directories in the place of marked tree numbers. `None` if the options name a tree that is not there.
    pub(crate) fn expand(&self, options: &[u8]) -> Option<(Vec<u8>, Trees)> {
        let mut expanded = Vec::with_capacity(options.len());
        let mut used = Trees::new();
        for (index, piece) in options.split(|&byte| byte == TREE_MARK as u8).enumerate() {
            // Every second piece stands between two marks.
            if index % 2 == 0 {
                expanded.extend_from_slice(piece);
                continue;
            }
            let tree = std::str::from_utf8(piece).ok()?.parse().ok()?;
            let directory = self.trees.get(&tree)?.as_ref()?.to_str()?;
            expanded.extend_from_slice(directory.as_bytes());
            if !used.iter().any(|(known, _)| *known == tree) {
                used.push((tree, directory.to_owned()));
            }
        }
        let marks = options.iter().filter(|&&byte| byte == TREE_MARK as u8).count();
        (marks % 2 == 0).then_some((expanded, used))
    }
}

impl Session {
    pub(super) fn store_file(&mut self, request: &StoreFile, content: &[u8]) {
        self.output.look_for_printf(content);
        if let Err(error) = self.includes.store(request.hash, content) {
            self.include_failed(StoreFile::OPCODE, "StoreFile", 0, &error);
        }
    }

    pub(super) fn make_tree(&mut self, request: &MakeTree<'_>) {
        if let Err(error) = self.includes.make(request.tree, &request.files) {
            self.include_failed(MakeTree::OPCODE, "MakeTree", request.tree, &error);
        }
    }

    fn include_failed(&self, opcode: u16, name: &'static str, object: u64, error: &io::Error) {
        debug!(session = self.link.session(), call = name, %error, "cannot keep include files");
        let refused = error.kind() == io::ErrorKind::InvalidInput;
        let status = if refused { CL_INVALID_VALUE } else { CL_OUT_OF_HOST_MEMORY };
        self.link.failed(About { opcode, name, object, ..About::default() }, ClError(status), 0);
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A path that stays below the directory it is joined to.
fn checked_path(path: &str) -> io::Result<&Path> {
    let plain = !path.is_empty()
        && path.len() <= LONGEST_PATH
        && !path.contains('\0')
        && !path.contains("//")
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        // `components` quietly drops these.
        && !path.split('/').any(|part| part.is_empty() || part == ".");
    if plain { Ok(Path::new(path)) } else { Err(refused("a path of the tree is not relative and plain")) }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn includes() -> (tempfile::TempDir, Includes) {
        let scratch = tempfile::tempdir().unwrap();
        let includes = Includes::new(scratch.path().to_owned());
        (scratch, includes)
    }

    fn hash(content: &[u8]) -> [u8; 32] {
        Sha256::digest(content).into()
    }

    #[test]
    fn a_tree_has_the_files_that_were_stored() {
        let (_scratch, mut includes) = includes();
        includes.store(hash(b"int x;"), b"int x;").unwrap();
        let file = |path| TreeFile { path, hash: hash(b"int x;") };
        includes.make(7, &[file("a.h"), file("deep/er/b.h")]).unwrap();
        let (options, used) = includes.expand(b"-I \x017\x01/deep -D P=\x017\x01").unwrap();
        let directory = used[0].1.clone();
        assert_eq!(used, [(7, directory.clone())]);
        assert_eq!(options, format!("-I {directory}/deep -D P={directory}").into_bytes());
        assert_eq!(fs::read(format!("{directory}/deep/er/b.h")).unwrap(), b"int x;");
        includes.remove_tree(7);
        assert!(!Path::new(&directory).exists());
        assert_eq!(includes.expand(b"-I \x017\x01"), None);
    }

    #[test]
    fn content_must_have_its_hash() {
        let (_scratch, mut includes) = includes();
        assert!(includes.store(hash(b"one"), b"other").is_err());
        assert!(includes.make(1, &[TreeFile { path: "a.h", hash: hash(b"one") }]).is_err());
    }

    #[test]
    fn paths_never_leave_the_tree() {
        for path in ["a.h", "a/b.h", "..a/b..", "a b/ü.h"] {
            assert!(checked_path(path).is_ok(), "{path}");
        }
        let long = "x".repeat(LONGEST_PATH + 1);
        for path in ["", "/etc/passwd", "../a", "a/../b", "a/..", "./a", "a/./b", "a//b", "a/", "a\0b", &long] {
            assert!(checked_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn odd_marks_and_unknown_trees_are_refused() {
        let (_scratch, includes) = includes();
        for options in [&b"\x01"[..], b"\x017", b"\x01x\x01", b"\x01\x01", b"\x0199\x01"] {
            assert_eq!(includes.expand(options), None, "{options:?}");
        }
        assert_eq!(includes.expand(b"-O3"), Some((b"-O3".to_vec(), vec![])));
    }
}
