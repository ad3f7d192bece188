//! The client against an encrypting server: which certificates it accepts, and that the bytes are unchanged.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::testing::{authentication, complete, message, ready, row};
use super::url::SslMode;
use super::*;

type Client = StreamOwned<ServerConnection, TcpStream>;

/// The certificates of a test server.
struct Authority {
    folder: tempfile::TempDir,
    config: Arc<ServerConfig>,
}

impl Authority {
    /// An authority called `issuer`, and a certificate for `name` that it signed.
    fn new(issuer: &str, name: &str) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let mut parameters = rcgen::CertificateParams::new([]).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, issuer);
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let root = parameters.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("root.pem"), root.pem()).unwrap();
        let issuer = rcgen::Issuer::new(parameters, key);
        let key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        Authority { folder, config: Arc::new(config) }
    }

    fn root(&self) -> Option<PathBuf> {
        Some(self.folder.path().join("root.pem"))
    }

    /// A server for one client, which is passed to the script when its start-up message has been read, encrypted; `None` if it
    /// did not get that far.
    fn serve<T: Send + 'static>(
        &self,
        script: impl FnOnce(Option<Client>) -> T + Send + 'static,
    ) -> (Url, JoinHandle<T>) {
        let config = Arc::clone(&self.config);
        serve(move |mut socket| {
            let mut request = [0; 8];
            socket.read_exact(&mut request).unwrap();
            assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47]);
            socket.write_all(b"S").unwrap();
            let mut client = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
            let mut length = [0; 4];
            if client.read_exact(&mut length).is_err() {
                return script(None);
            }
            client.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize - 4]).unwrap();
            client.write_all(&[authentication(0, &[]), ready()].concat()).unwrap();
            script(Some(client))
        })
    }
}

fn serve<T: Send + 'static>(script: impl FnOnce(TcpStream) -> T + Send + 'static) -> (Url, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || script(listener.accept().unwrap().0));
    (Url { sslmode: SslMode::Require, ..Url::tcp("alice", "localhost", port, "shop") }, thread)
}

/// Whether the client connects in this mode, and its error if not.
fn attempt(authority: &Authority, sslmode: SslMode, sslrootcert: Option<PathBuf>) -> Result<(), String> {
    let (url, server) = authority.serve(|client| client.is_some());
    // The listener has only an IPv4 address.
    let outcome = Connection::connect(&Url { sslmode, sslrootcert, ..url });
    let came_in = server.join().unwrap();
    assert_eq!(came_in, outcome.is_ok(), "nothing is said to a server that is not believed");
    outcome.map(drop).map_err(|e| e.to_string())
}

#[test]
fn every_mode_believes_whom_it_says() {
    let ours = Authority::new("ours", "localhost");
    let other = Authority::new("other", "localhost");
    let namesake = Authority::new("ours", "localhost");
    let elsewhere = Authority::new("elsewhere", "db.example");
    attempt(&ours, SslMode::Require, None).unwrap();
    attempt(&ours, SslMode::VerifyFull, ours.root()).unwrap();
    attempt(&ours, SslMode::VerifyCa, ours.root()).unwrap();
    attempt(&elsewhere, SslMode::VerifyCa, elsewhere.root()).unwrap();
    for (server, mode, root, words) in [
        (&ours, SslMode::VerifyFull, other.root(), "sslrootcert=FILE"),
        (&ours, SslMode::VerifyCa, other.root(), "sslrootcert=FILE"),
        (&ours, SslMode::VerifyCa, namesake.root(), "sslrootcert=FILE"),
        // This machine's authorities, if any, did not sign it.
        (&ours, SslMode::VerifyFull, None, "sslrootcert=FILE"),
        // Naming authorities means checking them.
        (&ours, SslMode::Require, other.root(), "sslrootcert=FILE"),
        (&elsewhere, SslMode::VerifyFull, elsewhere.root(), "or sslmode=verify-ca"),
    ] {
        let error = attempt(server, mode, root).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn authorities_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.pem");
    std::fs::write(&file, "").unwrap();
    for (file, words) in [(file, "there are none in it"), (folder.path().join("missing.pem"), "missing.pem")] {
        let (url, server) = serve(|mut socket| socket.read(&mut [0; 8]).unwrap());
        let error = Connection::connect(&Url { sslrootcert: Some(file), ..url }).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
        // Refused before a byte was sent.
        assert_eq!(server.join().unwrap(), 0);
    }
}

#[test]
fn a_server_that_does_not_encrypt_is_left() {
    let (url, server) = serve(|mut socket| {
        socket.read_exact(&mut [0; 8]).unwrap();
        socket.write_all(b"N").unwrap();
        socket.read(&mut [0; 8]).unwrap()
    });
    let error = Connection::connect(&url).err().unwrap();
    assert!(error.to_string().ends_with("the server does not encrypt, and the URL has sslmode=require"), "{error}");
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn long_requests_and_answers_come_whole() {
    let authority = Authority::new("ours", "localhost");
    let (url, server) = authority.serve(|client| {
        let mut client = client.unwrap();
        let mut request = vec![0; 5 + 3_000_000 + 1];
        client.read_exact(&mut request).unwrap();
        let rows: Vec<Vec<u8>> = (0..400).map(|size| row(&[Some(&vec![b'r'; size * 10])])).collect();
        client.write_all(&[rows.concat(), complete("SELECT 400"), ready()].concat()).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap_or_default();
        (request.iter().filter(|&&b| b == b'q').count(), rest)
    });
    let mut channel = Connection::connect(&url).unwrap().channel().unwrap();
    frontend::query(&mut channel.out, &"q".repeat(3_000_000));
    let mut sizes = Vec::new();
    let mut end = false;
    let mut sent = false;
    while !end {
        if !sent {
            sent = channel.flush().unwrap();
        }
        let interest = if sent { rustix::event::PollFlags::IN } else { rustix::event::PollFlags::OUT };
        let mut wait = [rustix::event::PollFd::from_borrowed_fd(channel.fd(), interest)];
        rustix::event::poll(&mut wait, None).unwrap();
        channel
            .receive(|message| match message {
                Message::DataRow(row) => sizes.push(row.columns().next().unwrap().unwrap().len()),
                Message::ReadyForQuery(_) => end = true,
                _ => {}
            })
            .unwrap();
    }
    assert_eq!(sizes, (0..400).map(|size| size * 10).collect::<Vec<_>>());
    drop(channel);
    assert_eq!(server.join().unwrap(), (3_000_000, message(b'X', b"")));
}
