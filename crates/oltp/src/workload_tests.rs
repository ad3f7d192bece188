use super::*;
use bigiron_workload as workload;
use bigiron_workload::{RunsOn, testing};
use std::path::Path;

fn with_context<T>(settings: &[(&str, &str)], dir: &Path, act: impl FnOnce(&Job, &Context<'_>) -> T) -> T {
    let options = testing::options(&Oltp, settings.iter().copied()).unwrap();
    let job = Job::parse(&options).unwrap();
    act(&job, &Context { seed: 11, executable: "/bin/true".into(), ..testing::context(dir) })
}

#[test]
fn sqlite_is_loaded_driven_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("engine", "sqlite"), ("ramp", "50"), ("length", "1000"), ("connections", "2")];
    with_context(&settings, dir.path(), |job, cx| {
        let mut running = job.prepare(cx).unwrap();
        let outcome = running.run(cx).unwrap();
        let declared: Vec<_> = job.metrics().into_iter().map(|m| m.name).collect();
        assert!(declared.iter().all(|name| outcome.values[name] > 0.0));
        assert_eq!(declared.len(), outcome.values.len());
        assert_eq!(outcome.facts["transactions"], "1000");
        assert!(outcome.facts["durability"].contains("synchronous=full"), "{:?}", outcome.facts);
        assert!(outcome.facts["deviations"].contains("no think time"));
        assert!(outcome.facts["agreement"].contains("by the database's"));
        running.verify(cx).unwrap();
    });
}

#[test]
fn mariadb_is_loaded_driven_checked_killed_and_recovered() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let settings = [
        ("engine", "mariadb"),
        ("transport", "tcp"),
        ("ramp", "20"),
        ("length", "400"),
        ("limits", "600/600/600/600/600"),
        ("mariadb.innodb_buffer_pool_size", "64M"),
        ("mariadb.innodb_flush_log_at_trx_commit", "2"),
    ];
    with_context(&settings, dir.path(), |job, cx| {
        let mut trial_database = TrialDatabase::open(cx, job, &job.config(cx.clock, cx.cpus)).unwrap();
        let outcome = {
            let (target, trial) = (trial_database.target(), trial_context(cx, &trial_database));
            trial::prepare(job, &target, &trial).unwrap();
            let outcome = trial::run(job, &target, &trial).unwrap();
            trial::verify(&target, &trial).unwrap();
            outcome
        };
        let declared: Vec<_> = job.metrics().into_iter().map(|m| m.name).collect();
        assert!(declared.iter().all(|name| outcome.values[name] > 0.0), "{:?}", outcome.values);
        assert!(outcome.facts["engine"].contains("MariaDB 10.11"));
        assert!(outcome.facts["durability"].contains("innodb_buffer_pool_size=67108864"), "{:?}", outcome.facts);
        assert_eq!(outcome.facts["setting.innodb_buffer_pool_size"], "67108864, 134217728 by default");
        assert!(!outcome.facts.contains_key("setting.socket"));
        assert!(outcome.facts["weakened"].starts_with("innodb_flush_log_at_trx_commit=2 ("), "{:?}", outcome.facts);
        assert!(trial_database.recover().unwrap());
        trial::verify(&trial_database.target(), &trial_context(cx, &trial_database)).unwrap();
        trial_database.close().unwrap();
    });
}

#[test]
fn trials_side_by_side_in_one_process_share_nothing() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let settings = |length| [("engine", "sqlite"), ("ramp", "1"), ("length", length), ("connections", "1")];
    let with = |n: usize, length, act: &dyn Fn(&Job, &Context<'_>)| {
        with_context(&settings(length), dirs[n].path(), |job, cx| act(job, cx));
    };
    with(0, "20", &|first_job, first_cx| {
        with(1, "30", &|second_job, second_cx| {
            let mut first = first_job.prepare(first_cx).unwrap();
            let mut second = second_job.prepare(second_cx).unwrap();
            assert_eq!(second.run(second_cx).unwrap().facts["transactions"], "30");
            assert_eq!(first.run(first_cx).unwrap().facts["transactions"], "20");
            first.verify(first_cx).unwrap();
            second.verify(second_cx).unwrap();
        });
    });
}

#[test]
fn data_that_are_not_right_fail_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("engine", "sqlite"), ("ramp", "1"), ("length", "20"), ("connections", "1")];
    with_context(&settings, dir.path(), |job, cx| {
        let trial_database = TrialDatabase::open(cx, job, &job.config(cx.clock, cx.cpus)).unwrap();
        let (target, trial) = (trial_database.target(), trial_context(cx, &trial_database));
        trial::prepare(job, &target, &trial).unwrap();
        trial::run(job, &target, &trial).unwrap();
        trial::verify(&target, &trial).unwrap();
        let mut database = trial::database(&target).unwrap();
        database.execute("UPDATE warehouse SET w_ytd = w_ytd + 1").unwrap();
        let wrong = trial::verify(&target, &trial).unwrap_err().to_string();
        assert!(wrong.contains("condition-1") && wrong.contains("after the run"), "{wrong}");
        database.execute("UPDATE warehouse SET w_ytd = w_ytd - 1").unwrap();
        std::fs::write(dir.path().join("oltp.json"), r#"{"before": 0, "committed": 1000000}"#).unwrap();
        let wrong = trial::verify(&target, &trial).unwrap_err().to_string();
        assert!(wrong.contains("The driver counted 1000000 new orders"), "{wrong}");
    });
}

#[test]
fn an_option_that_is_none_is_refused() {
    let refused = testing::options(&Oltp, [("shared_buffers", "1GB")]).unwrap_err();
    assert_eq!(refused, "`oltp.shared_buffers` is not an option of oltp; did you mean `oltp.postgres.shared_buffers`?");
}

#[test]
fn storage_is_for_the_warehouses_unless_the_server_is_elsewhere() {
    let bytes = |settings: &[(&str, &str)]| {
        workload::configure(&Oltp, settings.iter().copied(), RunsOn::Here).unwrap().1.needs().storage_bytes.unwrap()
    };
    assert!(bytes(&[("warehouses", "10")]) > 10 * bytes(&[("url", "postgresql://u@h/d")]));
    assert!(bytes(&[("warehouses", "10")]) > bytes(&[]));
}

#[test]
fn a_run_of_more_transactions_may_be_silent_for_longer_in_a_guest() {
    let silence = |settings: &[(&str, &str)]| {
        workload::configure(&Oltp, settings.iter().copied(), RunsOn::Here).unwrap().1.guest_silence()
    };
    assert_eq!(silence(&[]), Duration::from_secs(500));
    assert_eq!(silence(&[("ramp", "10s"), ("length", "10000")]), Duration::from_secs(2000));
}

#[test]
fn acknowledgements_on_another_machine_are_in_a_folder_of_that_machine() {
    let embed = |value, on| Oltp.embed("acks", value, on);
    assert_eq!(embed("/srv/acks", RunsOn::Elsewhere), Ok("/srv/acks".to_owned()));
    assert!(embed("acks.log", RunsOn::Elsewhere).unwrap_err().contains("must be an absolute path"));
    assert!(embed("acks.log", RunsOn::Here).unwrap().starts_with('/'));
    for value in ["none", "tcp:collector:9000", AS_JOB] {
        assert_eq!(embed(value, RunsOn::Elsewhere), Ok(value.to_owned()));
    }
}
