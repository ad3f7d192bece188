//! The documents of a job: what a private server is given, and what its responses are compared with.
//!
//! Invariant: documents depend only on [`SEED`], so that all trials of all studies serve the same bytes.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;

use bigiron_service::error::ServerError;
use bigiron_service::instance;
use bigiron_sys::load::rng::SplitMix64;

use crate::web99;
use crate::web99::request::{TAG, TAG_EVERY};

/// The seed of every document.
const SEED: u64 = 0x0077_6562_7061_6765;
/// Bytes of the page and of each of its images.
const PAGE: usize = 21_504 + 512;
const IMAGE: usize = 25 << 10;
/// Bytes from which each file of `web99` is a part.
const SHARED: usize = 2 << 20;

/// A document and its place among the bytes of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Begins with `/`.
    pub path: String,
    body: Range<usize>,
}

/// The documents of a job, in the order in which a page is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    bytes: Vec<u8>,
    all: Vec<Document>,
}

impl Documents {
    /// A page of 21.5 KB, and two images of 25 KB that it shows.
    pub fn static_page() -> Self {
        let mut documents = Self { bytes: Vec::new(), all: Vec::new() };
        let images = ["/images/left.png", "/images/right.png"];
        documents.add("/index.html", page(&images, PAGE).into_bytes());
        for path in images {
            let mut rng = SplitMix64::stream(SEED, path);
            let body: Vec<u8> = (0..IMAGE / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
            documents.add(path, body);
        }
        documents
    }

    /// The files of `web99`. They share their bytes, so that the driver need not hold all of them.
    pub fn web99(directories: usize) -> Self {
        let mut rng = SplitMix64::stream(SEED, "web99");
        let mut bytes: Vec<u8> = (0..SHARED / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
        // Each file of a class whose pages show advertisements has a place for one.
        bytes.chunks_exact_mut(TAG_EVERY).for_each(|part| part[..TAG.len()].copy_from_slice(TAG));
        let mut all = Vec::with_capacity(directories * web99::CLASSES * web99::FILES);
        for directory in 0..directories {
            for class in 0..web99::CLASSES {
                for file in 0..web99::FILES {
                    let size = web99::size(class, file);
                    let begin = rng.below((SHARED - size) as u64) as usize;
                    all.push(Document { path: web99::path(directory, class, file), body: begin..begin + size });
                }
            }
        }
        Self { bytes, all }
    }

    /// One document of this many random bytes.
    pub fn random(path: &str, bytes: usize) -> Self {
        let mut rng = SplitMix64::stream(SEED, path);
        Self::single(path, (0..bytes / 8).flat_map(|_| rng.next().to_le_bytes()).collect())
    }

    /// These documents.
    pub fn of(all: impl Iterator<Item = (String, Vec<u8>)>) -> Self {
        let mut documents = Self { bytes: Vec::new(), all: Vec::new() };
        all.for_each(|(path, body)| documents.add(&path, body));
        documents
    }

    /// One document with this body.
    pub fn single(path: &str, body: Vec<u8>) -> Self {
        let mut documents = Self { bytes: Vec::new(), all: Vec::new() };
        documents.add(path, body);
        documents
    }

    fn add(&mut self, path: &str, body: Vec<u8>) {
        let begin = self.bytes.len();
        self.bytes.extend(body);
        self.all.push(Document { path: path.to_owned(), body: begin..self.bytes.len() });
    }

    /// Number of documents.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Bytes of all bodies.
    pub fn bytes(&self) -> u64 {
        self.all.iter().map(|document| document.body.len() as u64).sum()
    }

    /// The path of document `number`.
    pub fn path(&self, number: usize) -> &str {
        &self.all[number].path
    }

    /// The body of document `number`.
    pub fn body(&self, number: usize) -> &[u8] {
        &self.bytes[self.all[number].body.clone()]
    }

    /// Changes a byte of what responses are compared with.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self, number: usize, byte: usize) {
        let at = self.all[number].body.start + byte;
        self.bytes[at] ^= 1;
    }

    /// Writes all documents below `root`, which belongs to `user`.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn write(&self, root: &Path, user: u32) -> Result<(), ServerError> {
        for (number, document) in self.all.iter().enumerate() {
            let path = root.join(document.path.trim_start_matches('/'));
            if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
                instance::make_folder(folder, user)?;
            }
            instance::write(&path, self.body(number), user)?;
        }
        Ok(())
    }
}

/// HTML of exactly this many bytes that shows the images: words of random letters.
fn page(images: &[&str], bytes: usize) -> String {
    let mut rng = SplitMix64::stream(SEED, "page");
    let mut text = "<!DOCTYPE html>\n<html>\n<head><title>A page</title></head>\n<body>\n".to_owned();
    images.iter().for_each(|path| text.push_str(&format!("<img src=\"{path}\">\n")));
    text.push_str("<p>\n");
    let end = "\n</body>\n</html>\n";
    let mut column = 0;
    while text.len() + end.len() < bytes {
        let letter = match rng.below(7) {
            0 if column > 90 => '\n',
            0 if column > 0 => ' ',
            _ => char::from(b'a' + rng.below(26) as u8),
        };
        column = if letter == '\n' { 0 } else { column + 1 };
        text.push(letter);
    }
    text + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_sizes_and_is_the_same_every_time() {
        let documents = Documents::static_page();
        let sizes: Vec<_> = (0..documents.count()).map(|n| (documents.path(n), documents.body(n).len())).collect();
        assert_eq!(sizes, [("/index.html", 22_016), ("/images/left.png", 25_600), ("/images/right.png", 25_600)]);
        assert_eq!(documents, Documents::static_page());
        assert_ne!(documents.body(1), documents.body(2));
        let page = std::str::from_utf8(documents.body(0)).unwrap();
        assert!(page.contains("<img src=\"/images/right.png\">") && page.ends_with("</html>\n"));
        assert!(page.lines().all(|line| line.len() < 200), "{page}");
    }

    #[test]
    fn documents_are_written_where_their_paths_say() {
        let dir = tempfile::tempdir().unwrap();
        let documents = Documents::static_page();
        documents.write(dir.path(), rustix::process::geteuid().as_raw()).unwrap();
        for number in 0..documents.count() {
            let path = dir.path().join(&documents.path(number)[1..]);
            assert_eq!(std::fs::read(path).unwrap(), documents.body(number));
        }
    }
}
