//! The real program, run as a person runs it, on databases that Debian's `ldb` wrote: a folder with store, cache and mount point.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ckptfs::types::Digest;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ckptfs");

/// What a run came to.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(o: Output) -> Self {
        Self {
            code: o.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&o.stdout).into_owned(),
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }
    }
}

impl Said {
    /// It ended with this code, and its error says each of these words.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(!self.err.contains("panicked") && !self.err.contains("RUST_BACKTRACE"), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in: {}", self.err);
        }
    }

    /// It succeeded; what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
}

/// Copies the program. Another process does: a descriptor of ours for writing would be inherited by whatever other tests start meanwhile,
/// and the copy could not be run as long as they have it.
pub fn copy_program(to: &Path) {
    crate::kit::run("cp", &[PROGRAM, to.to_str().unwrap()]);
}

/// A folder of its own with `store`, `cache` and `mnt`. What is mounted below it goes with it.
pub struct Desk {
    root: PathBuf,
    /// The store's URL.
    pub store: String,
    /// Environment of every run.
    pub env: BTreeMap<String, String>,
}

impl Desk {
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("ckptfs-accept-").tempdir().unwrap().keep();
        let root = root.canonicalize().unwrap();
        // Other users shall get in, where a test runs the program as one.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(root.join("mnt")).unwrap();
        let store = format!("file://{}", root.join("store").display());
        Self { root, store, env: BTreeMap::new() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The program with this desk's store and cache, and nothing of the caller's own settings.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        self.wrapped(&[PROGRAM], args)
    }

    /// The same, started by other programs: `setpriv ... ckptfs ARGS`.
    pub fn wrapped<S: AsRef<OsStr>>(&self, wrapper: &[&str], args: &[S]) -> Command {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).args(args).current_dir(&self.root).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if ["CKPTFS_", "AWS_", "XDG_"].iter().any(|p| name.to_string_lossy().starts_with(p)) {
                command.env_remove(name);
            }
        }
        command.env("HOME", &self.root).env("CKPTFS_STORE", &self.store).env("CKPTFS_CACHE", self.path("cache"));
        command.envs(&self.env);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Said {
        self.command(args).output().unwrap().into()
    }

    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        self.run(args).ok()
    }

    /// Takes a checkpoint of job `app`; its name.
    #[track_caller]
    pub fn snapshot(&self, db: &Path) -> String {
        self.ok(&["snapshot".as_ref(), "--job".as_ref(), "app".as_ref(), db.as_os_str()]).trim().to_owned()
    }

    /// Mounts with this cache; the mount point.
    #[track_caller]
    pub fn mount(&self, cache: &str) -> PathBuf {
        let mut args = vec!["mount", "mnt", "--daemon"];
        if !crate::kit::passthrough() {
            args.push("--no-passthrough");
        }
        let said: Said = self.command(&args).env("CKPTFS_CACHE", self.path(cache)).output().unwrap().into();
        said.ok();
        self.path("mnt")
    }

    #[track_caller]
    pub fn unmount(&self) {
        // A child that another test starts holds what is open here until it runs its own program.
        for _ in 0..50 {
            let said: Said = self.command(&["umount", "mnt"]).output().unwrap().into();
            if !said.err.contains("busy") {
                said.ok();
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("mnt is busy");
    }

    /// Lets nobody write below the store's directory any more, not even root.
    pub fn forbid_writing_the_store(&self) {
        let store = self.path("store").display().to_string();
        if crate::kit::is_root() {
            tool("mount", &["--bind", &store, &store]);
            tool("mount", &["-o", "remount,bind,ro", &store]);
        } else {
            tool("chmod", &["-R", "a-w", &store]);
        }
    }

    /// The database of a checkpoint below the mount point.
    pub fn mounted_db(&self, checkpoint: &str) -> PathBuf {
        self.path("mnt").join(format!("app/{checkpoint}/db/0/db"))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = |line: &&str| line.split(' ').nth(4).is_some_and(|p| Path::new(p).starts_with(&self.root));
        let points: Vec<&str> = mounts.lines().filter(below).filter_map(|l| l.split(' ').nth(4)).collect();
        for point in points.iter().rev() {
            let ours = Command::new(PROGRAM).args(["umount", "--lazy", point]).output();
            if !ours.is_ok_and(|o| o.status.success()) {
                let _ = Command::new("umount").args(["-l", point]).output();
            }
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Runs a command to its end and says how many bytes it read by system calls, as the kernel counted: `rchar` of the process that has ended
/// and is not yet reaped, so that nothing is missed.
pub fn counted(command: &mut Command) -> (Said, u64) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    // SAFETY: zeroed numbers are a valid siginfo_t, which outlives the call; WNOWAIT leaves the child to be reaped below.
    let waited = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, id, &raw mut info, libc::WEXITED | libc::WNOWAIT)
    };
    assert_eq!(waited, 0, "{}", std::io::Error::last_os_error());
    let io = fs::read_to_string(format!("/proc/{id}/io")).unwrap();
    let rchar = io.lines().find_map(|l| l.strip_prefix("rchar: ")).unwrap().parse().unwrap();
    (child.wait_with_output().unwrap().into(), rchar)
}

/// Bytes of all blobs in the desk's `file://` store.
pub fn stored_bytes(desk: &Desk) -> u64 {
    let blobs = desk.path("store/blobs");
    if blobs.exists() { walk(&blobs).iter().map(|p| fs::metadata(p).unwrap().len()).sum() } else { 0 }
}

/// Runs one of RocksDB's own tools; what it prints.
#[track_caller]
pub fn tool(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("cannot run {program}: {e}; install the package rocksdb-tools"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All keys and values of a column family, as `ldb scan` prints them.
#[track_caller]
pub fn scan(db: &Path, family: &str) -> String {
    tool("ldb", &[&format!("--db={}", db.display()), &format!("--column_family={family}"), "scan"])
}

/// Opens a database read-only with the `rocksdb` crate, every column family, and reads one to its end; how many keys it has.
#[cfg(feature = "rocksdb")]
pub fn crate_scan(db: &Path, family: &str) -> usize {
    crate_scan_ordered(db, family, None)
}

/// [`crate_scan`] of a database with an order of its own.
#[cfg(feature = "rocksdb")]
pub fn crate_scan_ordered(db: &Path, family: &str, comparator: Option<ckptfs::state::Comparator>) -> usize {
    use ckptfs::state::{Database, DatabaseOptions};
    let families = Database::families(db).unwrap();
    let names: Vec<&str> = families.iter().map(String::as_str).collect();
    let options = DatabaseOptions { comparator, ..DatabaseOptions::default() };
    let open = Database::open_read_only(db, &names, &options).unwrap();
    open.scan(family).unwrap().map(Result::unwrap).count()
}

/// `count` new keys of their own and incompressible values into a column family, as one new SST with a Bloom filter.
#[track_caller]
pub fn load(db: &Path, family: &str, round: u64, count: u64) {
    let mut child = Command::new("ldb")
        .arg(format!("--db={}", db.display()))
        .arg(format!("--column_family={family}"))
        .args(["load", "--create_if_missing", "--disable_wal", "--auto_compaction=false"])
        .args(["--bloom_bits=10", "--compression_type=no"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot run ldb: {e}; install the package rocksdb-tools"));
    let mut input = BufWriter::new(child.stdin.take().unwrap());
    for key in 0..count {
        // Three digests make a value of 192 characters that does not repeat.
        let value = |part: u64| Digest::of(&[round, key, part].map(u64::to_le_bytes).concat()).to_hex();
        writeln!(input, "key-{round:04}-{key:08} ==> {}{}{}", value(0), value(1), value(2)).unwrap();
    }
    input.flush().unwrap();
    drop(input);
    assert!(child.wait().unwrap().success(), "ldb load");
}

/// Every file below a directory, sorted.
pub fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            out.extend(walk(&path));
        } else {
            out.push(path);
        }
    }
    out.sort();
    out
}

/// A tree as text: kind, mode, size and content of everything below a directory; "absent" where there is none.
pub fn tree(dir: &Path) -> String {
    fn add(dir: &Path, at: &Path, out: &mut Vec<String>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            // A lock's content is the last holder.
            let what = if meta.is_file() && !name.ends_with(".lock") {
                Digest::of(&fs::read(&path).unwrap()).to_hex()
            } else {
                String::new()
            };
            out.push(format!("{name} {:o} {} {what}", meta.mode(), meta.uid()));
            if meta.is_dir() {
                add(dir, &path, out);
            }
        }
    }
    if !dir.exists() {
        return "absent".to_owned();
    }
    let mut out = Vec::new();
    add(dir, dir, &mut out);
    out.sort();
    out.join("\n")
}

/// Files that a snapshot of a RocksDB directory holds: name and content.
pub fn database(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let kept = |name: &str| name != "LOCK" && !name.starts_with("LOG");
    let files = fs::read_dir(dir).unwrap().map(|e| e.unwrap());
    files
        .map(|e| (e.file_name().into_string().unwrap(), e.path()))
        .filter(|(name, _)| kept(name))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect()
}

/// Flips one bit of a file; modification time and mode stay, so that only its bytes tell.
pub fn flip(path: &Path, at: u64, bit: u8) {
    let meta = fs::metadata(path).unwrap();
    let modified = meta.modified().unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], at).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    fs::set_permissions(path, meta.permissions()).unwrap();
}

/// Copies a tree of files and directories, with `cp -a`.
pub fn copy_tree(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cp -a {} {}", from.display(), to.display());
}

/// A process that holds a POSIX lock on a file, as a running database does on its LOCK; ends when it is dropped.
pub struct LockHolder(std::process::Child);

impl LockHolder {
    pub fn of(path: &Path) -> Self {
        const HOLD: &str = "import fcntl,sys,time\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\ntime.sleep(600)\n";
        let mut child = Command::new("python3")
            .args(["-c", HOLD])
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run python3: {e}; install the package python3"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
