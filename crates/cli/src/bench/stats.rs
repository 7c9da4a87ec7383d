//! What is said of several rounds: their median, and how far they lie apart.

use serde::Serialize;

/// The rounds of one measurement. There is at least one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    /// A tenth of the rounds is lower than this, a tenth higher than `p90`; with few rounds, the extremes.
    pub(crate) p10: f64,
    pub(crate) p90: f64,
    pub(crate) rounds: Vec<f64>,
}

impl Summary {
    /// `None` without rounds. Those that are no number are left out.
    pub(crate) fn of(rounds: &[f64]) -> Option<Summary> {
        let rounds: Vec<f64> = rounds.iter().copied().filter(|round| round.is_finite()).collect();
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (sorted.first()?, sorted.last()?);
        let few = sorted.len() < 10;
        Some(Summary {
            median: quantile(&sorted, 0.5),
            p10: if few { *first } else { quantile(&sorted, 0.1) },
            p90: if few { *last } else { quantile(&sorted, 0.9) },
            rounds,
        })
    }

    /// The larger distance of p10 and p90 from the median, as a part of it.
    pub(crate) fn spread(&self) -> f64 {
        let distance = (self.p90 - self.median).max(self.median - self.p10);
        if self.median == 0.0 { 0.0 } else { (distance / self.median).abs() }
    }
}

/// Between two neighbours where it does not fall on one. `sorted` is not empty.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_an_outlier_does_not_move_it() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!(Summary::of(&[2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[3.0, 1.0]).unwrap().median, 2.0);
        let summary = Summary::of(&[5.0, 1.0, 900.0, 4.0, 3.0]).unwrap();
        assert_eq!((summary.median, summary.p10, summary.p90), (4.0, 1.0, 900.0));
        assert_eq!(summary.rounds, [5.0, 1.0, 900.0, 4.0, 3.0], "in the order of the rounds");
    }

    #[test]
    fn many_rounds_lose_their_extremes() {
        let rounds: Vec<f64> = (0..=100).map(f64::from).collect();
        let summary = Summary::of(&rounds).unwrap();
        assert_eq!((summary.p10, summary.median, summary.p90), (10.0, 50.0, 90.0));
        assert_eq!(summary.spread(), 0.8);
    }
}
