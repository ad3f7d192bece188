//! Many users in a guest.

use serde_json::Value;

use super::{first, test, underway};

/// A test of each kind: what needs sockets, System V memory, a shell, direct I/O, in an initramfs with nothing but bigiron.
const MIX: &str = "multiuser.mix=fork_test,exec_test,signal_test,shell_rtns_1,pipe_cpy,fifo_test,shared_memory,tcp_test,udp_test,link_test,\
                   disk_src,disk_cp,disk_dio_rw,sync_disk_update,disk_aiodio_rr,page_test,mem_rtns_1";

#[test]
fn users_of_every_kind_work_side_by_side() {
    let test = test();
    let args = [
        "compare",
        "debian:6.12",
        "debian:6.12",
        "multiuser",
        "--clock",
        "exact",
        "--seed",
        "7",
        "--set",
        MIX,
        "--set",
        "multiuser.users=1,25",
        "--set",
        "multiuser.jobs=17",
        "--set",
        "multiuser.scale=200",
        "--set",
        "multiuser.filesize=16K",
        "--out",
        "study",
    ];
    let mut child = underway(&test, &args, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let text = std::fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    let record: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let record = &record["record"];
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    let facts = &record["facts"];
    assert_eq!(facts["multiuser.jobs-per-user"], "17");
    assert!(facts["multiuser.test.tcp_test"].as_str().unwrap().starts_with("1 of each user; 26 in all;"), "{facts}");
    assert!(facts["multiuser.users.0000025"].as_str().unwrap().contains("jobs/min"), "{facts}");
}

#[test]
fn a_disk_that_fills_up_is_reported_as_that() {
    // Where a ramp without an end gets to is not known before: its file system has room for some users, the second point has more.
    let settings = [
        "multiuser.mix=disk_rr",
        "multiuser.jobs=1",
        "multiuser.filesize=256K",
        "multiuser.users=auto",
        "multiuser.start=1",
        "multiuser.increment=1000",
        "multiuser.adaptive=off",
    ];
    let settings = settings.into_iter().flat_map(|setting| ["--set", setting]);
    let args: Vec<_> = ["multiuser"].into_iter().chain(settings).collect();
    let outcome = &first(&test(), "study", &args)["outcome"];
    assert_eq!(outcome["failure"], "no-space", "{outcome}");
    let message = outcome["message"].as_str().unwrap();
    assert!(
        message.starts_with("multiuser: The disk is full with 1001 users and files of 256 KiB: User "),
        "{message}"
    );
    assert!(message.contains("limit the number of users with `multiuser.end`"), "{message}");
}
