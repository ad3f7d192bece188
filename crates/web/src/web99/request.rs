//! The requests of `web99`: a file as it is, or a page that a program makes of it.
//!
//! Invariant: driver and server make a page with the same function, from the same files.

use std::fmt;

use bigiron_service::httpd::APPLICATION;

use super::ads::{ADS, Shown};
use super::post_log::{Posted, Posts};
use super::{CLASSES, FILES, path};
use crate::document::Documents;
use crate::http;

/// The path of the CGI program.
pub const PROGRAM: &str = "/cgi/page";
/// The arguments of the CGI program before the file's path.
pub const CGI: &str = "worker+web-page+cgi+";
/// Stands in a file for the address of an advertisement, and comes once in this many bytes.
pub const TAG: &[u8] = b"<!AD><img src=\"/dir00000/class0_0\"><!/AD>";
pub const TAG_EVERY: usize = 512;
/// Where the address is in the tag.
const ADDRESS: usize = 15;
/// The classes of files in which it is replaced.
const REPLACED: std::ops::RangeInclusive<usize> = 1..=2;
const END: &str = "</pre>\n</body>\n</html>\n";

/// A page that a program makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// The file in a page, by the application.
    Ad,
    /// The same with the advertisement for this user after the last one.
    Custom { user: u16, last: u16, shown: Shown },
    /// The file in a page, and a record in the log.
    Post(Posted),
    /// The file in a page, by a process of its own.
    Cgi,
}

/// Pages that were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    ads: u64,
    custom: u64,
    pub posts: Posts,
    programs: u64,
}

impl Pages {
    pub fn add(&mut self, dynamic: &Dynamic) {
        match dynamic {
            Dynamic::Ad => self.ads += 1,
            Dynamic::Custom { .. } => self.custom += 1,
            Dynamic::Post(posted) => self.posts.add(posted),
            Dynamic::Cgi => self.programs += 1,
        }
    }

    pub fn join(&mut self, other: Self) {
        self.ads += other.ads;
        self.custom += other.custom;
        self.posts.join(other.posts);
        self.programs += other.programs;
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ads, custom, posts, programs } = self;
        let posts = posts.count;
        write!(f, "{ads} with an advertisement, {custom} with a custom one, {posts} POSTs, {programs} by CGI programs")
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The number of the file.
    pub document: usize,
    /// `None`: the file as it is.
    pub dynamic: Option<Dynamic>,
}

impl Ask {
    pub fn file(document: usize) -> Self {
        Self { document, dynamic: None }
    }
}

/// What the response to a request for a page must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub body: Vec<u8>,
    /// The cookie that it sets.
    pub cookie: Option<String>,
    /// What it is about, for messages.
    pub target: String,
    pub dynamic: Dynamic,
}

/// The bytes of a request for a page, and the response; `client` is the driver's address as the server sees it.
pub fn write(
    ask: Ask,
    dynamic: Dynamic,
    documents: &Documents,
    host: &str,
    client: &str,
    close: bool,
) -> (Vec<u8>, Page) {
    let file = documents.path(ask.document);
    let (program, query) = match dynamic {
        Dynamic::Ad | Dynamic::Custom { .. } => (APPLICATION, file.to_owned()),
        Dynamic::Cgi => (PROGRAM, format!("{CGI}{file}")),
        Dynamic::Post(_) => (APPLICATION, String::new()),
    };
    let target = if query.is_empty() { program.to_owned() } else { format!("{program}?{query}") };
    let mut cookie = None;
    let text = match dynamic {
        Dynamic::Custom { user, last, .. } => {
            http::request_with(host, &target, &format!("Cookie: user={user}&ad={last}\r\n"), close)
        }
        Dynamic::Post(posted) => http::post(host, &target, &posted.cookie(), &posted.form(), close),
        Dynamic::Ad | Dynamic::Cgi => http::request(host, &target, close),
    };
    let mut body = page(client, program, &query, documents.body(ask.document));
    if let Dynamic::Custom { shown, .. } = dynamic {
        cookie = Some(shown.cookie());
        replace(&mut body, ask.document, shown, documents.count());
    }
    (text, Page { body, cookie, target, dynamic })
}

/// The page of a file.
pub fn page(client: &str, program: &str, query: &str, file: &[u8]) -> Vec<u8> {
    let head = format!(
        "<!DOCTYPE html>\n<html>\n<head><title>A file</title></head>\n<body>\n<p>Client: {client}\n<p>Program: {program}\n<p>Query: {query}\n<pre>\n"
    );
    [head.as_bytes(), file, END.as_bytes()].concat()
}

/// Puts the address of the advertisement into the page of a file, if it is one of those with a place for it; there are `count` files.
pub fn replace(page: &mut [u8], document: usize, shown: Shown, count: usize) {
    if !REPLACED.contains(&(document / FILES % CLASSES)) {
        return;
    }
    if let Some(at) = page.windows(TAG.len()).position(|found| found == TAG) {
        let number = usize::from(shown.ad % ADS) % count.max(1);
        let address = path(number / (CLASSES * FILES), number / FILES % CLASSES, number % FILES);
        // Both have the same length.
        page[at + ADDRESS..][..address.len()].copy_from_slice(address.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web99::ads::Ads;

    #[test]
    fn pages_have_the_file_and_the_address_of_the_advertisement() {
        let documents = Documents::web99(11);
        let shown = Ads::generate().choose(1, 2);
        let dynamic = Dynamic::Custom { user: 1, last: 2, shown };
        for (document, replaced) in [(0, false), (9, true), (26, true), (27, false), (36 + 9, true)] {
            let (text, page) = write(Ask::file(document), dynamic, &documents, "h", "127.0.0.1", true);
            let text = String::from_utf8(text).unwrap();
            let path = documents.path(document);
            assert!(text.starts_with(&format!("GET /ads?{path} HTTP/1.1\r\nHost: h\r\n")), "{text}");
            assert!(text.ends_with("Cookie: user=1&ad=2\r\nConnection: close\r\n\r\n"), "{text}");
            assert_eq!(page.cookie, Some(shown.cookie()));
            let plain = super::page("127.0.0.1", "/ads", path, documents.body(document));
            let differing = plain.iter().zip(&page.body).filter(|(a, b)| a != b).count();
            assert_eq!((page.body.len(), differing > 0), (plain.len(), replaced), "{path}");
            let number = usize::from(shown.ad);
            let address = format!("<!AD><img src=\"{}\"><!/AD>", documents.path(number));
            let has = page.body.windows(address.len()).any(|part| part == address.as_bytes());
            assert_eq!(has, replaced, "{path}");
        }
        let posted = Posted { document: 3, client: 5, user: 1, ad: 2 };
        let (text, page) = write(Ask::file(3), Dynamic::Post(posted), &documents, "h", "c", false);
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("POST /ads HTTP/1.1\r\n") && text.ends_with("\r\n\r\ndocument=3&client=5"), "{text}");
        assert!(text.contains("Cookie: user=1&ad=2\r\nContent-Length: 19\r\n"), "{text}");
        assert_eq!((page.dynamic, page.target.as_str()), (Dynamic::Post(posted), "/ads"));
        let (text, page) = write(Ask::file(0), Dynamic::Cgi, &documents, "h", "c", false);
        assert!(text.starts_with(b"GET /cgi/page?worker+web-page+cgi+/dir00000/class0_1 HTTP/1.1\r\n"));
        assert!(page.body.ends_with(b"</pre>\n</body>\n</html>\n"));
    }
}
