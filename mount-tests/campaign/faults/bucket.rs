//! An S3 server in memory, as strict as a real one about what a store rests on: strongly consistent, conditional creates, parts, lists in
//! pages, deletes in bulk. Signatures are not looked at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ckptfs::types::Digest;

use super::http::{Answer, Request};

/// Keys of a page: few, so that lists have several.
pub const PAGE: usize = 7;

const DATE: &str = "Mon, 30 Nov 2026 00:00:00 GMT";

#[derive(Clone)]
struct Object {
    body: Bytes,
    tag: String,
}

#[derive(Default)]
struct Upload {
    key: String,
    parts: BTreeMap<u32, Object>,
}

/// Objects and uploads of all buckets.
#[derive(Default)]
pub struct Bucket {
    objects: Mutex<BTreeMap<String, Object>>,
    uploads: Mutex<BTreeMap<String, Upload>>,
    next: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The texts of all elements of this name.
pub fn texts<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    xml.split(&open).skip(1).filter_map(|rest| rest.split_once(&close).map(|(text, _)| text)).collect()
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Opaque and not to be forged, as real ones: a token whose bits were changed is no other token.
fn token(key: &str) -> String {
    format!("{}-{}", Digest::of(key.as_bytes()).to_hex().get(..16).unwrap(), hex(key))
}

fn hex(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

fn key_of(given: &str) -> Option<String> {
    let (_, hexed) = given.split_once('-')?;
    let bytes: Option<Vec<u8>> =
        (0..hexed.len() / 2).map(|i| u8::from_str_radix(hexed.get(2 * i..2 * i + 2)?, 16).ok()).collect();
    let key = String::from_utf8(bytes?).ok()?;
    (token(&key) == given).then_some(key)
}

impl Object {
    fn new(body: Bytes) -> Self {
        let tag = format!("\"{}\"", Digest::of(&body).to_hex().get(..32).unwrap());
        Self { body, tag }
    }

    fn answer(&self, status: u16) -> Answer {
        Answer::new(status, Bytes::new()).with("etag", &self.tag).with("last-modified", DATE)
    }
}

impl Bucket {
    /// What lies at a key: for the harness, which looks past every fault.
    pub fn peek(&self, bucket: &str, key: &str) -> Option<Bytes> {
        lock(&self.objects).get(&format!("{bucket}/{key}")).map(|o| o.body.clone())
    }

    /// All keys of a bucket that begin so.
    pub fn keys(&self, bucket: &str, prefix: &str) -> Vec<String> {
        let from = format!("{bucket}/{prefix}");
        let objects = lock(&self.objects);
        let found = objects.range(from.clone()..).take_while(|(k, _)| k.starts_with(&from));
        found.map(|(k, _)| k.split_once('/').unwrap().1.to_owned()).collect()
    }

    /// Uploads that were begun and neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        lock(&self.uploads).len()
    }

    pub fn handle(&self, request: &Request) -> Answer {
        let full = format!("{}/{}", request.bucket, request.key);
        match (request.method.as_str(), request.query("uploadId")) {
            ("GET", _) if request.query("list-type").is_some() => self.list(request),
            ("GET", _) => self.get(&full, request.header("range")),
            ("HEAD", _) => match lock(&self.objects).get(&full) {
                Some(object) => Answer { length: Some(object.body.len() as u64), ..object.answer(200) },
                None => Answer { length: Some(0), ..Answer::new(404, Bytes::new()) },
            },
            ("PUT", Some(id)) => self.part(&full, id, request),
            ("PUT", None) => self.put(&full, request),
            ("POST", Some(id)) => self.complete(&full, id, request),
            ("POST", None) if request.query("uploads").is_some() => self.begin(full, request),
            ("POST", None) if request.query("delete").is_some() => self.delete_all(request),
            ("DELETE", Some(id)) => {
                let mut uploads = lock(&self.uploads);
                if uploads.get(id).is_none_or(|u| u.key != full) {
                    return Answer::error(404, "NoSuchUpload");
                }
                uploads.remove(id);
                Answer::new(204, Bytes::new())
            }
            ("DELETE", None) => {
                lock(&self.objects).remove(&full);
                Answer::new(204, Bytes::new())
            }
            _ => Answer::error(501, "NotImplemented"),
        }
    }

    fn get(&self, full: &str, range: Option<&str>) -> Answer {
        let Some(object) = lock(&self.objects).get(full).cloned() else { return Answer::error(404, "NoSuchKey") };
        let size = object.body.len();
        let Some(range) = range else { return Answer { body: object.body.clone(), ..object.answer(200) } };
        let bounds = range.strip_prefix("bytes=").and_then(|r| r.split_once('-'));
        let Some((from, to)) = bounds.and_then(|(a, b)| Some((a.parse().ok()?, b.parse::<usize>().ok()?))) else {
            return Answer::error(400, "InvalidArgument");
        };
        let to = to.min(size.saturating_sub(1));
        if from >= size || from > to {
            return Answer::error(416, "InvalidRange");
        }
        let answer = object.answer(206).with("content-range", &format!("bytes {from}-{to}/{size}"));
        Answer { body: object.body.slice(from..=to), ..answer }
    }

    fn put(&self, full: &str, request: &Request) -> Answer {
        let object = Object::new(request.body.clone());
        let answer = object.answer(200);
        let mut objects = lock(&self.objects);
        if request.header("if-none-match") == Some("*") && objects.contains_key(full) {
            return Answer::error(412, "PreconditionFailed");
        }
        objects.insert(full.to_owned(), object);
        answer
    }

    fn begin(&self, full: String, request: &Request) -> Answer {
        let id = format!("upload-{}", self.next.fetch_add(1, Ordering::Relaxed));
        lock(&self.uploads).insert(id.clone(), Upload { key: full, parts: BTreeMap::new() });
        let (bucket, key) = (escape(&request.bucket), escape(&request.key));
        Answer::xml(
            200,
            format!(
                "<?xml version=\"1.0\"?><InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            ),
        )
    }

    fn part(&self, full: &str, id: &str, request: &Request) -> Answer {
        let number = request.query("partNumber").and_then(|n| n.parse().ok());
        let object = Object::new(request.body.clone());
        let answer = object.answer(200);
        match (lock(&self.uploads).get_mut(id).filter(|u| u.key == full), number) {
            (Some(upload), Some(number)) => {
                upload.parts.insert(number, object);
                answer
            }
            _ => Answer::error(404, "NoSuchUpload"),
        }
    }

    fn complete(&self, full: &str, id: &str, request: &Request) -> Answer {
        let xml = String::from_utf8_lossy(&request.body).into_owned();
        let mut uploads = lock(&self.uploads);
        let Some(upload) = uploads.get(id).filter(|u| u.key == full) else {
            return Answer::error(404, "NoSuchUpload");
        };
        let mut body = Vec::new();
        for (number, tag) in texts(&xml, "PartNumber").iter().zip(texts(&xml, "ETag")) {
            let part = number.parse().ok().and_then(|n: u32| upload.parts.get(&n));
            match part.filter(|p| p.tag.trim_matches('"') == unescape(tag).trim_matches('"')) {
                Some(part) => body.extend_from_slice(&part.body),
                None => return Answer::error(400, "InvalidPart"),
            }
        }
        let object = Object::new(body.into());
        let (key, tag) = (escape(&request.key), escape(&object.tag));
        uploads.remove(id);
        lock(&self.objects).insert(full.to_owned(), object);
        Answer::xml(
            200,
            format!(
                "<?xml version=\"1.0\"?><CompleteMultipartUploadResult><Key>{key}</Key><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
            ),
        )
    }

    fn delete_all(&self, request: &Request) -> Answer {
        let xml = String::from_utf8_lossy(&request.body).into_owned();
        let mut objects = lock(&self.objects);
        let mut out = "<?xml version=\"1.0\"?><DeleteResult>".to_owned();
        for key in texts(&xml, "Key") {
            objects.remove(&format!("{}/{}", request.bucket, unescape(key)));
            out.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        Answer::xml(200, out + "</DeleteResult>")
    }

    fn list(&self, request: &Request) -> Answer {
        let (bucket, prefix) = (&request.bucket, request.query("prefix").unwrap_or_default());
        let after = match request.query("continuation-token") {
            None => request.query("start-after").unwrap_or_default().to_owned(),
            Some(given) => match key_of(given) {
                Some(key) => key,
                None => return Answer::error(400, "InvalidArgument"),
            },
        };
        let objects = lock(&self.objects);
        let (lowest, past) = (format!("{bucket}/{prefix}"), format!("{bucket}/{after}"));
        let found = objects.range(lowest.clone().max(past.clone())..);
        let mut found =
            found.take_while(|(k, _)| k.starts_with(&lowest)).filter(|(k, _)| **k > past || after.is_empty());
        let page: Vec<_> = found.by_ref().take(PAGE).collect();
        let more = found.next().is_some();
        let mut out = format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{bucket}</Name><Prefix>{}</Prefix><KeyCount>{}</KeyCount><MaxKeys>{PAGE}</MaxKeys><IsTruncated>{more}</IsTruncated>",
            escape(prefix),
            page.len()
        );
        for (key, object) in &page {
            let key = key.split_once('/').unwrap().1;
            out.push_str(&format!(
                "<Contents><Key>{}</Key><LastModified>2026-11-30T00:00:00.000Z</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                escape(key),
                escape(&object.tag),
                object.body.len()
            ));
        }
        if let Some((last, _)) = page.last().filter(|_| more) {
            let last = last.split_once('/').unwrap().1;
            out.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", token(last)));
        }
        Answer::xml(200, out + "</ListBucketResult>")
    }
}
