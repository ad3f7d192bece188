//! The operations of the business: their shares, their limits, and their requests.
//!
//! Invariant: a request depends only on its kind, its draw and the number of dealers.

use std::time::Duration;

use bigiron_sys::load::rng::SplitMix64;
use bigiron_web::call::{Call, CallTally, Calls};
use bigiron_web::http;

use crate::database::{COMPONENTS_OF, ITEMS};

/// A kind of operation.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The servlet, and its path.
    pub servlet: &'static str,
    /// In metrics: `order-p90`.
    pub metric: &'static str,
    /// Of 80 requests.
    share: u64,
    /// Of the 90th percentile.
    pub limit: Duration,
}

const fn kind(servlet: &'static str, metric: &'static str, share: u64, seconds: u64) -> Kind {
    Kind { servlet, metric, share, limit: Duration::from_secs(seconds) }
}

pub const ORDER: usize = 0;
pub const CANCEL: usize = 1;
pub const ACCOUNT: usize = 3;
pub const SCHEDULE: usize = 4;
pub const ADVANCE: usize = 5;
pub const DELIVER: usize = 6;
/// Dealers' operations, then the factory's and the suppliers'. A work order has three stations, and one order in ten has one of its own.
pub const KINDS: [Kind; 7] = [
    kind("Order", "order", 10, 2),
    kind("Cancel", "cancel", 4, 2),
    kind("Browse", "browse", 4, 2),
    kind("Account", "account", 2, 2),
    kind("Schedule", "schedule", 13, 5),
    kind("Advance", "advance", 42, 5),
    kind("Deliver", "deliver", 5, 5),
];
/// The first of them.
const OF_DEALERS: usize = 4;
pub const SERVLETS: [&str; KINDS.len()] = {
    let mut names = [""; KINDS.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = KINDS[n].servlet;
        n += 1;
    }
    names
};
/// All requests for each one of a dealer: 80 / 20.
pub const REQUESTS_PER_DEALER: f64 = 4.0;
/// Items of most lines, and of the large ones, which are built.
const QUANTITY: u64 = 10;
const LARGE: (u64, u64) = (200, 100);
const STATIONS: u64 = 3;

/// The business's operations in the window: those of dealers, and complete work orders.
pub fn business(calls: &[CallTally]) -> u64 {
    let dealers: u64 = calls.iter().take(OF_DEALERS).map(|calls| calls.counted).sum();
    dealers + calls.get(ADVANCE).map_or(0, |calls| calls.counted_first.unsigned_abs())
}

/// The requests of clients.
pub struct Requests {
    pub dealers: u32,
}

impl Calls for Requests {
    fn draw(&self, rng: &mut SplitMix64) -> Call {
        let mut at = rng.below(KINDS.iter().map(|kind| kind.share).sum());
        let kind = KINDS.iter().position(|kind| {
            let is_here = at < kind.share;
            at = at.saturating_sub(kind.share);
            is_here
        });
        Call { kind: kind.unwrap_or(0), seed: rng.next() }
    }

    fn name(&self, kind: usize) -> &'static str {
        KINDS[kind].servlet
    }

    fn write(&self, call: Call, host: &str, close: bool) -> Vec<u8> {
        let mut rng = SplitMix64::stream(call.seed, "");
        let dealer = 1 + rng.below(u64::from(self.dealers));
        let form = match call.kind {
            ORDER => format!("dealer={dealer}&items={}", items(&mut rng)),
            SCHEDULE => format!("item={}&quantity={}", 1 + rng.below(ITEMS), 3 + rng.below(QUANTITY)),
            ADVANCE => format!("station={}", rng.below(STATIONS)),
            DELIVER => String::new(),
            CANCEL | ACCOUNT => format!("dealer={dealer}"),
            _ => format!("dealer={dealer}&item={}", 1 + rng.below(ITEMS)),
        };
        let session = if call.kind < OF_DEALERS { format!("JSESSIONID=dealer{dealer}") } else { String::new() };
        http::post(host, &format!("/{}", KINDS[call.kind].servlet), &session, &form, close)
    }
}

/// One to five lines; one order in ten has a large one.
fn items(rng: &mut SplitMix64) -> String {
    let lines = 1 + rng.below(COMPONENTS_OF);
    let large = rng.below(10) == 0;
    let line = |n: u64, rng: &mut SplitMix64| {
        let item = 1 + rng.below(ITEMS);
        let quantity = if large && n == 0 { LARGE.0 + rng.below(LARGE.1) } else { 1 + rng.below(QUANTITY) };
        format!("{item}x{quantity}")
    };
    (0..lines).map(|n| line(n, rng)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_keep_their_shares_and_depend_on_their_draw() {
        let (requests, mut rng) = (Requests { dealers: 50 }, SplitMix64::stream(7, "x"));
        let calls: Vec<Call> = (0..80_000).map(|_| requests.draw(&mut rng)).collect();
        for (n, kind) in KINDS.iter().enumerate() {
            let found = calls.iter().filter(|call| call.kind == n).count() as f64 / 1000.0;
            assert!((found - kind.share as f64).abs() < 1.0, "{}: {found}", kind.servlet);
        }
        let text = |call| String::from_utf8(requests.write(call, "h", false)).unwrap();
        for call in &calls[..200] {
            let (text, kind) = (text(*call), KINDS[call.kind]);
            assert_eq!(text, again(&requests, *call));
            assert!(text.starts_with(&format!("POST /{} HTTP/1.1\r\nHost: h\r\n", kind.servlet)), "{text}");
            assert_eq!(text.contains("\r\nCookie: JSESSIONID=dealer"), call.kind < OF_DEALERS, "{text}");
        }
        let (mut orders, mut large) = (0.0, 0.0);
        for call in calls.iter().filter(|call| call.kind == ORDER) {
            let text = text(*call);
            let lines = text.rsplit_once("items=").unwrap().1.split(',');
            let quantities: Vec<u64> = lines.map(|line| line.split_once('x').unwrap().1.parse().unwrap()).collect();
            assert!((1..=5).contains(&quantities.len()), "{text}");
            orders += 1.0;
            large += f64::from(u32::from(quantities.iter().any(|n| *n > 100)));
        }
        assert!((large / orders - 0.1_f64).abs() < 0.02, "{large} of {orders}");
    }

    fn again(requests: &Requests, call: Call) -> String {
        String::from_utf8(requests.write(call, "h", false)).unwrap()
    }
}
