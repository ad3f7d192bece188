//! The target for acknowledgements of commits, outside a machine that may lose its power.

use std::fs::OpenOptions;
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::AckSink;

/// The target of acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AckTarget {
    /// A file on another machine or device, a pipe, or a serial port; appended to.
    File(PathBuf),
    /// A listening port, as `HOST:PORT`.
    Tcp(String),
}

impl std::str::FromStr for AckTarget {
    /// The accepted forms.
    type Err = &'static str;

    /// Parses `tcp:HOST:PORT`, or otherwise a path.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let address = |to: &str| match to.rsplit_once(':') {
            Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok(),
            None => false,
        };
        match text.strip_prefix("tcp:") {
            Some(to) if address(to) => Ok(AckTarget::Tcp(to.to_owned())),
            Some(_) => Err("`tcp:HOST:PORT`"),
            None if text.is_empty() => Err("a file, or `tcp:HOST:PORT`"),
            None => Ok(AckTarget::File(text.into())),
        }
    }
}

impl std::fmt::Display for AckTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AckTarget::File(path) => write!(f, "{}", path.display()),
            AckTarget::Tcp(to) => write!(f, "tcp:{to}"),
        }
    }
}

impl AckTarget {
    /// Opens it for one run.
    pub fn open(&self) -> Result<Box<dyn AckSink>> {
        Ok(match self {
            AckTarget::File(path) => {
                let file = OpenOptions::new().append(true).create(true).open(path);
                Box::new(file.with_context(|| format!("Cannot open {} for acknowledgements", path.display()))?)
            }
            AckTarget::Tcp(to) => {
                let stream =
                    TcpStream::connect(to).with_context(|| format!("Nobody listens for acknowledgements at {to}"))?;
                // A commit waits for this, so small packets must not be delayed.
                stream.set_nodelay(true).context("Cannot set up the connection for acknowledgements")?;
                Box::new(stream)
            }
        })
    }
}
