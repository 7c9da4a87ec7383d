//! Patterns with `*` (any number of characters) and `?` (one character).

use std::collections::HashSet;

/// The longest pattern: its positions are the bits of a `u128`.
pub(crate) const MAX_LEN: usize = 100;

/// How far [`Glob::covers`] looks before it gives up.
const MAX_STATES: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Token {
    Letter(char),
    One,
    Many,
}

/// A pattern for whole names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Vec<Token>);

impl Glob {
    /// Of what is beyond [`MAX_LEN`] nothing is left; callers refuse such texts.
    pub(crate) fn new(text: &str) -> Glob {
        let token = |c| match c {
            '*' => Token::Many,
            '?' => Token::One,
            c => Token::Letter(c),
        };
        Glob(text.chars().take(MAX_LEN).map(token).collect())
    }

    /// Whether the whole of `name` is like this.
    pub(crate) fn matches(&self, name: &str) -> bool {
        name.chars().fold(self.beginning(), |places, c| self.step(places, Some(c))) & self.end() != 0
    }

    /// Whether this matches everything that `other` matches. Exact, but for patterns that are made to be difficult:
    /// for those the answer may be no.
    pub(crate) fn covers(&self, other: &Glob) -> bool {
        // One name: most patterns are.
        if self.0.iter().all(|token| matches!(token, Token::Letter(_))) {
            return self == other;
        }
        // Most pairs begin differently, which is seen at once.
        let differs = |(one, other): (&Token, &Token)| matches!((one, other), (Token::Letter(one), Token::Letter(other)) if one != other);
        let is_letter =
            |(one, other): &(&Token, &Token)| matches!(one, Token::Letter(_)) && matches!(other, Token::Letter(_));
        if self.0.iter().zip(&other.0).take_while(is_letter).any(differs) {
            return false;
        }
        // Letters that only the other has are all alike to this one: `None` stands for them.
        let mut letters: Vec<Option<char>> = vec![None];
        for token in &self.0 {
            if let Token::Letter(c) = token
                && !letters.contains(&Some(*c))
            {
                letters.push(Some(*c));
            }
        }
        let mut seen = HashSet::new();
        let mut left = vec![(0, self.beginning())];
        while let Some((place, places)) = left.pop() {
            if !seen.insert((place, places)) {
                continue;
            }
            if seen.len() > MAX_STATES {
                return false;
            }
            match other.0.get(place) {
                None if places & self.end() == 0 => return false,
                None => {}
                Some(Token::Letter(c)) => {
                    let letter = Some(*c).filter(|c| letters.contains(&Some(*c)));
                    left.push((place + 1, self.step(places, letter)));
                }
                Some(Token::One) => left.extend(letters.iter().map(|c| (place + 1, self.step(places, *c)))),
                Some(Token::Many) => {
                    left.push((place + 1, places));
                    left.extend(letters.iter().map(|c| (place, self.step(places, *c))));
                }
            }
        }
        true
    }

    /// The places in the pattern, as bits, where one may be before the first character.
    fn beginning(&self) -> u128 {
        self.past_many(1)
    }

    fn end(&self) -> u128 {
        1 << self.0.len()
    }

    /// Where one may be after another character.
    fn step(&self, places: u128, c: Option<char>) -> u128 {
        let mut next = 0;
        for (place, token) in self.0.iter().enumerate() {
            if places & (1 << place) != 0 {
                next |= match token {
                    Token::Letter(letter) => u128::from(c == Some(*letter)) << (place + 1),
                    Token::One => 1 << (place + 1),
                    Token::Many => 1 << place,
                };
            }
        }
        self.past_many(next)
    }

    /// A `*` may also stand for nothing.
    fn past_many(&self, mut places: u128) -> u128 {
        for (place, token) in self.0.iter().enumerate() {
            if *token == Token::Many && places & (1 << place) != 0 {
                places |= 1 << (place + 1);
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_names_match() {
        for (pattern, name, expected) in [
            ("team-red", "team-red", true),
            ("team-red", "team-redder", false),
            ("team-*", "team-", true),
            ("team-*", "team-red", true),
            ("*red*", "team-redder", true),
            ("*", "", true),
            ("?", "", false),
            ("?", "ä", true),
            ("a*b*c", "axxbxxbc", true),
            ("a*b*c", "axxbxx", false),
            ("", "", true),
            ("", "a", false),
            ("**a", "a", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_covers_what() {
        for (wide, narrow, expected) in [
            ("*", "anything", true),
            ("*", "a*b?", true),
            ("team-*", "team-red", true),
            ("team-*", "team-r*d", true),
            ("team-*", "team-*", true),
            ("team-?", "team-*", false),
            ("?*", "*?", true),
            ("?*", "*a", true),
            ("?*", "*", false),
            ("*a*", "*aa*", true),
            ("*aa*", "*a*a*", false),
            ("a", "b", false),
            ("a?c", "abc", true),
            ("abc", "a?c", false),
        ] {
            assert_eq!(Glob::new(wide).covers(&Glob::new(narrow)), expected, "{wide} {narrow}");
        }
    }

    #[test]
    fn a_pattern_that_is_made_to_be_difficult_takes_no_time() {
        let wide = Glob::new(&"*a?????????????".repeat(6));
        let narrow = Glob::new(&"*?a*b?".repeat(16));
        let start = std::time::Instant::now();
        let _ = wide.covers(&narrow);
        assert!(start.elapsed().as_secs() < 5);
    }

    proptest! {
        /// Whoever covers matches what the other matches; whoever does not, misses something of it.
        #[test]
        fn covering_is_matching_all_that_matches(wide in "[ab*?]{0,6}", narrow in "[ab*?]{0,6}") {
            let (wide, narrow) = (Glob::new(&wide), Glob::new(&narrow));
            let mut all = true;
            // All names of up to 8 letters over a, b and one that is in no pattern.
            let mut names = vec![String::new()];
            for _ in 0..=8 {
                all &= names.iter().all(|name| !narrow.matches(name) || wide.matches(name));
                names = names.iter().flat_map(|name| ['a', 'b', 'c'].map(|c| format!("{name}{c}"))).collect();
            }
            prop_assert_eq!(wide.covers(&narrow), all);
        }
    }
}
