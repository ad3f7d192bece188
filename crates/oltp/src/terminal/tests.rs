use super::super::config::{Engine, Mode, RunLength};
use super::super::scale::Scale;
use super::*;
use bigiron_sql::sqlite::SqliteJournal;

fn config(warehouses: u32, touched: (u32, u32), terminals: u32) -> Config {
    Config {
        engine: Engine::Sqlite { journal: SqliteJournal::Wal },
        mode: Mode::Procedures,
        scale: Scale { warehouses },
        touched,
        part: (1, 1),
        connections: 1,
        terminals,
        drivers: 1,
        mix: [450, 430, 40, 40, 40],
        pace: Pace::Closed { keying: 1.0, think: 1.0 },
        ramp: RunLength::Operations(0),
        length: RunLength::Operations(1),
    }
}

/// The inputs of every terminal, `each` of each.
fn inputs(config: &Config, seed: u64, each: usize) -> Vec<Input> {
    let constants = Constants::new(seed);
    (0..config.terminals)
        .flat_map(|number| {
            let mut terminal = Terminal::new(config, &constants, seed, number);
            (0..each).map(move |_| terminal.next())
        })
        .collect()
}

/// `part` of `whole` in per cent.
fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// The audit of clause 9.2.2.5, for several seeds.
#[test]
fn inputs_pass_the_audit() {
    for seed in [1, 2, 77] {
        let inputs = inputs(&config(10, (1, 10), 100), seed, 3000);
        let mut customers = [0u32; CUSTOMERS as usize + 1];
        let (mut kinds, mut lines, mut remote_lines, mut roll_backs) = ([0; 5], 0, 0, 0);
        let (mut remote_payments, mut named, mut by_name) = (0, 0, 0);
        let mut sizes = [0; 16];
        for input in &inputs {
            kinds[input.kind().index()] += 1;
            roll_backs += usize::from(input.must_roll_back());
            let mut name = |customer: &Customer| {
                named += 1;
                by_name += usize::from(matches!(customer, Customer::LastName(_)));
            };
            match input {
                Input::NewOrder { warehouse, customer, lines: all, .. } => {
                    customers[*customer as usize] += 1;
                    sizes[all.len()] += 1;
                    lines += all.len();
                    remote_lines += all.iter().filter(|l| l.supply_warehouse != *warehouse).count();
                }
                Input::Payment { warehouse, customer_warehouse, customer, .. } => {
                    remote_payments += usize::from(warehouse != customer_warehouse);
                    name(customer);
                }
                Input::OrderStatus { customer, .. } => name(customer),
                Input::Delivery { .. } | Input::StockLevel { .. } => {}
            }
        }
        for (count, per_mille) in kinds.iter().zip([450, 430, 40, 40, 40]) {
            assert!((share(*count, inputs.len()) - f64::from(per_mille) / 10.0).abs() < 1.0, "{kinds:?}");
        }
        let orders = kinds[TransactionKind::NewOrder.index()];
        assert!((0.9..=1.1).contains(&share(roll_backs, orders)), "{roll_backs} of {orders}");
        assert!((0.95..=1.05).contains(&share(remote_lines, lines)), "{remote_lines} of {lines}");
        let payments = kinds[TransactionKind::Payment.index()];
        assert!((14.0..=16.0).contains(&share(remote_payments, payments)), "{remote_payments} of {payments}");
        assert!((57.0..=63.0).contains(&share(by_name, named)), "{by_name} of {named}");
        assert!((9.9..=10.1).contains(&(lines as f64 / orders as f64)), "{lines} of {orders}");
        assert!(sizes[..5].iter().all(|&n| n == 0) && sizes[5..].iter().all(|&n| n > orders / 13), "{sizes:?}");
        customers.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = customers[..CUSTOMERS as usize / 10].iter().sum();
        assert!((60.0..=64.0).contains(&share(top as usize, orders)), "{top} of {orders}");
    }
}

#[test]
fn values_are_in_range_and_reach_their_ends() {
    let mut seen = [(u32::MAX, 0); 7];
    let mut within = |slot: usize, value: u32, low: u32, high: u32| {
        assert!((low..=high).contains(&value), "{slot}: {value}");
        seen[slot] = (seen[slot].0.min(value), seen[slot].1.max(value));
    };
    for input in inputs(&config(4, (1, 4), 40), 5, 5000) {
        let check_customer = |customer: &Customer| match *customer {
            Customer::Id(id) => assert!((1..=CUSTOMERS).contains(&id)),
            Customer::LastName(name) => assert!(name < 1000),
        };
        match &input {
            Input::NewOrder { warehouse, district, customer, lines } => {
                within(0, *warehouse, 1, 4);
                within(1, *district, 1, 10);
                assert!((1..=CUSTOMERS).contains(customer));
                let (last, others) = lines.split_last().unwrap();
                assert!((1..=UNUSED_ITEM).contains(&last.item));
                assert!(others.iter().all(|line| (1..=ITEMS).contains(&line.item)));
                for line in lines {
                    within(2, line.supply_warehouse, 1, 4);
                    within(3, line.quantity, 1, 10);
                }
            }
            Input::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } => {
                within(4, *customer_warehouse, 1, 4);
                assert!((1..=10).contains(customer_district));
                assert!(warehouse != customer_warehouse || district == customer_district);
                assert!((100..=500_000).contains(amount));
                check_customer(customer);
            }
            Input::OrderStatus { customer, .. } => check_customer(customer),
            Input::Delivery { carrier, .. } => within(5, *carrier, 1, 10),
            Input::StockLevel { threshold, .. } => within(6, *threshold, 10, 20),
        }
    }
    assert_eq!(seen, [(1, 4), (1, 10), (1, 4), (1, 10), (1, 4), (1, 10), (10, 20)]);
}

/// The warehouses that an input uses.
fn touched(input: &Input) -> Vec<u32> {
    match input {
        Input::NewOrder { warehouse, lines, .. } => {
            lines.iter().map(|l| l.supply_warehouse).chain([*warehouse]).collect()
        }
        Input::Payment { warehouse, customer_warehouse, .. } => vec![*warehouse, *customer_warehouse],
        Input::OrderStatus { warehouse, .. }
        | Input::Delivery { warehouse, .. }
        | Input::StockLevel { warehouse, .. } => {
            vec![*warehouse]
        }
    }
}

#[test]
fn what_is_not_to_be_touched_is_left_alone() {
    let mut reached = [false; 21];
    for input in inputs(&config(20, (6, 9), 10), 3, 2000) {
        touched(&input).into_iter().for_each(|w| reached[w as usize] = true);
    }
    let reached: Vec<usize> = (0..21).filter(|&w| reached[w]).collect();
    assert_eq!(reached, [6, 7, 8, 9]);
}

#[test]
fn one_warehouse_has_nothing_remote() {
    for (warehouses, range) in [(1, (1, 1)), (8, (5, 5))] {
        for input in inputs(&config(warehouses, range, 3), 3, 3000) {
            assert!(touched(&input).iter().all(|&w| w == range.0));
        }
    }
}

#[test]
fn homes_and_districts_are_spread_evenly() {
    let home = |config: &Config, number| Terminal::new(config, &Constants::new(1), 1, number).home();
    let ten_each = config(5, (1, 5), 50);
    let mut places = Vec::new();
    for number in 0..50 {
        let mut terminal = Terminal::new(&ten_each, &Constants::new(1), 1, number);
        assert_eq!(terminal.home().count(), 1);
        let levels: Vec<(u32, u32)> = std::iter::from_fn(|| Some(terminal.next()))
            .filter_map(|input| match input {
                Input::StockLevel { warehouse, district, .. } => Some((warehouse, district)),
                _ => None,
            })
            .take(5)
            .collect();
        assert!(levels.iter().all(|level| *level == levels[0]));
        places.push(levels[0]);
    }
    places.sort_unstable();
    let all: Vec<(u32, u32)> = (1..=5).flat_map(|w| (1..=10).map(move |d| (w, d))).collect();
    assert_eq!(places, all);

    // Fewer terminals than warehouses: adjacent ranges without a gap.
    let few = config(100, (3, 98), 10);
    let mut next = 3;
    for number in 0..10 {
        let home = home(&few, number);
        assert_eq!(*home.start(), next);
        assert!((9..=10).contains(&home.clone().count()));
        next = home.end() + 1;
    }
    assert_eq!(next, 99);
    let reached: std::collections::HashSet<u32> =
        inputs(&few, 9, 300).iter().map(|i| *touched(i).last().unwrap()).collect();
    assert!(reached.len() > 90);
}

#[test]
fn inputs_are_the_terminals_own_and_no_paces_business() {
    let fast = config(3, (1, 3), 4);
    let slow = Config { pace: Pace::Open { rate: 12.0 }, ..fast.clone() };
    let constants = Constants::new(8);
    let mut a = Terminal::new(&fast, &constants, 8, 2);
    let mut b = Terminal::new(&slow, &constants, 8, 2);
    let mut other = Terminal::new(&fast, &constants, 8, 1);
    let (mut same, mut like_other) = (0, 0);
    for _ in 0..200 {
        let input = a.next();
        a.think(input.kind());
        let also = b.next();
        same += usize::from(input == also);
        like_other += usize::from(input == other.next());
    }
    assert_eq!(same, 200);
    assert!(like_other < 20, "{like_other}");
}

#[test]
fn think_times_are_exponential_and_cut() {
    let mut terminal = Terminal::new(&config(1, (1, 1), 1), &Constants::new(1), 1, 0);
    let times: Vec<f64> = (0..200_000).map(|_| terminal.think(TransactionKind::NewOrder).as_secs_f64()).collect();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    assert!((11.9..=12.1).contains(&mean), "{mean}");
    assert!(times.iter().all(|&t| t <= 120.0));
    let beyond = times.iter().filter(|&&t| t > 12.0).count();
    assert!((share(beyond, times.len()) - 36.8).abs() < 0.5, "{beyond}");
    assert_eq!(terminal.keying(TransactionKind::NewOrder), Duration::from_secs(18));

    for (pace, keying) in [
        (Pace::Closed { keying: 0.5, think: 0.0 }, Duration::from_millis(1500)),
        (Pace::Open { rate: 1.0 }, Duration::ZERO),
    ] {
        let mut terminal = Terminal::new(&Config { pace, ..config(1, (1, 1), 1) }, &Constants::new(1), 1, 0);
        assert_eq!(terminal.think(TransactionKind::Delivery), Duration::ZERO);
        assert_eq!(terminal.keying(TransactionKind::Payment), keying);
    }
}

#[test]
fn a_mix_may_leave_kinds_out() {
    let mut config = config(2, (1, 2), 2);
    config.mix = [0, 0, 1000, 0, 0];
    assert!(inputs(&config, 1, 500).iter().all(|i| i.kind() == TransactionKind::OrderStatus));
}

#[test]
fn parts_are_at_home_in_ranges_of_their_own_and_go_to_all_warehouses() {
    let whole = config(9, (2, 8), 6);
    let parts: Vec<Config> = (1..=3).map(|part| Config { part: (part, 3), ..whole.clone() }).collect();
    assert_eq!(parts.iter().map(Config::homes).collect::<Vec<_>>(), [(2, 3), (4, 5), (6, 8)]);
    let mut streams = Vec::new();
    for part in &parts {
        let homes = part.homes();
        let asked = inputs(part, part.seed_of_part(7), 2000);
        let mut remote = std::collections::BTreeSet::new();
        for input in &asked {
            if let Input::Payment { warehouse, customer_warehouse, .. } = input {
                assert!((homes.0..=homes.1).contains(warehouse));
                remote.insert(*customer_warehouse);
            }
        }
        assert_eq!(remote.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8]);
        streams.push(asked.into_iter().filter(|i| i.kind() == TransactionKind::NewOrder).take(20).collect::<Vec<_>>());
    }
    assert!(streams[0] != streams[1] && streams[1] != streams[2]);
}
