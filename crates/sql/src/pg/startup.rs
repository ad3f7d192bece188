//! From a socket to a session: start-up message and authentication.
//!
//! Invariant: a password leaves only in the form that the server asked for, in a form that others could use only encrypted or by the user's word, and a server that was to prove that it knows it (SCRAM) has.

use std::borrow::Cow;

use bytes::BytesMut;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;

use super::buffered_socket::{BufferedSocket, Filled, LARGEST_MESSAGE};
use super::connection::{CancelKey, ServerInfo};
use super::encryption;
use super::error::{PgError, ServerError};
use super::message::Message;
use super::passfile;
use super::socket::{Deadline, Socket};
use super::url::{Password, SslMode, Url};

/// Longer messages during start-up come from a server of another kind (as in libpq).
const LONGEST_STARTUP_MESSAGE: usize = 30_000;
const NO_PASSWORD: &str =
    "it asks for a password, and there is none; set PGPASSWORD, or write it to ~/.pgpass or another password file";

/// Connects and logs in.
pub(super) fn open(url: &Url) -> Result<(BufferedSocket, ServerInfo), PgError> {
    let deadline = Deadline::after(url.connect_timeout);
    let host = place(url);
    let cannot = |e: std::io::Error| PgError::Connect { host: place(url), cause: cause(url, &e) };
    let wire = connect(url, deadline)?;
    let mut startup = Startup { link: BufferedSocket::new(wire, LONGEST_STARTUP_MESSAGE), url, deadline };
    let server = startup.run().map_err(|error| match error {
        PgError::Server(error) => startup.refused(error),
        PgError::Protocol(what) => {
            let cause = format!("the server does not speak PostgreSQL's protocol ({what}); check host and port");
            PgError::Connect { host, cause }
        }
        PgError::Closed(what) => PgError::Connect { host, cause: what },
        other => other,
    })?;
    let Startup { mut link, .. } = startup;
    link.wire().set_time_limit(None).map_err(cannot)?;
    link.set_limit(LARGEST_MESSAGE);
    link.orderly = true;
    Ok((link, server))
}

/// A socket, encrypted if the URL requires it.
pub(super) fn connect(url: &Url, deadline: Deadline) -> Result<Socket, PgError> {
    let cannot = |e: std::io::Error| PgError::Connect { host: place(url), cause: cause(url, &e) };
    let refused = |cause: String| PgError::Connect { host: place(url), cause };
    let mut wire = Socket::connect(url, deadline).map_err(cannot)?;
    if url.sslmode == SslMode::Disable {
        return Ok(wire);
    }
    let tls = encryption::begin(url).map_err(refused)?;
    let mut out = BytesMut::new();
    frontend::ssl_request(&mut out);
    wire.set_time_limit(deadline.left().map_err(cannot)?).map_err(cannot)?;
    wire.send(&out).map_err(cannot)?;
    // One byte and no more: anything after it would not be encrypted.
    let mut answer = [0];
    match (wire.receive(&mut answer), answer[0]) {
        (Ok(0), _) => Err(refused("the server closed the connection when asked to encrypt".to_owned())),
        (Ok(_), b'S') => {
            wire.encrypt(tls, deadline).map_err(cannot)?;
            Ok(wire)
        }
        (Ok(_), b'N' | b'E') => {
            Err(refused(format!("the server does not encrypt, and the URL has sslmode={}", url.sslmode)))
        }
        (Ok(_), other) => Err(refused(format!(
            "the server does not speak PostgreSQL's protocol (0x{other:02x} when asked to encrypt); check host and port"
        ))),
        (Err(e), _) if e.kind() == std::io::ErrorKind::WouldBlock => Err(cannot(std::io::ErrorKind::TimedOut.into())),
        (Err(e), _) => Err(cannot(e)),
    }
}

/// The server's address for readers.
pub(super) fn place(url: &Url) -> String {
    match &url.host {
        super::url::Host::Tcp(host) if host.contains(':') => format!("[{host}]:{}", url.port),
        super::url::Host::Tcp(host) => format!("{host}:{}", url.port),
        super::url::Host::Unix(folder) => format!("{}/.s.PGSQL.{}", folder.display(), url.port),
    }
}

fn cause(url: &Url, error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => "; is the server up, and does it listen there?",
        ErrorKind::NotFound if matches!(url.host, super::url::Host::Unix(_)) => {
            "; is the server up, and is its socket in that folder?"
        }
        ErrorKind::PermissionDenied => "; this user may not open the socket",
        ErrorKind::TimedOut => "; connect_timeout=SECONDS in the URL allows more time",
        _ => "",
    };
    let error = if error.kind() == ErrorKind::TimedOut { "no answer in time".to_owned() } else { error.to_string() };
    format!("{error}{advice}")
}

struct Startup<'u> {
    link: BufferedSocket,
    url: &'u Url,
    deadline: Deadline,
}

impl Startup<'_> {
    fn run(&mut self) -> Result<ServerInfo, PgError> {
        let mut out = BytesMut::new();
        let parameters = [
            ("user", self.url.user.as_str()),
            ("database", &self.url.database),
            ("application_name", &self.url.application_name),
            ("client_encoding", "UTF8"),
        ];
        frontend::startup_message(parameters, &mut out).map_err(|e| PgError::Protocol(e.to_string()))?;
        match self.send(&out) {
            // A server that closed without listening may have said why.
            Ok(()) | Err(PgError::Closed(_)) => {}
            Err(error) => return Err(error),
        }

        let mut scram: Option<sasl::ScramSha256> = None;
        let mut proved = false;
        let mut server = ServerInfo { version: String::new(), cancel: CancelKey { process: 0, secret: 0 } };
        loop {
            let length = self.wait()?;
            let url = self.url;
            let mut out = BytesMut::new();
            match Message::parse(self.link.take(length))? {
                Message::Authentication(0, _) => {
                    if scram.is_some() && !proved {
                        return Err(self.not_in("it did not prove that it knows the password".to_owned()));
                    }
                }
                Message::Authentication(3, _) => {
                    self.allow_exposed("the password itself")?;
                    let password = self.password()?;
                    written(frontend::password_message(password.reveal().as_bytes(), &mut out))?;
                }
                Message::Authentication(5, salt) => {
                    let salt =
                        salt.try_into().map_err(|_| PgError::Protocol("a salt that is not 4 bytes".to_owned()))?;
                    self.allow_exposed("an MD5 hash of the password, which is as good as the password,")?;
                    let password = self.password()?;
                    let hash = md5_hash(url.user.as_bytes(), password.reveal().as_bytes(), salt);
                    written(frontend::password_message(hash.as_bytes(), &mut out))?;
                }
                Message::Authentication(10, mechanisms) => {
                    if !mechanisms.split(|&b| b == 0).any(|m| m == sasl::SCRAM_SHA_256.as_bytes()) {
                        let mechanisms = String::from_utf8_lossy(mechanisms).replace('\0', " ");
                        let cause = format!("it requires {}; only SCRAM-SHA-256 is supported", mechanisms.trim());
                        return Err(self.not_in(cause));
                    }
                    let password = self.password()?;
                    let exchange = scram.insert(sasl::ScramSha256::new(
                        password.reveal().as_bytes(),
                        sasl::ChannelBinding::unsupported(),
                    ));
                    written(frontend::sasl_initial_response(sasl::SCRAM_SHA_256, exchange.message(), &mut out))?;
                }
                Message::Authentication(11, data) => {
                    let exchange = scram.as_mut().ok_or_else(|| PgError::Protocol("SASL out of order".to_owned()))?;
                    if let Err(e) = exchange.update(data) {
                        return Err(self.not_in(format!("SCRAM failed: {e}")));
                    }
                    written(frontend::sasl_response(exchange.message(), &mut out))?;
                }
                Message::Authentication(12, data) => {
                    let exchange = scram.as_mut().ok_or_else(|| PgError::Protocol("SASL out of order".to_owned()))?;
                    if let Err(e) = exchange.finish(data) {
                        return Err(self.not_in(format!("it could not prove that it knows the password: {e}")));
                    }
                    proved = true;
                }
                Message::Authentication(kind, _) => {
                    let name = match kind {
                        2 | 7 | 8 => "Kerberos or GSSAPI",
                        9 => "SSPI",
                        _ => "an authentication method",
                    };
                    return Err(self.not_in(format!(
                        "it requires {name} (code {kind}), which is not supported; configure scram-sha-256 in pg_hba.conf"
                    )));
                }
                Message::ErrorResponse(error) => return Err(error.to_error().into()),
                Message::ParameterStatus { name: "server_version", value } => server.version = value.to_owned(),
                Message::BackendKeyData { process, secret } => server.cancel = CancelKey { process, secret },
                Message::ParameterStatus { .. } | Message::NoticeResponse(_) | Message::NegotiateProtocolVersion => {}
                Message::ReadyForQuery(_) => return Ok(server),
                other => return Err(PgError::Protocol(format!("{other:?} during start-up"))),
            }
            self.send(&out)?;
        }
    }

    /// Waits for a whole message.
    fn wait(&mut self) -> Result<usize, PgError> {
        loop {
            if let Some(length) = self.link.ready()? {
                return Ok(length);
            }
            self.limit_time()?;
            if self.link.fill()? == Filled::Nothing {
                return Err(self.late());
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), PgError> {
        while !bytes.is_empty() {
            self.limit_time()?;
            match self.link.send(bytes)? {
                0 => return Err(self.late()),
                count => bytes = &bytes[count..],
            }
        }
        if self.link.flush()? { Ok(()) } else { Err(self.late()) }
    }

    fn limit_time(&self) -> Result<(), PgError> {
        let left = self.deadline.left().map_err(|_| self.late())?;
        self.link.wire().set_time_limit(left).map_err(|e| PgError::Closed(e.to_string()))
    }

    fn late(&self) -> PgError {
        PgError::Connect { host: place(self.url), cause: cause(self.url, &std::io::ErrorKind::TimedOut.into()) }
    }

    /// Refuses to send `what` over a network unless it is encrypted, or the URL says that it need not be.
    fn allow_exposed(&self, what: &str) -> Result<(), PgError> {
        if self.url.is_plain_by_word || !self.link.wire().is_exposed() {
            return Ok(());
        }
        Err(self.not_in(format!(
            "it asks for {what} over an unencrypted connection; write sslmode=verify-full or require in the URL, \
             have pg_hba.conf ask for scram-sha-256, or write sslmode=disable to send it all the same"
        )))
    }

    fn password(&self) -> Result<Cow<'_, Password>, PgError> {
        if let Some(password) = &self.url.password {
            return Ok(Cow::Borrowed(password));
        }
        if let Some(set) = std::env::var("PGPASSWORD").ok().filter(|p| !p.is_empty()) {
            return Ok(Cow::Owned(Password::new(&set)));
        }
        let found = passfile::path(self.url).map_or(Ok(None), |path| passfile::find(&path, self.url));
        let found = found.map_err(|why| self.not_in(why))?;
        found.map(Cow::Owned).ok_or_else(|| self.not_in(NO_PASSWORD.to_owned()))
    }

    fn not_in(&self, cause: String) -> PgError {
        PgError::Authentication { host: place(self.url), user: self.url.user.clone(), cause }
    }

    fn refused(&self, error: Box<ServerError>) -> PgError {
        if !error.sqlstate.is_authentication() {
            return PgError::Startup { host: place(self.url), error };
        }
        let advice = match &error.sqlstate.0 {
            b"28P01" => "check user and password",
            _ if error.text.contains("no encryption") => "sslmode=require in the URL encrypts the connection",
            _ => "check the user's name and the server's pg_hba.conf",
        };
        self.not_in(format!("{error}; {advice}"))
    }
}

fn written(result: std::io::Result<()>) -> Result<(), PgError> {
    result.map_err(|e| PgError::Protocol(e.to_string()))
}
