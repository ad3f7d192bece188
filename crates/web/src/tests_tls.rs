//! Trials against an encrypting server of the user's, played by this file: which certificates are accepted, and what is said about others.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use bigiron_workload::{WorkloadResult, WrongData};

use crate::tests::{settings, trial};

/// The certificate of a server for `name` that ends in this year, its PEM in `folder`, and what the server does with it.
fn certify(folder: &Path, name: &str, until: i32) -> (PathBuf, Arc<ServerConfig>) {
    let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
    parameters.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let file = folder.join("certificate.pem");
    std::fs::write(&file, certificate.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    (file, Arc::new(config))
}

/// A server that answers the request of this number, over all connections, with `wrong`, and every other one with `hello`.
fn serve(config: Arc<ServerConfig>, wrong: Option<(u32, &'static str)>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let converse = move |socket: TcpStream, config, count: Arc<std::sync::atomic::AtomicU32>| {
        let session = ServerConnection::new(config).unwrap();
        let mut stream = BufReader::new(StreamOwned::new(session, socket));
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|n| n > 0) {
            if line == "\r\n" {
                let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let body = wrong.filter(|(n, _)| *n == number).map_or("hello", |(_, body)| body);
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
            line.clear();
        }
    };
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (config, count) = (Arc::clone(&config), Arc::clone(&count));
            thread::spawn(move || converse(socket, config, count));
        }
    });
    port
}

fn of_url(host: &str, port: u16, authorities: Option<&Path>, words: &[(&str, &str)]) -> Result<WorkloadResult> {
    let url = format!("https://{host}:{port}/x");
    let file = authorities.map(|file| file.to_str().unwrap());
    let words: Vec<_> = [("server", "url"), ("url", url.as_str())]
        .into_iter()
        .chain(file.map(|file| ("authorities", file)))
        .chain(words.iter().copied())
        .collect();
    trial(&settings(&words), |_| {})
}

#[test]
fn an_encrypting_server_of_the_users_is_driven_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (file, config) = certify(folder.path(), "localhost", 2100);
    for words in [&[][..], &[("tls-version", "1.2")], &[("pipeline", "3")], &[("rate", "3000")]] {
        let outcome = of_url("localhost", serve(Arc::clone(&config), None), Some(&file), words);
        let outcome = outcome.unwrap_or_else(|e| panic!("{words:?}: {e:#}"));
        assert_eq!(
            (outcome.facts["document-bytes"].as_str(), outcome.facts["requests-checked"].as_str()),
            ("5", "300")
        );
        let version = words.iter().find(|(name, _)| *name == "tls-version").map_or("1.3", |(_, version)| version);
        assert_eq!(outcome.facts["tls-version"], version);
    }
    let error = of_url("localhost", serve(config, Some((30, "hellO"))), Some(&file), &[]).unwrap_err();
    assert!(error.is::<WrongData>(), "{error:#}");
    assert!(error.to_string().contains("Byte 4 of `/x` is 0x6f, but the server sent 0x4f"), "{error:#}");
}

#[test]
fn a_certificate_that_proves_nothing_is_refused_with_the_reason() {
    for (name, until, known, words) in [
        ("localhost", 2020, true, &["expired", "is this machine's clock right?"][..]),
        ("localhost", 2100, false, &["BadSignature", "`web.authorities` names a file"]),
        ("else.test", 2100, true, &["else.test", "use the name that the certificate is for in `web.url`"]),
    ] {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, config) = certify(folder.path(), name, until);
        let (stranger, _) = certify(other.path(), "localhost", 2100);
        let port = serve(config, None);
        let said =
            format!("{:#}", of_url("localhost", port, Some(if known { &file } else { &stranger }), &[]).unwrap_err());
        assert!(said.contains(&format!("Cannot fetch https://localhost:{port}/x: ")), "{said}");
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
    }
    let said = format!("{:#}", of_url("localhost", 1, Some(Path::new("/nowhere")), &[]).unwrap_err());
    assert!(said.contains("cannot read certificates from /nowhere"), "{said}");
}
