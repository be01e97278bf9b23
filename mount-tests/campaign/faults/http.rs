//! As much HTTP/1.1 as an S3 client speaks: requests with a length, answers with a length.

use std::io::{self, BufRead, Read, Write};

use bytes::Bytes;

/// Names and values.
type Headers = Vec<(String, String)>;

/// A request, taken apart.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub method: String,
    /// As it came: path and query, for whom it is passed on to.
    pub target: String,
    pub bucket: String,
    /// Decoded, without the bucket.
    pub key: String,
    pub queries: Vec<(String, String)>,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// What Content-Length says where it is not the body's: a HEAD's, or a lie.
    pub length: Option<u64>,
}

fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                let hex = std::str::from_utf8(&hex).ok().and_then(|h| u8::from_str_radix(h, 16).ok());
                out.push(hex.unwrap_or(b'?'));
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// The first line and the headers of a message.
fn head(from: &mut impl BufRead) -> io::Result<Option<(String, Headers)>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let first = line.trim_end().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Err(invalid("it ended in its headers"));
        }
        let text = line.trim_end();
        if text.is_empty() {
            return Ok(Some((first, headers)));
        }
        let (name, value) = text.split_once(':').ok_or_else(|| invalid("a header without a colon"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn length_of(headers: &[(String, String)]) -> Option<u64> {
    headers.iter().find(|(n, _)| n == "content-length")?.1.parse().ok()
}

impl Request {
    /// The next one of a connection; nothing at its end. The body is not read yet: its length is told.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<(Self, u64)>> {
        let Some((first, headers)) = head(from)? else { return Ok(None) };
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return Err(invalid("no request")) };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        let pair = |q: &str| {
            let (name, value) = q.split_once('=').unwrap_or((q, ""));
            (decoded(name), decoded(value))
        };
        let length = length_of(&headers).unwrap_or(0);
        let request = Self {
            method: method.to_owned(),
            target: target.to_owned(),
            bucket: bucket.to_owned(),
            key: decoded(key),
            queries: query.split('&').filter(|q| !q.is_empty()).map(pair).collect(),
            headers,
            body: Bytes::new(),
        };
        Ok(Some((request, length)))
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.queries.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Passes it on.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in self.headers.iter().filter(|(n, _)| n != "connection") {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        to.write_all(text.as_bytes())?;
        to.write_all(&self.body)?;
        to.flush()
    }
}

pub fn read_body(from: &mut impl BufRead, length: u64) -> io::Result<Bytes> {
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok(body.into())
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), length: None }
    }

    pub fn xml(status: u16, body: String) -> Self {
        Self::new(status, body).with("content-type", "application/xml")
    }

    /// S3's error document.
    pub fn error(status: u16, code: &str) -> Self {
        Self::xml(status, format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>"))
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn set(&mut self, name: &str, value: String) {
        match self.headers.iter_mut().find(|(n, _)| n == name) {
            Some(header) => header.1 = value,
            None => self.headers.push((name.to_owned(), value)),
        }
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Everything before the body.
    pub fn head(&self, close: bool) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} X\r\n", self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.status != 204 {
            text.push_str(&format!("content-length: {}\r\n", self.length.unwrap_or(self.body.len() as u64)));
        }
        text.push_str(if close { "connection: close\r\n\r\n" } else { "\r\n" });
        text.into_bytes()
    }

    /// What another server said. `to_head`: it sends no body, whatever its length says.
    pub fn read(from: &mut impl BufRead, to_head: bool) -> io::Result<Self> {
        let (first, headers) = head(from)?.ok_or_else(|| invalid("no answer"))?;
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| invalid("no status"))?;
        let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v.contains("chunked"));
        let length = length_of(&headers);
        let body = match (to_head || status == 204 || status == 304, chunked, length) {
            (true, ..) => Bytes::new(),
            (_, true, _) => read_chunks(from)?,
            (_, _, Some(n)) => read_body(from, n)?,
            _ => Bytes::new(),
        };
        let own = |name: &str| !matches!(name, "content-length" | "transfer-encoding" | "connection" | "date");
        let headers = headers.into_iter().filter(|(n, _)| own(n)).collect();
        Ok(Self { status, headers, body, length: length.filter(|_| to_head) })
    }
}

fn read_chunks(from: &mut impl BufRead) -> io::Result<Bytes> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let size = line.trim().split(';').next().and_then(|s| u64::from_str_radix(s, 16).ok());
        let size = size.ok_or_else(|| invalid("no chunk"))?;
        from.by_ref().take(size).read_to_end(&mut body)?;
        line.clear();
        from.read_line(&mut line)?;
        if size == 0 {
            return Ok(body.into());
        }
    }
}
