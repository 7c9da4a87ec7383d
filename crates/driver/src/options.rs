//! Build options: where they name directories of this machine.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A directory named in build options, and the bytes that name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedDirectory {
    pub(crate) span: Range<usize>,
    pub(crate) path: PathBuf,
}

/// One word of the options: where it stands, and what it says without quotes.
#[derive(Debug)]
struct Word {
    span: Range<usize>,
    text: String,
}

/// Splits at white space; quotes keep it, as in a shell. The span of a word has its quotes.
fn words(options: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut current: Option<Word> = None;
    let mut quote = None;
    for (at, c) in options.char_indices() {
        let end = at + c.len_utf8();
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                current.get_or_insert_with(|| Word { span: at..end, text: String::new() });
            }
            (None, c) if c.is_ascii_whitespace() => {
                words.extend(current.take());
                continue;
            }
            (_, c) => current.get_or_insert_with(|| Word { span: at..end, text: String::new() }).text.push(c),
        }
        if let Some(word) = &mut current {
            word.span.end = end;
        }
    }
    words.extend(current);
    words
}

/// The directories that `-I` names, and those inside `-D NAME=value`, that exist on this machine.
pub(crate) fn directories(options: &str) -> Vec<NamedDirectory> {
    let words = words(options);
    let mut found = Vec::new();
    let mut following = None;
    for word in &words {
        let flag = following.take();
        let text = word.text.as_str();
        let candidate = match flag {
            Some('I') => Some(text),
            Some(_) => text.split_once('=').map(|(_, value)| value),
            None if text == "-I" || text == "-D" => {
                following = text.chars().nth(1);
                None
            }
            None => text
                .strip_prefix("-I")
                .or_else(|| text.strip_prefix("-D").and_then(|d| d.split_once('=')).map(|(_, value)| value)),
        };
        // A value may have quotes of its own, for the macro: -D DIR=\"/x\".
        let Some(path) = candidate.map(|value| value.trim_matches(['"', '\'', '\\'])).filter(|path| !path.is_empty())
        else {
            continue;
        };
        if !Path::new(path).is_dir() {
            continue;
        }
        let raw = &options[word.span.clone()];
        if let Some(start) = raw.rfind(path) {
            let start = word.span.start + start;
            found.push(NamedDirectory { span: start..start + path.len(), path: path.into() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(options: &str) -> Vec<String> {
        directories(options).into_iter().map(|dir| options[dir.span].to_owned()).collect()
    }

    #[test]
    fn directories_are_found_in_every_spelling() {
        assert_eq!(named("-I /usr -cl-mad-enable"), ["/usr"]);
        assert_eq!(named("-I/usr -I /tmp"), ["/usr", "/tmp"]);
        assert_eq!(named("-I \"/usr\""), ["/usr"]);
        assert_eq!(named("-D INCLUDE_PATH=/usr -D X=1"), ["/usr"]);
        assert_eq!(named("-DINCLUDE_PATH=/usr"), ["/usr"]);
        assert_eq!(named(r#"-D DIR=\"/usr\""#), ["/usr"]);
    }

    #[test]
    fn what_is_no_directory_is_left_alone() {
        assert!(named("-I /no/such/directory -D A=3 -D B -w -cl-std=CL1.2").is_empty());
    }
}
