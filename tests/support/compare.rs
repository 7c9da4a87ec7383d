//! Comparing the output of a case on both sides.

use std::collections::HashSet;

/// The difference between two outputs, as a diff, if there is one.
///
/// A line `~ CALL: RESULT (specification: WANTED)` notes where the vendor may deviate from the specification: there
/// telecl may answer what the vendor answers or what the specification wants (`WANTED` may be `A or B`).
pub fn diff(direct: &str, through: &str) -> Option<String> {
    let deviations = through.lines().filter_map(Deviation::parse);
    let as_specified: HashSet<&str> = deviations.filter(Deviation::is_right).map(|deviation| deviation.call).collect();
    let normal = |line: &str| match Deviation::parse(line) {
        Some(deviation) if as_specified.contains(deviation.call) => {
            format!("~ {}: {}", deviation.call, deviation.wanted)
        }
        _ => line.to_owned(),
    };
    let direct: Vec<String> = direct.lines().map(normal).collect();
    let through: Vec<String> = through.lines().map(normal).collect();
    if direct == through { None } else { Some(render(&direct, &through)) }
}

struct Deviation<'a> {
    call: &'a str,
    result: &'a str,
    wanted: &'a str,
}

impl<'a> Deviation<'a> {
    fn parse(line: &'a str) -> Option<Deviation<'a>> {
        let (rest, wanted) = line.strip_prefix("~ ")?.strip_suffix(')')?.rsplit_once(" (specification: ")?;
        let (call, result) = rest.rsplit_once(": ")?;
        Some(Deviation { call, result, wanted })
    }

    fn is_right(&self) -> bool {
        self.wanted.split(" or ").any(|wanted| wanted == self.result)
    }
}

/// Both outputs as one text: `-` only direct, `+` only through telecl.
fn render(direct: &[String], through: &[String]) -> String {
    let common = longest_common(direct, through);
    let mut text = String::from("--- direct\n+++ through telecl\n");
    let (mut i, mut j) = (0, 0);
    while i < direct.len() || j < through.len() {
        let (mark, line) = if i < direct.len() && j < through.len() && direct[i] == through[j] {
            (i, j) = (i + 1, j + 1);
            (' ', &direct[i - 1])
        } else if j == through.len() || (i < direct.len() && common[i + 1][j] >= common[i][j + 1]) {
            i += 1;
            ('-', &direct[i - 1])
        } else {
            j += 1;
            ('+', &through[j - 1])
        };
        text.extend([mark, ' ']);
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// `table[i][j]`: how many lines `a[i..]` and `b[j..]` have in common, in order.
fn longest_common(a: &[String], b: &[String]) -> Vec<Vec<usize>> {
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            table[i][j] = if a[i] == b[j] { table[i + 1][j + 1] + 1 } else { table[i + 1][j].max(table[i][j + 1]) };
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const VENDOR: &str = "one\n~ clX(a, b): CL_SUCCESS (specification: CL_INVALID_VALUE)\ntwo\n";

    #[test]
    fn equal_outputs_have_no_difference() {
        assert_eq!(diff(VENDOR, VENDOR), None);
    }

    #[test]
    fn telecl_may_follow_the_specification_where_the_vendor_does_not() {
        let through = VENDOR.replace("CL_SUCCESS", "CL_INVALID_VALUE");
        assert_eq!(diff(VENDOR, &through), None);
    }

    #[test]
    fn the_specification_may_leave_a_choice() {
        let of = |result| format!("~ clX(): {result} (specification: CL_A or CL_B)\n");
        assert_eq!(diff(&of("CL_WRONG"), &of("CL_B")), None);
        assert!(diff(&of("CL_WRONG"), &of("CL_C")).is_some());
    }

    #[test]
    fn telecl_may_not_invent_a_third_answer() {
        let through = VENDOR.replace("CL_SUCCESS", "CL_INVALID_OPERATION");
        assert!(diff(VENDOR, &through).is_some());
    }

    #[test]
    fn only_a_noted_line_has_a_choice() {
        assert!(diff("clX: CL_SUCCESS\n", "clX: CL_INVALID_VALUE\n").is_some());
    }

    #[test]
    fn a_difference_is_shown_line_by_line() {
        let shown = diff("a\nb\nc\n", "a\nx\nc\nd\n").unwrap();
        assert_eq!(shown, "--- direct\n+++ through telecl\n  a\n- b\n+ x\n  c\n+ d\n");
    }
}
