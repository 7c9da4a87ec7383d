//! Include files: stored by the hash of their content, laid out as trees, named in build options.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
/// Directories on the way to a file.
const DEEPEST: usize = 64;
/// Files and directories in all trees together, and trees.
const MOST_ENTRIES: usize = 1 << 18;
const MOST_TREES: usize = 1 << 12;

/// The include trees that some options name, in their order there.
pub(crate) type Trees = Vec<Tree>;

/// An include tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) id: u64,
    pub(crate) directory: Arc<TreeDirectory>,
    /// Stands for the paths and contents of its files; `None` if what they include may lie outside.
    pub(crate) digest: Option<[u8; 32]>,
    /// Counts what it has, until nobody needs it.
    pub(crate) _counted: Option<Arc<Entries>>,
}

/// Files and directories of trees, counted until they are dropped.
#[derive(Debug)]
pub(crate) struct Entries {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// Where a tree is. It goes when nobody needs it: a compilation may be put off until after the driver has released it.
#[derive(Debug)]
pub(crate) struct TreeDirectory(pub(crate) String);

impl Drop for TreeDirectory {
    fn drop(&mut self) {
        // The broker removes what is left.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The session's include files, below its scratch directory, which the broker removes in the end.
#[derive(Debug)]
pub(crate) struct Includes {
    scratch: PathBuf,
    files: HashMap<[u8; 32], StoredFile>,
    bytes: u64,
    /// The trees, or that one could not be made.
    trees: HashMap<u64, Option<Tree>>,
    /// How many there were, for their names.
    made: u64,
    /// What all trees have that are still there.
    entries: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct StoredFile {
    path: PathBuf,
    /// Includes files by their place on this machine.
    reaches_out: bool,
}

impl Includes {
    pub(crate) fn new(scratch: PathBuf) -> Includes {
        Includes { scratch, files: HashMap::new(), bytes: 0, trees: HashMap::new(), made: 0, entries: Arc::default() }
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
        self.files.insert(hash, StoredFile { path, reaches_out: reaches_out(content) });
        Ok(())
    }

    fn make(&mut self, tree: u64, files: &[TreeFile<'_>]) -> io::Result<()> {
        if self.trees.len() >= MOST_TREES && !self.trees.contains_key(&tree) {
            return Err(refused("the session has too many trees"));
        }
        self.trees.insert(tree, None);
        if files.len() > MOST_FILES {
            return Err(refused("the tree has too many files"));
        }
        let entries = self.count(files)?;
        self.made += 1;
        let root = self.scratch.join(format!("tree-{}", self.made));
        make_directory(&root)?;
        let name = root.to_str().ok_or_else(|| refused("the scratch directory is not UTF-8"))?;
        let directory = Arc::new(TreeDirectory(name.to_owned()));
        let mut digest = Sha256::new();
        let mut reaches_out = false;
        for file in files {
            digest.update((file.path.len() as u64).to_le_bytes());
            digest.update(file.path);
            digest.update(file.hash);
            let path = root.join(checked_path(file.path)?);
            let stored = self.files.get(&file.hash).ok_or_else(|| refused("a file of the tree was not stored"))?;
            if let Some(parent) = path.parent() {
                make_directory(parent)?;
            }
            // The same content may be in many trees. The first version of Landlock allows no links between directories.
            fs::hard_link(&stored.path, &path).or_else(|_| fs::copy(&stored.path, &path).map(drop))?;
            reaches_out |= stored.reaches_out;
        }
        let digest = (!reaches_out).then(|| digest.finalize().into());
        self.trees.insert(tree, Some(Tree { id: tree, directory, digest, _counted: Some(entries) }));
        Ok(())
    }

    /// Counts what a tree will have at most.
    fn count(&self, files: &[TreeFile<'_>]) -> io::Result<Arc<Entries>> {
        let depth = |file: &TreeFile<'_>| 1 + file.path.bytes().filter(|&byte| byte == b'/').count();
        if files.iter().any(|file| depth(file) > DEEPEST) {
            return Err(refused("a file of the tree is too deep in it"));
        }
        let own = 1 + files.iter().map(depth).sum::<usize>();
        let (all, entries) = (Arc::clone(&self.entries), self.entries.fetch_add(own, Ordering::Relaxed) + own);
        let counted = Arc::new(Entries { all, own });
        if entries > MOST_ENTRIES { Err(refused("the session's trees have too many files")) } else { Ok(counted) }
    }

    pub(crate) fn remove_tree(&mut self, tree: u64) {
        self.trees.remove(&tree);
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
            let tree = self.trees.get(&tree)?.as_ref()?;
            expanded.extend_from_slice(tree.directory.0.as_bytes());
            if !used.iter().any(|known| known.id == tree.id) {
                used.push(tree.clone());
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

/// Whether a text includes files by their place on this machine: what the compiler makes of it then depends on more than
/// what the driver has sent.
pub(crate) fn reaches_out(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').any(|line| {
        let directive = line.trim_ascii_start().strip_prefix(b"#").map(<[u8]>::trim_ascii_start);
        let included = directive.and_then(|directive| directive.strip_prefix(b"include"));
        included.is_some_and(|included| included.windows(2).any(|pair| pair == b"\"/" || pair == b"</"))
    })
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
        let directory = used[0].directory.0.clone();
        assert_eq!((used.len(), used[0].id), (1, 7));
        assert_eq!(options, format!("-I {directory}/deep -D P={directory}").into_bytes());
        assert_eq!(fs::read(format!("{directory}/deep/er/b.h")).unwrap(), b"int x;");
        includes.remove_tree(7);
        assert!(includes.expand(b"-I \x017\x01").is_none());
        assert!(Path::new(&directory).exists(), "somebody has it still");
        drop(used);
        assert!(!Path::new(&directory).exists());
    }

    #[test]
    fn trees_of_the_same_files_have_the_same_digest() {
        let (_scratch, mut includes) = includes();
        for content in [&b"int x;"[..], b"int y;", b"# include </usr/include/stdio.h>"] {
            includes.store(hash(content), content).unwrap();
        }
        let file = |path, content: &[u8]| TreeFile { path, hash: hash(content) };
        includes.make(1, &[file("a.h", b"int x;"), file("b.h", b"int y;")]).unwrap();
        includes.make(2, &[file("a.h", b"int x;"), file("b.h", b"int y;")]).unwrap();
        includes.make(3, &[file("a.h", b"int y;"), file("b.h", b"int y;")]).unwrap();
        includes.make(4, &[file("a.h", b"int x;"), file("c.h", b"int y;")]).unwrap();
        includes.make(5, &[file("a.h", b"# include </usr/include/stdio.h>")]).unwrap();
        let digest = |tree| includes.expand(format!("\x01{tree}\x01").as_bytes()).unwrap().1[0].digest;
        assert!(digest(1).is_some());
        assert_eq!(digest(1), digest(2));
        assert_ne!(digest(1), digest(3));
        assert_ne!(digest(1), digest(4));
        assert_eq!(digest(5), None);
    }

    #[test]
    fn includes_by_absolute_paths_are_noticed() {
        for text in ["#include \"/etc/x.h\"", "int a;\n  #  include  </usr/x.h>\n", "#include/**/\"/x\""] {
            assert!(reaches_out(text.as_bytes()), "{text}");
        }
        for text in ["#include \"a/b.h\"", "#include <math.h> // a/b", "#define P \"/x\"", "", "#include M2S(P/inc.h)"]
        {
            assert!(!reaches_out(text.as_bytes()), "{text}");
        }
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
            assert!(includes.expand(options).is_none(), "{options:?}");
        }
        let (options, used) = includes.expand(b"-O3").unwrap();
        assert!(options == b"-O3" && used.is_empty());
    }
}
