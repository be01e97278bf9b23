//! SeaweedFS as several servers on hosts of their own: a master, volume servers with two copies of everything, and filers with S3.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::net::Net;
use crate::s3::{BUCKET, PATIENCE, make_bucket, program};
use crate::tool::Desk;

pub const VOLUMES: usize = 3;
const MASTER: usize = 1;

pub struct Cluster {
    pub net: Net,
    dir: PathBuf,
    master: Child,
    volumes: Vec<Option<Child>>,
    filers: Vec<Option<Child>>,
}

/// The host of a volume server, and of a filer.
pub fn volume_host(volume: usize) -> usize {
    MASTER + 1 + volume
}

fn filer_host(filer: usize) -> usize {
    MASTER + 1 + VOLUMES + filer
}

impl Cluster {
    /// All volume servers and the first filer; the others can join later.
    pub fn start(filers: usize) -> Self {
        let net = Net::new(1 + VOLUMES + filers);
        let dir = tempfile::Builder::new().prefix("ckptfs-cluster-").tempdir().unwrap().keep();
        let identity = r#"{"identities":[{"name":"w","credentials":[{"accessKey":"writer","secretKey":"writer-secret"}],"actions":["Admin","Read","List","Tagging","Write"]}]}"#;
        fs::write(dir.join("s3.json"), identity).unwrap();
        let master = Self::run(&net, &dir, MASTER, "master", |command| {
            command.args(["-defaultReplication=001", "-volumeSizeLimitMB=64", "-telemetry=false"]);
            command.arg(format!("-mdir={}", dir.join("master").display()));
        });
        let mut cluster = Self { net, dir, master, volumes: Vec::new(), filers: (0..filers).map(|_| None).collect() };
        cluster.wait("the master", |c| c.get(MASTER, 9333, "/cluster/status").contains("IsLeader"));
        for volume in 0..VOLUMES {
            let child = cluster.run_volume(volume);
            cluster.volumes.push(Some(child));
        }
        cluster.wait("the volume servers", |c| {
            let told = c.get(MASTER, 9333, "/dir/status");
            (0..VOLUMES).all(|v| told.contains(&c.net.address(volume_host(v))))
        });
        cluster.start_filer(0);
        make_bucket(&format!("{}:9333", cluster.net.address(MASTER)));
        cluster
    }

    fn run(net: &Net, dir: &std::path::Path, host: usize, what: &str, add: impl FnOnce(&mut Command)) -> Child {
        fs::create_dir_all(dir.join(what)).unwrap();
        let log = File::options().create(true).append(true).open(dir.join(format!("{what}.log"))).unwrap();
        let mut command = net.command(host, &program());
        command.arg(what.split('-').next().unwrap()).arg(format!("-ip={}", net.address(host))).arg("-ip.bind=0.0.0.0");
        add(&mut command);
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    fn run_volume(&self, volume: usize) -> Child {
        let master = self.net.address(MASTER);
        Self::run(&self.net, &self.dir, volume_host(volume), &format!("volume-{volume}"), |command| {
            command.arg(format!("-dir={}", self.dir.join(format!("volume-{volume}")).display()));
            command.args([&format!("-mserver={master}:9333"), "-max=30", "-port=8080"]);
        })
    }

    /// Starts a filer and waits until it answers.
    pub fn start_filer(&mut self, filer: usize) {
        let master = self.net.address(MASTER);
        let child = Self::run(&self.net, &self.dir, filer_host(filer), &format!("filer-{filer}"), |command| {
            command.args([&format!("-master={master}:9333"), "-defaultReplicaPlacement=001", "-s3"]);
            command.args(["-s3.port.lance=0", "-s3.port.iceberg=0"]);
            command.arg(format!("-defaultStoreDir={}", self.dir.join(format!("filer-{filer}")).display()));
            command.arg(format!("-s3.config={}", self.dir.join("s3.json").display()));
        });
        self.filers[filer] = Some(child);
        self.wait(&format!("filer {filer}"), |c| c.get(filer_host(filer), 8333, "/status").starts_with("HTTP/1.1 200"));
    }

    pub fn kill_filer(&mut self, filer: usize) {
        let mut child = self.filers[filer].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn kill_volume(&mut self, volume: usize) {
        let mut child = self.volumes[volume].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn start_volume(&mut self, volume: usize) {
        let child = self.run_volume(volume);
        self.volumes[volume] = Some(child);
    }

    /// What a server answers to a GET, head and all; nothing when it does not.
    fn get(&self, host: usize, port: u16, path: &str) -> String {
        let address: SocketAddr = format!("{}:{port}", self.net.address(host)).parse().unwrap();
        let Ok(mut socket) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else { return String::new() };
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut answer = Vec::new();
        let _ = write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what} did not come up; the logs are in {}", self.dir.display());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn endpoint(&self, filer: usize) -> String {
        format!("http://{}:8333", self.net.address(filer_host(filer)))
    }

    /// Lets a desk keep its store here.
    pub fn serve(&self, desk: &mut Desk, prefix: &str) {
        desk.store = format!("s3://{BUCKET}/{prefix}");
        for (name, value) in [
            ("AWS_ENDPOINT_URL", self.endpoint(0)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "writer".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "writer-secret".to_owned()),
        ] {
            desk.env.insert(name.to_owned(), value);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let all = self.filers.iter_mut().chain(&mut self.volumes).flatten().chain([&mut self.master]);
        for child in all {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
