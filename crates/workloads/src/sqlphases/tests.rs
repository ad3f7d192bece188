use bigiron_model::clock::Clock;

use super::*;
use bigiron_workload::testing;

fn settings(options: &[(&str, &str)]) -> Result<Settings, String> {
    let options = testing::options(&SqlPhases, options.iter().copied())?;
    Settings::parse(&options, Clock::Exact)
}

/// Runs a trial with a database in a temporary folder.
fn run(options: &[(&str, &str)]) -> Result<WorkloadResult> {
    let home = tempfile::tempdir().unwrap();
    let settings = settings(options).unwrap();
    let cx = testing::context(home.path());
    let mut running = settings.prepare(&cx)?;
    let outcome = running.run(&cx)?;
    running.verify(&cx)?;
    Ok(outcome)
}

#[test]
fn every_engine_gives_the_expected_answers_to_the_same_statements() {
    let counts = ["sqlite", "postgres", "mariadb"].map(|engine| {
        let outcome = run(&[("engine", engine), ("rows", "100")]).unwrap();
        let declared = settings(&[("engine", engine)]).unwrap().metrics();
        assert_eq!(declared.len(), outcome.values.len(), "{engine}");
        assert!(declared.iter().all(|def| def.kind.takes(outcome.values[&def.name])), "{:?}", outcome.values);
        let sum: f64 = phase::ALL.iter().map(|phase| outcome.values[phase.name]).sum();
        assert!((sum - outcome.values[PRIMARY]).abs() < 1.0);
        assert_eq!(outcome.facts["durability"], "every commit is synced");
        phase::ALL
            .iter()
            .map(|p| outcome.facts[&format!("phase.{}", p.name)].split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    });
    assert_eq!(counts[0], counts[1]);
    assert_eq!(counts[0], counts[2]);
}

#[test]
fn each_phase_runs_alone_with_the_statements_that_it_has_among_others() {
    let all = run(&[("engine", "sqlite"), ("rows", "200")]).unwrap();
    for phase in phase::ALL {
        let (option, name) = SqlPhases.alone(phase.name).unwrap();
        let alone = run(&[("engine", "sqlite"), ("rows", "200"), (option, &name)]).unwrap();
        assert_eq!(alone.values.len(), 3, "{:?}", alone.values);
        let count = |outcome: &WorkloadResult| {
            outcome.facts[&format!("phase.{}", phase.name)].split(' ').next().unwrap().to_owned()
        };
        assert_eq!(count(&alone), count(&all), "{}", phase.name);
    }
    assert!(SqlPhases.alone(PRIMARY).is_none());
}

#[test]
fn an_answer_that_is_wrong_is_wrong_data() {
    let home = tempfile::tempdir().unwrap();
    let settings = settings(&[("engine", "sqlite")]).unwrap();
    let cx = testing::context(home.path());
    let database = PrivateDatabase::open(&cx, &settings.engine, &settings.sizing(&cx), FILE).unwrap();
    let mut session = Session::begin(&database, 100, 7, "insert").unwrap();
    writing::empty_table(&mut session).unwrap();
    writing::insert(&mut session).unwrap();
    session.run("DELETE FROM bench1 WHERE id = 99").unwrap();
    let wrong = writing::inserted(&mut session).unwrap_err();
    assert_eq!(
        wrong.downcast_ref::<WrongData>().unwrap().to_string(),
        "[Integer(99)] instead of 100: SELECT count(*) FROM bench1"
    );
    let wrong = session.refused("INSERT INTO bench1 VALUES (99, 99, 9, 'again')").unwrap_err();
    assert!(wrong.to_string().starts_with("A duplicate key was accepted"), "{wrong}");
    let other = session.refused("INSERT INTO bench1 VALUES (1)").unwrap_err();
    assert!(!other.is::<WrongData>(), "{other:#}");
    // It stays wrong data, whatever is said about where it was found.
    let planted = phase::Phase { finish: |session| session.number("SELECT 1", 2), ..phase::ALL[0] };
    let lost = Trial {
        settings: &settings,
        database: PrivateDatabase::open(&cx, &settings.engine, &settings.sizing(&cx), "other").unwrap(),
    }
    .phase(&planted, 7)
    .err()
    .unwrap();
    assert!(lost.is::<WrongData>() && lost.to_string() == "While checking its tables", "{lost:#}");
    let few = session.rows("SELECT * FROM bench1 WHERE id < 10", 11).unwrap_err();
    assert!(few.is::<WrongData>() && few.to_string().starts_with("10 rows instead of 11"), "{few}");
}

#[test]
fn options_that_cannot_be_are_refused_in_words() {
    for (options, says) in [
        (&[("rows", "150")][..], "`sqlphases.rows` cannot be `150`; it can be a multiple of 100 from 100"),
        (&[("phases", "select,sort")], "`connect`, `create`, `insert`"),
        (&[("phases", "select,select")], "each once"),
        (&[("version", "10.11")], "PostgreSQL's major version"),
        (&[("engine", "mariadb"), ("version", "15")], "MariaDB's series"),
        (&[("engine", "mariadb"), ("version", "ten.11")], "MariaDB's series"),
        (
            &[("engine", "sqlite"), ("transport", "tcp")],
            "`sqlphases.transport` has no effect with `sqlphases.engine` `sqlite`",
        ),
        (&[("journal", "rollback")], "`sqlphases.journal` has no effect with `sqlphases.engine` `postgres`"),
        (&[("engine", "sqlite"), ("postgres.fsync", "off")], "or set the engine to `postgres`"),
        (&[("shared_buffers", "1GB")], "did you mean `sqlphases.postgres.shared_buffers`?"),
        (&[("row", "100")], "did you mean `sqlphases.rows`?"),
        (&[("postgres.port", "1")], "sets `port` itself"),
    ] {
        let refused = settings(options).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
    let weak = settings(&[("postgres.fsync", "off")]).unwrap();
    assert_eq!(weak.engine.weakened().len(), 1);
}
