//! Texts as the protocol has them: UTF-16, little-endian, without a byte order mark.

/// The bytes of `text`.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}
