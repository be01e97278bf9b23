//! Limits for a whole run: few open files, short files, little memory, and disks that are really full.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::crash::mode::Mode;
use crate::crash::seed;
use crate::crash::workers::{campaign, is_worker, work};
use crate::tool::{PROGRAM, tool};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// `RLIMIT_NOFILE`.
    Files(u64),
    /// `RLIMIT_FSIZE`.
    Length(u64),
    /// `RLIMIT_AS`, in MiB.
    Memory(u64),
    /// A file system with so many KiB free.
    Disk { ext4: bool, below: Below, free: u64 },
}

/// What lies on the full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Below {
    Cache,
    /// Store, cache and work directory.
    Everything,
}

/// Of a disk, before it is filled, in MiB.
const SIZE: u64 = 24;

impl Limit {
    pub fn name(self) -> String {
        match self {
            Self::Files(n) => format!("{n} files"),
            Self::Length(n) => format!("{n} B long"),
            Self::Memory(n) => format!("{n} MiB"),
            Self::Disk { ext4, below, free } => {
                let fs = if ext4 { "ext4" } else { "tmpfs" };
                let what = if below == Below::Cache { "cache" } else { "all" };
                format!("{fs} {what} {free}K")
            }
        }
    }

    pub fn is_disk(self) -> bool {
        matches!(self, Self::Disk { .. })
    }

    /// Has the program begin with it.
    pub fn set(self, command: &mut Command) {
        let (which, value) = match self {
            Self::Files(n) => (libc::RLIMIT_NOFILE, n),
            Self::Length(n) => (libc::RLIMIT_FSIZE, n),
            Self::Memory(n) => (libc::RLIMIT_AS, n << 20),
            Self::Disk { .. } => return,
        };
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: a system call on a copy of two numbers.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(which, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
    }
}

/// A small file system that has the yard, or its cache; unmounted when it is dropped.
pub struct Disk {
    point: PathBuf,
    image: Option<PathBuf>,
    free: u64,
}

impl Disk {
    /// The disk that a mode asks for: over a directory in which the yard will be, or in the yard for its cache.
    pub fn of(mode: Mode, work: &Path, below: Below) -> Option<Self> {
        let Mode::Under(Limit::Disk { ext4, below: wanted, free }) = mode else { return None };
        if wanted != below {
            return None;
        }
        let point = if below == Below::Cache { work.join("yard/disk") } else { work.to_owned() };
        fs::create_dir_all(&point).unwrap();
        let at = point.to_str().unwrap();
        let image = ext4.then(|| work.with_extension("img"));
        if let Some(image) = &image {
            let _ = fs::remove_file(image);
            File::create(image).unwrap().set_len(SIZE << 20).unwrap();
            let name = image.to_str().unwrap();
            tool("mkfs.ext4", &["-q", "-m", "0", "-N", "4096", "-O", "^has_journal", name]);
            tool("mount", &["-o", "loop", name, at]);
        } else {
            tool("mount", &["-t", "tmpfs", "-o", &format!("size={SIZE}m,mode=755"), "ckptfs-test", at]);
        }
        Some(Self { point, image, free })
    }

    /// Moves a cache onto the disk.
    pub fn take(&self, yard: &Path, cache: &str) -> String {
        let (from, to) = (yard.join(cache), self.point.join(cache));
        if from.exists() {
            tool("cp", &["-a", from.to_str().unwrap(), to.to_str().unwrap()]);
            fs::remove_dir_all(from).unwrap();
        }
        format!("disk/{cache}")
    }

    /// Leaves as much free as was asked for. The file that has the rest.
    pub fn fill(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        let path = self.point.join("filler");
        let file = File::create(&path).unwrap();
        // A file system takes some of the last blocks for itself.
        let mut bytes = free(&self.point).saturating_sub(self.free << 10);
        // SAFETY: plain numbers on an open descriptor.
        while bytes > 0 && unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) } != 0 {
            bytes = bytes.saturating_sub(4096);
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
        }
    }
}

fn free(point: &Path) -> u64 {
    let name = std::ffi::CString::new(point.to_str().unwrap()).unwrap();
    // SAFETY: zeroed numbers are a valid statvfs, which outlives the call; the name is NUL-terminated.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(name.as_ptr(), &raw mut stat), 0);
        stat.f_bavail * stat.f_frsize
    }
}

/// Memory in MiB with which the program begins at all: below it the loader ends it without a word.
fn begins_with() -> u64 {
    let begins = |mib: &u64| {
        let mut command = Command::new(PROGRAM);
        Limit::Memory(*mib).set(command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()));
        command.status().is_ok_and(|status| status.success())
    };
    (8..4096).step_by(4).find(begins).expect("the program does not begin with 4 GiB")
}

fn modes() -> Vec<Mode> {
    let mut limits = Vec::new();
    limits.extend([6, 8, 10, 12, 16, 24, 40, 64].map(Limit::Files));
    limits.extend([0, 1, 100, 4096, 65_536, 200_000].map(Limit::Length));
    let least = begins_with();
    limits.extend([0, 4, 8, 16, 32, 64, 128, 512].map(|more| Limit::Memory(least + more)));
    for ext4 in [false, true] {
        for below in [Below::Cache, Below::Everything] {
            limits.extend([0, 4, 16, 64, 160, 256, 400, 1024].map(|free| Limit::Disk { ext4, below, free }));
        }
    }
    limits.into_iter().map(Mode::Under).collect()
}

#[test]
fn whole_runs_under_limits() {
    let modes = modes();
    if is_worker("limits") {
        return work(&modes);
    }
    let begun = Instant::now();
    let report = campaign("limits", "ends::limits::whole_runs_under_limits", &modes, seed(), 1);
    println!("seed {}, {:.0?}; runs, and how many of them succeeded:", seed(), begun.elapsed());
    for mode in &modes {
        let of = |hits: &crate::crash::point::Hits| -> u64 {
            let own = format!(" | {}", mode.name());
            hits.iter().filter(|(k, _)| k.ends_with(&own)).map(|(_, n)| n).sum()
        };
        println!("{:>18}  {:>3}  {:>3}", mode.name(), of(&report.points), of(&report.successes));
        assert!(
            of(&report.points) > 0 || std::env::var_os("CKPTFS_CRASH_ONLY").is_some(),
            "{} was not tried",
            mode.name()
        );
    }
    println!("{} different errors were said", report.words.len());
    if std::env::var_os("CKPTFS_CRASH_TIMES").is_some() {
        report.words.iter().for_each(|(words, n)| println!("{n:6} {words}"));
    }
    assert!(report.failures.is_empty(), "{} runs ended badly:\n{}", report.failures.len(), report.failures.join("\n"));
}
