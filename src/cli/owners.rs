//! Owners and modes of single jobs on a mount.

use std::collections::BTreeMap;

use ckptfs::error::{Error, Kind, Result};
use ckptfs::fuse::JobAccess;
use ckptfs::types::Name;

use super::words;

#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Show this job's directories as owned by this user and group, and let nobody else in unless --job-mode does; implies --allow-other
    /// for all other jobs. Files keep the mount's owner and mode: they are gated by their job's directory. May be given for several jobs
    #[arg(long = "job-owner", value_name = "JOB=UID[:GID]", value_parser = owner)]
    owners: Vec<(Name, u32, Option<u32>)>,
    /// Show this job's directories with this mode, say orders=0750, which says who may enter them and so who may read its files. May be
    /// given for several jobs
    #[arg(long = "job-mode", value_name = "JOB=MODE", value_parser = mode)]
    modes: Vec<(Name, u16)>,
}

/// `orders=1000` or `orders=1000:1000`.
fn owner(text: &str) -> std::result::Result<(Name, u32, Option<u32>), String> {
    let wrong = || format!("{text:?}: write JOB=UID or JOB=UID:GID, say orders=1000:1000");
    // The highest number means nobody at all.
    let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX).ok_or_else(wrong);
    let (job, ids) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (uid, gid) = match ids.split_once(':') {
        Some((uid, gid)) => (id(uid)?, Some(id(gid)?)),
        None => (id(ids)?, None),
    };
    Ok((words::job(job)?, uid, gid))
}

/// `orders=0750`.
fn mode(text: &str) -> std::result::Result<(Name, u16), String> {
    let wrong = || format!("{text:?}: write JOB=MODE with an octal mode up to 0777, say orders=0750");
    let (job, mode) = text.rsplit_once('=').ok_or_else(wrong)?;
    let is_octal = (1..=4).contains(&mode.len()) && mode.bytes().all(|b| matches!(b, b'0'..=b'7'));
    let mode = u16::from_str_radix(mode, 8).ok().filter(|mode| is_octal && *mode <= 0o777).ok_or_else(wrong)?;
    Ok((words::job(job)?, mode))
}

impl Args {
    /// What is asked for, by job.
    ///
    /// # Errors
    /// When a job has two owners or two modes.
    pub(crate) fn access(&self) -> Result<BTreeMap<Name, JobAccess>> {
        let twice =
            |job: &Name, what| Error::new(Kind::Invalid, format!("job {job} is given two {what}: name it once"));
        let mut jobs: BTreeMap<Name, JobAccess> = BTreeMap::new();
        for (job, uid, gid) in &self.owners {
            let access = jobs.entry(job.clone()).or_default();
            if access.uid.replace(*uid).is_some() {
                return Err(twice(job, "owners"));
            }
            access.gid = *gid;
        }
        for (job, mode) in &self.modes {
            if jobs.entry(job.clone()).or_default().mode.replace(*mode).is_some() {
                return Err(twice(job, "modes"));
            }
        }
        Ok(jobs)
    }

    /// The same arguments for a process that is started anew.
    pub(crate) fn again(&self) -> Vec<String> {
        let owners = self.owners.iter().map(|(job, uid, gid)| match gid {
            Some(gid) => format!("--job-owner={job}={uid}:{gid}"),
            None => format!("--job-owner={job}={uid}"),
        });
        owners.chain(self.modes.iter().map(|(job, mode)| format!("--job-mode={job}={mode:04o}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_modes_are_read_strictly() {
        let job = |text: &str| Name::parse(text).unwrap();
        assert_eq!(owner("orders=1000"), Ok((job("orders"), 1000, None)));
        assert_eq!(owner("a=b=0:7"), Ok((Name::encode("a=b"), 0, Some(7))));
        assert_eq!(mode("my job=0750"), Ok((job("my%20job"), 0o750)));
        assert_eq!(mode("orders=0"), Ok((job("orders"), 0)));
        for wrong in ["orders", "=1", "orders=", "orders=x", "orders=1:", "orders=-1", "orders=4294967295", "latest=1"]
        {
            assert!(owner(wrong).is_err(), "{wrong}");
        }
        for wrong in ["orders", "=0750", "orders=", "orders=8", "orders=1777", "orders=00750", "orders=+75", "a/b=0750"]
        {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_process_that_is_started_anew_is_told_the_same() {
        let args = Args {
            owners: vec![owner("my job=1:2").unwrap(), owner("b=3").unwrap()],
            modes: vec![mode("my job=0050").unwrap(), mode("c=0").unwrap()],
        };
        let (owners, modes): (Vec<_>, Vec<_>) =
            args.again().into_iter().partition(|arg| arg.starts_with("--job-owner="));
        let value = |arg: &String| arg.split_once('=').unwrap().1.to_owned();
        let again = Args {
            owners: owners.iter().map(|arg| owner(&value(arg)).unwrap()).collect(),
            modes: modes.iter().map(|arg| mode(&value(arg)).unwrap()).collect(),
        };
        let access = args.access().unwrap();
        assert_eq!(again.access().unwrap(), access);
        let of = |job: &str| access[&Name::parse(job).unwrap()];
        assert_eq!(of("my%20job"), JobAccess { uid: Some(1), gid: Some(2), mode: Some(0o050) });
        assert_eq!(of("b"), JobAccess { uid: Some(3), gid: None, mode: None });
        assert_eq!(of("c"), JobAccess { uid: None, gid: None, mode: Some(0) });
        let twice = Args { owners: vec![owner("b=3").unwrap(), owner("b=4").unwrap()], modes: Vec::new() };
        assert!(twice.access().unwrap_err().message().contains("job b is given two owners"));
    }
}
