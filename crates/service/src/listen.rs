//! Where a private server listens, in addition to its socket, which only its owner can reach.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::error::{ServerError, doing};
use super::instance;

/// The file of the password in a server's folder. The socket needs none: nobody else can enter the folder.
pub const PASSWORD: &str = "password";

/// Where a server listens, in addition to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Socket,
    /// On a free port of 127.0.0.1, with a password, because other users of the machine can reach it.
    Tcp,
    /// On the server's usual port of 127.0.0.1, without a password: for a guest, which nobody else uses.
    TcpAlone,
    /// On a free port of this address, with a password, for clients with these addresses: at least one of them is on another machine.
    Network { address: Ipv4Addr, clients: [Ipv4Addr; 2] },
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Of this machine.
    pub address: Ipv4Addr,
    pub port: u16,
    /// The addresses from which clients may connect.
    pub clients: Vec<Ipv4Addr>,
    /// `None` where everybody may connect.
    pub password: Option<String>,
}

impl Listen {
    /// The port for a server in `folder`; `usual` is the port of its kind.
    ///
    /// # Errors
    /// No port is free, or the folder has no password.
    pub fn tcp(self, folder: &Path, usual: u16) -> Result<Option<Tcp>, ServerError> {
        let (address, clients) = match self {
            Self::Socket => return Ok(None),
            Self::Tcp | Self::TcpAlone => (Ipv4Addr::LOCALHOST, vec![Ipv4Addr::LOCALHOST]),
            // The machine's own clients, too: those that load the data.
            Self::Network { address, clients } => {
                let clients: BTreeSet<Ipv4Addr> = clients.into_iter().chain([address]).collect();
                (address, clients.into_iter().collect())
            }
        };
        if self == Self::TcpAlone {
            return Ok(Some(Tcp { address, port: usual, clients, password: None }));
        }
        let port = free_port_of(folder, address)?;
        let path = folder.join(PASSWORD);
        let password = fs::read_to_string(&path).map_err(doing("Cannot read", &path))?;
        Ok(Some(Tcp { address, port, clients, password: Some(password) }))
    }
}

/// Writes a new password into a server's folder, for its user alone, and returns it.
///
/// # Errors
/// It cannot be written.
pub fn new_password(folder: &Path, user: u32) -> Result<String, ServerError> {
    let path = folder.join(PASSWORD);
    let password = random_word().map_err(doing("No random bytes for", &path))?;
    instance::write(&path, &password, user)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(doing("Cannot write", &path))?;
    Ok(password)
}

/// The lowest port to choose; well-known servers use lower ones.
const FIRST_PORT: u16 = 16_384;
/// The number of random ports to try.
const TRIES: usize = 64;

/// A port of 127.0.0.1 that no process uses now, for a server in `folder`.
///
/// # Errors
/// None is free.
pub fn free_port(folder: &Path) -> Result<u16, ServerError> {
    free_port_of(folder, Ipv4Addr::LOCALHOST)
}

/// A port of `address` that no process uses now, for a server in `folder`. If possible, it is outside the kernel's range of ephemeral ports, because a
/// connection could take one of those before the server does.
///
/// # Errors
/// None is free.
pub fn free_port_of(folder: &Path, address: Ipv4Addr) -> Result<u16, ServerError> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let of_connections = range.split_whitespace().next().and_then(|port| port.parse().ok()).unwrap_or(FIRST_PORT);
    if of_connections > FIRST_PORT {
        for _ in 0..TRIES {
            let random = u16::from_le_bytes(random_bytes().map_err(doing("No random bytes for", folder))?);
            let port = FIRST_PORT + random % (of_connections - FIRST_PORT);
            if TcpListener::bind((address, port)).is_ok() {
                return Ok(port);
            }
        }
    }
    let free = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    let failed = |e| ServerError::Failed(format!("Cannot listen on {address}: {e}"));
    Ok(free.map_err(failed)?.port())
}

/// Whether a process of `user` listens on `port` of 127.0.0.1, without connecting to it.
pub(crate) fn is_listening(port: u16, user: u32) -> bool {
    // proc(5): number, local address, remote address, state (0A listens), queues, timers, retransmissions, user.
    let own = format!("0100007F:{port:04X}");
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| {
        words.get(1) == Some(&&*own) && words.get(3) == Some(&"0A") && words.get(7) == Some(&&*user.to_string())
    })
}

fn random_word() -> io::Result<String> {
    Ok(random_bytes::<16>()?.iter().map(|b| format!("{b:02x}")).collect())
}

fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_free_and_no_connection_gets_it() {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        let port = free_port(Path::new("/")).unwrap();
        assert!(first <= FIRST_PORT || (FIRST_PORT..first).contains(&port), "{port}, connections from {first}");
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
