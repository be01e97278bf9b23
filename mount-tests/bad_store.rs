//! Stores that cannot be used: missing, mistyped, unreachable, read-only, newer, not ours, or breaking the promise that all rests on.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use ckptfs::types::Digest;

use crate::kit::is_root;
use crate::tool::{Desk, Said, copy_tree, database, load, tool, tree};

/// A desk with one checkpoint of `good`.
fn desk() -> Desk {
    let desk = Desk::new();
    for round in 1..3 {
        load(&desk.path("good"), "default", round, 2_000);
    }
    desk.snapshot(&desk.path("good"));
    desk
}

fn with_store(desk: &Desk, store: &str, args: &[&str]) -> Said {
    let mut command = desk.command(args);
    command.env("CKPTFS_STORE", store).env("CKPTFS_CACHE", desk.path("new-cache")).output().unwrap().into()
}

const SNAPSHOT: [&str; 4] = ["snapshot", "--job", "app", "good"];

/// Verbs that read, and those that go on with what `open` began: none of them creates a store.
const READING: [&[&str]; 12] = [
    &["ls"],
    &["ls", "app"],
    &["show", "app/chk-1"],
    &["diff", "app/chk-1", "app/chk-1"],
    &["du"],
    &["path", "app/latest"],
    &["verify", "--read"],
    &["restore", "--copy", "app/chk-1", "target"],
    &["mount", "mnt"],
    &["ack", "--job", "app", "--checkpoint", "1", "--operator", "db", "--subtask", "0", "good"],
    &["complete", "--job", "app", "--checkpoint", "1"],
    &["abort", "--job", "app", "--checkpoint", "1"],
];

#[test]
fn a_typo_in_the_url_never_creates_a_store_by_a_reading_verb() {
    let desk = desk();
    let before = tree(desk.root());
    let typo = format!("file://{}", desk.path("sotre").display());
    for args in READING {
        with_store(&desk, &typo, args).fails(1, &[&typo, "not a ckptfs store", "Check the URL"]);
    }
    with_store(&desk, &typo, &["mount", "mnt", "--daemon"]).fails(1, &[&typo, "not a ckptfs store"]);
    for (url, words) in [
        ("http://127.0.0.1/x", &["http://", "s3://bucket and AWS_ENDPOINT_URL"][..]),
        ("s3://", &["bucket is missing"]),
        ("s3://key:secret@bucket/x", &["s3://"]),
        ("file://host/x", &["file://"]),
    ] {
        let said = with_store(&desk, url, &["ls"]);
        said.fails(1, words);
        assert!(!said.err.contains("secret"), "{said:?}");
    }
    assert_eq!(tree(desk.root()), before);
    // Only a snapshot does, and it says so.
    let said = with_store(&desk, &typo, &SNAPSHOT);
    assert!(said.code == 0 && said.err.contains(&format!("created the store {typo}")), "{said:?}");
}

#[test]
fn an_unreachable_store_is_named_and_left_alone() {
    let mut desk = desk();
    // A port where nobody listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    desk.env.insert("AWS_ENDPOINT_URL".into(), format!("http://127.0.0.1:{port}"));
    desk.env.insert("AWS_ACCESS_KEY_ID".into(), "key".into());
    desk.env.insert("AWS_SECRET_ACCESS_KEY".into(), "topsecret".into());
    with_store(&desk, "s3://bucket/x", &["ls"]).fails(1, &["AWS_ENDPOINT_URL is plain http", "AWS_ALLOW_HTTP=true"]);
    desk.env.insert("AWS_ALLOW_HTTP".into(), "true".into());
    let before = tree(desk.root());
    for args in [&["ls"][..], &SNAPSHOT, &["mount", "mnt"], &["restore", "--copy", "app/chk-1", "target"]] {
        let said = with_store(&desk, "s3://bucket/x", args);
        said.fails(1, &["s3://bucket/x", "did not answer", "check the network"]);
        assert!(!said.err.contains("topsecret"), "{said:?}");
    }
    assert_eq!(tree(desk.root()), before);
}

#[test]
fn a_read_only_store_is_read_and_not_written() {
    let desk = desk();
    desk.forbid_writing_the_store();
    let (before, url) = (tree(&desk.path("store")), desk.store.clone());
    let words: &[&str] = if is_root() { &["store", "read-only"] } else { &["store", "ermission denied"] };
    with_store(&desk, &url, &SNAPSHOT).fails(1, words);
    with_store(&desk, &url, &["open", "--job", "app", "--expect", "db=1"]).fails(1, words);
    desk.mount("fresh");
    assert!(database(&desk.mounted_db("chk-1")) == database(&desk.path("good")));
    desk.unmount();
    with_store(&desk, &url, &["verify", "--read"]).ok();
    assert_eq!(tree(&desk.path("store")), before);
    tool("chmod", &["-R", "u+w", &desk.path("good").display().to_string()]);
    if !is_root() {
        tool("chmod", &["-R", "u+w", &desk.path("store").display().to_string()]);
    }
}

/// Puts another header on a record, of the same body.
fn reheader(path: &std::path::Path, change: impl Fn(&mut serde_json::Value)) {
    let text = fs::read_to_string(path).unwrap();
    let (header, body) = text.split_once('\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_str(header).unwrap();
    change(&mut header);
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, format!("{header}\n{body}")).unwrap();
}

#[test]
fn a_store_of_a_newer_format_is_not_read_or_not_written_as_it_asks() {
    let desk = desk();
    let copy = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        copy_tree(&desk.path("store"), &desk.path(name));
        reheader(&desk.path(name).join("ckptfs.json"), change);
        (format!("file://{}", desk.path(name).display()), tree(&desk.path(name)))
    };
    for (name, change, needs) in [
        (
            "requires",
            &(|h: &mut serde_json::Value| h["requires"] = ["erasure-codes"].into()) as &dyn Fn(&mut _),
            "erasure-codes",
        ),
        ("version", &|h: &mut serde_json::Value| h["ckptfs"] = "store/2".into(), "store/2"),
        ("encoding", &|h: &mut serde_json::Value| h["encoding"] = "zstd".into(), "zstd"),
    ] {
        let (url, before) = copy(name, change);
        for args in READING.iter().copied().chain([&SNAPSHOT[..]]) {
            with_store(&desk, &url, args).fails(1, &["ckptfs.json", needs, "upgrade ckptfs"]);
        }
        assert_eq!(tree(&desk.path(name)), before);
    }
    let (url, before) = copy("writers", &|h| h["requires_write"] = ["new-sweep"].into());
    with_store(&desk, &url, &SNAPSHOT).fails(1, &["ckptfs.json", "new-sweep", "upgrade ckptfs before writing"]);
    with_store(&desk, &url, &["abort", "--job", "app", "--checkpoint", "1"]).fails(1, &["new-sweep"]);
    with_store(&desk, &url, &["verify", "--read"]).ok();
    assert!(with_store(&desk, &url, &["ls", "app"]).ok().contains("chk-1"));
    assert_eq!(tree(&desk.path("writers")), before);
}

#[test]
fn a_place_that_is_not_ours_stays_as_it_is() {
    let desk = desk();
    fs::create_dir(desk.path("photos")).unwrap();
    fs::write(desk.path("photos/cat.jpg"), "meow").unwrap();
    let url = format!("file://{}", desk.path("photos").display());
    let before = tree(&desk.path("photos"));
    with_store(&desk, &url, &SNAPSHOT).fails(1, &[&url, "holds other objects", "name an empty place"]);
    with_store(&desk, &url, &["ls"]).fails(1, &[&url, "not a ckptfs store"]);
    assert_eq!(tree(&desk.path("photos")), before);
    assert!(!desk.path("new-cache").exists());
    fs::write(desk.path("photos/ckptfs.json"), "{\"hello\": 1}\n").unwrap();
    let before = tree(&desk.path("photos"));
    for args in READING.iter().copied().chain([&SNAPSHOT[..]]) {
        with_store(&desk, &url, args).fails(3, &[&url, "ckptfs.json", "no ckptfs store, or its record was damaged"]);
    }
    assert_eq!(tree(&desk.path("photos")), before);
    assert!(!desk.path("new-cache").exists());
    fs::write(desk.path("a-file"), "").unwrap();
    let url = format!("file://{}", desk.path("a-file").display());
    with_store(&desk, &url, &SNAPSHOT).fails(1, &["a-file", "ot a directory"]);
}

/// An S3 server that is just enough for a store, and takes every create-if-absent for a plain put, as several servers did.
struct Careless {
    url: String,
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Careless {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let objects = Arc::new(Mutex::new(BTreeMap::new()));
        let shared = objects.clone();
        // Ends with the process: nobody connects any more when the test is over.
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let objects = shared.clone();
                std::thread::spawn(move || Self::serve(socket, &objects));
            }
        });
        Self { url, objects }
    }

    fn serve(socket: TcpStream, objects: &Mutex<BTreeMap<String, Vec<u8>>>) -> Option<()> {
        let mut reader = BufReader::new(socket.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            if header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let key = path.trim_start_matches("/bucket").trim_start_matches('/').to_owned();
        let mut objects = objects.lock().unwrap();
        let (status, answer) = match method.as_str() {
            "PUT" => {
                objects.insert(key.clone(), body);
                ("200 OK", Vec::new())
            }
            "DELETE" => {
                objects.remove(&key);
                ("204 No Content", Vec::new())
            }
            "POST" if query.starts_with("delete") => {
                let text = String::from_utf8_lossy(&body).into_owned();
                for part in text.split("<Key>").skip(1) {
                    objects.remove(part.split("</Key>").next()?);
                }
                ("200 OK", b"<?xml version=\"1.0\"?><DeleteResult></DeleteResult>".to_vec())
            }
            _ if key.is_empty() => {
                let prefix =
                    query.split('&').find_map(|p| p.strip_prefix("prefix=")).unwrap_or_default().replace("%2F", "/");
                let found = objects.iter().filter(|(k, _)| k.starts_with(&prefix));
                let entries: String = found
                    .map(|(k, v)| {
                        format!(
                            "<Contents><Key>{k}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"e\"</ETag><Size>{}</Size></Contents>",
                            v.len()
                        )
                    })
                    .collect();
                let head = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>";
                ("200 OK", format!("{head}{entries}</ListBucketResult>").into_bytes())
            }
            _ => match objects.get(&key) {
                Some(bytes) => ("200 OK", bytes.clone()),
                None => ("404 Not Found", Vec::new()),
            },
        };
        let etag = objects.get(&key).map_or_else(|| "none".to_owned(), |b| Digest::of(b).to_hex());
        drop(objects);
        let mut socket = socket;
        write!(
            socket,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"{etag}\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: close\r\n\r\n",
            answer.len()
        )
        .ok()?;
        if method != "HEAD" {
            socket.write_all(&answer).ok()?;
        }
        Some(())
    }
}

#[test]
fn a_store_that_ignores_create_if_absent_is_refused_and_stays_empty() {
    let mut desk = desk();
    let server = Careless::start();
    desk.env.insert("AWS_ENDPOINT_URL".into(), server.url.clone());
    desk.env.insert("AWS_ALLOW_HTTP".into(), "true".into());
    desk.env.insert("AWS_ACCESS_KEY_ID".into(), "key".into());
    desk.env.insert("AWS_SECRET_ACCESS_KEY".into(), "topsecret".into());
    let words = ["s3://bucket/x", "does not keep create-if-absent", "use a server that does"];
    with_store(&desk, "s3://bucket/x", &SNAPSHOT).fails(1, &words);
    with_store(&desk, "s3://bucket/x", &["open", "--job", "app", "--expect", "db=1"]).fails(1, &words);
    let left: Vec<String> = server.objects.lock().unwrap().keys().cloned().collect();
    assert_eq!(left, [""; 0], "the store is as it was");
    assert!(!desk.path("new-cache").exists());
    // The same for a store that was good when it was made, and lies behind a careless server now.
    for object in crate::tool::walk(&desk.path("store")) {
        let key = object.strip_prefix(desk.path("store")).unwrap().display().to_string();
        server.objects.lock().unwrap().insert(format!("x/{key}"), fs::read(&object).unwrap());
    }
    let before = server.objects.lock().unwrap().clone();
    assert!(with_store(&desk, "s3://bucket/x", &["ls", "app"]).ok().contains("chk-1"), "reading does not need it");
    with_store(&desk, "s3://bucket/x", &SNAPSHOT).fails(1, &words);
    assert!(*server.objects.lock().unwrap() == before, "the store is as it was");
}
