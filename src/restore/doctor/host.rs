//! The kernel, FUSE, and what this user may do with them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use super::{Finding, Severity};
use crate::local::{mount, process};

/// Linux with FUSE passthrough.
const PASSTHROUGH: (u32, u32) = (6, 9);

/// CAP_SYS_ADMIN's bit, from linux/capability.h.
const SYS_ADMIN: u32 = 21;

pub(super) fn examine() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let status = read("/proc/self/status");
    let root = process::euid() == 0;
    let mut findings = vec![kernel(release.trim()), device(), passthrough(release.trim(), &status)];
    if root && std::env::var_os("FUSERMOUNT_PATH").is_some() {
        let says = "FUSERMOUNT_PATH is set: root refuses to mount, since it could make root run another program";
        findings.push(Finding::new("fusermount3", Severity::Fails, says, "unset FUSERMOUNT_PATH"));
    } else if root && may_administer(&status) {
        findings.push(Finding::fine("fusermount3", "not needed: this user mounts by itself"));
    } else {
        findings.push(helper());
        if !root {
            findings.push(allow_other(&read("/etc/fuse.conf")));
        }
    }
    findings
}

/// `6.18.5-generic` is (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Finding {
    match version(release) {
        Some(_) => Finding::fine("kernel", format!("Linux {release}")),
        None => Finding::new("kernel", Severity::Note, format!("its version {release:?} is not understood"), ""),
    }
}

fn device() -> Finding {
    match File::options().read(true).write(true).open(mount::DEVICE) {
        Ok(_) => Finding::fine("/dev/fuse", "can be opened"),
        Err(e) => {
            let remedy = match e.kind() {
                std::io::ErrorKind::PermissionDenied => "chmod 666 /dev/fuse, as most systems have it, or run as root",
                _ => "modprobe fuse; in a container: --device /dev/fuse",
            };
            Finding::new(
                "/dev/fuse",
                Severity::Fails,
                format!("cannot be opened, so nothing can be mounted: {e}"),
                remedy,
            )
        }
    }
}

/// Whether the effective capabilities in a process's status have CAP_SYS_ADMIN.
fn may_administer(status: &str) -> bool {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|bits| bits >> SYS_ADMIN & 1 == 1)
}

fn passthrough(release: &str, status: &str) -> Finding {
    let slower = "the daemon serves the same bytes, slower";
    let note = |says: String, remedy: &str| Finding::new("passthrough", Severity::Note, says, remedy);
    match (version(release), may_administer(status)) {
        (Some(v), _) if v < PASSTHROUGH => note(format!("this kernel has none: {slower}"), "Linux 6.9 or newer has it"),
        (_, false) => note(
            format!("it needs CAP_SYS_ADMIN, which this process has not: {slower}"),
            "mount as root; in a container: --cap-add SYS_ADMIN",
        ),
        (None, true) => note("whether this kernel has it is not known".to_owned(), ""),
        (Some(_), true) => Finding::fine("passthrough", "possible: the kernel reads cached files itself"),
    }
}

fn helper() -> Finding {
    let Some(path) = mount::fusermount() else {
        let says = "not installed, and this user cannot mount by itself";
        return Finding::new("fusermount3", Severity::Fails, says, "install the package fuse3, or mount as root");
    };
    let mode = fs::metadata(&path).map_or(0, |m| m.permissions().mode());
    if mode & 0o4000 == 0 {
        let says = format!("{} is not setuid root: it cannot mount for other users", path.display());
        return Finding::new(
            "fusermount3",
            Severity::Warning,
            says,
            "install the package fuse3 anew, or mount as root",
        );
    }
    Finding::fine("fusermount3", path.display().to_string())
}

fn allow_other(conf: &str) -> Finding {
    const CHECK: &str = "user_allow_other";
    if conf.lines().any(|l| l.trim() == CHECK) {
        return Finding::fine(CHECK, "other users may be let in with --allow-other");
    }
    let says = "not set: only the user who mounts can read the mount, and --allow-other is refused";
    Finding::new(
        CHECK,
        Severity::Note,
        says,
        "to let others in, add user_allow_other to /etc/fuse.conf, or mount as root",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "Name:\tx\nCapEff:\t000001ffffffffff\n";
    const CONTAINER: &str = "CapEff:\t00000000a80425fb\n";

    #[test]
    fn kernels_and_capabilities_are_read() {
        assert_eq!(version("6.18.5-generic"), Some((6, 18)));
        assert_eq!(version("6.9-rc1"), Some((6, 9)));
        assert_eq!((version(""), version("six.1")), (None, None));
        assert!(may_administer(ROOT) && !may_administer(CONTAINER) && !may_administer(""));
        assert_eq!(kernel("").severity, Severity::Note);
    }

    #[test]
    fn passthrough_needs_both() {
        let of = |release, status| passthrough(release, status).severity;
        assert_eq!(of("6.9.0", ROOT), Severity::Fine);
        assert_eq!(of("7.0.1", ROOT), Severity::Fine);
        assert!(passthrough("6.8.12", ROOT).remedy.contains("6.9"));
        assert!(passthrough("6.12.0", CONTAINER).remedy.contains("SYS_ADMIN"));
        assert_eq!(of("?", ROOT), Severity::Note);
    }

    #[test]
    fn a_comment_allows_nobody() {
        assert_eq!(allow_other("# user_allow_other\nmount_max = 1000\n").severity, Severity::Note);
        assert_eq!(allow_other("mount_max = 1000\nuser_allow_other\n").severity, Severity::Fine);
    }
}
