use super::*;
use crate::config::Config;
use crate::driver::arrivals;
use crate::driver::fixture;
use crate::driver::fixture::Plain;
use crate::random::Constants;
use bigiron_model::clock::Clock;
use bigiron_sys::load::Histogram;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn dates() -> Dates {
    Dates::new(0, (0, 1))
}

fn answer(request: &Request) -> Output {
    match &request.input {
        i if i.must_roll_back() => Output::RolledBack,
        Input::NewOrder { .. } => Output::NewOrder { order: 3001, total: 1 },
        Input::Payment { .. } => Output::Payment { customer: 1, balance: 0 },
        Input::OrderStatus { .. } => Output::OrderStatus { customer: 1, balance: 0, order: 1, lines: 5 },
        Input::Delivery { .. } => Output::Delivery { delivered: 10 },
        Input::StockLevel { .. } => Output::StockLevel { low: 0 },
    }
}

/// A server with a service time for each request, which freezes from `freeze.0` to `freeze.1`, and a simulated clock.
fn simulate<U: User>(
    scheduler: &mut ConnectionScheduler<U>,
    service: u64,
    freeze: (u64, u64),
    end: u64,
) -> Vec<(u64, AnsweredRequest)> {
    let (mut now, mut done) = (0, Vec::new());
    // By connection: when its response arrives.
    let mut busy: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    loop {
        scheduler.pass(now);
        while let Some(lane) = scheduler.dispatch() {
            let begins = if (freeze.0..freeze.1).contains(&now) { freeze.1 } else { now };
            let ends = begins + service;
            busy.push(Reverse((
                if begins < freeze.0 && ends > freeze.0 { ends + freeze.1 - freeze.0 } else { ends },
                lane,
            )));
        }
        let answer_at = busy.peek().map(|Reverse((at, _))| *at);
        now = match [answer_at, scheduler.next_event()].into_iter().flatten().min() {
            Some(at) if at <= end => at.max(now),
            _ => return done,
        };
        while let Some(&Reverse((at, lane))) = busy.peek()
            && at <= now
        {
            busy.pop();
            let output = answer(scheduler.request(lane));
            match scheduler.ended(lane, now, Ok(output)) {
                RequestEnd::Done(d) => done.push((now, d)),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn terminals(config: &Config) -> Vec<Terminal> {
    let constants = Constants::new(7);
    (0..config.terminals).map(|n| Terminal::new(config, &constants, 7, n)).collect()
}

fn closed(config: &Config) -> ConnectionScheduler<Terminal> {
    let first = (0..config.terminals).map(|n| arrivals::first(config, 7, n)).collect();
    ConnectionScheduler::new(terminals(config), config.connections as usize, Demand::Closed { first }, dates())
}

#[test]
fn an_open_loop_sees_a_freeze_of_two_seconds_and_a_closed_one_does_not() {
    let freeze = (6 * S, 8 * S);
    let config = fixture::job(&[("rate", "200"), ("connections", "8")]).config(Clock::Wall, 2);
    let demand = Demand::Open(arrivals::arrivals(7, (0, 1), 200.0, 0));
    let mut scheduler = ConnectionScheduler::new(terminals(&config), 8, demand, dates());
    let open = simulate(&mut scheduler, 5 * MS, freeze, 16 * S);
    let slow = |done: &[(u64, AnsweredRequest)]| {
        done.iter().filter(|(_, d)| d.latency > 500 * MS).count() as f64 / done.len() as f64
    };
    // Requests that arrive in the first 1.5 s of 2 wait longer than half a second: 300 of 3200.
    let expected = 1.5 / 16.0;
    assert!(slow(&open) > expected * 0.9, "{}", slow(&open));
    assert!(open.iter().map(|(_, d)| d.latency).max().unwrap() > 1_900 * MS);
    // Nothing was lost: all that arrived in 16 s, except those still in progress.
    let mut arrivals = arrivals::arrivals(7, (0, 1), 200.0, 0);
    let arrived = std::iter::from_fn(|| Some(arrivals.take()).filter(|at| *at <= 16 * S)).count();
    assert!(arrived - open.len() <= 8, "{arrived} {}", open.len());
    assert!(scheduler.longest_queue() > 300);
    // Eight terminals that wait for their responses: eight slow ones.
    let closed_loop =
        simulate(&mut closed(&fixture::job(&[("connections", "8")]).config(Clock::Wall, 2)), 5 * MS, freeze, 16 * S);
    assert!(slow(&closed_loop) < 0.001);
}

#[test]
fn overload_queues_without_loss_and_is_counted() {
    // 400 arrivals per second, of which 2 connections of 10 ms serve 200.
    let users = (1..=3).map(|number| Plain { number, think: Duration::ZERO });
    let mut scheduler =
        ConnectionScheduler::new(users, 2, Demand::Open(arrivals::arrivals(1, (0, 1), 400.0, 0)), dates());
    let done = simulate(&mut scheduler, 10 * MS, (0, 0), 10 * S);
    assert!((1_990..=2_000).contains(&done.len()), "{}", done.len());
    assert!((1_800..2_200).contains(&scheduler.waiting()), "{}", scheduler.waiting());
    // Latency grows with the queue: about half of the elapsed time.
    let last = &done.last().unwrap().1;
    assert!((4 * S..6 * S).contains(&last.latency), "{}", last.latency);
    // In the order of their arrival, users in turn.
    let districts: Vec<_> = done.iter().map(|(_, d)| d.request.input.clone()).collect();
    for (i, input) in districts.iter().enumerate() {
        assert!(matches!(input, Input::StockLevel { district, .. } if *district == i as u32 % 3 + 1));
    }
    assert!(done.windows(2).all(|w| w[0].1.request.date < w[1].1.request.date));
}

#[test]
fn a_thousand_terminals_think_on_eight_connections() {
    let config = fixture::job(&[("terminals", "1000"), ("connections", "8"), ("think", "spec"), ("keying", "spec")])
        .config(Clock::Wall, 2);
    let mut scheduler = closed(&config);
    let done = simulate(&mut scheduler, MS, (0, 0), 420 * S);
    // Little's law: 1000 users, each with a cycle of 20.99 s and a millisecond of service.
    let rate = done.len() as f64 / 420.0;
    assert!((rate / (1000.0 / 20.991) - 1.0).abs() < 0.03, "{rate}");
    assert!(scheduler.longest_queue() < 100, "{}", scheduler.longest_queue());
    let mut latency = Histogram::new();
    done.iter().for_each(|(_, d)| latency.record(d.latency));
    // 5 % of the connections' time: hardly any request waits.
    assert!(latency.quantile(0.9).unwrap() < 2 * MS);
    // The mix, five standard errors of a binomial share.
    for kind in TransactionKind::ALL {
        let share = done.iter().filter(|(_, d)| d.request.input.kind() == kind).count() as f64 / done.len() as f64;
        let p = f64::from(config.mix[kind.index()]) / 1000.0;
        // Terminals with a keying time of 18 s rarely issue requests at first, so that the first cycles favour the others.
        let tolerance = 5.0 * (p * (1.0 - p) / done.len() as f64).sqrt() + 0.01;
        assert!((share - p).abs() < tolerance, "{} {share}", kind.name());
    }
    // No user has two requests at once, and each has been served.
    assert!(scheduler.in_flight() <= 8);
}

#[test]
fn the_same_seed_does_the_same_at_the_same_times() {
    let run = || {
        let config =
            fixture::job(&[("terminals", "50"), ("connections", "4"), ("think", "0.01")]).config(Clock::Wall, 2);
        simulate(&mut closed(&config), 3 * MS, (0, 0), 5 * S)
    };
    let (a, b) = (run(), run());
    assert!(a.len() > 1_000);
    assert_eq!(a, b);
}

#[test]
fn events_of_the_same_time_go_in_the_order_of_the_terminals() {
    let users = (1..=5).map(|number| Plain { number, think: Duration::from_nanos(S) });
    let first = vec![7, 3, 7, 3, 5];
    let mut scheduler = ConnectionScheduler::new(users, 1, Demand::Closed { first }, dates());
    let done = simulate(&mut scheduler, MS, (0, 0), 20 * MS);
    let order: Vec<_> = done
        .iter()
        .map(|(_, d)| match d.request.input {
            Input::StockLevel { district, .. } => district,
            _ => unreachable!(),
        })
        .collect();
    assert_eq!(order, [2, 4, 5, 1, 3]);
    assert_eq!(done.iter().map(|(_, d)| d.latency).collect::<Vec<_>>()[..2], [MS, 2 * MS]);
}

#[test]
fn a_terminal_with_a_connection_of_its_own_keeps_it() {
    let users = (1..=3).map(|number| Plain { number, think: Duration::from_nanos(number.into()) });
    let mut scheduler = ConnectionScheduler::new(users, 4, Demand::Closed { first: vec![0, 0, 0] }, dates());
    for now in 0..50 {
        scheduler.pass(now);
        let lanes: Vec<_> = std::iter::from_fn(|| scheduler.dispatch()).collect();
        for lane in lanes {
            assert!(
                matches!(scheduler.request(lane).input, Input::StockLevel { district, .. } if district as usize == lane + 1)
            );
            assert!(matches!(scheduler.ended(lane, now, Ok(Output::StockLevel { low: 0 })), RequestEnd::Done(_)));
        }
    }
}

#[test]
fn retries_keep_the_request_and_its_beginning_and_end_after_ten() {
    let retry = || Err(TransactionError::Retry("40P01 deadlock".to_owned()));
    let users = [Plain { number: 1, think: Duration::ZERO }];
    let mut scheduler = ConnectionScheduler::new(users, 1, Demand::Closed { first: vec![100] }, dates());
    scheduler.pass(100);
    let lane = scheduler.dispatch().unwrap();
    let request = scheduler.request(lane).clone();
    for n in 1..=RETRIES {
        assert_eq!(scheduler.ended(lane, 100 + u64::from(n), retry()), RequestEnd::Again);
        assert_eq!((scheduler.request(lane), scheduler.in_flight()), (&request, 1));
    }
    let done = scheduler.ended(lane, 500, Ok(Output::StockLevel { low: 3 }));
    assert_eq!(
        done,
        RequestEnd::Done(AnsweredRequest { request, output: Output::StockLevel { low: 3 }, latency: 400, retries: 10 })
    );
    scheduler.pass(500);
    let lane = scheduler.dispatch().unwrap();
    for _ in 0..RETRIES {
        assert_eq!(scheduler.ended(lane, 600, retry()), RequestEnd::Again);
    }
    match scheduler.ended(lane, 600, retry()) {
        RequestEnd::Failed { kind: TransactionKind::StockLevel, why } => {
            assert_eq!(why, "40P01 deadlock; tried again 10 times");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_sent_to_a_server_that_is_gone_is_in_doubt_and_the_rest_never_began() {
    let users = (1..=4).map(|number| Plain { number, think: Duration::ZERO });
    let mut scheduler = ConnectionScheduler::new(users, 2, Demand::Closed { first: vec![0; 4] }, dates());
    scheduler.pass(0);
    let lanes = [scheduler.dispatch().unwrap(), scheduler.dispatch().unwrap()];
    assert_eq!((scheduler.dispatch(), scheduler.in_flight(), scheduler.waiting()), (None, 2, 2));
    scheduler.stop();
    for lane in lanes {
        let request = scheduler.request(lane).clone();
        let gone = Err(TransactionError::Disconnected("reset".to_owned()));
        assert_eq!(scheduler.ended(lane, 9, gone), RequestEnd::InDoubt { request, why: "reset".to_owned() });
    }
    scheduler.pass(20);
    assert_eq!((scheduler.dispatch(), scheduler.in_flight(), scheduler.next_event()), (None, 0, None));
}
