//! Boxes of bytes, rows and pixels, and how large ones are cut into pieces that fit a frame.

use crate::codec::bodies;

bodies! {
    /// A box: where it starts and how far it goes, along x, y and z.
    ///
    /// Along x the unit is a byte (buffers) or a pixel (images); a linear range of a buffer is a box
    /// of one row in one slice.
    pub struct Region {
        pub origin: [u64; 3],
        pub size: [u64; 3],
    }
}

impl Region {
    /// The whole of a box of this size.
    pub fn whole(size: [u64; 3]) -> Region {
        Region { origin: [0; 3], size }
    }

    /// A range of bytes.
    pub fn linear(origin: u64, size: u64) -> Region {
        Region { origin: [origin, 0, 0], size: [size, 1, 1] }
    }

    /// How many units it holds; `None` where that does not fit 64 bits.
    pub fn volume(&self) -> Option<u64> {
        self.size[0].checked_mul(self.size[1])?.checked_mul(self.size[2])
    }

    /// Whether `part` lies within a box of this size (not at this origin).
    pub fn contains(&self, part: &Region) -> bool {
        (0..3).all(|axis| part.origin[axis].checked_add(part.size[axis]).is_some_and(|end| end <= self.size[axis]))
    }

    /// Cuts a box of `size` into parts of at most `limit` bytes, in memory order. A unit takes `unit`
    /// bytes; a single unit is never cut. The parts cover the box exactly once.
    pub fn parts(size: [u64; 3], unit: u64, limit: u64) -> Parts {
        let fit = |below: u64, count: u64| (limit / below.max(1)).clamp(1, count.max(1));
        let row = size[0].saturating_mul(unit);
        let slice = row.saturating_mul(size[1]);
        let step = if row > limit {
            [fit(unit, size[0]), 1, 1]
        } else if slice > limit {
            [size[0], fit(row, size[1]), 1]
        } else {
            [size[0], size[1], fit(slice, size[2])]
        };
        let empty = size.contains(&0);
        Parts { size, step, next: if empty { None } else { Some([0; 3]) } }
    }
}

/// The iterator of [`Region::parts`].
#[derive(Clone, Debug)]
pub struct Parts {
    size: [u64; 3],
    step: [u64; 3],
    next: Option<[u64; 3]>,
}

impl Parts {
    /// Whether one frame holds it all.
    pub fn is_single(&self) -> bool {
        self.step == self.size
    }
}

impl Iterator for Parts {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        let origin = self.next?;
        let mut size = [0; 3];
        for axis in 0..3 {
            size[axis] = self.step[axis].min(self.size[axis] - origin[axis]);
        }
        let mut following = origin;
        self.next = (0..3).find_map(|axis| {
            following[axis] += self.step[axis];
            if following[axis] < self.size[axis] {
                Some(following)
            } else {
                following[axis] = 0;
                None
            }
        });
        Some(Region { origin, size })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_small_box_is_one_part() {
        let parts: Vec<_> = Region::parts([4, 3, 2], 4, 96).collect();
        assert_eq!(parts, [Region::whole([4, 3, 2])]);
    }

    #[test]
    fn an_empty_box_has_no_parts() {
        assert_eq!(Region::parts([4, 0, 2], 4, 96).count(), 0);
    }

    proptest! {
        #[test]
        fn parts_cover_the_box_exactly_once(
            size in prop::array::uniform3(1u64..9), unit in 1u64..5, limit in 1u64..200,
        ) {
            let mut seen = vec![0u8; (size[0] * size[1] * size[2]) as usize];
            for part in Region::parts(size, unit, limit) {
                prop_assert!(Region::whole(size).contains(&part));
                prop_assert!(part.volume().unwrap() * unit <= limit.max(unit));
                for z in 0..part.size[2] {
                    for y in 0..part.size[1] {
                        for x in 0..part.size[0] {
                            let [ox, oy, oz] = part.origin;
                            seen[(((oz + z) * size[1] + oy + y) * size[0] + ox + x) as usize] += 1;
                        }
                    }
                }
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
        }
    }
}
