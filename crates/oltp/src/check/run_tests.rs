//! The requests of real terminals on a loaded database pass every check.

use super::super::config::{Config, Engine as Kind, Mode, Pace, RunLength};
use super::super::input::Request;
use super::super::ledger::{Account, Entry};
use super::super::load;
use super::super::output::Output;
use super::super::random::Constants;
use super::super::scale::Scale;
use super::super::sqlite::{Engine, Options, Transact as _};
use super::super::terminal::Terminal;
use super::*;
use bigiron_sql::sqlite::SqliteJournal;

#[test]
fn a_run_on_a_loaded_database_passes() {
    let config = Config {
        engine: Kind::Sqlite { journal: SqliteJournal::Wal },
        mode: Mode::Procedures,
        scale: Scale { warehouses: 2 },
        part: (1, 1),
        touched: (1, 2),
        connections: 1,
        terminals: 20,
        drivers: 1,
        mix: [450, 430, 40, 40, 40],
        pace: Pace::Closed { keying: 0.0, think: 0.0 },
        ramp: RunLength::Operations(0),
        length: RunLength::Operations(2000),
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("oltp.db");
    load::sqlite(&path, config.scale, false, &|_, _, _| ()).unwrap();
    let mut engine = Engine::open_with(&path, &Options::new(SqliteJournal::Wal)).unwrap();
    let before = conditions(&mut engine, true).unwrap();
    assert!(before.passed(), "{before:#?}");

    let marks = Marks::take(&mut engine).unwrap();
    let asked = server_new_orders(&mut engine).unwrap();
    let constants = Constants::new(7);
    let mut terminals: Vec<Terminal> = (0..20).map(|number| Terminal::new(&config, &constants, 7, number)).collect();
    let mut account = Account::default();
    let mut new_orders = 0;
    for number in 0..2000 {
        let request = Request { input: terminals[number % 20].next(), date: marks.latest + 1 + number as i64 };
        let output = engine.transact(&request).unwrap();
        assert_eq!(output == Output::RolledBack, request.input.must_roll_back());
        new_orders += u64::from(matches!(output, Output::NewOrder { .. }));
        account.entries.extend(Entry::answered(&request, &output));
    }
    assert_eq!(server_new_orders(&mut engine).unwrap() - asked, new_orders);
    for report in [
        conditions(&mut engine, false).unwrap(),
        audit(&mut engine, &marks).unwrap(),
        prove(&mut engine, &marks, &account).unwrap(),
    ] {
        assert!(report.passed(), "{report:#?}");
        assert!(!report.checks.iter().any(|check| matches!(check.outcome, CheckOutcome::TooFew { .. })), "{report:#?}");
    }
}
