//! What somebody who mistyped a word probably meant.

/// The candidate that differs from `word` in the fewest letters, if it is near enough to be meant.
pub fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let word = word.to_lowercase().replace('-', "_");
    let length = word.chars().count();
    let near = |candidate: &str| (candidate.len() / 3).max(1);
    candidates
        // A word of quite another length needs no look, however long it is.
        .filter(|candidate| length.abs_diff(candidate.chars().count()) <= near(candidate))
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= near(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_recognised() {
        let keys = ["services", "connect_timeout", "strict", "debug"];
        for (word, meant) in [
            ("service", Some("services")),
            ("sevrices", Some("services")),
            ("Connect-Timeout", Some("connect_timeout")),
            ("timeout_connect", None),
            ("strickt", Some("strict")),
            ("debgu", Some("debug")),
            ("colour", None),
            ("", None),
            (&"services".repeat(1000), None),
        ] {
            assert_eq!(nearest(word, keys.into_iter()), meant, "{word}");
        }
    }

    #[test]
    fn distances_count_letters_not_bytes() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("größe", "grosse"), 3);
    }
}
