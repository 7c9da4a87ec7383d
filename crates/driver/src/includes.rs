//! Include files: those of this machine that a build needs are sent to the service.
//!
//! Programs name directories with `-I`, and some inside macros (hashcat passes `-D INCLUDE_PATH=…`
//! and includes through it). From those directories, the files whose names occur in `#include` lines
//! of the source, and of what it includes, are sent once by content, and the options are rewritten to
//! name the service's copies.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use telecl_sys::{CL_INVALID_BUILD_OPTIONS, ClError, ClResult};
use telecl_wire::reply::TreeDirectory;
use telecl_wire::request::{MakeTree, StoreFile, TREE_MARK, TreeFile};

use crate::log;
use crate::options::directories;
use crate::session::Session;

/// Which files of the named directories to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those that `#include` lines mention.
    Mentioned,
    /// All that look like source.
    Everything,
}

/// What was sent for one build.
#[derive(Debug)]
pub(crate) struct Shipped {
    /// With the service's trees in place of directories.
    pub(crate) options: Vec<u8>,
    /// Tree numbers and the directories they stand for.
    trees: Vec<(u64, PathBuf)>,
    /// Whether [`Scope::Everything`] could find more.
    pub(crate) has_more: bool,
}

/// Bounds on what a directory may hold; `-I /usr/include` must not send a whole system.
const MOST_FILES: usize = 20_000;
const MOST_DEPTH: usize = 12;
const MOST_BYTES: u64 = 64 << 20;
const SOURCE_ENDINGS: &[&str] = &["h", "hpp", "hh", "hxx", "cl", "clh", "cuh", "inc", "inl", "c", "cpp", "def"];

/// Sends what a build with these options and texts includes.
pub(crate) fn ship(session: &Session, options: &[u8], texts: &[&[u8]], scope: Scope) -> ClResult<Shipped> {
    let unchanged = || Shipped { options: options.to_vec(), trees: Vec::new(), has_more: false };
    let Ok(text) = std::str::from_utf8(options) else { return Ok(unchanged()) };
    if text.contains(TREE_MARK) {
        return Err(ClError(CL_INVALID_BUILD_OPTIONS));
    }
    let named = directories(text);
    let mut roots: Vec<PathBuf> = Vec::new();
    for directory in &named {
        if !roots.contains(&directory.path) {
            roots.push(directory.path.clone());
        }
    }
    let beside = included_beside_the_program(texts);
    if roots.is_empty() && beside.is_empty() {
        return Ok(unchanged());
    }
    let _turn = session.shipping();
    let mut trees: Vec<(u64, PathBuf)> = Vec::new();
    let wanted = choose_files(&roots, texts, scope);
    for (root, files) in roots.iter().zip(&wanted.by_root) {
        trees.push((send_tree(session, root, files)?, root.clone()));
    }
    let mut rewritten = String::new();
    let mut done = 0;
    for directory in &named {
        let (tree, _) =
            trees.iter().find(|(_, root)| *root == directory.path).ok_or(ClError(CL_INVALID_BUILD_OPTIONS))?;
        rewritten.push_str(&text[done..directory.span.start]);
        rewritten.push_str(&format!("{TREE_MARK}{tree}{TREE_MARK}"));
        done = directory.span.end;
    }
    rewritten.push_str(&text[done..]);
    if !beside.is_empty() {
        let here = PathBuf::from(".");
        let tree = send_tree(session, &here, &beside)?;
        rewritten.push_str(&format!(" -I {TREE_MARK}{tree}{TREE_MARK}"));
        trees.push((tree, here));
    }
    Ok(Shipped { options: rewritten.into_bytes(), trees, has_more: wanted.has_more })
}

impl Shipped {
    /// A build log with the program's own directories in place of the service's.
    pub(crate) fn restore_paths(&self, build_log: &[u8], directories: &[TreeDirectory<'_>]) -> Vec<u8> {
        let mut text = String::from_utf8_lossy(build_log).into_owned();
        for (tree, path) in &self.trees {
            if let Some(directory) = directories.iter().find(|directory| directory.tree == *tree) {
                text = text.replace(directory.directory, &path.to_string_lossy());
            }
        }
        text.into_bytes()
    }
}

/// Files of one root: relative path and content.
type Files = BTreeMap<String, Vec<u8>>;

struct Wanted {
    by_root: Vec<Files>,
    has_more: bool,
}

fn choose_files(roots: &[PathBuf], texts: &[&[u8]], scope: Scope) -> Wanted {
    let listings: Vec<Vec<String>> = roots.iter().map(|root| list_sources(root)).collect();
    let mut by_name: HashMap<&str, Vec<(usize, &String)>> = HashMap::new();
    for (root, listing) in listings.iter().enumerate() {
        for path in listing {
            by_name.entry(base_name(path)).or_default().push((root, path));
        }
    }
    let mut by_root = vec![Files::new(); roots.len()];
    let mut bytes = 0u64;
    let mut take = |root: usize, path: &String, by_root: &mut Vec<Files>| -> Option<Vec<u8>> {
        if by_root[root].contains_key(path) {
            return None;
        }
        let content = fs::read(roots[root].join(path)).ok()?;
        bytes += content.len() as u64;
        if bytes > MOST_BYTES {
            log::debug(format_args!(
                "include files under {} exceed {MOST_BYTES} bytes; the rest is not sent",
                roots[root].display()
            ));
            return None;
        }
        by_root[root].insert(path.clone(), content.clone());
        Some(content)
    };
    if scope == Scope::Everything {
        for (root, listing) in listings.iter().enumerate() {
            for path in listing {
                take(root, path, &mut by_root);
            }
        }
        return Wanted { by_root, has_more: false };
    }
    let mut unread: VecDeque<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
    while let Some(text) = unread.pop_front() {
        for name in mentioned(&text) {
            for (root, path) in by_name.get(base_name(&name)).into_iter().flatten() {
                unread.extend(take(*root, path, &mut by_root));
            }
        }
    }
    let found: usize = by_root.iter().map(Files::len).sum();
    Wanted { by_root, has_more: found < listings.iter().map(Vec::len).sum() }
}

/// Files that the source includes by a path from the program's working directory, without any `-I`.
fn included_beside_the_program(texts: &[&[u8]]) -> Files {
    let mut files = Files::new();
    let mut bytes = 0;
    let mut unread: VecDeque<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
    while let Some(text) = unread.pop_front() {
        for name in mentioned(&text) {
            let plain =
                !name.starts_with('/') && !name.split('/').any(|part| part == ".." || part == "." || part.is_empty());
            let looks_right = has_source_ending(&name) && plain && !files.contains_key(&name);
            if looks_right
                && Path::new(&name).is_file()
                && let Ok(content) = fs::read(&name)
                && bytes + content.len() as u64 <= MOST_BYTES
            {
                bytes += content.len() as u64;
                unread.push_back(content.clone());
                files.insert(name, content);
            }
        }
    }
    files
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn has_source_ending(path: &str) -> bool {
    base_name(path).rsplit_once('.').is_some_and(|(_, ending)| SOURCE_ENDINGS.contains(&ending))
}

/// Words on `#include` lines that may be names of files, also inside macros.
fn mentioned(text: &[u8]) -> HashSet<String> {
    let is_path = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'+');
    let mut names = HashSet::new();
    for line in text.split(|&b| b == b'\n').filter(|line| is_include(line)) {
        for word in line.split(|&b| !is_path(b)).filter(|word| word.contains(&b'.')) {
            names.insert(String::from_utf8_lossy(word).trim_start_matches("./").to_owned());
        }
    }
    names
}

fn is_include(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.strip_prefix(b"#").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"include"))
}

/// Files under `root` that look like source, as relative paths.
fn list_sources(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut unread = VecDeque::from([(PathBuf::new(), 0)]);
    while let Some((below, depth)) = unread.pop_front() {
        for entry in fs::read_dir(root.join(&below)).into_iter().flatten().flatten() {
            let path = below.join(entry.file_name());
            // Follows links: header directories are often made of them.
            let Ok(kind) = fs::metadata(root.join(&path)) else { continue };
            if kind.is_dir() && depth < MOST_DEPTH {
                unread.push_back((path, depth + 1));
            } else if let Some(text) = path.to_str().filter(|text| kind.is_file() && has_source_ending(text)) {
                found.push(text.to_owned());
            }
            if found.len() + unread.len() > MOST_FILES {
                log::debug(format_args!(
                    "{} holds more than {MOST_FILES} files; the rest is not looked at",
                    root.display()
                ));
                return found;
            }
        }
    }
    found
}

/// Sends files (each content once per session) and makes a tree of them.
fn send_tree(session: &Session, root: &Path, files: &Files) -> ClResult<u64> {
    let mut entries = Vec::new();
    for (path, content) in files {
        let hash: [u8; 32] = Sha256::digest(content).into();
        if session.remember_file(hash) {
            let (staged, payload) = session.stage(content)?;
            session.post(&StoreFile { hash, staged }, payload)?;
        }
        entries.push((path.as_str(), hash));
    }
    let key = Sha256::digest(
        entries.iter().flat_map(|(path, hash)| [path.as_bytes(), &[0], hash].concat()).collect::<Vec<u8>>(),
    )
    .into();
    let (tree, is_new) = session.tree(key);
    if is_new {
        let files = entries.iter().map(|&(path, hash)| TreeFile { path, hash }).collect();
        session.post(&MakeTree { tree, files }, &[])?;
        log::debug(format_args!("sent {} include files of {}", entries.len(), root.display()));
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn include_lines_mention_files_plainly_and_through_macros() {
        let text =
            b"#include \"a.h\"\n  # include <sub/b.cl>\n#include M2S(INCLUDE_PATH/inc_vendor.h)\nint x; // c.h\n";
        let mut names: Vec<_> = mentioned(text).into_iter().collect();
        names.sort();
        assert_eq!(names, ["INCLUDE_PATH/inc_vendor.h", "a.h", "sub/b.cl"]);
    }

    #[test]
    fn only_files_that_are_reached_are_chosen() {
        let root = std::env::temp_dir().join(format!("telecl-includes-{}", std::process::id()));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("a.h"), "#include \"sub/b.h\"\n").unwrap();
        fs::write(root.join("sub/b.h"), "int b;\n").unwrap();
        fs::write(root.join("unused.h"), "int u;\n").unwrap();
        let wanted = choose_files(std::slice::from_ref(&root), &[b"#include <a.h>\n"], Scope::Mentioned);
        assert_eq!(wanted.by_root[0].keys().collect::<Vec<_>>(), ["a.h", "sub/b.h"]);
        assert!(wanted.has_more);
        let all = choose_files(std::slice::from_ref(&root), &[], Scope::Everything);
        assert_eq!(all.by_root[0].len(), 3);
        fs::remove_dir_all(&root).unwrap();
    }
}
