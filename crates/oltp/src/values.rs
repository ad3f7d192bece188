//! The text forms of oltp's options.
//!
//! Invariant: a value is parsed completely or rejected; the constant beside each parser describes the valid values.

use std::time::Duration;

/// Maximum number of steps of a ramp.
const STEPS_MAX: usize = 1000;

pub const A_MIX: &str = "five percentages `45/43/4/4/4` that make 100 (new-order, payment, order-status, delivery, stock-level), or the last \
                         four of them, with new-orders as what is left";

/// Per mille of each kind.
pub fn mix(text: &str) -> Option<[u32; 5]> {
    let parts: Option<Vec<u32>> = text.split('/').map(per_mille).collect();
    let parts = parts?;
    let mix: [u32; 5] = match parts.len() {
        5 => parts.try_into().ok()?,
        // As in DBT-2: New-Order is the remainder, and a negative one is an error.
        4 => {
            let rest = 1000_u32.checked_sub(parts.iter().sum())?;
            [rest, parts[0], parts[1], parts[2], parts[3]]
        }
        _ => return None,
    };
    (mix.iter().sum::<u32>() == 1000).then_some(mix)
}

/// `4` or `4.5` per cent, 0 to 100, as per mille.
fn per_mille(text: &str) -> Option<u32> {
    let (whole, tenth) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let tenth: u32 = if tenth.len() == 1 { tenth.parse().ok()? } else { return None };
    let whole: u32 = whole.parse().ok()?;
    (whole <= 100).then_some(whole * 10 + tenth).filter(|n| *n <= 1000)
}

pub const A_FACTOR: &str = "`off`, `spec`, or a factor of the specification's times, 0 to 1000";

/// A factor on the specification's times.
pub fn factor(text: &str) -> Option<f64> {
    match text {
        "off" => Some(0.0),
        "spec" => Some(1.0),
        _ => text.parse().ok().filter(|f| (0.0..=1000.0).contains(f)),
    }
}

pub const A_RATE: &str = "`off`, or transactions per second, more than 0 and at most 10000000";

/// Transactions per second; `Some(None)` is a closed loop.
pub fn rate(text: &str) -> Option<Option<f64>> {
    match text {
        "off" => Some(None),
        _ => text.parse().ok().filter(|r| *r > 0.0 && *r <= 1e7).map(Some),
    }
}

pub const A_LENGTH: &str = "a number of transactions such as `2000`, a time such as `30s`, or `auto`";

pub const SOME_USERS: &str = "`none`, a ramp `50..400:50` (first, last, step), or a rising list `100,200,500`; at most 1000 steps of at most 1000000 users";

/// The steps of a ramp, in order; empty for none.
pub fn users(text: &str) -> Option<Vec<u32>> {
    if text == "none" {
        return Some(Vec::new());
    }
    let steps: Vec<u32> = match text.split_once("..") {
        Some((first, rest)) => {
            let (last, step) = rest.split_once(':')?;
            let (first, last, step): (u32, u32, usize) =
                (first.trim().parse().ok()?, last.trim().parse().ok()?, step.trim().parse().ok()?);
            if step == 0 || last < first || (last - first) as usize / step >= STEPS_MAX {
                return None;
            }
            (first..=last).step_by(step).collect()
        }
        None => text.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?,
    };
    let grows = steps.windows(2).all(|w| w[0] < w[1]);
    (grows && steps.len() <= STEPS_MAX && steps.iter().all(|n| (1..=1_000_000).contains(n))).then_some(steps)
}

pub const SOME_WAREHOUSES: &str = "`all`, or the first and the last warehouse as `A..B`";

/// `all` or `A..B` of this many warehouses.
pub fn touched(text: &str, warehouses: u32) -> Option<(u32, u32)> {
    if text == "all" {
        return Some((1, warehouses));
    }
    let (first, last) = text.split_once("..")?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (1 <= first && first <= last && last <= warehouses).then_some((first, last))
}

pub const A_PART: &str = "`K/N`, the number of this process and of all that share the run, at most 4096";

/// `K/N`.
pub fn part(text: &str) -> Option<(u32, u32)> {
    let (part, parts) = text.split_once('/')?;
    let (part, parts) = (part.trim().parse().ok()?, parts.trim().parse().ok()?);
    (1 <= part && part <= parts && parts <= 4096).then_some((part, parts))
}

pub const SOME_LIMITS: &str = "five times in seconds, `5/5/5/5/20`, in the order of the mix";

/// Response limits of each kind.
pub fn limits(text: &str) -> Option<[Duration; 5]> {
    let seconds = |part: &str| {
        let seconds: f64 = part.trim().parse().ok()?;
        (seconds > 0.0 && seconds <= 1e6).then(|| Duration::from_secs_f64(seconds))
    };
    text.split('/').map(seconds).collect::<Option<Vec<_>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_make_a_hundred() {
        assert_eq!(mix("45/43/4/4/4"), Some([450, 430, 40, 40, 40]));
        assert_eq!(mix("44.5/43.5/4/4/4"), Some([445, 435, 40, 40, 40]));
        assert_eq!(mix("43/4/4/4"), Some([450, 430, 40, 40, 40]));
        assert_eq!(mix("100/0/0/0/0"), Some([1000, 0, 0, 0, 0]));
        assert_eq!(mix("0/0/0/0"), Some([1000, 0, 0, 0, 0]));
        for wrong in
            ["45/43/4/4/5", "43/40/10/8", "45/43/4/4", "45", "", "a/b/c/d/e", "-5/97/4/4/0", "45.55/42.45/4/4/4"]
        {
            // Four numbers below 100 are a mix; `45/43/4/4` leaves 4 % for new-orders.
            assert_eq!(mix(wrong).is_some(), wrong == "45/43/4/4", "{wrong}");
        }
    }

    #[test]
    fn ramps_of_users() {
        assert_eq!(users("none"), Some(vec![]));
        assert_eq!(users("50..400:150"), Some(vec![50, 200, 350]));
        assert_eq!(users("5..5:1"), Some(vec![5]));
        assert_eq!(users("100, 200,500"), Some(vec![100, 200, 500]));
        for wrong in ["400..50:10", "1..10:0", "0..10:5", "5,5", "9,3", "", "1..10", "1..2000000:1", "x"] {
            assert_eq!(users(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_are_of_a_whole() {
        assert_eq!((part("1/1"), part("3 / 3")), (Some((1, 1)), Some((3, 3))));
        for wrong in ["0/2", "3/2", "1", "1/5000", "a/b"] {
            assert_eq!(part(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn warehouses_touched_exist() {
        assert_eq!(touched("all", 7), Some((1, 7)));
        assert_eq!(touched("2..5", 7), Some((2, 5)));
        for wrong in ["0..3", "3..2", "2..8", "2", "..", "a..b"] {
            assert_eq!(touched(wrong, 7), None, "{wrong}");
        }
    }

    #[test]
    fn factors_rates_and_limits() {
        assert_eq!((factor("off"), factor("spec"), factor("0.1")), (Some(0.0), Some(1.0), Some(0.1)));
        assert_eq!((factor("-1"), factor("NaN"), factor("on")), (None, None, None));
        assert_eq!((rate("off"), rate("200"), rate("0"), rate("inf")), (Some(None), Some(Some(200.0)), None, None));
        assert_eq!(limits("5/5/5/80/20").unwrap().map(|d| d.as_secs()), [5, 5, 5, 80, 20]);
        assert_eq!((limits("5/5/5/5"), limits("0/5/5/5/20"), limits("NaN/1/1/1/1")), (None, None, None));
    }
}
