//! Workloads of many processes in a guest, with small figures: messages, shell scripts and a compiler, with this machine's tools over an image of
//! them; a file server's clients, threads on files, raw disks.

use serde_json::Value;

use super::{first, test};

/// A fact of a record.
fn fact<'a>(record: &'a Value, name: &str) -> &'a str {
    record["facts"][name].as_str().unwrap_or_else(|| panic!("no {name} in {record}"))
}

#[test]
fn messages_scripts_and_a_build_do_their_work_in_a_guest() {
    // What is not installed everywhere is left out; what is left needs the compiler that this test was built with.
    let without = "scripts.without=ed,cpio,nroff,col,make,ps";
    let args = [
        "chat",
        "scripts",
        "build",
        "--set",
        "chat.rooms=1",
        "--set",
        "chat.users=5",
        "--set",
        "scripts.users=1",
        "--set",
        without,
        "--set",
        "build.files=1",
        "--set",
        "build.loads=optimal",
        "--set",
        "build.warmup=0",
    ];
    let record = first(&test(), "study", &args);
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    // One room of five, ten messages of each: said once, relayed four times.
    assert_eq!(fact(&record, "chat.messages-checked"), "250", "{record}");
    assert_eq!(fact(&record, "chat.carrier"), "tcp");
    assert!(fact(&record, "scripts.commands-checked").parse::<u32>().unwrap() > 30);
    assert_eq!(fact(&record, "build.builds-checked"), "1");
}

#[test]
fn clients_threads_and_raw_disks_do_their_work_in_a_guest_and_take_the_same_time_twice() {
    let small = [
        "fs-clients.clients=2",
        "fs-clients.requests=400",
        "net-clients.clients=2",
        "net-clients.requests=400",
        "tio.threads=1,2",
        "tio.size=1M",
        "tio.random=64",
        "raw-io.size=2M",
        "raw-io.requests=64",
        "raw-io.processes=1,2",
        "sqlphases.engine=sqlite",
        "sqlphases.rows=100",
        "dss.engine=sqlite",
        "dss.scale=0.001",
        "dss.queries=1,6,13",
        "web.connections=4",
        "web.length=200",
        "web.warmup=50",
        "files.clients=1,2",
        "files.requests=200",
        "files.length=1",
    ];
    let workloads = ["fs-clients", "net-clients", "files", "tio", "raw-io", "sqlphases", "dss", "web"];
    let args: Vec<_> = workloads.into_iter().chain(small.into_iter().flat_map(|setting| ["--set", setting])).collect();
    let test = test();
    let [one, again] = ["study", "again"].map(|out| {
        let record = first(&test, out, &args);
        assert_eq!(record["outcome"]["kind"], "completed", "{record}");
        record
    });
    assert_eq!(one["metrics"], again["metrics"]);
    assert_eq!(one["counters"], again["counters"]);
    assert_eq!(fact(&one, "dss.answers-checked"), "3");
    let windows = one["counters"]["windows"].as_array().expect("the kernel counts");
    for workload in workloads {
        let mut of = windows.iter().filter(|w| w["workload"] == workload);
        let is_counted = |w: &Value| w["operations"].as_u64() > Some(0) && w["counts"].as_array().unwrap().len() > 10;
        assert!(of.any(is_counted), "{workload}: {windows:?}");
    }
    for workload in workloads {
        let values = one["metrics"][workload].as_object().unwrap();
        assert!(values.len() > 1 && values.values().all(Value::is_number), "{workload}: {values:?}");
    }
}

#[test]
fn file_servers_serve_in_a_guest_and_take_the_same_time_twice() {
    let test = test();
    let small = ["files", "--set", "files.clients=2", "--set", "files.requests=200", "--set", "files.length=1"];
    for (server, more, name, want) in [
        ("nfs", &["--set", "files.nfs-version=3", "--set", "files.export=async"][..], "files.nfs-version", "3"),
        (
            "samba",
            &["--set", "files.encryption=on", "--set", "files.channels=2"],
            "files.protection",
            "encrypted with AES-128-GCM",
        ),
    ] {
        let server_is = format!("files.server={server}");
        let args = [&small[..], &["--set", &server_is], more].concat();
        let [one, again] = ["study", "again"].map(|out| {
            let record = first(&test, &format!("{name}-{out}"), &args);
            assert_eq!(record["outcome"]["kind"], "completed", "{record}");
            record
        });
        assert_eq!(fact(&one, name), want);
        assert_eq!(fact(&one, "files.clients"), "2");
        assert_eq!(one["metrics"], again["metrics"], "{server}");
        assert_eq!(one["counters"], again["counters"], "{server}");
    }
}

#[test]
fn web_servers_encrypt_and_make_pages_in_a_guest_and_take_the_same_time_twice() {
    let test = test();
    let small = ["web", "--set", "web.connections=4", "--set", "web.length=20", "--set", "web.warmup=4"];
    for (job, more, name, want) in [
        ("web.job=tls", &[][..], "web.tls-version", "1.3"),
        // Three more than the window and the ramp: each connection ends what it has begun.
        ("web.job=web99", &["--set", "web.directories=1", "--set", "web.line-rate=off"], "web.documents", "36"),
        ("web.job=cgi-db", &["--set", "web.server=apache", "--set", "web.gateway=cgi"], "web.visits-counted", "27"),
    ] {
        let args = [&small[..], &["--set", job], more].concat();
        let [one, again] = ["study", "again"].map(|out| {
            let record = first(&test, &format!("{job}-{out}"), &args);
            assert_eq!(record["outcome"]["kind"], "completed", "{record}");
            record
        });
        assert_eq!(fact(&one, "web.requests-checked"), "20");
        assert_eq!(fact(&one, name), want);
        assert_eq!(one["metrics"], again["metrics"], "{job}");
        assert_eq!(one["counters"], again["counters"], "{job}");
    }
}

#[test]
fn idle_connections_are_held_in_a_guest() {
    let args = [
        "web",
        "--set",
        "web.job=c10k",
        "--set",
        "web.connections=500",
        "--set",
        "web.length=100",
        "--set",
        "web.warmup=20",
    ];
    let record = first(&test(), "study", &args);
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    assert_eq!(fact(&record, "web.connections-idle"), "484, all held");
    let kernel = record["metrics"]["web"]["kernel-memory"].as_f64();
    // Two sockets with their inodes.
    assert!(kernel > Some(1000.0) && kernel < Some(100_000.0), "{record}");
}

#[test]
#[ignore = "four boots of half a minute"]
fn statements_of_servers_take_the_same_time_twice() {
    let test = test();
    for engine in ["sqlphases.engine=postgres", "sqlphases.engine=mariadb"] {
        let args = ["sqlphases", "--set", engine, "--set", "sqlphases.rows=200"];
        let [one, again] = ["study", "again"].map(|out| {
            let record = first(&test, &format!("{engine}-{out}"), &args);
            assert_eq!(record["outcome"]["kind"], "completed", "{record}");
            record
        });
        assert_eq!(one["metrics"], again["metrics"], "{engine}");
        assert_eq!(one["counters"], again["counters"], "{engine}");
    }
}
