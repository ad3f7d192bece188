//! Debian version strings: their order, and their kernel series.
//!
//! The order is that of Debian policy 5.6.12: epoch, then upstream version, then revision; `~` sorts before the end of the string.

use std::cmp::Ordering;

/// Compare two Debian versions.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (ea, ua, ra) = split(a);
    let (eb, ub, rb) = split(b);
    compare_digits(ea.as_bytes(), eb.as_bytes()).then_with(|| compare_part(ua, ub)).then_with(|| compare_part(ra, rb))
}

/// The part before the last `-`, without the epoch: `6.12.113` of `6.12.113-1~deb12u1`.
pub fn upstream(version: &str) -> &str {
    split(version).1
}

/// The kernel series: `6.12` of `6.12.113-1~deb12u1`.
pub fn series(version: &str) -> Option<String> {
    let mut parts = upstream(version).split(['.', '~', '-', '+']);
    let (major, minor) = (parts.next()?, parts.next()?);
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    (number(major) && number(minor)).then(|| format!("{major}.{minor}"))
}

/// Major and minor version of a kernel's release, `uname -r`.
pub fn major_minor(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether a package of `version` matches `wanted`: a series (`6.12`), an upstream version (`6.12.113`), the upstream version with the number of
/// Ubuntu's ABI (`6.8.0-50` of `6.8.0-50.51`), or the whole version.
pub fn satisfies(version: &str, wanted: &str) -> bool {
    if version == wanted {
        return true;
    }
    if wanted.contains('-') {
        return version.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
    }
    match upstream(version).strip_prefix(wanted) {
        Some("") => true,
        Some(rest) => wanted.contains('.') && (rest.starts_with('.') || rest.starts_with('~')),
        None => false,
    }
}

fn split(version: &str) -> (&str, &str, &str) {
    let (epoch, rest) = match version.split_once(':') {
        Some((epoch, rest)) if epoch.bytes().all(|b| b.is_ascii_digit()) => (epoch, rest),
        _ => ("", version),
    };
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch, upstream, revision)
}

fn compare_part(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while !a.is_empty() || !b.is_empty() {
        loop {
            let (x, y) = (weight(a.first()), weight(b.first()));
            if x != y {
                return x.cmp(&y);
            }
            if x == 0 {
                break;
            }
            (a, b) = (&a[1..], &b[1..]);
        }
        let (da, db) = (digits(a), digits(b));
        let order = compare_digits(&a[..da], &b[..db]);
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (&a[da..], &b[db..]);
    }
    Ordering::Equal
}

/// Weight of a character outside a number; a digit or the end of the string is 0.
fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        None => 0,
        Some(b) if b.is_ascii_digit() => 0,
        Some(b'~') => -1,
        Some(b) if b.is_ascii_alphabetic() => i32::from(*b),
        Some(b) => i32::from(*b) + 256,
    }
}

fn digits(s: &[u8]) -> usize {
    s.iter().take_while(|b| b.is_ascii_digit()).count()
}

/// Numbers of any length, so that no version can overflow.
fn compare_digits(a: &[u8], b: &[u8]) -> Ordering {
    let strip = |s: &[u8]| s.iter().position(|b| *b != b'0').unwrap_or(s.len());
    let (a, b) = (&a[strip(a)..], &b[strip(b)..]);
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn orders_as_debian_policy_says() {
        let sorted = [
            "5.10.262-1",
            "6.1~rc3-1~exp1",
            "6.1.9-1",
            "6.1.176-1~deb11u1",
            "6.1.176-1",
            "6.1.192-1",
            "6.1.192-2",
            "6.12.9-1",
            "6.12.90-1~bpo12+1",
            "6.12.90-1",
            "6.12.90-1+b1",
            "6.12.90-2~bpo12+1",
            "7.3~rc7-1~exp1",
            "7.3.1-1",
            "1:1.0-1",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} {b}");
            }
        }
        assert_eq!(compare("6.01-1", "6.1-1"), Ordering::Equal);
    }

    #[test]
    fn series_and_exact_versions() {
        assert_eq!(series("6.12.113-1~deb12u1").as_deref(), Some("6.12"));
        assert_eq!(series("7.3~rc7-1~exp1").as_deref(), Some("7.3"));
        assert_eq!(series("6.6-1").as_deref(), Some("6.6"));
        assert_eq!(series("rubbish"), None);
        for (version, wanted, yes) in [
            ("6.12.113-1", "6.12", true),
            ("6.12.113-1", "6.1", false),
            ("6.12.113-1", "6.12.113", true),
            ("6.12.113-1", "6.12.11", false),
            ("6.12.113-1~deb12u1", "6.12.113-1~deb12u1", true),
            ("6.12.113-1~deb12u1", "6.12.113-1", false),
            ("6.8.0-50.51", "6.8.0-50", true),
            ("6.8.0-50.51", "6.8.0-5", false),
            ("6.8.0-50.51", "6.8", true),
            ("6.12.113-1", "6", false),
            ("6.6-1", "6.6", true),
            ("7.3~rc7-1", "7.3", true),
        ] {
            assert_eq!(satisfies(version, wanted), yes, "{version} {wanted}");
        }
    }

    proptest! {
        #[test]
        fn is_a_total_order(a in "[0-9a-z.+~:-]{0,12}", b in "[0-9a-z.+~:-]{0,12}", c in "[0-9a-z.+~:-]{0,12}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &a), Ordering::Equal);
            if compare(&a, &b) != Ordering::Greater && compare(&b, &c) != Ordering::Greater {
                prop_assert_ne!(compare(&a, &c), Ordering::Greater);
            }
        }

        #[test]
        fn never_panics(version in ".{0,40}", wanted in ".{0,40}") {
            compare(&version, &wanted);
            series(&version);
            satisfies(&version, &wanted);
        }
    }
}
