//! Object identifiers of PostgreSQL's built-in types (`pg_type.dat`), the same in every version.

pub const INT2: u32 = 21;
pub const INT4: u32 = 23;
pub const INT8: u32 = 20;
pub const TEXT: u32 = 25;
pub const VARCHAR: u32 = 1043;
pub const TIMESTAMP: u32 = 1114;
pub const INT4_ARRAY: u32 = 1007;
pub const INT8_ARRAY: u32 = 1016;
pub const TEXT_ARRAY: u32 = 1009;
pub const TIMESTAMP_ARRAY: u32 = 1115;
