//! The file set and the draws of `web99`: SPECweb99's mix as it was published.
//!
//! Invariant: a client's requests depend only on the seed and its number.
//!
//! bigiron's implementation, not SPEC's: no result is comparable with a published one.

pub mod ads;
pub mod post_log;
pub mod request;

use bigiron_sys::load::rng::SplitMix64;

use ads::{ADS, Ads, USERS};
use post_log::Posted;
use request::{Ask, Dynamic};

/// Files of a class in a directory.
pub const FILES: usize = 9;
pub const CLASSES: usize = 4;
/// A file's bytes: this unit times its number from 1.
const UNITS: [u64; CLASSES] = [1024, 10_240, 102_400, 1_024_000];
/// Access to the classes, in per cent.
const SHARES: [u64; CLASSES] = [35, 50, 14, 1];
/// Access to the files of a class, in per mille: the most popular is the fifth.
const POPULARITY: [u64; FILES] = [39, 59, 88, 177, 353, 118, 71, 50, 45];
/// Of ten thousand requests, those for a file, for a page with it, for a page with a custom advertisement, with a form, and for a CGI program.
const KINDS: [u64; 5] = [7000, 1245, 1260, 480, 15];
/// Of a thousand connections, those for one request; and the requests of the others.
const SINGLE: u64 = 300;
const KEPT: (u64, u64) = (5, 15);

/// Bytes of a file, both numbers from 0. Class 0 has tenths of a KiB.
pub fn size(class: usize, file: usize) -> usize {
    (UNITS[class] * (file as u64 + 1) / 10) as usize
}

/// The path of a file.
pub fn path(directory: usize, class: usize, file: usize) -> String {
    format!("/dir{directory:05}/class{class}_{}", file + 1)
}

/// Directories for a load of this many connections.
pub fn directories(connections: u32) -> usize {
    25 + (f64::from(connections) * 400_000.0 / 122_000.0 / 5.0) as usize
}

/// The draws of one client.
#[derive(Clone, Debug)]
pub struct Draws {
    rng: SplitMix64,
    number: u32,
    /// The last advertisement that it has seen.
    ad: u16,
}

/// What clients draw from.
#[derive(Clone, Debug)]
pub struct Mix {
    directories: Zipf,
    /// `None`: all requests are for files as they are.
    ads: Option<Ads>,
}

impl Mix {
    pub fn new(directories: usize, dynamic: bool) -> Self {
        Self { directories: Zipf::new(directories), ads: dynamic.then(Ads::generate) }
    }
}

/// The popularity of directories: the n-th is requested in proportion to 1/n.
#[derive(Clone, Debug)]
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: usize) -> Self {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=count)
            .map(|n| {
                sum += 1.0 / n as f64;
                sum
            })
            .collect();
        Self(sums.into_iter().map(|part| part / sum).collect())
    }

    fn draw(&self, rng: &mut SplitMix64) -> usize {
        let at = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64;
        self.0.partition_point(|part| *part <= at).min(self.0.len() - 1)
    }
}

impl Draws {
    /// Of client `number`.
    pub fn new(seed: u64, number: u32) -> Self {
        Self { rng: SplitMix64::stream(seed, &format!("web99 {number}")), number, ad: 0 }
    }

    /// The next request.
    pub fn next(&mut self, mix: &Mix) -> Ask {
        let document = self.document(&mix.directories);
        let Some(ads) = &mix.ads else { return Ask::file(document) };
        let kind = pick(&KINDS, self.rng.below(KINDS.iter().sum()));
        let user = self.rng.below(u64::from(USERS)) as u16;
        let dynamic = match kind {
            0 => None,
            1 => Some(Dynamic::Ad),
            2 => {
                let (last, shown) = (self.ad, ads.choose(user, self.ad));
                self.ad = shown.ad % ADS;
                Some(Dynamic::Custom { user, last, shown })
            }
            3 => Some(Dynamic::Post(Posted { document, client: self.number, user, ad: self.ad })),
            _ => Some(Dynamic::Cgi),
        };
        Ask { document, dynamic }
    }

    /// The number of the next document, counted as directory, class and file.
    fn document(&mut self, directories: &Zipf) -> usize {
        let directory = directories.draw(&mut self.rng);
        let class = pick(&SHARES, self.rng.below(SHARES.iter().sum()));
        let file = pick(&POPULARITY, self.rng.below(POPULARITY.iter().sum()));
        (directory * CLASSES + class) * FILES + file
    }

    /// Requests of the next connection.
    pub fn requests(&mut self) -> u32 {
        if self.rng.below(1000) < SINGLE { 1 } else { (KEPT.0 + self.rng.below(KEPT.1 - KEPT.0 + 1)) as u32 }
    }
}

/// The entry to which `at` belongs if each has its weight.
fn pick(weights: &[u64], mut at: u64) -> usize {
    for (n, weight) in weights.iter().enumerate() {
        if at < *weight {
            return n;
        }
        at -= weight;
    }
    weights.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_its_published_size() {
        let all = (0..CLASSES).flat_map(|class| (0..FILES).map(move |file| size(class, file)));
        // 36 files; tenths of a KiB are rounded down.
        assert!(all.sum::<usize>().abs_diff(5_119_488) < 5_000);
        assert_eq!((size(0, 0), size(1, 0), size(3, 8), directories(0)), (102, 1024, 921_600, 25));
    }

    #[test]
    fn draws_keep_their_shares() {
        let (zipf, mut draws) = (Zipf::new(100), Draws::new(7, 3));
        let all: Vec<_> = (0..200_000).map(|_| draws.document(&zipf)).collect();
        let share = |of: &dyn Fn(usize) -> bool| all.iter().filter(|n| of(**n)).count() as f64 / all.len() as f64;
        for (class, percent) in SHARES.into_iter().enumerate() {
            let found = share(&|n| n / FILES % CLASSES == class);
            assert!((found - percent as f64 / 100.0).abs() < 0.005, "class {class}: {found}");
        }
        assert!((share(&|n| n % FILES == 4) - 0.353).abs() < 0.005);
        let (first, tenth) = (share(&|n| n / 36 == 0), share(&|n| n / 36 == 9));
        assert!((first / tenth - 10.0).abs() < 1.0, "{first} {tenth}");
        let mean = all.iter().map(|n| size(n / FILES % CLASSES, n % FILES)).sum::<usize>() as f64 / all.len() as f64;
        assert!((mean / 14_700.0 - 1.0).abs() < 0.05, "{mean}");
        let mix = Mix::new(100, true);
        let all: Vec<_> = (0..200_000).map(|_| draws.next(&mix).dynamic).collect();
        let share =
            |of: &dyn Fn(&Option<Dynamic>) -> bool| all.iter().filter(|d| of(d)).count() as f64 / all.len() as f64;
        for (found, right) in [
            (share(&|d| d.is_none()), 0.7),
            (share(&|d| matches!(d, Some(Dynamic::Ad))), 0.1245),
            (share(&|d| matches!(d, Some(Dynamic::Custom { .. }))), 0.126),
            (share(&|d| matches!(d, Some(Dynamic::Post(_)))), 0.048),
        ] {
            assert!((found - right).abs() < 0.005, "{found} {right}");
        }
        let programs = share(&|d| matches!(d, Some(Dynamic::Cgi)));
        assert!((programs - 0.0015).abs() < 0.0005, "{programs}");
        let plain = Mix::new(100, false);
        assert!((0..1000).all(|_| draws.next(&plain).dynamic.is_none()));
        let requests: Vec<_> = (0..20_000).map(|_| draws.requests()).collect();
        assert!(requests.iter().all(|n| *n == 1 || (5..=15).contains(n)));
        let single = requests.iter().filter(|n| **n == 1).count() as f64 / 20_000.0;
        assert!((single - 0.3).abs() < 0.02, "{single}");
    }
}
