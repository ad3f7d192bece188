use super::*;
use bigiron_sys::network::{self, Network};
use bigiron_workload as workload;
use bigiron_workload::{RunsOn, testing};

fn run(settings: &[(&str, &str)]) -> Result<(Replay, WorkloadResult)> {
    let base = [("clients", "2"), ("requests", "300"), ("warmup", "1"), ("length", "2")];
    let options = testing::options(&NetClients, base.into_iter().chain(settings.iter().copied())).unwrap();
    // A test uses the machine's own loopback; another network may need missing privileges.
    let own = Network { servers: "/proc/self/ns/net".into(), clients: None };
    let cx = Context { network: Some(&own), ..testing::context("".as_ref()) };
    let read = OptionReader { workload: NAME, definitions: OPTIONS, options: &options };
    let settings = without_files(Settings::parse(&read).unwrap().other);
    let replay = Replay { settings, over_devices: false };
    let mut running = replay.prepare(&cx)?;
    let outcome = running.run(&cx)?;
    running.verify(&cx)?;
    Ok((replay, outcome))
}

#[test]
fn a_run_delivers_what_it_declares() {
    let (replay, outcome) = run(&[]).unwrap();
    let declared = replay.metrics();
    assert_eq!(outcome.values.len(), declared.len());
    assert!(declared.iter().all(|def| def.kind.takes(outcome.values[&def.name])));
    let file = &replay.settings.file;
    assert_eq!(outcome.facts["requests-answered"], (4 * file.requests.len()).to_string());
    assert_eq!(file.count(RequestKind::Deltree), 0);
    let (read, written) = file.bytes();
    let number = |fact: &str| outcome.facts[fact].parse::<u64>().unwrap();
    assert!(number("sent-per-pass-bytes") > written && number("received-per-pass-bytes") > read);
}

#[test]
fn options_that_cannot_be_are_refused() {
    let error = testing::options(&NetClients, [("network", "wlan")]).unwrap_err();
    assert_eq!(error, "`net-clients.network` cannot be `wlan`; it can be `loopback` or `veth`");
    assert!(testing::options(&NetClients, [("clients", "x")]).unwrap_err().contains("`net-clients.clients`"));
}

#[test]
fn devices_are_needed_where_they_are_asked_for() {
    let needs = |network| workload::configure(&NetClients, [("network", network)], RunsOn::Here).unwrap().1.needs();
    assert_eq!(needs("loopback").modules, Vec::<&str>::new());
    assert_eq!((needs("veth").modules, needs("veth").storage_bytes), (vec![network::MODULE], None));
}
