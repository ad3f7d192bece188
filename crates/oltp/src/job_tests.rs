use super::*;
use crate::jobs::LIBRARY;
use crate::options::OPTIONS;
use bigiron_sql::server::Transport;

fn job(settings: &[(&str, &str)]) -> Result<Job, String> {
    let mut options: Options = OPTIONS.iter().map(|o| (o.name.to_owned(), o.default.to_owned())).collect();
    options.extend(settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    Job::parse(&options)
}

fn refusal(settings: &[(&str, &str)]) -> String {
    job(settings).unwrap_err()
}

#[test]
fn the_default_job_is_small_and_has_everything() {
    let job = job(&[]).unwrap();
    let config = job.config(Clock::Exact, 1);
    assert_eq!((config.scale.warehouses, config.connections, config.terminals, config.drivers), (1, 4, 4, 1));
    assert_eq!((config.ramp, config.length), (RunLength::Operations(500), RunLength::Operations(2000)));
    assert_eq!(config.mix, [450, 430, 40, 40, 40]);
    assert_eq!((config.pace, config.touched), (Pace::Closed { keying: 0.0, think: 0.0 }, (1, 1)));
    assert_eq!(config.engine, Engine::Postgres { version: 15, transport: Transport::Unix, settings: vec![] });
    assert!(matches!(job.config(Clock::Wall, 1).length, RunLength::Time(_)));
}

#[test]
fn every_shipped_job_is_a_job_and_claims_what_it_is_called() {
    let claims = LIBRARY.shipped.iter().map(|s| job(&[("job", s.name)]).unwrap().claim);
    assert_eq!(claims.collect::<Vec<_>>(), [None, Some(Claim::Cached), Some(Claim::Uncached), Some(Claim::Users)]);
}

#[test]
fn one_driver_for_two_cpus_but_never_more_than_connections() {
    let drivers = |settings: &[_], cpus| job(settings).unwrap().config(Clock::Wall, cpus).drivers;
    assert_eq!((drivers(&[], 1), drivers(&[], 2), drivers(&[], 5), drivers(&[], 64)), (1, 1, 2, 4));
    assert_eq!(drivers(&[("drivers", "3")], 1), 3);
}

#[test]
fn settings_are_the_jobs_then_the_options() {
    let job = job(&[("job", "cached"), ("postgres.shared_buffers", "1GB"), ("postgres.fsync", "off")]).unwrap();
    let Engine::Postgres { settings, .. } = &job.engine else { panic!() };
    let expected = [("shared_buffers", "1GB"), ("fsync", "off")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(settings[..], expected);
    let weak = job.engine.weakened();
    assert!(weak.len() == 1 && weak[0].starts_with("fsync=off ("), "{weak:?}");
}

#[test]
fn each_engine_has_its_own_version_and_settings() {
    let engine = |settings: &[_]| job(settings).unwrap().engine;
    let Engine::MariaDb { version, settings, .. } = engine(&[("job", "cached"), ("engine", "mariadb")]) else {
        panic!()
    };
    assert_eq!((version.as_str(), settings[0].0.as_str()), ("10.11", "innodb_buffer_pool_size"));
    assert!(
        matches!(engine(&[("engine", "mariadb"), ("version", "11.8")]), Engine::MariaDb { version, .. } if version == "11.8")
    );
    assert!(matches!(engine(&[("version", "17")]), Engine::Postgres { version: 17, .. }));
    for (settings, words) in [
        (&[("engine", "mariadb"), ("version", "11")][..], "MariaDB's series, such as 10.11 or 11.8"),
        (&[("version", "10.11")], "PostgreSQL's major version, a number from 9 to 99"),
        (&[("version", "new")], "`auto`, or a version such as `15` or `10.11`"),
        (&[("engine", "mariadb"), ("url", "postgresql://a/b")], "`none` with the engine `mariadb`"),
        (
            &[("engine", "mariadb"), ("postgres.fsync", "off")],
            "`oltp.postgres.fsync` is not a setting of this engine; its own are `oltp.mariadb.NAME`",
        ),
        (&[("mariadb.innodb_doublewrite", "off")], "its own are `oltp.postgres.NAME`"),
        (&[("engine", "sqlite"), ("postgres.fsync", "off")], "it has none of a server"),
        (&[("journal", "rollback")], "`oltp.journal` has no effect with `oltp.engine` `postgres`; omit it"),
        (&[("engine", "sqlite"), ("mode", "pipelined")], "`oltp.mode` has no effect with `oltp.engine` `sqlite`"),
        (&[("url", "postgresql://a/b"), ("transport", "tcp")], "`oltp.transport` has no effect with `oltp.url`"),
    ] {
        let said = refusal(settings);
        assert!(said.contains(words), "{settings:?}: {said}");
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_what_would_be_right() {
    for (settings, words) in [
        (&[("mix", "45/43/4/4/5")][..], "`oltp.mix` cannot be `45/43/4/4/5`; it can be five percentages"),
        (&[("warehouses", "0")], "a number from 1 to 100000"),
        (&[("warehouses", "3"), ("touched", "2..4")], "the first and the last of 3 warehouses"),
        (&[("part", "2")], "`K/N`"),
        (&[("warehouses", "2"), ("part", "1/2")], "without `oltp.url`"),
        (&[("url", "postgresql://a/b"), ("warehouses", "2"), ("part", "1/3")], "as many processes as warehouses"),
        (
            &[("url", "postgresql://a/b"), ("warehouses", "2"), ("part", "1/2"), ("length", "100")],
            "a time with `oltp.part`",
        ),
        (&[("terminals", "3")], "4 or more"),
        (&[("connections", "terminals")], "a number"),
        (&[("users", "100,200"), ("terminals", "7")], "`auto` only"),
        (&[("users", "2,4")], "at most 2"),
        (&[("users", "8,16"), ("rate", "10")], "closed loop"),
        (&[("rate", "10"), ("think", "spec")], "`off` with `oltp.rate`"),
        (&[("length", "0")], "1 transaction or more"),
        (&[("length", "soon")], "`auto`"),
        (&[("engine", "sqlite"), ("url", "postgresql://h/d")], "is not a server"),
        (&[("engine", "sqlite"), ("job", "uncached")], "no shared buffers"),
        (&[("url", "mysql://u:secret@h/d")], "`postgresql://USER"),
        (&[("url", "postgresql://h/d"), ("postgres.fsync", "on")], "cannot be set on an existing server"),
        (&[("job", "cahced")], "did you mean `cached`?"),
        (&[("limits", "5")], "`5/5/5/5/20`"),
        (&[("postgres.jit", "on\nport = 1")], "control character"),
    ] {
        let refused = refusal(settings);
        assert!(refused.contains(words), "{settings:?}: {refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
}

#[test]
fn a_ramp_of_users_has_a_connection_each() {
    let job = job(&[("job", "oast"), ("users", "10..30:10")]).unwrap();
    let steps: Vec<_> = job.users.iter().map(|u| job.config_for(*u, Clock::Wall, 2)).collect();
    assert_eq!(steps.iter().map(|c| (c.terminals, c.connections)).collect::<Vec<_>>(), [(10, 10), (20, 20), (30, 30)]);
    assert_eq!(job.config(Clock::Wall, 2), steps[2]);
}

#[test]
fn a_job_file_says_what_differs_and_its_lines_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let path = path.to_str().unwrap();
    std::fs::write(path, "oltp = 1\nwarehouses = 3\nmix = \"100/0/0/0/0\"\n[postgres]\nfsync = false\n").unwrap();
    let mine = job(&[("job", path)]).unwrap();
    assert_eq!((mine.name.as_str(), mine.scale.warehouses, mine.mix[0]), ("mine", 3, 1000));
    assert_eq!(mine.engine.weakened().len(), 1);
    let embedded = crate::jobs::embed(path).unwrap();
    std::fs::write(path, "oltp = 1\n\nmix = \"1/2\"\n").unwrap();
    assert_eq!(job(&[("job", &embedded)]).unwrap(), mine);
    assert!(refusal(&[("job", path)]).starts_with(&format!("{path}:3: `mix` cannot be")));
    std::fs::write(path, "oltp = 1\nwarehuoses = 2\n").unwrap();
    assert!(refusal(&[("job", path)]).contains("did you mean `warehouses`?"));
}
