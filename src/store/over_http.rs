//! What the client makes of answers that a store should not give: a server on loopback says whatever a test wants.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;

use super::answers::LookingConnector;
use super::object::ObjectBackend;
use super::*;
use crate::error::Kind;
use crate::format::records::FloorRecord;
use crate::format::{Place, Role, encode};
use crate::types::{BlobName, CheckpointNumber, Digest, Name, Prefix, Uid};

const PAGE: &str = "<html><body>Log in</body></html>";

/// One answer: status, headers, body.
type Said = (u16, &'static str, Bytes);

/// One request and its answer.
fn serve(mut socket: TcpStream, asked: &Mutex<Vec<String>>, answer: impl Fn(&str) -> Said) -> io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut first)?;
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink())?;
    let what = first.rsplit_once(' ').unwrap().0.to_owned();
    asked.lock().unwrap().push(what.clone());
    let (status, headers, body) = answer(&what);
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n", body.len());
    socket.write_all(head.as_bytes())?;
    if what.starts_with("HEAD") { Ok(()) } else { socket.write_all(&body) }
}

/// A store whose server answers by method and target and by how often the like was asked before. Says what was asked, too.
fn store(answer: impl Fn(&str, u32) -> Said + Send + Sync + 'static) -> (Store, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (shared, seen) = (Arc::clone(&asked), AtomicU32::new(0));
    // Ends with the process.
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            // Who gives up in the middle of a request or an answer is no fault of the server's.
            let _ = serve(socket, &shared, |what| answer(what, seen.fetch_add(1, Ordering::SeqCst)));
        }
    });
    let s3 = AmazonS3Builder::new()
        .with_url("s3://bucket/p")
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_http_connector(LookingConnector(object_store::client::ReqwestConnector::default()));
    let s3 = Arc::new(s3.build().unwrap());
    let options = StoreOptions::default();
    let backend = ObjectBackend::new(Arc::clone(&s3) as _, s3 as _, "p", "s3://bucket/p", &options);
    (Store::from_backend(Arc::new(backend), "s3://bucket/p", options), asked)
}

fn said(status: u16, headers: &'static str, body: &str) -> Said {
    (status, headers, Bytes::copy_from_slice(body.as_bytes()))
}

const TAG: &str = "etag: \"t\"\r\nlast-modified: Mon, 30 Nov 2026 00:00:00 GMT\r\n";
const CONFLICT: &str = "<Error><Code>OperationAborted</Code></Error>";

fn name(bytes: &[u8]) -> BlobName {
    BlobName { digest: Digest::of(bytes), uid: Uid::random().unwrap() }
}

#[test]
fn a_conflict_is_no_upload_and_passes() {
    let (store, asked) = store(|_, n| if n == 0 { said(409, "", CONFLICT) } else { said(200, TAG, "") });
    store.upload_blob(&name(b"x"), BlobSource::Bytes(Bytes::from_static(b"x"))).unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2, "it was sent again");

    let (store, asked) = self::store(|what, n| match what {
        _ if n % 2 == 0 => said(409, "", CONFLICT),
        w if w.ends_with("?uploads") || w.ends_with("?uploads=") => {
            said(200, "", "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        }
        w if w.starts_with("PUT") => said(200, TAG, ""),
        _ => said(200, "", "<CompleteMultipartUploadResult><ETag>t</ETag></CompleteMultipartUploadResult>"),
    });
    let large = Bytes::from(vec![7; 17 << 20]);
    store.upload_blob(&name(&large), BlobSource::Bytes(large)).unwrap();
    assert_eq!(asked.lock().unwrap().len(), 10, "begun, three parts, completed, each twice: {asked:?}");

    let told = "<DeleteResult><Deleted><Key>p/ckptfs.json</Key></Deleted></DeleteResult>";
    let (store, asked) = self::store(move |_, n| if n == 0 { said(409, "", CONFLICT) } else { said(200, "", told) });
    store.delete(&Key::store()).unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2);
    let (store, _) = self::store(|_, _| said(409, "", CONFLICT));
    assert_eq!(store.head(&Key::store()).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn an_upload_that_is_gone_is_no_missing_object() {
    let (store, asked) = store(|what, _| match what {
        w if w.contains("?uploads") => {
            said(200, "", "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        }
        _ => said(404, "", "<Error><Code>NoSuchUpload</Code></Error>"),
    });
    let large = Bytes::from(vec![7; 17 << 20]);
    let error = store.upload_blob(&name(&large), BlobSource::Bytes(large)).unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.to_string().contains("the upload that it began"), "{error}");
    assert!(asked.lock().unwrap().iter().any(|w| w.starts_with("DELETE")), "it is given up");
}

#[test]
fn a_web_page_is_no_answer() {
    const HTML: &str = "content-type: text/html\r\netag: \"t\"\r\nlast-modified: Mon, 30 Nov 2026 00:00:00 GMT\r\n";
    let (store, _) = store(|_, _| said(200, HTML, PAGE));
    let body = Bytes::from_static(b"x");
    let errors = [
        store.create(&Key::store(), body.clone()).map(drop).unwrap_err(),
        store.upload_blob(&name(b"x"), BlobSource::Bytes(body)).unwrap_err(),
        store.head(&Key::store()).map(drop).unwrap_err(),
        store.list(&Prefix::blobs()).map(drop).unwrap_err(),
        store.delete(&Key::store()).unwrap_err(),
    ];
    for error in errors {
        assert!(error.kind() == Kind::Unavailable && error.to_string().contains("web page"), "{error}");
    }
    // Whoever does not say what it is.
    let (store, _) = self::store(|_, _| said(200, "", PAGE));
    for error in [store.list(&Prefix::blobs()).map(drop), store.delete(&Key::store())] {
        let error = error.unwrap_err();
        assert!(error.kind() == Kind::Unavailable && error.to_string().contains("a html instead"), "{error}");
    }
}

#[test]
fn a_list_that_does_not_go_on_is_none() {
    for about in ["", "<NextContinuationToken>t</NextContinuationToken>"] {
        let body = format!("<ListBucketResult><IsTruncated>true</IsTruncated>{about}</ListBucketResult>");
        let (store, asked) = store(move |_, _| said(200, "", &body));
        assert_eq!(store.list(&Prefix::blobs()).unwrap_err().kind(), Kind::Unavailable);
        assert!(asked.lock().unwrap().len() <= 8, "it is not followed for ever");
    }
}

#[test]
fn more_bytes_than_announced_are_the_stores_fault() {
    let (store, _) = store(|_, _| said(206, "etag: \"t\"\r\ncontent-range: bytes 0-9/10\r\n", "twenty bytes, not ten"));
    let error = store.get_range(&Key::blob(&name(b"x")), 0..10).unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.to_string().contains("more bytes"), "{error}");
}

#[test]
fn a_record_that_is_not_whole_is_asked_for_again() {
    let job = Name::encode("app");
    let uid = Uid::from_bytes([7; 16]);
    let floor = |n| {
        let place = Place::new(Role::Floor, &job, n, uid);
        Bytes::from(encode(&FloorRecord { place, survivors: Vec::new(), uids: Vec::new() }).unwrap())
    };
    let key = Key::floor(&job, CheckpointNumber::new(5).unwrap());
    let (good, other) = (floor(5), floor(6));
    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    for wrong in [flipped.into(), other, good.slice(..good.len() - 3), Bytes::from_static(PAGE.as_bytes())] {
        let (right, bad) = (good.clone(), wrong.clone());
        let (store, _) = store(move |_, n| (200, TAG, if n < 3 { bad.clone() } else { right.clone() }));
        assert_eq!(store.get(&key, 1 << 20).unwrap(), Some(good.clone()));
        assert_eq!(store.counters().retries.get(), 3);
        // What comes again and again is for its reader to judge.
        let (store, _) = self::store(move |_, _| (200, TAG, wrong.clone()));
        assert_ne!(store.get(&key, 1 << 20).unwrap(), Some(good.clone()));
        assert_eq!(store.counters().gets.get(), 4);
    }
}
