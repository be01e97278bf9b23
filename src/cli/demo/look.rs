//! A look at the mount, as `ls -l` and `du` would have it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ckptfs::error::{Error, Kind, Result};

use super::super::words;

/// What the `db` directories of a job's checkpoints hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Checkpoints.
    pub(crate) checkpoints: u64,
    /// Names of files.
    pub(crate) files: u64,
    /// Bytes under all names.
    pub(crate) logical: u64,
    /// Different inodes.
    pub(crate) inodes: u64,
    /// Bytes of each inode once.
    pub(crate) unique: u64,
    /// The file with the most names: one of them, how many, the inode.
    pub(crate) shared: Option<(String, u64, u64)>,
}

fn fail(path: &Path, e: std::io::Error) -> Error {
    Error::with_source(Kind::Other, format!("cannot look at {}: {e}", path.display()), e)
}

/// The entries of a directory by name; symlinks with what they point to.
pub(crate) fn list(directory: &Path) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|e| fail(directory, e))? {
        let entry = entry.map_err(|e| fail(directory, e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        out.push(match std::fs::read_link(entry.path()) {
            Ok(target) => format!("{name} -> {}", target.display()),
            Err(_) => format!("{name}/"),
        });
    }
    out.sort();
    Ok(out)
}

/// Adds up the databases of an operator in a job's checkpoints.
pub(crate) fn usage(job: &Path, operator: &str) -> Result<Usage> {
    let mut usage = Usage::default();
    let mut inodes: BTreeMap<u64, (u64, u64, String)> = BTreeMap::new();
    for chk in list(job)?.iter().filter_map(|n| n.strip_suffix('/')) {
        usage.checkpoints += 1;
        let subtasks = job.join(chk).join(operator);
        for subtask in list(&subtasks)?.iter().filter_map(|n| n.strip_suffix('/')) {
            let db = subtasks.join(subtask).join("db");
            for entry in std::fs::read_dir(&db).map_err(|e| fail(&db, e))? {
                let entry = entry.map_err(|e| fail(&db, e))?;
                let stat = entry.metadata().map_err(|e| fail(&entry.path(), e))?;
                usage.files += 1;
                usage.logical += stat.len();
                let name = entry.file_name().to_string_lossy().into_owned();
                inodes.entry(stat.ino()).or_insert((stat.len(), 0, name)).1 += 1;
            }
        }
    }
    usage.inodes = inodes.len() as u64;
    usage.unique = inodes.values().map(|(size, _, _)| size).sum();
    let most = inodes.iter().max_by_key(|(_, (size, names, _))| (*names, *size));
    usage.shared = most.map(|(ino, (_, names, name))| (name.clone(), *names, *ino));
    Ok(usage)
}

/// The look, in words.
pub(crate) fn describe(job: &Path, operator: &str) -> Result<Vec<String>> {
    let u = usage(job, operator)?;
    let mut out = vec![format!("{}: {}", job.display(), list(job)?.join("  "))];
    out.push(format!(
        "{} checkpoints show {} files of databases, {}; they are {} inodes, {}",
        u.checkpoints,
        u.files,
        words::size(u.logical),
        u.inodes,
        words::size(u.unique)
    ));
    if let Some((name, names, ino)) = u.shared.filter(|(_, names, _)| *names > 1) {
        out.push(format!("{name} is one inode ({ino:#x}) in {names} of them: cached once, counted once by du"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_inode_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path();
        for chk in ["chk-1", "chk-2"] {
            std::fs::create_dir_all(job.join(chk).join("count/1/db")).unwrap();
            std::fs::write(job.join(chk).join("count/1/db/CURRENT"), "12345").unwrap();
        }
        let sst = job.join("chk-1/count/1/db/000009.sst");
        std::fs::write(&sst, [7; 100]).unwrap();
        std::fs::hard_link(&sst, job.join("chk-2/count/1/db/000009.sst")).unwrap();
        std::os::unix::fs::symlink("chk-2", job.join("latest")).unwrap();
        assert_eq!(list(job).unwrap(), ["chk-1/", "chk-2/", "latest -> chk-2"]);
        let u = usage(job, "count").unwrap();
        assert_eq!((u.checkpoints, u.files, u.logical, u.inodes, u.unique), (2, 4, 210, 3, 110));
        assert_eq!(u.shared.map(|(name, names, _)| (name, names)), Some(("000009.sst".to_owned(), 2)));
        assert!(list(&job.join("missing")).unwrap_err().message().contains("missing"));
    }
}
