//! A server that follows a script, and the messages it sends.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use super::url::Url;

pub(super) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

pub(super) fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(-1, |v| i32::try_from(v.len()).unwrap());
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    message(b'D', &body)
}

pub(super) fn fields(columns: &[(&str, u32)]) -> Vec<u8> {
    let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for (name, kind) in columns {
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&[0; 7]);
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(&[0; 8]);
    }
    message(b'T', &body)
}

pub(super) fn error(severity: &str, sqlstate: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{sqlstate}\0M{text}\0\0").as_bytes())
}

pub(super) fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

pub(super) fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

pub(super) fn authentication(kind: i32, data: &[u8]) -> Vec<u8> {
    message(b'R', &[&kind.to_be_bytes(), data].concat())
}

/// The client as the server sees it.
pub(super) struct Client(pub(super) UnixStream);

impl Client {
    pub(super) fn send(&mut self, parts: &[Vec<u8>]) {
        self.0.write_all(&parts.concat()).unwrap();
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn body(&mut self) -> Vec<u8> {
        let length = u32::from_be_bytes(self.bytes(4).try_into().unwrap());
        self.bytes(length as usize - 4)
    }

    /// The start-up message: version, then names and values.
    pub(super) fn startup(&mut self) -> Vec<String> {
        let body = self.body();
        assert_eq!(body[..4], [0, 3, 0, 0]);
        body[4..].split(|&b| b == 0).map(|word| String::from_utf8(word.to_vec()).unwrap()).collect()
    }

    /// The next message: its tag, and what is in it.
    pub(super) fn receive(&mut self) -> (u8, Vec<u8>) {
        let tag = self.bytes(1)[0];
        (tag, self.body())
    }

    /// The tags of the messages up to `last`.
    pub(super) fn receive_until(&mut self, last: u8) -> Vec<u8> {
        let mut tags = Vec::new();
        while tags.last() != Some(&last) {
            tags.push(self.receive().0);
        }
        tags
    }

    /// All data until the client disconnects.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Accepts the client without a password.
    pub(super) fn let_in(&mut self) {
        self.startup();
        self.welcome();
    }

    pub(super) fn welcome(&mut self) {
        let key = [7_i32.to_be_bytes(), 99_i32.to_be_bytes()].concat();
        self.send(&[
            authentication(0, &[]),
            message(b'S', b"server_version\x0015.8 (Debian)\0"),
            message(b'K', &key),
            ready(),
        ]);
    }
}

/// A server for one client.
pub(super) struct ScriptedServer<T> {
    folder: tempfile::TempDir,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> ScriptedServer<T> {
    pub(super) fn start(script: impl FnOnce(Client) -> T + Send + 'static) -> ScriptedServer<T> {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let thread = std::thread::spawn(move || script(Client(listener.accept().unwrap().0)));
        ScriptedServer { folder, thread }
    }

    pub(super) fn url(&self) -> Url {
        Url::unix("alice", self.folder.path(), 5432, "shop")
    }

    /// The script's result, once it has ended.
    pub(super) fn join(self) -> T {
        self.thread.join().unwrap()
    }
}
