//! Chance from a seed, one stream for each concern.
//!
//! A draw depends on the seed, on what it is about and on how often it was drawn for that, never on the order in which
//! other things are drawn. So a schedule from which an action was taken out meets the same chance everywhere else,
//! which is what makes shrinking work.

use std::collections::BTreeMap;

/// The streams of one seed.
#[derive(Debug, Default)]
pub(super) struct Chance {
    seed: u64,
    drawn: BTreeMap<String, u64>,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: BTreeMap::new() }
    }

    /// The next number of the stream `about`, and how many were drawn from it before.
    pub(super) fn draw(&mut self, about: &str) -> (u64, u64) {
        let nth = match self.drawn.get_mut(about) {
            Some(nth) => {
                *nth += 1;
                *nth
            }
            None => {
                self.drawn.insert(about.to_owned(), 0);
                0
            }
        };
        (number(self.seed, about, nth), nth)
    }

    /// A number from `from` to `to`, both included.
    pub(super) fn between(&mut self, about: &str, from: u64, to: u64) -> u64 {
        from + self.draw(about).0 % (to - from + 1)
    }
}

/// The `nth` number of a stream.
pub(super) fn number(seed: u64, about: &str, nth: u64) -> u64 {
    // FNV-1a takes the name in, splitmix64 makes the bits even.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for byte in about.bytes().chain(nth.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(hash.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_does_not_depend_on_the_others() {
        let (mut one, mut two) = (Chance::new(7), Chance::new(7));
        two.draw("other");
        assert_eq!(one.draw("a"), two.draw("a"));
        two.draw("other");
        assert_eq!(one.draw("a"), two.draw("a"));
        assert_ne!(one.draw("a"), Chance::new(8).draw("a"));
    }
}
