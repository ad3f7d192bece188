//! `COPY … FROM STDIN` against servers that follow a script.

use super::testing::{Client, ScriptedServer, complete, error, message, ready};
use super::*;

/// `COPY … FROM STDIN` begun.
fn copying(client: &mut Client) {
    client.let_in();
    client.receive();
    client.send(&[message(b'G', &[0, 0, 0])]);
}

#[test]
fn copied_data_arrives_as_it_was_written() {
    let server = ScriptedServer::start(|mut client| {
        copying(&mut client);
        let mut data = Vec::new();
        loop {
            match client.receive() {
                (b'd', part) => data.extend(part),
                (tag, _) => {
                    client.send(&[complete("COPY 1234"), ready()]);
                    return (data, tag);
                }
            }
        }
    });
    let mut connection = Connection::connect(&server.url()).unwrap();
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    let mut written = Vec::new();
    for size in [1, 0, 70_000, 5, 65_536, 65_531, 300_000, 17] {
        let part: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        copy.write(&part).unwrap();
        written.extend(part);
    }
    assert_eq!(copy.finish().unwrap(), 1234);
    let (data, tag) = server.join();
    assert!(data == written && tag == b'c');
}

#[test]
fn a_copy_that_the_server_refuses_ends_at_once() {
    let server = ScriptedServer::start(|mut client| {
        copying(&mut client);
        client.receive();
        client.send(&[error("ERROR", "53100", "could not extend file: No space left on device"), ready()]);
        // Data in transit are discarded.
        while client.receive().0 == b'd' {}
        client.send(&[complete("DROP TABLE"), ready()]);
    });
    let mut connection = Connection::connect(&server.url()).unwrap();
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    let part = vec![0; 1 << 20];
    let error = loop {
        if let Err(error) = copy.write(&part) {
            break error;
        }
    };
    assert!(error.sqlstate().unwrap().is_disk_full(), "{error:?}");
    drop(copy);
    connection.run("DROP TABLE t").unwrap();
    server.join();
}

#[test]
fn a_copy_given_up_is_taken_back() {
    let server = ScriptedServer::start(|mut client| {
        copying(&mut client);
        let (tag, _) = client.receive();
        client.send(&[error("ERROR", "57014", "COPY from stdin failed: the client aborted the copy"), ready()]);
        client.receive();
        client.send(&[complete("SELECT 0"), ready()]);
        tag
    });
    let mut connection = Connection::connect(&server.url()).unwrap();
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(b"1\n").unwrap();
    drop(copy);
    connection.run("SELECT 1").unwrap();
    assert_eq!(server.join(), b'f');
}

#[test]
fn a_statement_that_is_no_copy_is_not_left_waiting() {
    let server = ScriptedServer::start(|mut client| {
        client.let_in();
        client.receive();
        client.send(&[complete("SELECT 0"), ready()]);
        client.receive();
        // `execute` of a COPY … FROM STDIN.
        client.send(&[message(b'G', &[0, 0, 0])]);
        assert_eq!(client.receive().0, b'f');
        client.send(&[error("ERROR", "57014", "COPY from stdin failed"), ready()]);
    });
    let mut connection = Connection::connect(&server.url()).unwrap();
    assert!(connection.copy_in("SELECT 1").err().unwrap().to_string().contains("requested no data"));
    assert!(connection.run("COPY t FROM STDIN").unwrap_err().to_string().contains("COPY from stdin failed"));
    server.join();
}
