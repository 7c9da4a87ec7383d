//! Whether compressing pays, judged by what sending has cost so far. There is no clock here: times are arguments.
//!
//! What counts is the pace of a payload, in nanoseconds per byte. Payloads that go as they are tell the pace of the link;
//! then a sample is compressed. If that promises much, payloads are compressed, and their real pace must keep the promise.
//! If not, nothing is measured for a while. While payloads are compressed, they go as they are again every so often, to see
//! whether the link still has its old pace: that of compressed payloads tells nothing about it, because the receiver may be
//! busy decompressing them.

use std::time::Duration;

/// A faster link (10 GB/s) is not worth a sample: nothing compresses at such a pace.
const FASTEST: f64 = 0.1;

/// A sample must promise to take no more than this part of the link's pace, because it promises too much: payloads differ,
/// and others want the processor, too.
const PROMISE: f64 = 0.8;

/// Compressing ends when it takes more than this part of the link's pace.
const KEPT: f64 = 0.95;

/// How many bytes go as they are, where compressing does not pay, before that is judged again; twice as many the next
/// time, up to the most. The link is measured with the last of them.
const FIRST_PAUSE: u64 = 16 << 20;
const LONGEST_PAUSE: u64 = 1 << 30;
const MEASURED: u64 = 6 << 20;

/// To look at the link again takes a few MiB at its pace. That must be so small a part of the time that has been spent
/// sending compressed payloads; a smaller part after each look that has changed nothing.
const LOOK: f64 = (4 << 20) as f64;
const FIRST_SHARE: f64 = 1.0 / 32.0;
const LEAST_SHARE: f64 = 1.0 / 512.0;

/// Of the payloads that were compressed, about so many bytes are remembered.
const MEMORY: f64 = (4 << 20) as f64;

/// Decides for one sender on one link.
#[derive(Debug)]
pub(crate) struct Decision {
    link: LinkPace,
    /// While payloads are compressed.
    trial: Option<Trial>,
    /// Bytes until the next sample, if they are not.
    rest: u64,
    /// What `rest` becomes when compressing has not paid.
    pause: u64,
    share: f64,
}

impl Decision {
    pub(crate) fn new() -> Decision {
        Decision { link: LinkPace::default(), trial: None, rest: 0, pause: FIRST_PAUSE, share: FIRST_SHARE }
    }

    /// Whether payloads are to be compressed.
    pub(crate) fn is_on(&self) -> bool {
        self.trial.is_some()
    }

    /// Whether the link is to be measured, while payloads go as they are.
    pub(crate) fn wants_measure(&self) -> bool {
        self.rest <= MEASURED
    }

    /// Whether a sample of the next payload is to be compressed, to see what that takes.
    pub(crate) fn wants_sample(&self) -> bool {
        self.trial.is_none() && self.rest == 0 && self.link.pace().is_some()
    }

    /// What a sample of `bytes` was compressed to, and how long that took.
    pub(crate) fn sampled(&mut self, bytes: usize, packed: usize, took: Duration) {
        let Some(link) = self.link.pace() else { return };
        let (work, ratio) = (nanos(took) / bytes as f64, packed as f64 / bytes as f64);
        // The link goes on with one payload while the next is compressed.
        if work.max(ratio * link) < PROMISE * link {
            self.trial = Some(Trial::default());
        } else {
            self.give_up();
        }
    }

    /// A payload went as it is.
    pub(crate) fn sent_plain(&mut self, bytes: usize) {
        self.rest = self.rest.saturating_sub(bytes as u64);
        if self.rest == 0 && self.link.pace().is_some_and(|pace| pace < FASTEST) {
            self.give_up();
        }
    }

    /// The link was busy for so long with so many bytes that were not compressed.
    pub(crate) fn link_took(&mut self, bytes: usize, time: Duration) {
        self.link.add(nanos(time) / bytes as f64);
    }

    /// A payload was compressed and sent; all of it took this long.
    pub(crate) fn sent_packed(&mut self, bytes: usize, packed: usize, took: Duration) {
        let (Some(trial), Some(link)) = (&mut self.trial, self.link.pace()) else { return };
        trial.add(bytes, packed, took);
        if trial.has_failed(link) {
            self.give_up();
        } else if trial.spent * self.share > LOOK * link {
            // What a sample promises now is not in doubt, but what the link does.
            (self.trial, self.link, self.rest) = (None, LinkPace::default(), 0);
            self.share = (self.share / 2.0).max(LEAST_SHARE);
            self.pause = FIRST_PAUSE;
        }
    }

    /// Compressing does not pay, or is not needed.
    pub(crate) fn give_up(&mut self) {
        (self.trial, self.link, self.rest, self.share) = (None, LinkPace::default(), self.pause, FIRST_SHARE);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

/// The pace at which a link has taken bytes lately: the median of a few measurements, the faster one of two, because one may
/// have met a peer that was doing something else.
#[derive(Debug, Default)]
struct LinkPace {
    recent: [f64; 5],
    count: usize,
}

impl LinkPace {
    fn add(&mut self, pace: f64) {
        self.recent[self.count % self.recent.len()] = pace;
        self.count += 1;
    }

    fn pace(&self) -> Option<f64> {
        let mut known = self.recent;
        let known = &mut known[..self.count.min(self.recent.len())];
        known.sort_by(f64::total_cmp);
        (known.len() >= 2).then(|| known[(known.len() - 1) / 2])
    }
}

/// How compressing does.
#[derive(Debug, Default)]
struct Trial {
    /// Of the recent payloads.
    bytes: f64,
    packed: f64,
    nanos: f64,
    /// All the time since it began.
    spent: f64,
}

impl Trial {
    fn add(&mut self, bytes: usize, packed: usize, took: Duration) {
        if self.bytes > MEMORY {
            for sum in [&mut self.bytes, &mut self.packed, &mut self.nanos] {
                *sum /= 2.0;
            }
        }
        self.bytes += bytes as f64;
        self.packed += packed as f64;
        self.nanos += nanos(took);
        self.spent += nanos(took);
    }

    /// The real pace counts once there is enough of it; that nothing gets shorter shows sooner.
    fn has_failed(&self, link: f64) -> bool {
        self.packed > KEPT * self.bytes || (self.bytes > MEMORY / 2.0 && self.nanos > KEPT * link * self.bytes)
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const SAMPLE: usize = 64 << 10;

    /// Nanoseconds per byte of a network with 1 Gbit/s, and of one with 100.
    const SLOW: f64 = 8.5;
    const FAST: f64 = 0.085;

    /// What lz4 takes per byte of text and of noise, roughly, and what remains of it.
    const TEXT: (f64, f64) = (1.7, 0.5);
    const NOISE: (f64, f64) = (0.4, 1.004);

    fn time(bytes: usize, pace: f64) -> Duration {
        Duration::from_nanos((bytes as f64 * pace) as u64)
    }

    /// Sends so many MiB over a link that keeps this pace; returns how many of them were compressed, and how many
    /// samples there were.
    fn send(decision: &mut Decision, mib: usize, link: f64, (work, ratio): (f64, f64)) -> (usize, usize) {
        let (mut packed, mut samples) = (0, 0);
        for _ in 0..mib {
            if decision.wants_sample() {
                samples += 1;
                decision.sampled(SAMPLE, (SAMPLE as f64 * ratio) as usize, time(SAMPLE, work));
            }
            if decision.is_on() {
                packed += 1;
                let ratio = ratio.min(1.0);
                // The system sends one payload while the next is compressed, as far as it can.
                let pace = (ratio * link).max(work);
                decision.sent_packed(MIB, (MIB as f64 * ratio) as usize, time(MIB, pace));
            } else {
                if decision.wants_measure() {
                    decision.link_took(MIB, time(MIB, link));
                }
                decision.sent_plain(MIB);
            }
        }
        (packed, samples)
    }

    #[test]
    fn text_is_compressed_on_a_slow_link_after_a_few_frames() {
        let mut decision = Decision::new();
        assert_eq!(send(&mut decision, 64, SLOW, TEXT), (62, 1));
        let (packed, _) = send(&mut decision, 10_000, SLOW, TEXT);
        assert!(packed > 9_900, "looks at the link take too much: {packed}");
    }

    #[test]
    fn nothing_is_compressed_on_a_link_that_is_faster_and_samples_are_rare() {
        for (link, most) in [(FAST, 0), (0.5, 20), (1.5, 20)] {
            let (packed, samples) = send(&mut Decision::new(), 10_000, link, TEXT);
            assert_eq!(packed, 0, "{link}");
            assert!(samples <= most, "{link}: {samples} samples");
        }
    }

    #[test]
    fn little_is_measured_where_it_does_not_pay() {
        for (link, data) in [(FAST, TEXT), (SLOW, NOISE)] {
            let (mut decision, mut measured) = (Decision::new(), 0);
            for _ in 0..10_000 {
                measured += usize::from(decision.wants_measure());
                send(&mut decision, 1, link, data);
            }
            assert!(measured < 200, "{measured}");
        }
    }

    #[test]
    fn noise_is_not_compressed_and_samples_are_rare() {
        let (packed, samples) = send(&mut Decision::new(), 10_000, SLOW, NOISE);
        assert_eq!(packed, 0);
        assert!(samples <= 20, "{samples} samples");
    }

    #[test]
    fn what_is_almost_nothing_when_compressed_is_worth_it_on_links_that_are_not_slow() {
        let (packed, _) = send(&mut Decision::new(), 1000, 1.0, (0.15, 0.005));
        assert!(packed > 850, "{packed}");
    }

    #[test]
    fn a_change_of_data_is_followed() {
        let mut decision = Decision::new();
        send(&mut decision, 1000, SLOW, TEXT);
        let (packed, _) = send(&mut decision, 1000, SLOW, NOISE);
        assert!(packed < 100, "{packed} MiB of noise were compressed");
        let (packed, _) = send(&mut decision, 3000, SLOW, TEXT);
        assert!(packed > 1000, "{packed} MiB of text were compressed");
    }

    #[test]
    fn a_change_of_the_link_is_followed() {
        let mut decision = Decision::new();
        send(&mut decision, 1000, SLOW, TEXT);
        let (packed, _) = send(&mut decision, 4000, FAST, TEXT);
        assert!(packed < 3000, "{packed} MiB were compressed on a fast link");
        assert!(!decision.is_on());
        let (packed, _) = send(&mut decision, 4000, SLOW, TEXT);
        assert!(packed > 2500, "{packed} MiB were compressed on a slow link");
    }

    #[test]
    fn a_sample_that_promised_too_much_is_found_out() {
        let mut decision = Decision::new();
        send(&mut decision, 4, 2.0, (1.0, 0.3));
        assert!(decision.is_on());
        let mut packed = 0;
        for _ in 0..100 {
            if decision.wants_sample() {
                decision.sampled(SAMPLE, SAMPLE / 3, time(SAMPLE, 1.0));
            }
            if decision.is_on() {
                packed += 1;
                // The receiver cannot keep up.
                decision.sent_packed(MIB, MIB / 3, time(MIB, 3.0));
            } else {
                decision.link_took(MIB, time(MIB, 2.0));
                decision.sent_plain(MIB);
            }
        }
        assert!(packed < 15, "{packed}");
    }

    #[test]
    fn a_peer_that_stops_for_a_moment_makes_no_link_slow() {
        let mut decision = Decision::new();
        for round in 0..1000 {
            let stalls = if round % 10 == 0 { 1000.0 } else { 1.0 };
            decision.link_took(MIB, time(MIB, 0.5 * stalls));
            decision.sent_plain(MIB);
            if decision.wants_sample() {
                decision.sampled(SAMPLE, SAMPLE / 2, time(SAMPLE, 1.7));
            }
            assert!(!decision.is_on());
        }
    }
}
