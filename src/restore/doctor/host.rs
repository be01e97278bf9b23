//! The kernel, FUSE, and what this user may do with them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    let mut findings = vec![kernel(release.trim()), device(), passthrough(release.trim(), &status)];
    let set = std::env::var_os("FUSERMOUNT_PATH").is_some();
    findings.extend(mounting(process::euid(), set, &status, &read("/etc/fuse.conf")));
    findings
}

/// How a user comes to a mount, with FUSERMOUNT_PATH set or not.
fn mounting(user: u32, set: bool, status: &str, conf: &str) -> Vec<Finding> {
    let root = user == 0;
    if root && set {
        let says = "FUSERMOUNT_PATH is set: root refuses to mount, since it could make root run another program";
        return vec![Finding::new("fusermount3", Severity::Fails, says, "unset FUSERMOUNT_PATH")];
    }
    if root && may_administer(status) {
        return vec![Finding::fine("fusermount3", "not needed: this user mounts by itself")];
    }
    let helper = helper(mount::fusermount().as_deref());
    if root { vec![helper] } else { vec![helper, allow_other(conf)] }
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
        Err(e) => no_device(&e),
    }
}

fn no_device(e: &std::io::Error) -> Finding {
    let remedy = match e.kind() {
        std::io::ErrorKind::PermissionDenied => "chmod 666 /dev/fuse, as most systems have it, or run as root",
        _ => "modprobe fuse; in a container: --device /dev/fuse",
    };
    Finding::new("/dev/fuse", Severity::Fails, format!("cannot be opened, so nothing can be mounted: {e}"), remedy)
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

fn helper(path: Option<&Path>) -> Finding {
    let Some(path) = path else {
        let says = "not installed, and this user cannot mount by itself";
        return Finding::new("fusermount3", Severity::Fails, says, "install the package fuse3, or mount as root");
    };
    let mode = fs::metadata(path).map_or(0, |m| m.permissions().mode());
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
    fn who_mounts_by_itself_needs_no_helper() {
        let checks = |user, set, status| {
            let found = mounting(user, set, status, "");
            found.iter().map(|f| f.check).collect::<Vec<_>>()
        };
        let of = |user, set, status| mounting(user, set, status, "")[0].clone();
        assert_eq!(of(0, false, ROOT).says, "not needed: this user mounts by itself");
        assert_eq!(of(0, true, ROOT).remedy, "unset FUSERMOUNT_PATH");
        assert_eq!(of(0, true, ROOT).severity, Severity::Fails);
        assert_eq!([checks(0, false, ROOT), checks(0, true, ROOT), checks(0, false, CONTAINER)], [["fusermount3"]; 3]);
        let expected = helper(mount::fusermount().as_deref());
        for (user, set, status) in [(0, false, CONTAINER), (7, false, ROOT), (7, true, ROOT), (7, false, CONTAINER)] {
            assert_eq!(of(user, set, status), expected, "{user} {set}");
        }
        assert_eq!(checks(7, true, ROOT), ["fusermount3", "user_allow_other"]);
    }

    #[test]
    fn a_helper_is_setuid_root_or_of_little_use() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("fusermount3");
        File::create(&path).unwrap();
        let of = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            helper(Some(&path))
        };
        assert_eq!(of(0o4755), Finding::fine("fusermount3", path.display().to_string()));
        assert_eq!((of(0o755).severity, of(0o755).check), (Severity::Warning, "fusermount3"));
        assert!(of(0o2755).says.contains("is not setuid root"));
        assert_eq!(helper(None).severity, Severity::Fails);
        assert_eq!(helper(Some(&temp.path().join("none"))).severity, Severity::Warning);
    }

    #[test]
    fn why_the_device_cannot_be_opened_is_said() {
        let denied = no_device(&std::io::ErrorKind::PermissionDenied.into());
        assert!(denied.severity == Severity::Fails && denied.remedy.starts_with("chmod 666"), "{denied:?}");
        let missing = no_device(&std::io::ErrorKind::NotFound.into());
        assert!(missing.severity == Severity::Fails && missing.remedy.starts_with("modprobe fuse"), "{missing:?}");
    }

    #[test]
    fn a_comment_allows_nobody() {
        assert_eq!(allow_other("# user_allow_other\nmount_max = 1000\n").severity, Severity::Note);
        assert_eq!(allow_other("mount_max = 1000\nuser_allow_other\n").severity, Severity::Fine);
    }
}
