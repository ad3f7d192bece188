//! The address of a document on an existing server.
//!
//! Invariant: host and path contain no byte that would end a line of a request.

use std::fmt;
use std::net::{SocketAddrV4, ToSocketAddrs as _};
use std::str::FromStr;

use anyhow::{Context as _, Result};

/// What it can be, for messages.
const RIGHT: &str = "`http://HOST/PATH` or `http://HOST:PORT/PATH`, also with `https`, without user or fragment";

/// `http://HOST:PORT/PATH` or `https://HOST:PORT/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether its connections are encrypted.
    pub is_secure: bool,
    pub host: String,
    pub port: u16,
    /// Begins with `/`.
    pub path: String,
}

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once("://").ok_or(RIGHT)?;
        let (is_secure, default) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(RIGHT),
        };
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| RIGHT)?),
            None => (authority, default),
        };
        let of_host = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
        let of_path = |b: u8| b.is_ascii_graphic() && b != b'#';
        if host.is_empty() || port == 0 || !host.bytes().all(of_host) || !path.bytes().all(of_path) {
            return Err(RIGHT);
        }
        Ok(Self { is_secure, host: host.to_owned(), port, path: path.to_owned() })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

impl Url {
    /// The address of its host.
    ///
    /// # Errors
    /// It has no IPv4 address.
    pub fn address(&self) -> Result<SocketAddrV4> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found = found.with_context(|| format!("Cannot find the host `{}` of `web.url`", self.host))?;
        let v4 = found.filter_map(|a| if let std::net::SocketAddr::V4(a) = a { Some(a) } else { None }).next();
        v4.with_context(|| format!("The host `{}` of `web.url` has no IPv4 address", self.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_whole_or_refused() {
        let url: Url = "http://127.0.0.1:8080/a?b=c".parse().unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("127.0.0.1", 8080, "/a?b=c"));
        assert_eq!(url.address().unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!("http://a.test".parse::<Url>().unwrap().to_string(), "http://a.test:80/");
        assert_eq!("https://a.test/b".parse::<Url>().unwrap().to_string(), "https://a.test:443/b");
        for wrong in [
            "",
            "ftp://a/",
            "http://",
            "http://:80/",
            "http://a:0/",
            "http://a:x/",
            "http://u@a/",
            "http://a/ b",
            "http://a/#b",
            "http://a/\r\nX: y",
            "http://[::1]/",
        ] {
            assert!(wrong.parse::<Url>().is_err(), "{wrong}");
        }
    }
}
