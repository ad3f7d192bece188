//! Initramfs archives (cpio "newc", the format in the kernel's Documentation/driver-api/early-userspace/buffer-format.rst),
//! written by us: no root, no device nodes on the host, the same bytes for the same content.

/// An archive being written. Archives may be concatenated: the kernel unpacks one after the other.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;

impl Archive {
    pub fn new() -> Self {
        Self::default()
    }

    /// The folders that the agent needs, and the agent as the first process.
    pub fn with_agent(agent: &[u8]) -> Self {
        let mut archive = Self::new();
        for dir in ["/dev", "/proc", "/sys", "/tmp", "/data", "/modules", "/images"] {
            archive.directory(dir, 0o755);
        }
        archive.character_device("/dev/console", 0o600, 5, 1).file("/init", 0o755, agent);
        archive
    }

    /// Adds a directory; its parent must be there already.
    pub fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        self.entry(path, DIRECTORY | mode, (0, 0), &[])
    }

    /// Adds a file with this content.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> &mut Self {
        self.entry(path, REGULAR | mode, (0, 0), content)
    }

    /// Adds a character device.
    pub fn character_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) -> &mut Self {
        self.entry(path, CHARACTER | mode, (major, minor), &[])
    }

    /// Ends the archive: its bytes, a multiple of 512.
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) -> &mut Self {
        let path = path.trim_start_matches('/');
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        let size = u32::try_from(content.len()).expect("an initramfs file is below 4 GiB");
        let fields = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            links,
            0, // mtime: the same bytes for the same content
            size,
            0, // device of the file itself
            0,
            device.0,
            device.1,
            path.len() as u32 + 1,
            0, // checksum: unused in newc
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self.inode += 1;
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_the_archive_ends_with_its_trailer() {
        let mut archive = Archive::new();
        archive.directory("/dev", 0o755).character_device("/dev/console", 0o600, 5, 1).file("/x", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 512, 0);
        // Walk it as the kernel does.
        let mut at = 0;
        let mut seen = Vec::new();
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let start = at + 6 + n * 8;
                usize::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
            };
            let (mode, size, name_len) = (field(1), field(6), field(11));
            let name = std::str::from_utf8(&bytes[at + 110..at + 110 + name_len - 1]).unwrap();
            let data = (at + 110 + name_len).next_multiple_of(4);
            if name == "TRAILER!!!" {
                break;
            }
            seen.push((name.to_owned(), mode, (field(9), field(10)), bytes[data..data + size].to_vec()));
            at = (data + size).next_multiple_of(4);
        }
        assert_eq!(
            seen,
            [
                ("dev".to_owned(), 0o040_755, (0, 0), vec![]),
                ("dev/console".to_owned(), 0o020_600, (5, 1), vec![]),
                ("x".to_owned(), 0o100_755, (0, 0), b"hello".to_vec()),
            ]
        );
    }
}
