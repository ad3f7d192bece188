//! The substitution parameters of the 22 queries.
//!
//! Invariant: drawn values are within the ranges of the TPC-H specification (clause 2.4), and depend only on the seed and the stream.

use bigiron_sys::load::rng::SplitMix64;
use tpchgen::distribution::{Distribution, Distributions};

use crate::date::Date;

/// The words that query 13 looks for in comments.
pub const FIRST_WORDS: [&str; 4] = ["special", "pending", "unusual", "express"];
pub const SECOND_WORDS: [&str; 4] = ["packages", "requests", "accounts", "deposits"];

/// The smallest threshold of query 18, in units of a line's quantity: the validation value.
pub const LEAST_LARGE_ORDER: u32 = 300;

/// Values for all queries; a field's name begins with its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Days before 1998-12-01.
    pub q1_days: u32,
    pub q2_size: u32,
    /// The last word of a part's type.
    pub q2_material: &'static str,
    pub q2_region: &'static str,
    pub q3_segment: &'static str,
    pub q3_day: Date,
    /// The first day of the three months.
    pub q4_quarter: Date,
    pub q5_region: &'static str,
    pub q5_year: i32,
    pub q6_year: i32,
    /// In hundredths; the query also accepts one more and one less.
    pub q6_discount: u32,
    pub q6_quantity: u32,
    pub q7_nations: [&'static str; 2],
    pub q8_nation: &'static str,
    /// The region of `q8_nation`.
    pub q8_region: &'static str,
    pub q8_type: &'static str,
    pub q9_color: &'static str,
    pub q10_quarter: Date,
    pub q11_nation: &'static str,
    pub q12_modes: [&'static str; 2],
    pub q12_year: i32,
    pub q13_words: [&'static str; 2],
    pub q14_month: Date,
    pub q15_quarter: Date,
    /// `Brand#` and two digits, 1 to 5.
    pub q16_brand: u32,
    /// The first two words of a part's type.
    pub q16_type: &'static str,
    /// All different.
    pub q16_sizes: [u32; 8],
    pub q17_brand: u32,
    pub q17_container: &'static str,
    pub q18_quantity: u32,
    pub q19_brands: [u32; 3],
    pub q19_quantities: [u32; 3],
    pub q20_color: &'static str,
    pub q20_year: i32,
    pub q20_nation: &'static str,
    pub q21_nation: &'static str,
    /// All different: a nation's number plus 10.
    pub q22_codes: [u32; 7],
}

impl Parameters {
    /// The values with which the specification validates an implementation.
    pub fn validation() -> Self {
        Self {
            q1_days: 90,
            q2_size: 15,
            q2_material: "BRASS",
            q2_region: "EUROPE",
            q3_segment: "BUILDING",
            q3_day: Date::first_of(1995, 3).plus_days(14),
            q4_quarter: Date::first_of(1993, 7),
            q5_region: "ASIA",
            q5_year: 1994,
            q6_year: 1994,
            q6_discount: 6,
            q6_quantity: 24,
            q7_nations: ["FRANCE", "GERMANY"],
            q8_nation: "BRAZIL",
            q8_region: "AMERICA",
            q8_type: "ECONOMY ANODIZED STEEL",
            q9_color: "green",
            q10_quarter: Date::first_of(1993, 10),
            q11_nation: "GERMANY",
            q12_modes: ["MAIL", "SHIP"],
            q12_year: 1994,
            q13_words: ["special", "requests"],
            q14_month: Date::first_of(1995, 9),
            q15_quarter: Date::first_of(1996, 1),
            q16_brand: 45,
            q16_type: "MEDIUM POLISHED",
            q16_sizes: [49, 14, 23, 45, 19, 3, 36, 9],
            q17_brand: 23,
            q17_container: "MED BOX",
            q18_quantity: LEAST_LARGE_ORDER,
            q19_brands: [12, 23, 34],
            q19_quantities: [1, 10, 20],
            q20_color: "forest",
            q20_year: 1994,
            q20_nation: "CANADA",
            q21_nation: "SAUDI ARABIA",
            q22_codes: [13, 31, 23, 29, 30, 18, 17],
        }
    }

    /// The values that a stream draws with a seed.
    pub fn drawn(seed: u64, stream: usize) -> Self {
        let words = Distributions::static_default();
        let mut draw = Draws(SplitMix64::stream(seed, &format!("dss parameters {stream}")));
        let nations = words.nations();
        let (q8_nation, q8_region) = {
            let nation = draw.index(nations.size());
            // A nation's weight is its region's number.
            (nations.get_values()[nation], words.regions().get_values()[nations.get_weight(nation) as usize])
        };
        Self {
            q1_days: draw.number(60, 120),
            q2_size: draw.number(1, 50),
            q2_material: last_word(draw.one(words.part_types())),
            q2_region: draw.one(words.regions()),
            q3_segment: draw.one(words.market_segments()),
            q3_day: Date::first_of(1995, 3).plus_days(draw.number(0, 30) as i32),
            q4_quarter: draw.month((1993, 1), (1997, 10)),
            q5_region: draw.one(words.regions()),
            q5_year: draw.year(),
            q6_year: draw.year(),
            q6_discount: draw.number(2, 9),
            q6_quantity: draw.number(24, 25),
            q7_nations: draw.several(nations.get_values()),
            q8_nation,
            q8_region,
            q8_type: draw.one(words.part_types()),
            q9_color: draw.one(words.part_colors()),
            q10_quarter: draw.month((1993, 2), (1995, 1)),
            q11_nation: draw.one(nations),
            q12_modes: draw.several(words.ship_modes().get_values()),
            q12_year: draw.year(),
            q13_words: [FIRST_WORDS[draw.index(4)], SECOND_WORDS[draw.index(4)]],
            q14_month: draw.month((1993, 1), (1997, 12)),
            q15_quarter: draw.month((1993, 1), (1997, 10)),
            q16_brand: draw.brand(),
            q16_type: first_words(draw.one(words.part_types())),
            q16_sizes: draw.several(&Vec::from_iter(1..=50)),
            q17_brand: draw.brand(),
            q17_container: draw.one(words.part_containers()),
            q18_quantity: draw.number(312, 315),
            q19_brands: [draw.brand(), draw.brand(), draw.brand()],
            q19_quantities: [draw.number(1, 10), draw.number(10, 20), draw.number(20, 30)],
            q20_color: draw.one(words.part_colors()),
            q20_year: draw.year(),
            q20_nation: draw.one(nations),
            q21_nation: draw.one(nations),
            q22_codes: draw.several(&Vec::from_iter(10..10 + nations.size() as u32)),
        }
    }
}

/// The range of years in queries about one year.
const YEARS: (u32, u32) = (1993, 1997);

struct Draws(SplitMix64);

impl Draws {
    /// Below `count`.
    fn index(&mut self, count: usize) -> usize {
        self.0.below(count as u64) as usize
    }

    /// From `least` to `most`, both included.
    fn number(&mut self, least: u32, most: u32) -> u32 {
        least + self.index((most - least + 1) as usize) as u32
    }

    fn one(&mut self, words: &'static Distribution) -> &'static str {
        words.get_values()[self.index(words.size())]
    }

    /// Distinct values, in random order.
    fn several<T: Copy, const N: usize>(&mut self, all: &[T]) -> [T; N] {
        let mut left = all.to_vec();
        std::array::from_fn(|_| {
            let index = self.index(left.len());
            left.swap_remove(index)
        })
    }

    fn year(&mut self) -> i32 {
        self.number(YEARS.0, YEARS.1) as i32
    }

    /// The first day of a month between two months, given as year and month, both included.
    fn month(&mut self, first: (u32, u32), last: (u32, u32)) -> Date {
        let months = self.number(0, (last.0 - first.0) * 12 + last.1 - first.1);
        Date::first_of(first.0 as i32, first.1).plus_months(months)
    }

    fn brand(&mut self) -> u32 {
        self.number(1, 5) * 10 + self.number(1, 5)
    }
}

fn last_word(text: &'static str) -> &'static str {
    text.rsplit_once(' ').map_or(text, |(_, last)| last)
}

fn first_words(text: &'static str) -> &'static str {
    text.rsplit_once(' ').map_or(text, |(first, _)| first)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn day(year: i32, month: u32) -> Date {
        Date::first_of(year, month)
    }

    fn distinct<T: Copy + Eq + std::hash::Hash>(values: &[T]) -> bool {
        values.iter().collect::<HashSet<_>>().len() == values.len()
    }

    fn within(p: &Parameters) -> Result<(), TestCaseError> {
        let words = Distributions::static_default();
        let is_of = |list: &Distribution, word: &str| list.get_values().contains(&word);
        let is_month = |date: Date, first: Date, last: Date| date.parts().2 == 1 && (first..=last).contains(&date);
        prop_assert!((60..=120).contains(&p.q1_days));
        prop_assert!((1..=50).contains(&p.q2_size));
        prop_assert!(["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"].contains(&p.q2_material));
        prop_assert!(is_of(words.regions(), p.q2_region) && is_of(words.regions(), p.q5_region));
        prop_assert!(is_of(words.market_segments(), p.q3_segment));
        prop_assert!((day(1995, 3)..day(1995, 4)).contains(&p.q3_day));
        prop_assert!(is_month(p.q4_quarter, day(1993, 1), day(1997, 10)));
        for year in [p.q5_year, p.q6_year, p.q12_year, p.q20_year] {
            prop_assert!((1993..=1997).contains(&year));
        }
        prop_assert!((2..=9).contains(&p.q6_discount) && (24..=25).contains(&p.q6_quantity));
        for nation in [p.q7_nations[0], p.q7_nations[1], p.q8_nation, p.q11_nation, p.q20_nation, p.q21_nation] {
            prop_assert!(is_of(words.nations(), nation), "{}", nation);
        }
        prop_assert!(distinct(&p.q7_nations) && distinct(&p.q12_modes));
        prop_assert!(is_of(words.part_types(), p.q8_type));
        prop_assert!(is_of(words.part_colors(), p.q9_color) && is_of(words.part_colors(), p.q20_color));
        prop_assert!(is_month(p.q10_quarter, day(1993, 2), day(1995, 1)));
        prop_assert!(p.q12_modes.iter().all(|mode| is_of(words.ship_modes(), mode)));
        prop_assert!(FIRST_WORDS.contains(&p.q13_words[0]) && SECOND_WORDS.contains(&p.q13_words[1]));
        prop_assert!(is_month(p.q14_month, day(1993, 1), day(1997, 12)));
        prop_assert!(is_month(p.q15_quarter, day(1993, 1), day(1997, 10)));
        let is_brand = |brand: u32| (1..=5).contains(&(brand / 10)) && (1..=5).contains(&(brand % 10));
        prop_assert!(is_brand(p.q16_brand) && is_brand(p.q17_brand) && p.q19_brands.into_iter().all(is_brand));
        prop_assert!(p.q16_type.split(' ').count() == 2);
        prop_assert!(words.part_types().get_values().iter().any(|of| of.starts_with(p.q16_type)));
        prop_assert!(distinct(&p.q16_sizes) && p.q16_sizes.iter().all(|size| (1..=50).contains(size)));
        prop_assert!(is_of(words.part_containers(), p.q17_container));
        prop_assert!(p.q18_quantity == 300 || (312..=315).contains(&p.q18_quantity));
        let [small, medium, large] = p.q19_quantities;
        prop_assert!((1..=10).contains(&small) && (10..=20).contains(&medium) && (20..=30).contains(&large));
        prop_assert!(distinct(&p.q22_codes) && p.q22_codes.iter().all(|code| (10..=34).contains(code)));
        Ok(())
    }

    proptest! {
        #[test]
        fn drawn_values_are_in_their_ranges(seed: u64, stream in 0..100_usize) {
            let drawn = Parameters::drawn(seed, stream);
            within(&drawn)?;
            prop_assert_ne!(&drawn, &Parameters::drawn(seed, stream + 1));
            prop_assert_ne!(&drawn, &Parameters::drawn(seed.wrapping_add(1), stream));
            prop_assert_eq!(&drawn, &Parameters::drawn(seed, stream));
        }
    }

    #[test]
    fn the_values_of_validation_are_in_their_ranges_too() {
        within(&Parameters::validation()).unwrap();
    }

    #[test]
    fn a_region_is_its_nations_and_every_value_occurs() {
        let drawn: Vec<Parameters> = (0..2000).map(|stream| Parameters::drawn(7, stream)).collect();
        let homes: HashSet<_> = drawn.iter().map(|p| (p.q8_nation, p.q8_region)).collect();
        assert_eq!(homes.len(), 25);
        for home in [
            ("BRAZIL", "AMERICA"),
            ("FRANCE", "EUROPE"),
            ("CHINA", "ASIA"),
            ("KENYA", "AFRICA"),
            ("EGYPT", "MIDDLE EAST"),
        ] {
            assert!(homes.contains(&home), "{home:?}");
        }
        let count = |of: &dyn Fn(&Parameters) -> Date| drawn.iter().map(of).collect::<HashSet<_>>().len();
        assert_eq!(count(&|p| p.q3_day), 31);
        assert_eq!(count(&|p| p.q4_quarter), 58);
        assert_eq!(count(&|p| p.q10_quarter), 24);
        assert_eq!(count(&|p| p.q14_month), 60);
        assert_eq!(count(&|p| p.q15_quarter), 58);
        assert_eq!(drawn.iter().map(|p| p.q13_words).collect::<HashSet<_>>().len(), 16);
        assert_eq!(drawn.iter().flat_map(|p| p.q16_sizes).collect::<HashSet<_>>().len(), 50);
        assert_eq!(drawn.iter().flat_map(|p| p.q22_codes).collect::<HashSet<_>>().len(), 25);
        assert_eq!(drawn.iter().map(|p| p.q16_brand).collect::<HashSet<_>>().len(), 25);
    }
}
