//! The status page and the metrics of a mount, asked by plain HTTP: each figure is what the program itself says, each metric moves when it
//! should, and nothing that a store says becomes a part of a page.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kit::{is_root, passthrough, run, soon};
use crate::s3::{Weed, Who};
use crate::tool::{Desk, Said, load, walk};

/// A mount in the foreground, with its page.
struct Served {
    child: Child,
    address: SocketAddr,
    point: PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer: its code, its head and its body.
struct Told {
    code: u16,
    head: String,
    body: String,
}

fn ask(address: SocketAddr, request: &str) -> Told {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut all = String::new();
    socket.read_to_string(&mut all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Told { code, head: head.to_lowercase(), body: body.to_owned() }
}

impl Served {
    fn begin(desk: &Desk, cache: &str) -> Self {
        let mut args = vec!["mount", "mnt", "--listen", "0"];
        if !passthrough() {
            args.push("--no-passthrough");
        }
        let mut command = desk.command(&args);
        let mut child = command.env("CKPTFS_CACHE", desk.path(cache)).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split("http://").nth(1).map(|rest| rest.trim_end_matches('/').parse().unwrap()))
            .expect("it says where its page is");
        // Whatever else it says must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        let served = Self { child, address, point: desk.path("mnt") };
        assert!(soon(|| served.get("/healthz").body == "ok\n"));
        served
    }

    fn get(&self, path: &str) -> Told {
        ask(self.address, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
    }

    #[track_caller]
    fn page(&self, path: &str) -> String {
        let told = self.get(path);
        assert_eq!(told.code, 200, "{path}: {}", told.body);
        told.body
    }

    /// All samples, by name and labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let text = self.page("/metrics");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(name, n)| (name.to_owned(), n.parse().unwrap()))
            .collect()
    }

    fn metric(&self, name: &str) -> f64 {
        self.metrics().get(name).copied().unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// What moved while something was done.
    fn moved(&self, what: impl FnOnce()) -> BTreeMap<String, f64> {
        let before = self.metrics();
        what();
        let after = self.metrics();
        let grew = after.into_iter().map(|(name, n)| (name.clone(), n - before.get(&name).copied().unwrap_or(0.0)));
        grew.filter(|(_, by)| *by != 0.0).collect()
    }
}

/// A store with so many checkpoints of one database.
fn desk(checkpoints: u64) -> Desk {
    let desk = Desk::new();
    for round in 1..=checkpoints {
        load(&desk.path("source"), "default", round, 2_000);
        desk.snapshot(&desk.path("source"));
    }
    desk
}

fn json(desk: &Desk, args: &[&str]) -> Value {
    serde_json::from_str(&desk.ok(args)).unwrap()
}

/// The exact sizes of a page, in its order.
fn sizes(page: &str) -> Vec<u64> {
    page.split("<data value=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
}

/// The times of a page's phases, in its order.
fn milliseconds(page: &str) -> Vec<u64> {
    let shown = page.split("<data class=\"ms\" value=\"").skip(1);
    shown.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn the_pages_show_what_the_program_says() {
    let desk = desk(6);
    desk.ok(&["expire", "app/chk-2"]);
    desk.ok(&["pin", "app/chk-3", "--note", "for the auditors"]);
    let served = Served::begin(&desk, "cache");
    let jobs = served.page("/");
    assert!(jobs.contains("<a href=\"/job/app\">app</a>"), "{jobs}");
    let listed = json(&desk, &["--json", "ls", "app"]);
    let listed = listed.as_array().unwrap();
    let wanted: Vec<u64> = listed
        .iter()
        .rev()
        .flat_map(|c| [c["logical_bytes"].as_u64().unwrap(), c["new_bytes"].as_u64().unwrap()])
        .collect();
    assert_eq!(wanted.len(), 10);
    let job = served.page("/job/app");
    assert_eq!(sizes(&job), wanted);
    assert_eq!(sizes(&jobs), wanted[..2]);
    assert!(job.contains("<svg") && !job.contains("chk-2 "), "{job}");
    // Each phase of each checkpoint, and what they leave of its time.
    for c in listed {
        let phases = c["phases"].as_object().unwrap();
        assert!(phases.contains_key("upload_ms"), "{c}");
        let order = ["scan_ms", "open_ms", "upload_ms", "bundle_ms"];
        let of = |name: &str| phases.get(name).and_then(Value::as_u64).unwrap_or(0);
        let all = c["took_ms"].as_u64().unwrap();
        let within: u64 = order[1..].iter().map(|name| of(name)).sum();
        let told = order.iter().map(|name| (name.trim_end_matches("_ms"), of(name)));
        let told = told.chain([("rest", all.saturating_sub(within))]).filter(|(_, ms)| *ms > 0);
        let told: Vec<String> = told.map(|(name, ms)| format!("{name} {ms} ms")).collect();
        let colon = if told.is_empty() { "" } else { ": " };
        let says = format!("<title>{}: {all} ms{colon}{}</title>", c["checkpoint"].as_str().unwrap(), told.join(", "));
        assert!(job.contains(&says), "{says} in {job}");
    }
    let du = json(&desk, &["--json", "du"]);
    let usage = du["checkpoints"].as_array().unwrap();
    let logical: u64 = usage.iter().map(|c| c["logical_bytes"].as_u64().unwrap()).sum();
    let plan = json(&desk, &["--json", "gc"]);
    let (doomed, kept) = (&plan["doomed"]["bytes"], &plan["kept"]["bytes"]);
    let store = served.page("/store");
    let all = [&Value::from(logical), &du["store_bytes"], doomed, kept].map(|v| v.as_u64().unwrap());
    assert_eq!(sizes(&store), all, "{store}");
    assert!(store.contains("a person: for the auditors"), "{store}");
    let five = served.page("/job/app/chk-5");
    let of_five = usage.iter().find(|c| c["checkpoint"] == "chk-5").unwrap();
    assert_eq!(sizes(&five)[..3], ["logical_bytes", "new_bytes", "unique_bytes"].map(|k| of_five[k].as_u64().unwrap()));
    for shown in ["app/chk-6", "app/chk-4", "db/0/db/", "Shared with"] {
        assert!(five.contains(shown), "{shown} in {five}");
    }
    // The time of its phases, to the millisecond; what is not its own is the way from the task manifest to the outcome.
    let shown = json(&desk, &["--json", "show", "app/chk-5"]);
    let phases = shown["subtasks"][0]["phases"].as_object().unwrap();
    let names = ["scan_ms", "open_ms", "upload_ms", "bundle_ms", "publish_ms"];
    assert_eq!(phases.len(), names.len(), "{phases:?}");
    let ms = names.map(|name| phases[name].as_u64().unwrap());
    assert_eq!(milliseconds(&five), ms, "{five}");
    let took = shown["completed_ms"].as_u64().unwrap() - shown["opened_ms"].as_u64().unwrap();
    assert!(ms[1..].iter().sum::<u64>() >= took, "{ms:?} of {took}");
    let table = desk.ok(&["show", "app/chk-5"]);
    let told: Vec<u64> = table.lines().last().unwrap().split_whitespace().skip(2).map(|n| n.parse().unwrap()).collect();
    assert_eq!(told, ms, "{table}");
    // What comes later is there when a person looks again.
    load(&desk.path("source"), "default", 9, 2_000);
    let newest = desk.snapshot(&desk.path("source"));
    assert!(soon(|| served.page("/").contains(&newest)));
}

#[test]
fn two_hundred_checkpoints_are_shown_whole() {
    let desk = desk(1);
    for _ in 2..=200 {
        desk.snapshot(&desk.path("source"));
    }
    let served = Served::begin(&desk, "cache");
    for path in ["/", "/job/app", "/job/app/chk-200", "/store", "/mount"] {
        assert!(served.page(path).len() < 1 << 20, "{path}");
    }
    let job = served.page("/job/app");
    assert_eq!((job.matches("<title>chk-").count(), job.matches("<rect class=\"over\"").count()), (400, 400));
}

#[test]
fn each_metric_moves_when_it_should() {
    let desk = desk(3);
    let served = Served::begin(&desk, "cold");
    let db = served.point.join("app/chk-3/db/0/db");
    let count = |operation: &str| format!("ckptfs_fuse_request_duration_seconds_count{{operation=\"{operation}\"}}");
    let grew = |moved: &BTreeMap<String, f64>, name: &str| {
        assert!(moved.get(name).is_some_and(|by| *by > 0.0), "{name} in {moved:#?}");
    };

    // What the kernel remembers of the root for a second is asked for anew then.
    std::thread::sleep(Duration::from_millis(1100));
    let moved = served.moved(|| {
        assert!(!run("ls", &["-l", db.to_str().unwrap()]).is_empty());
        fs::read_link(served.point.join("app/latest")).unwrap();
        fs::metadata(&served.point).unwrap();
        run("stat", &["-f", served.point.to_str().unwrap()]);
    });
    for operation in ["lookup", "getattr", "readlink", "opendir", "readdir", "release", "statfs"] {
        grew(&moved, &count(operation));
    }

    // Nothing is local yet.
    let tables: Vec<PathBuf> = walk(&db).into_iter().filter(|p| p.extension().is_some_and(|e| e == "sst")).collect();
    let moved = served.moved(|| tables.iter().for_each(|p| drop(fs::read(p).unwrap())));
    for name in [
        "ckptfs_fuse_opens_total{mode=\"lazy\"}",
        "ckptfs_fuse_reads_total",
        "ckptfs_fuse_read_bytes_total",
        "ckptfs_cache_fetched_bytes_total",
        "ckptfs_cache_fetched_files_total",
        "ckptfs_store_requests_total{kind=\"get\",result=\"ok\"}",
        "ckptfs_store_received_bytes_total",
        "ckptfs_fuse_waited_total",
        &count("open"),
        &count("read"),
    ] {
        grew(&moved, name);
    }

    // And now it is.
    let mode = if passthrough() { "passthrough" } else { "fallback" };
    let opened = format!("ckptfs_fuse_opens_total{{mode=\"{mode}\"}}");
    assert!(soon(|| {
        let moved = served.moved(|| tables.iter().for_each(|p| drop(fs::read(p).unwrap())));
        moved.contains_key(&opened) && !moved.contains_key("ckptfs_fuse_opens_total{mode=\"lazy\"}")
    }));
    let moved = served.moved(|| drop(fs::read(served.point.join("app/chk-3/manifest.json")).unwrap()));
    grew(&moved, "ckptfs_fuse_opens_total{mode=\"text\"}");

    // What the store has is known without being asked for.
    let latest = "ckptfs_job_latest{job=\"app\"}";
    assert_eq!((served.metric(latest), served.metric("ckptfs_job_checkpoints{job=\"app\"}")), (3.0, 3.0));
    desk.snapshot(&desk.path("source"));
    assert!(soon(|| !served.page("/").is_empty() && served.metric(latest) == 4.0));
    assert!(served.metric("ckptfs_job_latest_logical_bytes{job=\"app\"}") > 100_000.0);
    assert!(soon(|| !served.page("/").is_empty() && served.metric("ckptfs_cache_size_bytes") > 0.0));
    assert!(served.metric("ckptfs_cache_disk_free_bytes") > 0.0);
    assert_eq!(served.metric("ckptfs_listing_failed"), 0.0);
}

#[test]
fn damage_and_a_dead_store_are_told_in_metrics_and_on_the_page() {
    let desk = desk(2);
    let served = Served::begin(&desk, "cold");
    let tables = walk(&served.point.join("app/chk-2/db/0/db"));
    let table = tables.iter().find(|p| p.extension().is_some_and(|e| e == "sst")).unwrap();
    for blob in walk(&desk.path("store/blobs")) {
        let file = File::options().read(true).write(true).open(&blob).unwrap();
        let (length, mut byte) = (file.metadata().unwrap().len(), [0]);
        file.read_exact_at(&mut byte, length / 2).unwrap();
        file.write_all_at(&[byte[0] ^ 1], length / 2).unwrap();
    }
    let moved = served.moved(|| assert!(fs::read(table).is_err(), "wrong bytes are served"));
    assert!(
        moved.get("ckptfs_cache_verification_failures_total{of=\"fetched\"}").is_some_and(|by| *by > 0.0),
        "{moved:#?}"
    );
    // The store cannot be listed any more: what was known is still shown, and since when it cannot be told anew.
    fs::rename(desk.path("store/outcome"), desk.path("gone")).unwrap();
    fs::write(desk.path("store/outcome"), "no directory").unwrap();
    assert!(soon(|| served.page("/").contains("The store could not be listed")));
    let page = served.page("/job/app");
    assert!(page.contains("chk-2") && page.contains("What you see is from"), "{page}");
    let metrics = served.metrics();
    assert_eq!(metrics["ckptfs_listing_failed"], 1.0);
    assert!(metrics["ckptfs_store_requests_total{kind=\"list\",result=\"failed\"}"] > 0.0);
    assert_eq!(served.get("/healthz").code, 200, "the mount itself answers");
    fs::remove_file(desk.path("store/outcome")).unwrap();
    fs::rename(desk.path("gone"), desk.path("store/outcome")).unwrap();
    assert!(soon(|| !served.page("/").contains("could not be listed")));
}

/// What `doctor` says, in one text, with its exit code.
fn doctor(desk: &Desk, cache: &str) -> (i32, String) {
    let said: Said = desk.command(&["doctor"]).env("CKPTFS_CACHE", desk.path(cache)).output().unwrap().into();
    (said.code, said.out)
}

/// A store that is about to die may be asked for half a minute.
#[track_caller]
fn told_on_the_page(served: &Served, words: &str) {
    page_becomes(served, words, |page| page.contains(words));
}

#[track_caller]
fn page_becomes(served: &Served, what: &str, is_so: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    while !is_so(&served.page("/")) {
        assert!(begun.elapsed() < Duration::from_secs(90), "not {what:?}: {}", served.page("/"));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Little room is left, and some is.
fn nearly_full(page: &str) -> bool {
    page.contains("cache space: ")
        && page.contains(" MiB are left for ")
        && !page.contains("cache space: the disk is full")
}

const TROUBLES: [&str; 5] = ["store_unavailable", "store_denied", "store_failing", "store_disk", "cache_disk"];

/// The troubles that the metrics tell.
fn troubles(served: &Served) -> Vec<&'static str> {
    let metrics = served.metrics();
    TROUBLES.into_iter().filter(|what| metrics[&format!("ckptfs_trouble{{what=\"{what}\"}}")] == 1.0).collect()
}

#[test]
fn a_revoked_credential_and_a_dead_store_are_told_each_in_its_own_words() {
    let weed = Weed::start();
    let mut desk = Desk::new();
    weed.serve(&mut desk, "told", Who::Writer);
    load(&desk.path("source"), "default", 1, 2_000);
    desk.snapshot(&desk.path("source"));
    let served = Served::begin(&desk, "cache");
    assert!(served.page("/").contains("chk-1"));
    assert_eq!((troubles(&served), doctor(&desk, "cache").0), (vec![], 0));
    let file = walk(&served.point.join("app/chk-1/db/0/db")).pop().unwrap();
    let right = fs::read(&file).unwrap();

    weed.revoke_writer();
    told_on_the_page(&served, "The store refuses our credentials: ");
    let page = served.page("/job/app");
    assert!(page.contains("chk-1") && page.contains("check the credentials in the environment"), "{page}");
    assert_eq!(troubles(&served), ["store_denied"]);
    let (code, said) = doctor(&desk, "cache");
    assert!(code == 1 && said.contains("permission denied") && said.contains("check the credentials"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), right, "what is local is still read");

    drop(weed);
    told_on_the_page(&served, "The store does not answer: ");
    let page = served.page("/job/app");
    assert!(page.contains("chk-1") && page.contains("check the network, the endpoint and the server"), "{page}");
    assert_eq!(troubles(&served), ["store_unavailable"]);
    let (code, said) = doctor(&desk, "cache");
    assert!(code == 1 && said.contains("did not answer") && said.contains("check the network"), "{said}");
    assert_eq!(served.get("/healthz").code, 200, "the mount itself answers");
    assert_eq!(fs::read(&file).unwrap(), right, "what is local is still read");
}

/// A small disk of its own at a directory of a desk, taken away with it.
struct Disk(PathBuf);

impl Disk {
    fn at(path: PathBuf, mib: u64) -> Self {
        fs::create_dir_all(&path).unwrap();
        run("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "none", path.to_str().unwrap()]);
        Self(path)
    }

    /// Writes until nothing is left.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).unwrap();
        while file.write(&[0; 1 << 16]).is_ok_and(|n| n > 0) {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_and_no_wrong_byte_is_served_from_it() {
    if !is_root() {
        eprintln!("not tried: a disk of its own needs root");
        return;
    }
    let desk = Desk::new();
    let (cache, store) = (Disk::at(desk.path("small"), 64), Disk::at(desk.path("store"), 64));
    load(&desk.path("source"), "default", 1, 60_000);
    desk.snapshot(&desk.path("source"));
    let served = Served::begin(&desk, "small/cache");
    page_becomes(&served, "nearly full", nearly_full);
    assert_eq!(troubles(&served), ["store_disk", "cache_disk"]);
    let (code, said) = doctor(&desk, "small/cache");
    assert!(code == 0 && said.contains("MiB are left for") && !said.contains("the disk is full"), "{said}");

    cache.fill();
    store.fill();
    told_on_the_page(&served, "cache space: the disk is full: 0 MiB are left for ");
    let page = served.page("/mount");
    assert!(page.contains("store space: the disk is full: 0 MiB are left for "), "{page}");
    let (code, said) = doctor(&desk, "small/cache");
    assert!(code == 1 && said.matches("the disk is full: 0 MiB are left for").count() == 2, "{said}");
    // What cannot be kept is fetched all the same, and is what it was.
    for file in walk(&served.point.join("app/chk-1/db/0/db")) {
        assert_eq!(fs::read(&file).unwrap(), fs::read(desk.path("source").join(file.file_name().unwrap())).unwrap());
    }
    let said = desk.run(&["snapshot".as_ref(), "--job".as_ref(), "app".as_ref(), desk.path("source").as_os_str()]);
    said.fails(1, &["No space left on device"]);
    assert_eq!(served.get("/healthz").code, 200);
    fs::remove_file(desk.path("small/filler")).unwrap();
    fs::remove_file(desk.path("store/filler")).unwrap();
    page_becomes(&served, "nearly full", nearly_full);
    drop(served);
}

#[test]
fn nothing_that_a_store_says_becomes_a_part_of_a_page() {
    let desk = desk(1);
    let hostile = "\"><script>alert(1)</script>\u{202e}'&";
    let source = desk.path("source");
    desk.ok(&[
        "snapshot",
        "--job",
        "app",
        "--operator",
        hostile,
        "--label",
        &format!("who={hostile}"),
        source.to_str().unwrap(),
    ]);
    desk.ok(&["pin", "app/chk-2", "--note", hostile]);
    let served = Served::begin(&desk, "cache");
    let pages = ["/", "/job/app", "/job/app/chk-2", "/store", "/mount", "/job/%22%3E%3Cscript%3E", "/%3Cscript%3E"];
    let mut seen = 0;
    for path in pages {
        let told = served.get(path);
        assert!(!told.body.contains("<script") && !told.body.contains('\u{202e}'), "{path}: {}", told.body);
        seen += told.body.matches("&lt;script&gt;alert(1)").count();
        assert!(told.head.contains("content-security-policy: default-src 'none'"), "{}", told.head);
    }
    assert!(seen >= 3, "operator, note and label are shown");
    assert!(!served.page("/metrics").contains("script"));
}

#[test]
fn whoever_asks_wrongly_is_told_and_nobody_is_kept_waiting() {
    let desk = desk(1);
    let served = Served::begin(&desk, "cache");
    let host = served.address;
    let code = |request: &str| ask(host, request).code;
    assert_eq!(
        code(&format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")),
        405
    );
    assert_eq!(code("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"), 403);
    assert_eq!(code(&format!("GET /../etc/passwd HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")), 404);
    assert_eq!(code("no HTTP at all\r\n\r\n"), 400);
    for missing in ["/job/none", "/job/app/chk-77", "/job/app/latest", "/job/app/chk-1/more", "/x"] {
        assert_eq!(served.get(missing).code, 404, "{missing}");
    }
    let head = ask(host, &format!("HEAD / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    assert_eq!((head.code, head.body.as_str()), (200, ""));
    // Those who say nothing do not keep others from being answered.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(host).unwrap()).collect();
    assert_eq!(served.get("/").code, 200);
    drop(silent);
    // A second one cannot take the place, and is told so.
    fs::create_dir(desk.path("other")).unwrap();
    let port = desk
        .command(&["mount", "other", "--listen", &host.to_string()])
        .env("CKPTFS_CACHE", desk.path("b"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&port.stderr).contains("--listen"), "{port:?}");
    assert!(!port.status.success());
    assert!(!Path::new(&desk.path("other")).join("app").exists(), "nothing stays mounted");
}

/// Names of metrics in a text: words that begin with `ckptfs_`.
fn named(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|w| w.starts_with("ckptfs_")).map(str::to_owned).collect()
}

#[test]
fn documents_name_the_metrics_that_there_are_and_no_others() {
    let desk = desk(1);
    desk.ok(&["warm", "app/chk-1", "--cache-size", "1GiB"]);
    let served = Served::begin(&desk, "cache");
    assert!(soon(|| served.page("/metrics").contains("ckptfs_cache_limit_bytes")));
    let text = served.page("/metrics");
    let families: std::collections::BTreeSet<String> =
        text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).map(str::to_owned).collect();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
    assert_eq!(named(&read("OPERATING.md")), families);
    for user in ["ckptfs-alerts.yml", "ckptfs-dashboard.json"] {
        for name in named(&read(user)) {
            let family = ["_total", "_bucket"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            assert!(families.contains(family), "{user}: {name}");
        }
    }
}
