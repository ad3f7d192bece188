//! Tests with real pairs, if root runs them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::testing::skipped;

/// A pair, if this machine allows it.
pub(crate) fn pair() -> Option<VethPair> {
    VethPair::make().map_err(|why| skipped("pairs of network devices", why)).ok()
}

#[test]
fn what_clients_send_goes_through_the_devices() {
    let Some(pair) = pair() else { return };
    let sent = std::thread::scope(|scope| {
        // In a separate thread, because it changes its namespace.
        let thread = scope.spawn(|| {
            pair.servers.enter().unwrap();
            let listener = TcpListener::bind((Side::Servers.address(), 0)).unwrap();
            let to = listener.local_addr().unwrap();
            let mut client = pair.as_client(|| TcpStream::connect(to)).unwrap();
            let (mut server, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), Side::Clients.address());
            let before = pair.servers.traffic().unwrap();
            let reader = scope.spawn(move || {
                let mut all = Vec::new();
                client.read_to_end(&mut all).unwrap();
                all.len()
            });
            server.write_all(&vec![7; 1 << 20]).unwrap();
            drop(server);
            assert_eq!(reader.join().unwrap(), 1 << 20);
            // A device counts what it has delivered a little later.
            let start = std::time::Instant::now();
            loop {
                let after = pair.servers.traffic().unwrap();
                let sent = (after.0.since(before.0), after.1.since(before.1));
                if sent.0.bytes > 1 << 20 || start.elapsed() > std::time::Duration::from_secs(300) {
                    break sent;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        thread.join().unwrap()
    });
    assert!(sent.0.bytes > 1 << 20 && sent.1.packets > 0, "{sent:?}");
}

#[test]
fn another_process_finds_the_pair_and_nobody_the_address() {
    let Some(pair) = pair() else { return };
    let again = VethPair::open(&pair.network()).unwrap();
    let gro = Attribute::Offload(Offload::Gro);
    pair.clients.write(gro, "on").unwrap();
    assert_eq!(again.clients.read(gro).unwrap(), "on");
    assert!(TcpListener::bind((Side::Servers.address(), 0)).is_err(), "the address is this machine's");
    assert!(VethPair::open(&Network::of_guest()).is_err());
}

#[test]
fn offloads_and_files_read_back_what_was_set() {
    let Some(pair) = pair() else { return };
    for end in pair.ends() {
        for offload in [Offload::Tso, Offload::Gro, Offload::Gso] {
            for text in ["off", "on"] {
                end.write(Attribute::Offload(offload), text).unwrap();
                assert_eq!(
                    end.read(Attribute::Offload(offload)).unwrap(),
                    text,
                    "{}",
                    end.called(Attribute::Offload(offload))
                );
            }
        }
        end.write(Attribute::File("mtu"), "9000").unwrap();
        assert_eq!(end.read(Attribute::File("mtu")).unwrap(), "9000");
        assert!(end.write(Attribute::File("mtu"), "1").is_err());
        assert!(end.read(Attribute::File("nosuchfile")).is_err());
    }
}

#[test]
fn a_link_is_a_pair_or_the_reason_why_not() {
    let none = TrialLink::none("nobody talks");
    assert_eq!(none.get().unwrap_err(), "nobody talks");
    assert!(none.made().is_none() && none.network().is_none());
    let lazy = TrialLink::lazy();
    assert!(lazy.network().is_none());
    if lazy.get().is_ok() {
        assert!(lazy.network().is_some());
    }
}
