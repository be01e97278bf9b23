//! Files that only their owner may read: keys.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::dir::FileKind;
use super::error::{LocalError, Result};
use super::identity::FileStat;
use super::process;
use crate::error::Kind;

/// What was tried, for messages.
const READ: &str = "read the key file";

/// All bytes of a file of our own (or of root's) that nobody else may read or write. The path may pass symlinks: it is the user's.
///
/// # Errors
/// When others may read it, it is another user's, no regular file, or longer than `max_len`.
pub fn read(path: &Path, max_len: u64) -> Result<Vec<u8>> {
    let fail = |e| LocalError::new(READ, path, e);
    let refused = |kind, why: String| LocalError::refused(READ, path, kind, why);
    // Neither does a pipe block, nor does a terminal become ours.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = opened.map_err(fail)?;
    let stat = FileStat::of(&file).map_err(fail)?;
    if stat.kind() != FileKind::File {
        return Err(refused(Kind::Invalid, "it is no regular file".to_owned()));
    }
    let euid = process::euid();
    if euid != 0 && stat.uid != euid && stat.uid != 0 {
        return Err(refused(Kind::Permission, format!("it belongs to user {}, not to us ({euid})", stat.uid))
            .remedy("use a file of your own"));
    }
    if stat.mode & 0o077 != 0 {
        let mode = stat.mode & 0o7777;
        return Err(refused(Kind::Permission, format!("others than its owner may use it (mode {mode:04o})"))
            .remedy(format!("chmod 600 {}; if others could read it, make a new key", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(max_len.saturating_add(1)).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > max_len {
        return Err(refused(Kind::Invalid, format!("it has more than {max_len} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owners_own_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "secret").unwrap();
        for (mode, fine) in [
            (0o600, true),
            (0o400, true),
            (0o700, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
            (0o601, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = read(&path, 6);
            assert_eq!(read.is_ok(), fine, "{mode:o}");
            if let Err(e) = read {
                let said = e.to_string();
                assert!(said.contains("chmod 600") && !said.contains("secret"), "{said}");
            }
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path, 6).unwrap(), b"secret");
        assert!(read(&path, 5).unwrap_err().to_string().contains("more than 5 bytes"));
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        assert_eq!(read(&dir.path().join("link"), 6).unwrap(), b"secret");
        assert!(read(dir.path(), 6).is_err() && read(Path::new("/dev/null"), 6).is_err());
        assert_eq!(read(&dir.path().join("none"), 6).unwrap_err().kind(), Kind::NotFound);
    }
}
