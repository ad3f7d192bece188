//! Where a server is: `postgresql://user@host:port/database?parameter=value`, as libpq reads it.
//!
//! Invariant: a URL as text has no password: it would be in plans, reports and the list of processes. Neither `Display` nor `Debug` nor an
//! error shows one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bigiron_model::suggest;

/// libpq's.
const DEFAULT_PORT: u16 = 5432;
/// A server just started on a loaded machine, or in a VM without KVM, is slow to accept connections.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const PARAMETERS: &[&str] =
    &["host", "port", "user", "passfile", "dbname", "sslmode", "sslrootcert", "connect_timeout", "application_name"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name or an address.
    Tcp(String),
    /// The folder of the server's Unix socket.
    Unix(PathBuf),
}

/// Whether the connection is encrypted. libpq's `allow` and `prefer` are refused, because they leave open what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    /// Encrypted, without checking the server's identity.
    Require,
    /// Encrypted, with a certificate signed by a known authority.
    VerifyCa,
    /// The same, and it was signed for this host's name.
    VerifyFull,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    pub fn new(text: &str) -> Password {
        Password(text.to_owned())
    }

    /// The password itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub user: String,
    /// That of a server of bigiron's own. Without one, the environment's `PGPASSWORD` is used, then the password file.
    pub password: Option<Password>,
    /// The password file; without it, `PGPASSFILE` or `~/.pgpass`.
    pub passfile: Option<PathBuf>,
    pub host: Host,
    pub port: u16,
    pub database: String,
    pub sslmode: SslMode,
    /// Whether the URL itself says `sslmode=disable`: then a password may go unencrypted, too.
    pub is_plain_by_word: bool,
    /// Certificates (PEM) of the authorities that are believed; without it, the system's.
    pub sslrootcert: Option<PathBuf>,
    /// For connection and log-in together; `None` waits forever.
    pub connect_timeout: Option<Duration>,
    pub application_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("A server's URL starts with postgresql://, e.g. postgresql://user@host:5432/database")]
    Scheme,
    #[error(
        "A password in a URL would be kept in plans and reports and shown by `ps`; leave it out, and set PGPASSWORD, or write it to ~/.pgpass or a file that `?passfile=/FILE` or PGPASSFILE names. (An `@` that belongs to no password is written %40.)"
    )]
    Password,
    #[error("The URL names no user; write postgresql://USER@host/database")]
    NoUser,
    #[error(
        "The URL has no host; write postgresql://user@HOST/database, or postgresql://user@/database?host=/FOLDER for a Unix socket in that folder"
    )]
    NoHost,
    #[error("One server at a time: `{0}` names several hosts")]
    SeveralHosts(String),
    #[error("`{0}` is not a port; ports are between 1 and 65535")]
    Port(String),
    #[error("`{0}` has a % that is not followed by two hexadecimal digits; write a % itself as %25")]
    Percent(String),
    #[error("`{0}` holds a zero byte, which no server accepts")]
    Zero(&'static str),
    #[error("`[{0}` is not an IPv6 address in brackets, as in postgresql://user@[::1]:5432/database")]
    Bracket(String),
    #[error("Unknown URL parameter `{word}`{}; known are {}", .nearest.map(|n| format!(", did you mean `{n}`?")).unwrap_or_default(), PARAMETERS.join(", "))]
    Parameter { word: String, nearest: Option<&'static str> },
    #[error("sslmode must be disable, require, verify-ca or verify-full, not `{0}`{1}")]
    SslMode(String, &'static str),
    #[error("connect_timeout must be in whole seconds (0: no limit), not `{0}`")]
    Timeout(String),
    #[error("Encryption is for TCP; a Unix socket has sslmode=disable")]
    SslOnUnix,
}

impl Url {
    /// The server whose socket is in `folder`.
    pub fn unix(user: &str, folder: &Path, port: u16, database: &str) -> Url {
        Url::new(user, Host::Unix(folder.to_owned()), port, database)
    }

    pub fn tcp(user: &str, host: &str, port: u16, database: &str) -> Url {
        Url::new(user, Host::Tcp(host.to_owned()), port, database)
    }

    fn new(user: &str, host: Host, port: u16, database: &str) -> Url {
        Url {
            user: user.to_owned(),
            password: None,
            passfile: None,
            host,
            port,
            database: database.to_owned(),
            sslmode: SslMode::Disable,
            is_plain_by_word: false,
            sslrootcert: None,
            connect_timeout: Some(DEFAULT_CONNECT_TIMEOUT),
            application_name: "bigiron".to_owned(),
        }
    }

    /// Another database of the same server.
    pub fn with_database(&self, database: &str) -> Url {
        Url { database: database.to_owned(), ..self.clone() }
    }

    /// # Errors
    /// The fault, and what would be right.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let rest =
            text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://")).ok_or(UrlError::Scheme)?;
        // Before anything is taken apart: a password may have any character, and no error may repeat a part of one.
        if rest.split_once('@').is_some_and(|(login, _)| login.contains(':')) {
            return Err(UrlError::Password);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(u, p)| (Some(u), p));

        let mut found = UrlParts { user: user.map(decode).transpose()?, ..UrlParts::default() };
        found.place(place)?;
        if !database.is_empty() {
            found.database = Some(decode(database)?);
        }
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            found.parameter(&decode(name)?, value)?;
        }
        found.url()
    }
}

/// The parts of a URL parsed so far.
#[derive(Default)]
struct UrlParts {
    user: Option<String>,
    passfile: Option<PathBuf>,
    host: Option<String>,
    port: Option<u16>,
    database: Option<String>,
    sslmode: Option<SslMode>,
    sslrootcert: Option<PathBuf>,
    connect_timeout: Option<u64>,
    application_name: Option<String>,
}

impl UrlParts {
    /// `host`, `host:port`, `[address]:port`, or nothing.
    fn place(&mut self, place: &str) -> Result<(), UrlError> {
        if place.contains(',') {
            return Err(UrlError::SeveralHosts(place.to_owned()));
        }
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or_else(|| UrlError::Bracket(rest.to_owned()))?;
                if address.parse::<std::net::Ipv6Addr>().is_err() || !(rest.is_empty() || rest.starts_with(':')) {
                    return Err(UrlError::Bracket(format!("{address}]{rest}")));
                }
                (address, rest.strip_prefix(':'))
            }
            None => place.split_once(':').map_or((place, None), |(h, p)| (h, Some(p))),
        };
        if !host.is_empty() {
            self.host = Some(decode(host)?);
        }
        if let Some(port) = port.filter(|p| !p.is_empty()) {
            self.port = Some(parse_port(port)?);
        }
        Ok(())
    }

    fn parameter(&mut self, name: &str, value: &str) -> Result<(), UrlError> {
        if ["password", "sslpassword"].contains(&name) {
            return Err(UrlError::Password);
        }
        let value = decode(value)?;
        match name {
            "host" if value.contains(',') => return Err(UrlError::SeveralHosts(value)),
            "host" => self.host = Some(value).filter(|v| !v.is_empty()),
            "port" => self.port = Some(parse_port(&value)?),
            "user" => self.user = Some(value),
            "dbname" => self.database = Some(value).filter(|v| !v.is_empty()),
            "sslmode" => self.sslmode = Some(parse_sslmode(&value)?),
            "passfile" => self.passfile = Some(PathBuf::from(value)),
            "sslrootcert" => self.sslrootcert = Some(PathBuf::from(value)),
            "connect_timeout" => {
                self.connect_timeout = Some(value.parse().map_err(|_| UrlError::Timeout(value))?);
            }
            "application_name" => self.application_name = Some(value),
            _ => {
                let nearest = suggest::nearest(name, PARAMETERS.iter().copied());
                return Err(UrlError::Parameter { word: name.to_owned(), nearest });
            }
        }
        Ok(())
    }

    fn url(self) -> Result<Url, UrlError> {
        let user = self.user.filter(|u| !u.is_empty()).ok_or(UrlError::NoUser)?;
        let host = self.host.ok_or(UrlError::NoHost)?;
        let host = if host.starts_with('/') { Host::Unix(PathBuf::from(host)) } else { Host::Tcp(host) };
        let database = self.database.unwrap_or_else(|| user.clone());
        let mut url = Url::new(&user, host, self.port.unwrap_or(DEFAULT_PORT), &database);
        url.passfile = self.passfile;
        url.is_plain_by_word = self.sslmode == Some(SslMode::Disable);
        url.sslmode = self.sslmode.unwrap_or(SslMode::Disable);
        url.sslrootcert = self.sslrootcert;
        if let Some(seconds) = self.connect_timeout {
            url.connect_timeout = (seconds > 0).then(|| Duration::from_secs(seconds));
        }
        if let Some(name) = self.application_name {
            url.application_name = name;
        }
        if url.sslmode != SslMode::Disable && matches!(url.host, Host::Unix(_)) {
            return Err(UrlError::SslOnUnix);
        }
        for (what, text) in
            [("user", &url.user), ("dbname", &url.database), ("application_name", &url.application_name)]
        {
            if text.contains('\0') {
                return Err(UrlError::Zero(what));
            }
        }
        Ok(url)
    }
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    if text.contains(',') {
        return Err(UrlError::SeveralHosts(text.to_owned()));
    }
    text.parse().ok().filter(|&p| p > 0).ok_or_else(|| UrlError::Port(text.to_owned()))
}

fn parse_sslmode(text: &str) -> Result<SslMode, UrlError> {
    match text {
        "disable" => Ok(SslMode::Disable),
        "require" => Ok(SslMode::Require),
        "verify-ca" => Ok(SslMode::VerifyCa),
        "verify-full" => Ok(SslMode::VerifyFull),
        "allow" | "prefer" => Err(UrlError::SslMode(text.to_owned(), ", which leaves open what is measured")),
        _ => Err(UrlError::SslMode(text.to_owned(), "")),
    }
}

fn decode(text: &str) -> Result<String, UrlError> {
    percent_decode(text).ok_or_else(|| UrlError::Percent(text.to_owned()))
}

fn percent_decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            decoded.push((high * 16 + low) as u8);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

/// Encodes every byte that is not allowed everywhere in a URL.
fn percent_encode(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SslMode::Disable => "disable",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        })
    }
}

/// Without the password and the time limit: the part that identifies the server.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, database) = (percent_encode(&self.user, false), percent_encode(&self.database, false));
        match &self.host {
            Host::Tcp(host) => {
                let host = if host.contains(':') { format!("[{host}]") } else { percent_encode(host, false) };
                write!(f, "postgresql://{user}@{host}:{}/{database}", self.port)?;
                if self.sslmode != SslMode::Disable || self.is_plain_by_word {
                    write!(f, "?sslmode={}", self.sslmode)?;
                }
                Ok(())
            }
            Host::Unix(folder) => {
                let folder = percent_encode(&folder.to_string_lossy(), true);
                write!(f, "postgresql://{user}@/{database}?host={folder}&port={}", self.port)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_part_is_read() {
        let url = Url::parse("postgresql://us%40er@db.example:6000/te%20st?sslmode=verify-full&connect_timeout=7&application_name=x&sslrootcert=/ca.pem&passfile=/p").unwrap();
        assert_eq!((url.user.as_str(), url.database.as_str(), url.port), ("us@er", "te st", 6000));
        assert_eq!((url.password, url.passfile), (None, Some(PathBuf::from("/p"))));
        assert_eq!(url.host, Host::Tcp("db.example".to_owned()));
        assert_eq!((url.sslmode, url.connect_timeout), (SslMode::VerifyFull, Some(Duration::from_secs(7))));
        assert_eq!((url.application_name.as_str(), url.sslrootcert), ("x", Some(PathBuf::from("/ca.pem"))));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let url = Url::parse("postgres://me@localhost").unwrap();
        assert_eq!(url, Url::tcp("me", "localhost", 5432, "me"));
        assert_eq!(url.sslmode, SslMode::Disable);
        let plain = Url::parse("postgresql://me@h/d?sslmode=disable").unwrap();
        assert!(plain.is_plain_by_word && !url.is_plain_by_word);
        assert_eq!(Url::parse(&plain.to_string()).unwrap(), plain);
        assert_eq!(Url::parse("postgresql://me@localhost/?connect_timeout=0").unwrap().connect_timeout, None);
        assert_eq!(Url::parse("postgresql://localhost?user=me&dbname=db").unwrap().database, "db");
    }

    #[test]
    fn a_unix_socket_is_named_in_either_place() {
        let expected = Url::unix("u", Path::new("/run/pg"), 5433, "d");
        assert_eq!(Url::parse("postgresql://u@/d?host=/run/pg&port=5433").unwrap(), expected);
        assert_eq!(Url::parse("postgresql://u@%2Frun%2Fpg:5433/d").unwrap(), expected);
    }

    #[test]
    fn ipv6_stands_in_brackets() {
        let url = Url::parse("postgresql://u@[::1]:6000/d").unwrap();
        assert_eq!((&url.host, url.port), (&Host::Tcp("::1".to_owned()), 6000));
        assert_eq!(url.to_string(), "postgresql://u@[::1]:6000/d");
    }

    #[test]
    fn a_password_is_refused_and_never_repeated() {
        for text in [
            "postgresql://u:SECRET@h/d",
            "postgresql://u:SEC%zzRET@h/d",
            "postgresql://u:%00SECRET@h/d",
            "postgresql://u:x/SECRET@h/d",
            "postgresql://u:x?SECRET@h/d",
            "postgresql://u:x@SECRET@h/d",
            "postgresql://u:a,SECRET@h/d",
            "postgres://u@h/d?password=SECRET",
            "postgres://u@h/d?pass%77ord=SECRET",
            "postgres://u@h/d?sslpassword=SECRET",
        ] {
            let error = Url::parse(text).unwrap_err();
            assert_eq!(error, UrlError::Password, "{text}");
            let said = error.to_string();
            assert!(said.contains("PGPASSWORD") && said.contains("~/.pgpass") && !said.contains("SECRET"), "{said}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let several = |text: &str| UrlError::SeveralHosts(text.to_owned());
        for (text, error) in [
            ("mysql://u@h/d", UrlError::Scheme),
            ("postgresql://h/d", UrlError::NoUser),
            ("postgresql://u@/d", UrlError::NoHost),
            ("postgresql://u@a,b/d", several("a,b")),
            ("postgresql://u@a:1,b:2/d", several("a:1,b:2")),
            ("postgresql://u@/d?host=a,b", several("a,b")),
            ("postgresql://u@h/d?port=1,2", several("1,2")),
            ("postgresql://u@h:0/d", UrlError::Port("0".to_owned())),
            ("postgresql://u@h:70000/d", UrlError::Port("70000".to_owned())),
            ("postgresql://u@h/d%2", UrlError::Percent("d%2".to_owned())),
            ("postgresql://u@[::1/d", UrlError::Bracket("::1".to_owned())),
            ("postgresql://u@h/d?connect_timeout=1s", UrlError::Timeout("1s".to_owned())),
            ("postgresql://u@/d?host=/s&sslmode=require", UrlError::SslOnUnix),
        ] {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
        let unknown = Url::parse("postgresql://u@h/d?ssl_mode=require").unwrap_err().to_string();
        assert!(unknown.contains("`ssl_mode`, did you mean `sslmode`?"), "{unknown}");
        let prefer = Url::parse("postgresql://u@h/d?sslmode=prefer").unwrap_err().to_string();
        assert!(prefer.contains("require") && prefer.contains("leaves open"), "{prefer}");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back_and_hides_the_password(
            user in "\\PC{1,12}", database in "\\PC{1,12}", host in "[a-z][a-z0-9.-]{0,12}", folder in "/[a-zA-Z0-9 %/]{0,12}", port in 1_u16.., tcp: bool
        ) {
            let host = if tcp { Host::Tcp(host) } else { Host::Unix(PathBuf::from(folder)) };
            let url = Url::new(&user, host, port, &database);
            let secret = Url { password: Some(Password::new("Tell-No1!")), ..url.clone() };
            prop_assert_eq!(Url::parse(&secret.to_string()).unwrap(), url);
            let shown = format!("{secret:?}");
            prop_assert!(!shown.contains("Tell-No1!"));
        }

        #[test]
        fn no_text_panics_and_no_error_tells_the_password(rest in "\\PC*", password in "[a-z]{12}%?", host in "[a-z,\\[:%]{0,6}") {
            let _ = Url::parse(&rest);
            let _ = Url::parse(&format!("postgresql://{rest}"));
            if let Err(error) = Url::parse(&format!("postgresql://u:{password}@{host}/d")) {
                prop_assert!(!error.to_string().contains(&password));
            }
        }
    }
}
