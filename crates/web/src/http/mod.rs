//! HTTP/1.1 as a client speaks it: requests as bytes, responses piece by piece.

pub mod fetch;
pub mod response;

pub use response::{Malformed, Piece, ResponseReader};

/// A request for `path` of the server `host`; with `close`, the last one of its connection.
pub fn request(host: &str, path: &str, close: bool) -> Vec<u8> {
    request_with(host, path, "", close)
}

/// The same with more `headers`, each with its line end.
pub fn request_with(host: &str, path: &str, headers: &str, close: bool) -> Vec<u8> {
    write("GET", host, path, headers, close).into_bytes()
}

/// A request that sends a form; without a cookie if that is empty.
pub fn post(host: &str, path: &str, cookie: &str, form: &str, close: bool) -> Vec<u8> {
    let cookie = if cookie.is_empty() { String::new() } else { format!("Cookie: {cookie}\r\n") };
    let headers =
        format!("{cookie}Content-Length: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n", form.len());
    (write("POST", host, path, &headers, close) + form).into_bytes()
}

fn write(method: &str, host: &str, path: &str, headers: &str, close: bool) -> String {
    let close = if close { "Connection: close\r\n" } else { "" };
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}{close}\r\n")
}
