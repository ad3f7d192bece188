//! Requests as they are written, and responses as they are read: the header that all share (MS-SMB2 2.2.1), and fields at places.
//!
//! Invariant: reading never leaves the bytes of the response.

use crate::error::SmbError;
use crate::status::NtStatus;

/// Bytes of the header.
pub const HEADER: usize = 64;
/// The first bytes of a message, and of an encrypted one.
pub const PLAIN: [u8; 4] = *b"\xfeSMB";
pub const ENCRYPTED: [u8; 4] = *b"\xfdSMB";
/// The number of a message that answers no request.
pub const UNASKED: u64 = u64::MAX;
/// Flags of a header.
pub const RESPONSE: u32 = 1;
pub const SIGNED: u32 = 8;
/// Places of fields in the header.
pub const FLAGS_AT: usize = 16;
pub const SIGNATURE_AT: usize = 48;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    Negotiate = 0,
    SessionSetup = 1,
    TreeConnect = 3,
    Create = 5,
    Close = 6,
    Flush = 7,
    Read = 8,
    Write = 9,
    Lock = 10,
    QueryDirectory = 14,
    QueryInfo = 16,
    SetInfo = 17,
    OplockBreak = 18,
}

/// The fields of a request's header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub command: Command,
    /// Of 64 KiB that the request or its response carries.
    pub charge: u16,
    pub credits: u16,
    pub message: u64,
    pub tree: u32,
    pub session: u64,
}

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Frame(pub Vec<u8>);

impl Frame {
    /// Begins a request, in the place of what was there.
    pub fn begin(&mut self, header: Header) {
        self.0.clear();
        self.0.extend(PLAIN);
        self.u16(HEADER as u16).u16(header.charge).u32(0).u16(header.command as u16).u16(header.credits);
        self.u32(0).u32(0).u64(header.message).u32(0).u32(header.tree).u64(header.session).bytes(&[0; 16]);
    }

    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Zeros up to a multiple of `unit`.
    pub fn align(&mut self, unit: usize) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(unit), 0);
        self
    }
}

/// A response, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The bytes at a place.
    pub fn bytes(self, at: usize, length: usize) -> Result<&'a [u8], SmbError> {
        let end = at.checked_add(length).ok_or(SmbError::Response("a length is too large"))?;
        self.0.get(at..end).ok_or(SmbError::Response("it is cut off"))
    }

    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], SmbError> {
        Ok(self.bytes(at, N)?.try_into().expect("as many as asked for"))
    }

    pub fn u8(self, at: usize) -> Result<u8, SmbError> {
        Ok(self.array::<1>(at)?[0])
    }

    pub fn u16(self, at: usize) -> Result<u16, SmbError> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub fn u32(self, at: usize) -> Result<u32, SmbError> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub fn u64(self, at: usize) -> Result<u64, SmbError> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// Fields of the header.
    pub fn status(self) -> Result<NtStatus, SmbError> {
        self.u32(8).map(NtStatus)
    }

    pub fn command(self) -> Result<u16, SmbError> {
        self.u16(12)
    }

    pub fn credits(self) -> Result<u16, SmbError> {
        self.u16(14)
    }

    pub fn flags(self) -> Result<u32, SmbError> {
        self.u32(FLAGS_AT)
    }

    pub fn message(self) -> Result<u64, SmbError> {
        self.u64(24)
    }

    pub fn session(self) -> Result<u64, SmbError> {
        self.u64(40)
    }

    pub fn tree(self) -> Result<u32, SmbError> {
        self.u32(36)
    }

    /// What comes after the header.
    pub fn body(self) -> Result<Self, SmbError> {
        self.0.get(HEADER..).map(Fields).ok_or(SmbError::Response("it is cut off"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_fields_where_the_protocol_has_them() {
        let mut frame = Frame::default();
        let header = Header { command: Command::Read, charge: 2, credits: 64, message: 7, tree: 3, session: 9 };
        frame.begin(header);
        let fields = Fields(&frame.0);
        assert_eq!((frame.0.len(), &frame.0[..6]), (HEADER, &b"\xfeSMB\x40\x00"[..]));
        assert_eq!((fields.u16(6).unwrap(), fields.command().unwrap(), fields.credits().unwrap()), (2, 8, 64));
        assert_eq!((fields.message().unwrap(), fields.tree().unwrap(), fields.session().unwrap()), (7, 3, 9));
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let fields = Fields(&[1, 2, 3]);
        assert_eq!(fields.u16(1).unwrap(), 0x0302);
        for wrong in [fields.u16(2), fields.u16(usize::MAX), fields.u32(0).map(|_| 0)] {
            assert!(matches!(wrong, Err(SmbError::Response(_))));
        }
        assert!(fields.body().is_err());
    }
}
