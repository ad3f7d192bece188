//! The client against a real server that encrypts, with right and wrong certificates: which `sslmode` connects, and which message the others give.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use bigiron_service::postgres;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use super::testing::{self, sizing, tree};
use super::{Listen, Programs, RECIPE, Settings, Transport, cluster};
use crate::database::{Database as _, SqlValue};
use crate::pg::url::{Host, SslMode};
use crate::pg::{Connection, Url};

/// An authority, whose certificate is in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let file = folder.join(format!("{name}.pem"));
        fs::write(&file, parameters.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(parameters, key), file }
    }
}

/// A server's certificate and its key, as PEM.
type Pair = (String, String);

/// A certificate for `name`, valid in these years.
fn signed(by: &Authority, name: &str, (from, until): (i32, i32)) -> Pair {
    let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
    parameters.not_before = date_time_ymd(from, 1, 1);
    parameters.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    (parameters.signed_by(&key, &by.issuer).unwrap().pem(), key.serialize_pem())
}

/// A certificate that nobody else signed; as `openssl req -x509` makes it, if it is one of an authority.
fn self_signed(is_ca: IsCa) -> Pair {
    let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
    parameters.is_ca = is_ca;
    let key = KeyPair::generate().unwrap();
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

const NOW: (i32, i32) = (2020, 4000);

#[test]
fn a_real_server_with_a_wrong_certificate_is_refused_in_words() {
    let keys = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(keys.path(), "ours"), Authority::new(keys.path(), "other"));
    let own = keys.path().join("own.pem");
    let programs = Programs::of(&RECIPE, &tree()).unwrap();
    let place = testing::folder();
    postgres::init(&programs, place.path(), false).unwrap();
    // bigiron's own servers never encrypt: these lines cannot be had by the user's settings.
    let settings = Settings::new(&sizing(), &[]).unwrap().text()
        + "ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\nlog_connections = on\n";

    use SslMode::{Require, VerifyCa, VerifyFull};
    let unknown = Some("sslrootcert=FILE in the URL names the authorities to trust");
    let clock = Some("is this machine's clock right?");
    let authority = Some("is one of an authority (`openssl req -x509` makes such a one)");
    // Each certificate with the modes: whom the client trusts, and why it does not connect.
    type Attempt<'a> = (SslMode, Option<&'a PathBuf>, Option<&'a str>);
    let certificates: Vec<(&str, Pair, Vec<Attempt<'_>>)> = vec![
        (
            "right",
            signed(&ours, "localhost", NOW),
            vec![
                (Require, None, None),
                (VerifyCa, Some(&ours.file), None),
                (VerifyFull, Some(&ours.file), None),
                (VerifyCa, Some(&other.file), unknown),
                (VerifyFull, Some(&other.file), unknown),
                (Require, Some(&other.file), unknown),
            ],
        ),
        (
            "for another host",
            signed(&ours, "db.example", NOW),
            vec![
                (Require, None, None),
                (VerifyCa, Some(&ours.file), None),
                (VerifyFull, Some(&ours.file), Some("use the name that the certificate is for, or sslmode=verify-ca")),
            ],
        ),
        (
            "expired",
            signed(&ours, "localhost", (2019, 2020)),
            vec![(Require, None, None), (VerifyCa, Some(&ours.file), clock), (VerifyFull, Some(&ours.file), clock)],
        ),
        (
            "of the future",
            signed(&ours, "localhost", (3000, 4000)),
            vec![(Require, None, None), (VerifyCa, Some(&ours.file), clock), (VerifyFull, Some(&ours.file), clock)],
        ),
        (
            "self-signed",
            self_signed(IsCa::NoCa),
            vec![
                (Require, None, None),
                (VerifyCa, Some(&ours.file), unknown),
                (VerifyFull, Some(&ours.file), unknown),
                (VerifyFull, Some(&own), None),
            ],
        ),
        (
            "self-signed, an authority's",
            self_signed(IsCa::Ca(BasicConstraints::Unconstrained)),
            vec![(Require, None, None), (VerifyFull, Some(&ours.file), authority), (VerifyFull, Some(&own), authority)],
        ),
    ];
    for (what, (certificate, key), attempts) in certificates {
        let data = place.path().join("data");
        let owner = fs::metadata(&data).unwrap();
        for (name, text) in [("server.crt", &certificate), ("server.key", &key)] {
            fs::write(data.join(name), text).unwrap();
            fs::set_permissions(data.join(name), fs::Permissions::from_mode(0o600)).unwrap();
            chown(data.join(name), Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        fs::write(&own, &certificate).unwrap();
        let cluster = postgres::start(&programs, place.path(), settings.clone(), Listen::Tcp).unwrap();
        let log_in = |sslmode: SslMode, root: Option<&PathBuf>| {
            let url = cluster::url(&cluster, Transport::Tcp).unwrap();
            Connection::connect(&Url {
                host: Host::Tcp("localhost".to_owned()),
                sslmode,
                sslrootcert: root.cloned(),
                ..url
            })
        };
        let came_in = || fs::read_to_string(cluster.log()).unwrap().matches("connection authorized").count();
        for (mode, root, refusal) in attempts {
            let before = came_in();
            match (log_in(mode, root), refusal) {
                (Ok(mut connection), None) => {
                    let row =
                        connection.rows("SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()").unwrap();
                    assert_eq!(row, [[SqlValue::Text("true".to_owned())]], "{what}, {mode:?}");
                }
                (Err(error), Some(words)) => {
                    let error = error.to_string();
                    assert!(error.contains(words), "{what}, {mode:?}: {error}");
                    assert_eq!(came_in(), before, "{what}, {mode:?}: nothing is said to a server that is not believed");
                }
                (got, wanted) => panic!("{what}, {mode:?}, {root:?}: {:?}, not {wanted:?}", got.map(drop)),
            }
        }
        cluster.stop().unwrap();
    }
}
