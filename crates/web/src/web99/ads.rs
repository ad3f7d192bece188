//! The users of custom pages, and the advertisement that each page shows. The server and the driver generate the same tables.
//!
//! Invariant: the advertisement depends only on the user and the last one shown.

use bigiron_sys::load::rng::SplitMix64;

/// Advertisements, as published, and users.
pub const ADS: u16 = 360;
pub const USERS: u16 = 4096;
const SEED: u64 = 0x0077_6562_3939_6164;
/// The number of values that each trait of a user can have: sex, age group, region, and two interests.
const TRAITS: [u32; 5] = [2, 4, 8, 8, 8];
/// The largest weight of a trait in an advertisement, and the largest sum of weights that an advertisement requires.
const HEAVIEST: u64 = 6;
const DEMANDING: u64 = 12;
/// Of a thousand advertisements, those that have expired.
const EXPIRED: u64 = 100;

/// An advertisement, and the traits of the users that it is for.
#[derive(Clone, Copy, Debug)]
struct Ad {
    traits: u32,
    weights: [u8; TRAITS.len()],
    least: u8,
    expired: bool,
}

/// What a custom page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub ad: u16,
    weight: u8,
    expired: bool,
}

impl Shown {
    /// The cookie that tells the client.
    pub fn cookie(self) -> String {
        format!("ad={}&weight={}&expired={}", self.ad, self.weight, u8::from(self.expired))
    }
}

/// All users and advertisements.
#[derive(Clone, Debug)]
pub struct Ads {
    users: Vec<u32>,
    all: Vec<Ad>,
}

/// The masks of the traits, one after the other.
fn masks() -> [u32; TRAITS.len()] {
    let mut below = 0;
    TRAITS.map(|count| {
        let mask = ((1 << count) - 1) << below;
        below += count;
        mask
    })
}

impl Ads {
    pub fn generate() -> Self {
        let mut rng = SplitMix64::stream(SEED, "users");
        let mut user = || {
            let mut below = 0;
            TRAITS.iter().fold(0, |traits, count| {
                let bit = below + rng.below(u64::from(*count)) as u32;
                below += count;
                traits | 1 << bit
            })
        };
        let users = (0..USERS).map(|_| user()).collect();
        let mut rng = SplitMix64::stream(SEED, "ads");
        let ad = |_| Ad {
            traits: rng.next() as u32,
            weights: std::array::from_fn(|_| rng.below(HEAVIEST + 1) as u8),
            least: rng.below(DEMANDING + 1) as u8,
            expired: rng.below(1000) < EXPIRED,
        };
        Self { users, all: (0..ADS).map(ad).collect() }
    }

    /// What `user` is shown after the advertisement `last`: the next one that weighs enough for the user's traits; if none does, the next one.
    pub fn choose(&self, user: u16, last: u16) -> Shown {
        let (traits, masks) = (self.users[usize::from(user % USERS)], masks());
        let look = |ahead: u16| {
            let number = (last % ADS + 1 + ahead) % ADS;
            let ad = &self.all[usize::from(number)];
            let shared = ad.traits & traits;
            let weight = ad.weights.iter().zip(masks).filter(|(_, mask)| shared & mask != 0).map(|(w, _)| w).sum();
            (weight >= ad.least, Shown { ad: number, weight, expired: ad.expired })
        };
        (0..ADS).map(look).find(|(fits, _)| *fits).unwrap_or_else(|| look(0)).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_rotate_through_the_advertisements_that_fit_them() {
        let ads = Ads::generate();
        let rounds = |user| {
            let (mut last, mut seen) = (0, Vec::new());
            for _ in 0..ADS {
                let shown = ads.choose(user, last);
                assert!(shown.ad != last && shown.ad < ADS);
                seen.push(shown.ad);
                last = shown.ad;
            }
            seen
        };
        let (one, other) = (rounds(1), rounds(2));
        assert_eq!(one, rounds(1));
        assert_ne!(one, other);
        let mut kinds = one.clone();
        kinds.sort_unstable();
        kinds.dedup();
        // Some are passed over, and after the last one comes the first.
        assert!(kinds.len() > 30 && kinds.len() < usize::from(ADS), "{}", kinds.len());
        assert!(one.windows(2).any(|pair| pair[1] < pair[0]) && one.windows(2).any(|pair| pair[1] > pair[0] + 1));
        assert_eq!(ads.choose(USERS + 1, ADS + 5), ads.choose(1, 5));
        assert!(ads.choose(1, 5).cookie().starts_with("ad="));
    }
}
