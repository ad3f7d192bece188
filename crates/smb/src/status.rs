//! NT status codes (MS-ERREF).

use std::fmt;

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NtStatus(pub u32);

impl NtStatus {
    pub const OK: Self = Self(0);
    pub const PENDING: Self = Self(0x0000_0103);
    pub const NO_MORE_FILES: Self = Self(0x8000_0006);
    pub const INVALID_PARAMETER: Self = Self(0xc000_000d);
    pub const NO_SUCH_FILE: Self = Self(0xc000_000f);
    pub const END_OF_FILE: Self = Self(0xc000_0011);
    pub const MORE_PROCESSING: Self = Self(0xc000_0016);
    pub const ACCESS_DENIED: Self = Self(0xc000_0022);
    pub const NAME_NOT_FOUND: Self = Self(0xc000_0034);
    pub const NAME_COLLISION: Self = Self(0xc000_0035);
    pub const PATH_NOT_FOUND: Self = Self(0xc000_003a);
    pub const LOGON_FAILURE: Self = Self(0xc000_006d);
    pub const DISK_FULL: Self = Self(0xc000_007f);
    pub const NOT_ACCEPTED: Self = Self(0xc000_00d0);
    pub const DIRECTORY_NOT_EMPTY: Self = Self(0xc000_0101);
    pub const SESSION_DELETED: Self = Self(0xc000_0203);

    const NAMES: [(Self, &str); 16] = [
        (Self::OK, "OK"),
        (Self::PENDING, "PENDING"),
        (Self::NO_MORE_FILES, "NO_MORE_FILES"),
        (Self::INVALID_PARAMETER, "INVALID_PARAMETER"),
        (Self::NO_SUCH_FILE, "NO_SUCH_FILE"),
        (Self::END_OF_FILE, "END_OF_FILE"),
        (Self::MORE_PROCESSING, "MORE_PROCESSING_REQUIRED"),
        (Self::ACCESS_DENIED, "ACCESS_DENIED"),
        (Self::NAME_NOT_FOUND, "OBJECT_NAME_NOT_FOUND"),
        (Self::NAME_COLLISION, "OBJECT_NAME_COLLISION"),
        (Self::PATH_NOT_FOUND, "OBJECT_PATH_NOT_FOUND"),
        (Self::LOGON_FAILURE, "LOGON_FAILURE"),
        (Self::DISK_FULL, "DISK_FULL"),
        (Self::NOT_ACCEPTED, "REQUEST_NOT_ACCEPTED"),
        (Self::DIRECTORY_NOT_EMPTY, "DIRECTORY_NOT_EMPTY"),
        (Self::SESSION_DELETED, "USER_SESSION_DELETED"),
    ];
}

impl fmt::Display for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(status, _)| status == self) {
            Some((_, name)) => write!(f, "NT_STATUS_{name}"),
            None => write!(f, "NT status {:#010x}", self.0),
        }
    }
}
