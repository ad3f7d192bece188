//! The 22 queries as SQL.
//!
//! Invariant: the text of a query differs between engines only in date literals and in the extraction of a year, and every `ORDER BY` is
//! total, so that an answer has one order.
//!
//! The texts are bigiron's own, written from the queries' descriptions. They compare fractions by multiplication, without a quotient that an
//! engine could truncate.

mod template;

use crate::date::Date;
use crate::orders::QUERIES;
use crate::parameters::Parameters;
use crate::scale::Scale;
use template::Value;

/// An engine's SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sql {
    Postgres,
    Sqlite,
    DataFusion,
}

const TEMPLATES: [&str; QUERIES] = [
    include_str!("../../queries/q01.sql"),
    include_str!("../../queries/q02.sql"),
    include_str!("../../queries/q03.sql"),
    include_str!("../../queries/q04.sql"),
    include_str!("../../queries/q05.sql"),
    include_str!("../../queries/q06.sql"),
    include_str!("../../queries/q07.sql"),
    include_str!("../../queries/q08.sql"),
    include_str!("../../queries/q09.sql"),
    include_str!("../../queries/q10.sql"),
    include_str!("../../queries/q11.sql"),
    include_str!("../../queries/q12.sql"),
    include_str!("../../queries/q13.sql"),
    include_str!("../../queries/q14.sql"),
    include_str!("../../queries/q15.sql"),
    include_str!("../../queries/q16.sql"),
    include_str!("../../queries/q17.sql"),
    include_str!("../../queries/q18.sql"),
    include_str!("../../queries/q19.sql"),
    include_str!("../../queries/q20.sql"),
    include_str!("../../queries/q21.sql"),
    include_str!("../../queries/q22.sql"),
];

/// The text of a query, 1 to 22, with its parameters; one parameter depends on the scale.
///
/// # Panics
/// If there is no such query.
pub fn text(query: u8, sql: Sql, parameters: &Parameters, scale: Scale) -> String {
    template::fill(template(query), sql, &values(query, parameters, scale))
}

/// A query in words.
///
/// # Panics
/// If there is no such query.
pub fn description(query: u8) -> &'static str {
    template(query).lines().next().and_then(|line| line.strip_prefix("-- ")).expect("A description comes first")
}

fn template(query: u8) -> &'static str {
    TEMPLATES[usize::from(query) - 1]
}

/// The bounds of a period: its first day, and the day after its last.
fn period(first: Date, months: u32) -> Vec<(&'static str, Value)> {
    vec![("first_day", Value::Date(first)), ("end_day", Value::Date(first.plus_months(months)))]
}

fn year(year: i32) -> Vec<(&'static str, Value)> {
    period(Date::first_of(year, 1), 12)
}

fn text_of(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn brand(number: u32) -> Value {
    Value::Text(format!("Brand#{number}"))
}

fn texts(words: &[&str]) -> Value {
    Value::Texts(words.iter().map(|word| (*word).to_owned()).collect())
}

/// The values of a query's placeholders.
fn values(query: u8, p: &Parameters, scale: Scale) -> Vec<(&'static str, Value)> {
    let mut values = match query {
        4 => period(p.q4_quarter, 3),
        5 => year(p.q5_year),
        6 => year(p.q6_year),
        10 => period(p.q10_quarter, 3),
        12 => year(p.q12_year),
        14 => period(p.q14_month, 1),
        15 => period(p.q15_quarter, 3),
        20 => year(p.q20_year),
        _ => Vec::new(),
    };
    let others: Vec<(&'static str, Value)> = match query {
        1 => vec![("last_day", Value::Date(Date::first_of(1998, 12).plus_days(-(p.q1_days as i32))))],
        2 => vec![
            ("region", text_of(p.q2_region)),
            ("size", Value::Number(p.q2_size)),
            ("material", Value::Text(format!("%{}", p.q2_material))),
        ],
        3 => vec![("segment", text_of(p.q3_segment)), ("day", Value::Date(p.q3_day))],
        5 => vec![("region", text_of(p.q5_region))],
        6 => vec![
            ("least_discount", Value::Hundredths(p.q6_discount - 1)),
            ("most_discount", Value::Hundredths(p.q6_discount + 1)),
            ("quantity", Value::Number(p.q6_quantity)),
        ],
        7 => vec![("nations", texts(&p.q7_nations))],
        8 => vec![("type", text_of(p.q8_type)), ("region", text_of(p.q8_region)), ("nation", text_of(p.q8_nation))],
        9 => vec![("color", Value::Text(format!("%{}%", p.q9_color)))],
        // The fraction is a ten-thousandth, divided by the scale.
        11 => vec![("nation", text_of(p.q11_nation)), ("inverse_fraction", Value::Number(10 * scale.thousandths()))],
        12 => vec![("modes", texts(&p.q12_modes))],
        13 => vec![("words", Value::Text(format!("%{}%{}%", p.q13_words[0], p.q13_words[1])))],
        16 => vec![
            ("brand", brand(p.q16_brand)),
            ("type", Value::Text(format!("{}%", p.q16_type))),
            ("sizes", Value::Numbers(p.q16_sizes.to_vec())),
        ],
        17 => vec![("brand", brand(p.q17_brand)), ("container", text_of(p.q17_container))],
        18 => vec![("quantity", Value::Number(p.q18_quantity))],
        19 => vec![
            ("small_brand", brand(p.q19_brands[0])),
            ("medium_brand", brand(p.q19_brands[1])),
            ("large_brand", brand(p.q19_brands[2])),
            ("small_quantity", Value::Number(p.q19_quantities[0])),
            ("medium_quantity", Value::Number(p.q19_quantities[1])),
            ("large_quantity", Value::Number(p.q19_quantities[2])),
        ],
        20 => vec![("color", Value::Text(format!("{}%", p.q20_color))), ("nation", text_of(p.q20_nation))],
        21 => vec![("nation", text_of(p.q21_nation))],
        22 => vec![("codes", Value::Texts(p.q22_codes.iter().map(u32::to_string).collect()))],
        _ => Vec::new(),
    };
    values.extend(others);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_has_a_value_and_every_value_a_place() {
        let scale = "1".parse().unwrap();
        for query in 1..=22 {
            assert!(description(query).ends_with('.'));
            for (name, _) in values(query, &Parameters::validation(), scale) {
                assert!(template(query).contains(&format!("{{{name}}}")), "{query}: {name}");
            }
            for sql in [Sql::Postgres, Sql::Sqlite, Sql::DataFusion] {
                let text = text(query, sql, &Parameters::validation(), scale);
                assert!(!text.contains(['{', '}', ';']) && !text.contains("--"), "{text}");
                assert!(text.starts_with("SELECT ") || text.starts_with("WITH "), "{text}");
            }
        }
    }

    #[test]
    fn values_are_written_in_the_engines_own_way() {
        let scale = "0.01".parse().unwrap();
        let text = |query, sql| text(query, sql, &Parameters::validation(), scale);
        assert!(text(1, Sql::Postgres).contains("NOT l_shipdate > DATE '1998-09-02'"));
        assert!(text(1, Sql::DataFusion).contains("NOT l_shipdate > DATE '1998-09-02'"));
        assert!(text(1, Sql::Sqlite).contains("NOT l_shipdate > '1998-09-02'"));
        assert!(text(6, Sql::Sqlite).contains("BETWEEN 0.05 AND 0.07"));
        assert!(text(6, Sql::Sqlite).contains("l_shipdate < '1995-01-01'"));
        assert!(text(7, Sql::Sqlite).contains("IN ('FRANCE', 'GERMANY')"));
        assert!(text(7, Sql::Sqlite).contains("CAST(SUBSTR(l_shipdate, 1, 4) AS INTEGER) AS shipped"));
        assert!(text(7, Sql::Postgres).contains("CAST(EXTRACT(YEAR FROM l_shipdate) AS INTEGER) AS shipped"));
        assert!(text(7, Sql::Postgres).contains("BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'"));
        assert!(text(11, Sql::Sqlite).contains("worth * 100 > total_worth"));
        assert!(text(16, Sql::Sqlite).contains("p_size IN (49, 14, 23, 45, 19, 3, 36, 9)"));
        assert!(text(22, Sql::Sqlite).contains("IN ('13', '31', '23', '29', '30', '18', '17')"));
    }
}
