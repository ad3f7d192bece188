//! The size of the database: TPC-H's scale factor. A factor of 1 is about a gigabyte of text.
//!
//! Invariant: a scale is a whole number of thousandths, so that its text is exact.

use std::fmt;
use std::str::FromStr;

use tpchgen::generators::{CustomerGenerator, OrderGenerator, PartGenerator, PartSuppGenerator, SupplierGenerator};

use crate::table::Table;

const LARGEST: u32 = 1_000_000;
/// Suppliers of a part.
const OFFERS: u64 = 4;

/// A scale factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scale {
    /// 1 to 1,000,000.
    thousandths: u32,
}

/// A part of a table's rows, as the generator divides them: number `number` of `of`, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    pub number: i32,
    pub of: i32,
}

impl Portion {
    pub const WHOLE: Portion = Portion { number: 1, of: 1 };
}

impl Scale {
    pub const fn thousandths(self) -> u32 {
        self.thousandths
    }

    pub fn factor(self) -> f64 {
        f64::from(self.thousandths) / 1000.0
    }

    /// Rows of a table right after the load. Counts those of `lineitem`, which takes a few milliseconds per unit of scale.
    pub fn rows(self, table: Table) -> u64 {
        self.rows_of(table, Portion::WHOLE)
    }

    /// Rows of a portion of a table.
    pub fn rows_of(self, table: Table, portion: Portion) -> u64 {
        let factor = self.factor();
        let Portion { number, of } = portion;
        let count = match table {
            // These two have a fixed size and are not divided.
            Table::Region => 5,
            Table::Nation => 25,
            Table::Supplier => SupplierGenerator::calculate_row_count(factor, number, of),
            Table::Customer => CustomerGenerator::calculate_row_count(factor, number, of),
            Table::Part => PartGenerator::calculate_row_count(factor, number, of),
            Table::Partsupp => PartSuppGenerator::calculate_row_count(factor, number, of) * OFFERS as i64,
            Table::Orders => OrderGenerator::calculate_row_count(factor, number, of),
            Table::Lineitem => self.lines(portion),
        };
        count.unsigned_abs()
    }

    /// The number of lines in a portion's orders, from the generator's own random draws.
    fn lines(self, portion: Portion) -> i64 {
        let orders = |number| OrderGenerator::calculate_row_count(self.factor(), number, portion.of);
        // All portions but the last have the same number of orders.
        let before = if portion.of == 1 { 0 } else { orders(1) * i64::from(portion.number - 1) };
        let mut draws = OrderGenerator::create_line_count_random();
        draws.advance_rows(before);
        let mut lines = 0;
        for _ in 0..orders(portion.number) {
            lines += i64::from(draws.next_value());
            draws.row_finished();
        }
        lines
    }

    /// Whether the generator gives each part four different suppliers. It spreads them over all suppliers, and repeats one if there are
    /// few: at some scales below 0.023.
    pub fn has_distinct_offers(self) -> bool {
        let suppliers = self.rows(Table::Supplier);
        // The distance between a part's suppliers grows by one with each multiple of the number of suppliers.
        let multiples = 0..self.rows(Table::Part).div_ceil(suppliers);
        multiples.map(|m| suppliers / OFFERS + m).all(|step| (1..OFFERS).all(|n| n * step % suppliers != 0))
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not a scale factor; write 0.001 to 1000, with at most three decimals");
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !are_digits(whole) || !are_digits(decimals) || decimals.len() > 3 || whole.len() > 4 {
            return Err(refused());
        }
        let number = |part: &str| part.parse::<u32>().map_err(|_| refused());
        let thousandths = number(whole)? * 1000 + number(decimals)? * 10_u32.pow(3 - decimals.len() as u32);
        if thousandths == 0 || thousandths > LARGEST {
            return Err(refused());
        }
        Ok(Self { thousandths })
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.thousandths / 1000, self.thousandths % 1000);
        match rest {
            0 => write!(f, "{whole}"),
            _ if rest % 100 == 0 => write!(f, "{whole}.{}", rest / 100),
            _ if rest % 10 == 0 => write!(f, "{whole}.{:02}", rest / 10),
            _ => write!(f, "{whole}.{rest:03}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tpchgen::generators::PartSuppGeneratorIterator;

    use super::*;

    fn scale(text: &str) -> Scale {
        text.parse().unwrap()
    }

    #[test]
    fn scales_are_read_exactly_or_refused() {
        for (text, thousandths) in
            [("0.001", 1), ("0.01", 10), ("1", 1000), ("1.0", 1000), ("2.50", 2500), ("1000", LARGEST)]
        {
            assert_eq!(scale(text).thousandths(), thousandths, "{text}");
        }
        for text in [
            "",
            ".",
            "0",
            "0.000",
            "0.0001",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1000.001",
            "1001",
            "1,5",
            "99999999999",
            " 1",
        ] {
            let refused = text.parse::<Scale>().unwrap_err();
            assert!(refused.contains("0.001 to 1000"), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn a_scale_is_read_back_from_its_text(thousandths in 1..=LARGEST) {
            let scale = Scale { thousandths };
            prop_assert_eq!(scale.to_string().parse(), Ok(scale));
        }
    }

    #[test]
    fn portions_make_the_whole() {
        for scale in ["0.001", "0.003", "0.01"].map(scale) {
            for of in 1..=9 {
                for table in Table::ALL.into_iter().skip(2) {
                    let sum: u64 = (1..=of).map(|number| scale.rows_of(table, Portion { number, of })).sum();
                    assert_eq!(sum, scale.rows(table), "{scale} {table:?}");
                }
            }
        }
    }

    #[test]
    fn offers_are_distinct_where_the_generator_makes_them_so() {
        for thousandths in 1..=30 {
            let scale = Scale { thousandths };
            let supplier = |part, n| PartSuppGeneratorIterator::select_part_supplier(part, n, scale.factor());
            let distinct = (1..=scale.rows(Table::Part) as i64)
                .map(|part| [0, 1, 2, 3].map(|n| supplier(part, n)))
                .all(|[a, b, c, d]| a != b && a != c && a != d && b != c && b != d && c != d);
            assert_eq!(scale.has_distinct_offers(), distinct, "{scale}");
        }
    }

    #[test]
    fn rows_are_those_of_the_specification() {
        let rows = |text: &str| Table::ALL.map(|table| scale(text).rows(table));
        assert_eq!(rows("1"), [5, 25, 10_000, 150_000, 200_000, 800_000, 1_500_000, 6_001_215]);
        assert_eq!(rows("0.01"), [5, 25, 100, 1500, 2000, 8000, 15_000, 60_175]);
        assert!(scale("0.01").has_distinct_offers() && scale("0.023").has_distinct_offers());
        assert!(!scale("0.001").has_distinct_offers());
    }
}
