//! Guests that lose their power in the middle of transactions.

use serde_json::Value;

use super::test;

fn crash(settings: &[&str], status: i32) -> Value {
    let how =
        ["oltp", "crash-test", "debian:6.12", "--rounds", "1", "--commits", "60", "--seed", "5", "--format", "json"];
    let test = test();
    let ran = test.run(&[&how[..], settings].concat()).status(status);
    let left = std::fs::read_dir(test.dir()).unwrap().flatten().map(|e| e.file_name()).collect::<Vec<_>>();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("crash-")), "{left:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn what_was_acknowledged_outlives_the_machine_and_what_was_never_flushed_is_missed() {
    let sound = crash(&[], 0);
    let round = &sound["rounds"][0];
    let told = round["acknowledged"].as_u64().unwrap();
    assert!(told > 0 && round["disk"]["flushes"].as_u64().unwrap() >= told / 8, "{sound:#}");
    let proved = round["proved"].as_str().unwrap();
    assert!(proved.contains(&format!("{told} write transactions, all of them there")), "{proved}");
    assert!(proved.contains("conditions: 11,"), "{proved}");
    assert_eq!(sound["failed"], Value::Null);

    let weak = crash(&["--set", "oltp.postgres.fsync=off"], 1);
    assert!(weak["failed"].as_str().unwrap().starts_with("DATA LOST after power loss 1"), "{weak:#}");
    assert!(weak["weakened"][0].as_str().unwrap().starts_with("fsync=off"), "{weak:#}");
}
