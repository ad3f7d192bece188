//! SHA-256 of files and bytes, as lower-case hexadecimal.

use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::regular_file;

pub fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn of_file(path: &Path) -> io::Result<String> {
    let mut file = regular_file::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(64), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}
