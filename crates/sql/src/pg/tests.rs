//! The client against scripted servers: logging in, errors, and connections that end in every place.

use std::io::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::testing::{Client, ScriptedServer, authentication, complete, error, fields, message, ready, row};
use super::url::Password;
use super::*;
use crate::database::{Database, SqlValue};

fn with_password(url: &Url, password: &str) -> Url {
    Url { password: Some(Password::new(password)), ..url.clone() }
}

/// Why a server with this script, whose password is `tiger`, rejects the client.
fn refusal(script: impl FnOnce(Client) + Send + 'static) -> PgError {
    let server = ScriptedServer::start(script);
    let error = Connection::connect(&with_password(&server.url(), "tiger")).err().expect("to be refused");
    server.join();
    error
}

/// The kinds of `each` message of a channel, until ReadyForQuery.
fn until_ready(channel: &mut Channel) -> Result<Vec<String>, PgError> {
    let mut seen = Vec::new();
    loop {
        let mut wait = [rustix::event::PollFd::from_borrowed_fd(channel.fd(), rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut wait, None).unwrap();
        let mut end = false;
        channel.receive(|message| {
            end |= matches!(message, Message::ReadyForQuery(_));
            seen.push(match message {
                Message::DataRow(row) => format!("{:?}", row.columns().map(|v| v.map(<[u8]>::len)).collect::<Vec<_>>()),
                Message::CommandComplete(tag) => tag.to_owned(),
                Message::ErrorResponse(error) => error.to_error().to_string(),
                other => format!("{other:?}"),
            });
        })?;
        if end {
            return Ok(seen);
        }
    }
}

#[test]
fn a_trusted_client_says_who_it_is_and_says_goodbye() {
    let server = ScriptedServer::start(|mut client| {
        let said = client.startup();
        client.welcome();
        (said, client.rest())
    });
    let connection = Connection::connect(&server.url()).unwrap();
    assert_eq!(connection.server().version, "15.8 (Debian)");
    assert_eq!(connection.server().cancel, connection::CancelKey { process: 7, secret: 99 });
    drop(connection);
    let (said, rest) = server.join();
    assert_eq!(
        said,
        ["user", "alice", "database", "shop", "application_name", "bigiron", "client_encoding", "UTF8", "", ""]
    );
    assert_eq!(rest, message(b'X', b""));
}

#[test]
fn the_password_goes_in_the_form_that_is_asked_for() {
    let server = ScriptedServer::start(|mut client| {
        client.startup();
        client.send(&[authentication(3, &[])]);
        let said = client.receive();
        client.welcome();
        said
    });
    drop(Connection::connect(&with_password(&server.url(), "tiger")).unwrap());
    assert_eq!(server.join(), (b'p', b"tiger\0".to_vec()));

    let server = ScriptedServer::start(|mut client| {
        client.startup();
        client.send(&[authentication(5, &[1, 2, 3, 4])]);
        let said = client.receive();
        client.welcome();
        said
    });
    drop(Connection::connect(&with_password(&server.url(), "tiger")).unwrap());
    // md5( md5("tigeralice") 01 02 03 04 ), by md5sum.
    assert_eq!(server.join(), (b'p', b"md57be85917c335edc86a4df3dbd99e295c\0".to_vec()));
}

/// An address of this machine that is not the loopback's.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only looks for the route.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn a_password_goes_unencrypted_over_a_network_only_by_the_users_word() {
    use std::io::Read as _;
    let Some(address) = own_address() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED passwords over a network: this machine has none");
        return;
    };
    for (kind, salt) in [(3, &[][..]), (5, &[1, 2, 3, 4])] {
        for (at, word, goes) in
            [(address, "", false), (address, "?sslmode=disable", true), ([127, 0, 0, 1].into(), "", true)]
        {
            let listener = std::net::TcpListener::bind((at, 0)).unwrap();
            let url = format!("postgresql://alice@{at}:{}/shop{word}", listener.local_addr().unwrap().port());
            let answer = authentication(kind, salt);
            let server = std::thread::spawn(move || {
                let mut client = listener.accept().unwrap().0;
                let mut length = [0; 4];
                client.read_exact(&mut length).unwrap();
                client.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize - 4]).unwrap();
                client.write_all(&answer).unwrap();
                let mut tag = Vec::new();
                client.take(1).read_to_end(&mut tag).unwrap();
                tag
            });
            let error = Connection::connect(&with_password(&Url::parse(&url).unwrap(), "tiger")).err().unwrap();
            assert_eq!(server.join().unwrap() == b"p", goes, "{url}: {error}");
            if !goes {
                let said = error.to_string();
                assert!(said.contains("sslmode=verify-full") && !said.contains("tiger"), "{said}");
            }
        }
    }
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut pads = [[0x36_u8; 64], [0x5c; 64]];
    for pad in &mut pads {
        pad.iter_mut().zip(key).for_each(|(p, k)| *p ^= k);
    }
    let inner = Sha256::new().chain_update(pads[0]).chain_update(text).finalize();
    Sha256::new().chain_update(pads[1]).chain_update(inner).finalize().into()
}

fn xor(mut a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
    a
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let word = (0..3).fold(0_usize, |w, i| w << 8 | usize::from(*part.get(i).unwrap_or(&0)));
        for digit in 0..4 {
            let c = if digit <= part.len() { DIGITS[word >> (18 - 6 * digit) & 63] } else { b'=' };
            text.push(char::from(c));
        }
    }
    text
}

/// A server's half of SCRAM-SHA-256 (RFC 5802, RFC 7677) for the password `tiger`: whether the client proved its knowledge, and
/// the final message.
fn scram(client: &mut Client) -> (bool, String) {
    client.startup();
    client.send(&[authentication(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")]);
    let (_, first) = client.receive();
    // Mechanism, length, and `n,,` before the part that counts.
    let first = String::from_utf8(first["SCRAM-SHA-256\0".len() + 4..].to_vec()).unwrap();
    let bare = first.strip_prefix("n,,").unwrap();
    let nonce = bare.split_once("r=").unwrap().1;
    let challenge = format!("r={nonce}server,s={},i=20", base64(b"salt"));
    client.send(&[authentication(11, challenge.as_bytes())]);
    let (_, last) = client.receive();
    let last = String::from_utf8(last).unwrap();
    let (without_proof, proof) = last.split_once(",p=").unwrap();

    let mut block = hmac(b"tiger", b"salt\0\0\0\x01");
    let mut salted = block;
    for _ in 1..20 {
        block = hmac(b"tiger", &block);
        salted = xor(salted, block);
    }
    let text = format!("{bare},{challenge},{without_proof}");
    let key = hmac(&salted, b"Client Key");
    let expected = xor(key, hmac(&Sha256::digest(key), text.as_bytes()));
    let signature = hmac(&hmac(&salted, b"Server Key"), text.as_bytes());
    (proof == base64(&expected), format!("v={}", base64(&signature)))
}

#[test]
fn scram_proves_the_password_both_ways() {
    let server = ScriptedServer::start(|mut client| {
        let (proved, last) = scram(&mut client);
        client.send(&[authentication(12, last.as_bytes())]);
        client.welcome();
        proved
    });
    drop(Connection::connect(&with_password(&server.url(), "tiger")).unwrap());
    assert!(server.join());
}

#[test]
fn a_server_that_does_not_know_the_password_is_left() {
    let error = refusal(|mut client| {
        scram(&mut client);
        client.send(&[authentication(12, format!("v={}", base64(&[0; 32])).as_bytes())]);
    });
    assert!(error.to_string().contains("could not prove that it knows the password"), "{error}");
    let error = refusal(|mut client| {
        scram(&mut client);
        // No proof at all; the client may be gone before it is accepted.
        client.send(&[authentication(0, &[])]);
    });
    assert!(error.to_string().contains("did not prove"), "{error}");
}

#[test]
fn who_is_not_let_in_learns_what_to_check() {
    let cases: [(Vec<u8>, &str); 6] = [
        (error("FATAL", "28P01", "password authentication failed for user \"alice\""), "check user and password"),
        (error("FATAL", "28000", "no pg_hba.conf entry for host \"h\", no encryption"), "sslmode=require"),
        (error("FATAL", "28000", "role \"alice\" does not exist"), "check the user's name"),
        (authentication(7, &[]), "requires Kerberos or GSSAPI"),
        (authentication(10, b"OAUTHBEARER\0\0"), "requires OAUTHBEARER; only SCRAM-SHA-256 is supported"),
        (authentication(77, &[]), "code 77"),
    ];
    for (answer, words) in cases {
        let error = refusal(move |mut client| {
            client.startup();
            client.send(&[answer]);
        });
        let PgError::Authentication { user, .. } = &error else { panic!("{error:?}") };
        assert_eq!(user, "alice");
        let text = error.to_string();
        assert!(text.contains(words) && !text.contains("tiger"), "{text}");
    }
}

#[test]
fn a_server_that_will_not_serve_is_told_apart() {
    let full = refusal(|mut client| {
        client.startup();
        client.send(&[error("FATAL", "53300", "sorry, too many clients already")]);
    });
    assert!(full.sqlstate().unwrap().is_too_many_connections(), "{full:?}");
    assert!(full.to_string().ends_with("refuses the connection: FATAL 53300: sorry, too many clients already"));
    let early = refusal(|mut client| {
        client.startup();
        client.send(&[error("FATAL", "57P03", "the database system is starting up")]);
    });
    assert!(early.sqlstate().unwrap().is_shutdown());
}

#[test]
fn what_is_no_server_is_named_so() {
    let error = refusal(|mut client| {
        client.startup();
        client.0.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    assert!(error.to_string().contains("does not speak PostgreSQL's protocol"), "{error}");
    let error = refusal(|mut client| drop(client.startup()));
    assert!(matches!(&error, PgError::Connect { cause, .. } if cause.contains("the server closed it")), "{error:?}");

    let folder = tempfile::tempdir().unwrap();
    let error = Connection::connect(&Url::unix("u", folder.path(), 5432, "d")).err().unwrap();
    assert!(error.to_string().contains("is its socket in that folder?"), "{error}");
    let error = Connection::connect(&Url::unix("u", &folder.path().join("x".repeat(120)), 5432, "d")).err().unwrap();
    assert!(error.to_string().contains("use a shorter folder"), "{error}");
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    let server = ScriptedServer::start(|mut client| client.rest());
    let url = Url { connect_timeout: Some(Duration::from_millis(30)), ..server.url() };
    let error = Connection::connect(&url).err().unwrap();
    assert!(matches!(&error, PgError::Connect { cause, .. } if cause.contains("connect_timeout")), "{error:?}");
}

#[test]
fn integers_are_integers_and_the_rest_is_text() {
    let server = ScriptedServer::start(|mut client| {
        client.let_in();
        let (_, sql) = client.receive();
        client.send(&[
            message(b'N', b"SNOTICE\0C00000\0Mof no interest\0\0"),
            fields(&[("a", oid::INT2), ("b", oid::INT4), ("c", oid::INT8), ("d", oid::TEXT), ("e", 1700)]),
            row(&[Some(b"-1"), None, Some(b"9000000000"), Some("ä".as_bytes()), Some(b"1.50")]),
            complete("SELECT 1"),
            ready(),
        ]);
        sql
    });
    let mut connection = Connection::connect(&server.url()).unwrap();
    let rows = connection.rows("SELECT it").unwrap();
    let (text, number) = (|t: &str| SqlValue::Text(t.to_owned()), SqlValue::Integer);
    assert_eq!(rows, [[number(-1), SqlValue::Null, number(9_000_000_000), text("ä"), text("1.50")]]);
    assert_eq!(server.join(), b"SELECT it\0");
}

#[test]
fn an_error_leaves_the_connection_usable() {
    let server = ScriptedServer::start(|mut client| {
        client.let_in();
        client.receive();
        client.send(&[error("ERROR", "42P01", "no such table"), ready()]);
        assert_eq!(client.receive_until(b'S'), b"PS");
        client.send(&[error("ERROR", "42601", "syntax error"), ready()]);
        client.receive();
        client.send(&[complete("CREATE TABLE"), ready()]);
    });
    let mut connection = Connection::connect(&server.url()).unwrap();
    let error = connection.execute("DROP TABLE t").unwrap_err();
    assert_eq!(error.to_string(), "ERROR 42P01: no such table");
    assert!(!error.downcast_ref::<PgError>().unwrap().is_disconnected());
    assert_eq!(connection.prepare("s", "SELEC", &[]).unwrap_err().to_string(), "ERROR 42601: syntax error");
    connection.execute("CREATE TABLE t ()").unwrap();
    server.join();
}

#[test]
fn a_server_that_goes_says_why() {
    let server = ScriptedServer::start(|mut client| {
        client.let_in();
        client.receive();
        client.send(&[error("FATAL", "57P01", "terminating connection due to administrator command")]);
    });
    let mut connection = Connection::connect(&server.url()).unwrap();
    let error = connection.run("SELECT 1").unwrap_err();
    assert!(error.is_disconnected() && error.sqlstate().unwrap().is_shutdown(), "{error:?}");
    server.join();
    assert!(matches!(connection.run("SELECT 1"), Err(PgError::Closed(_))));
}

#[test]
fn an_error_within_a_pipeline_ends_it_at_its_sync() {
    let server = ScriptedServer::start(|mut client| {
        client.let_in();
        assert_eq!(client.receive_until(b'S'), b"BEBEBES");
        let complete_row = [message(b'2', b""), row(&[Some(&[0, 0, 0, 5]), None]), complete("SELECT 1")];
        client.send(&complete_row);
        client.send(&[error("ERROR", "40001", "could not serialize access"), ready()]);
        assert_eq!(client.receive_until(b'S'), b"BES");
        client.send(&complete_row);
        client.send(&[ready()]);
        client.rest()
    });
    let mut channel = Connection::connect(&server.url()).unwrap().channel().unwrap();
    for district in 1..=3 {
        frontend::bind(&mut channel.out, "s", [Parameter::Int4(district)]);
        frontend::execute(&mut channel.out);
    }
    frontend::sync(&mut channel.out);
    assert!(channel.flush().unwrap() && channel.out.is_empty());
    let good = ["BindComplete", "[Some(4), None]", "SELECT 1"];
    let seen = until_ready(&mut channel).unwrap();
    assert_eq!(seen[..3], good);
    assert_eq!(seen[3..], ["ERROR 40001: could not serialize access", "ReadyForQuery(Idle)"]);

    frontend::bind(&mut channel.out, "s", [Parameter::Int4(4)]);
    frontend::execute(&mut channel.out);
    frontend::sync(&mut channel.out);
    channel.flush().unwrap();
    assert_eq!(until_ready(&mut channel).unwrap()[..3], good);
    drop(channel);
    assert_eq!(server.join(), message(b'X', b""));
}

#[test]
fn what_came_whole_before_a_disconnect_is_handed_over() {
    let server = ScriptedServer::start(|mut client| {
        client.let_in();
        client.receive_until(b'S');
        let next = row(&[Some(b"never whole")]);
        client.send(&[message(b'2', b""), row(&[Some(b"x")]), next[..9].to_vec()]);
    });
    let mut channel = Connection::connect(&server.url()).unwrap().channel().unwrap();
    frontend::sync(&mut channel.out);
    channel.flush().unwrap();
    server.join();
    let mut seen = 0;
    let error = loop {
        if let Err(error) = channel.receive(|_| seen += 1) {
            break error;
        }
    };
    assert_eq!((seen, error), (2, PgError::Closed("the server closed it 9 bytes into a message".to_owned())));
}

#[test]
fn a_full_socket_takes_the_rest_later() {
    let (start, started) = std::sync::mpsc::channel::<()>();
    let server = ScriptedServer::start(move |mut client| {
        client.let_in();
        started.recv().unwrap();
        let mut numbers = Vec::new();
        loop {
            match client.receive() {
                (b'Q', sql) => numbers.push(sql.len()),
                _ => return numbers,
            }
        }
    });
    let mut channel = Connection::connect(&server.url()).unwrap().channel().unwrap();
    let mut expected = Vec::new();
    for size in 1..1500 {
        frontend::query(&mut channel.out, &"x".repeat(size));
        expected.push(size + 1);
    }
    frontend::sync(&mut channel.out);
    assert!(!channel.flush().unwrap());
    start.send(()).unwrap();
    loop {
        let mut wait = [rustix::event::PollFd::from_borrowed_fd(channel.fd(), rustix::event::PollFlags::OUT)];
        rustix::event::poll(&mut wait, None).unwrap();
        if channel.flush().unwrap() {
            break;
        }
    }
    assert_eq!(server.join(), expected);
}

#[test]
fn nobody_says_goodbye_in_the_middle_of_a_message() {
    let (start, started) = std::sync::mpsc::channel::<()>();
    let server = ScriptedServer::start(move |mut client| {
        client.let_in();
        started.recv().unwrap();
        client.rest()
    });
    let mut channel = Connection::connect(&server.url()).unwrap().channel().unwrap();
    frontend::query(&mut channel.out, &"x".repeat(10 << 20));
    assert!(!channel.flush().unwrap());
    drop(channel);
    start.send(()).unwrap();
    assert_eq!(server.join().last(), Some(&b'x'));
}

#[test]
fn a_channel_becomes_a_connection_again() {
    let server = ScriptedServer::start(|mut client| {
        client.let_in();
        client.receive();
        client.send(&[complete("SELECT 0"), ready()]);
    });
    let channel = Connection::connect(&server.url()).unwrap().channel().unwrap();
    channel.into_connection().unwrap().run("SELECT 1").unwrap();
    server.join();

    let server = ScriptedServer::start(|mut client| client.let_in());
    let mut channel = Connection::connect(&server.url()).unwrap().channel().unwrap();
    frontend::sync(&mut channel.out);
    assert!(channel.into_connection().is_err());
    server.join();
}

#[test]
fn a_request_is_cancelled_with_its_key() {
    let server = ScriptedServer::start(|mut client| {
        let mut request = [0; 16];
        std::io::Read::read_exact(&mut client.0, &mut request).unwrap();
        request
    });
    connection::CancelKey { process: 7, secret: 99 }.send(&server.url()).unwrap();
    assert_eq!(server.join(), [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 7, 0, 0, 0, 99]);
}
