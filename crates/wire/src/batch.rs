//! Which batch job a program is part of, in the name by which its driver introduces it: `hashcat@slurm:4711`.
//!
//! It is the driver's word, as the name is, unless a token names the job: for accounts, not for deciding anything.

const MARK: &str = "@slurm:";

/// The name of a program, with its job if it is part of one.
pub fn program_in_job(program: &str, job: Option<&str>) -> String {
    match job.filter(|job| is_job(job)) {
        Some(job) => format!("{program}{MARK}{job}"),
        None => program.to_owned(),
    }
}

/// The name alone, and the job.
pub fn split_job(program: &str) -> (&str, Option<&str>) {
    match program.rsplit_once(MARK) {
        Some((name, job)) if is_job(job) => (name, Some(job)),
        _ => (program, None),
    }
}

/// Whether this is the number of a batch job.
pub fn is_job(text: &str) -> bool {
    (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_comes_back_from_a_name_and_nothing_else_does() {
        assert_eq!(split_job(&program_in_job("a@slurm:b", Some("17"))), ("a@slurm:b", Some("17")));
        for (program, job) in [("clinfo", None), ("clinfo", Some("")), ("clinfo", Some("1;2")), ("a@slurm:x", None)] {
            assert_eq!(split_job(&program_in_job(program, job)), (program, None));
        }
    }
}
