//! The sizes of the packets of a request and its reply on a network.
//!
//! Invariant: sizes depend only on the request. They are those of SMB as sent by tbench 4 (observed on its connection): fixed
//! parts by kind, two bytes for each character of a path, and the data.

use super::{FileOperation, Loadfile, ROOT, Request, Status};

/// Bytes of the length field at the start of a packet.
const LENGTH: usize = 4;
/// A reply with only a status.
const PLAIN: usize = 35;
/// Bytes of each entry in the reply to a [`FileOperation::Find`].
const ENTRY: usize = 90;
/// Bytes around the data of a read or a write.
const AROUND_DATA: usize = 55;

/// Bytes of a request and of its reply, including lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    pub request: usize,
    pub answer: usize,
}

impl Packets {
    /// The packets of `request`; `None` if it does not go over the network: a [`FileOperation::Deltree`] is only cleanup.
    pub fn of(file: &Loadfile, request: &Request) -> Option<Self> {
        let ok = request.status == Status::Ok;
        // The path as requested: `\clients\` and the rest; two bytes per character.
        let path = |path: u32| {
            let inner = &file.paths[path as usize];
            2 * (1 + ROOT.len() + if inner.is_empty() { 0 } else { 1 + inner.chars().count() })
        };
        let (request, answer) = match request.action {
            FileOperation::Deltree { .. } => return None,
            FileOperation::Create { path: p, .. } => (72 + path(p), 83),
            FileOperation::Close { .. } => (43, PLAIN),
            FileOperation::Read { found, .. } => (AROUND_DATA, AROUND_DATA + found as usize),
            FileOperation::Write { size, .. } => (AROUND_DATA + size as usize, 51),
            FileOperation::Flush { .. } => (37, PLAIN),
            FileOperation::Lock { .. } | FileOperation::Unlock { .. } => (47, PLAIN),
            FileOperation::Unlink { path: p, .. }
            | FileOperation::Mkdir { path: p }
            | FileOperation::Rmdir { path: p } => (41 + path(p), PLAIN),
            FileOperation::Rename { from, to } => (47 + path(from) + path(to), PLAIN),
            FileOperation::QueryPath { path: p, .. } => (53 + path(p), 67),
            FileOperation::QueryFile { .. } | FileOperation::QueryFs { .. } => (55, 67),
            FileOperation::SetFile { .. } => (67, 43),
            FileOperation::Find { path: p, found, .. } => {
                (57 + path(p), PLAIN + if ok { ENTRY * found as usize } else { 0 })
            }
        };
        Some(Self { request: LENGTH + request, answer: LENGTH + answer })
    }
}
