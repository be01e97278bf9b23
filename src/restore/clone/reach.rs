//! Finds the mount that a clone's symbolic links lead into, and asks it whether it is the right one and alive.

use std::path::Path;

use super::Owner;
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::local::own_mount::{self, Answer, OwnMount};

/// The given mount, or one of this store that lets the clone's owner in.
///
/// # Errors
/// When there is none; the message says what to do.
pub(super) fn mount_for(session: &Session, given: Option<&Path>, owner: Owner) -> Result<OwnMount> {
    let all = own_mount::all()?;
    match given {
        Some(path) => {
            let mount = given_mount(&all, path)?;
            check(session, &mount, owner)?;
            Ok(mount)
        }
        None => found_mount(session, all, owner),
    }
}

fn given_mount(all: &[OwnMount], path: &Path) -> Result<OwnMount> {
    // A dead mount cannot be resolved: then the path as it was given must be it.
    let point = path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    all.iter().find(|m| m.point == point).cloned().ok_or_else(|| {
        let shown = path.display();
        Error::new(
            Kind::Invalid,
            format!(
                "{shown} is no ckptfs mount of yours or root's: name the mount point, after `ckptfs mount {shown}`"
            ),
        )
    })
}

fn found_mount(session: &Session, all: Vec<OwnMount>, owner: Owner) -> Result<OwnMount> {
    let mut refused = Vec::new();
    for mount in all {
        match check(session, &mount, owner) {
            Ok(()) => return Ok(mount),
            Err(e) => refused.push(e.message().to_owned()),
        }
    }
    let mut text = format!(
        "no mount of {} answers: `ckptfs mount --daemon MOUNTPOINT` and try again, name one with --mount, or fetch all now with --copy",
        session.store.url()
    );
    for why in refused {
        text.push_str("; ");
        text.push_str(&why);
    }
    Err(Error::new(Kind::Unavailable, text))
}

fn check(session: &Session, mount: &OwnMount, owner: Owner) -> Result<()> {
    let point = mount.point.display();
    if !mount.lets_in(owner.uid) {
        let message = format!(
            "the mount {point} lets in nobody but user {}, and the clone belongs to user {}: mount with --uid {} or --allow-other",
            mount.user, owner.uid, owner.uid
        );
        return Err(Error::new(Kind::Permission, message));
    }
    match mount.ask() {
        Answer::Store(Some(id)) if id == session.store_id.to_string() => Ok(()),
        Answer::Store(Some(_)) => Err(Error::new(Kind::Invalid, format!("the mount {point} shows another store"))),
        Answer::Store(None) => Err(Error::new(
            Kind::Unsupported,
            format!(
                "the mount {point} does not say which store it shows: unmount and mount it again with this version"
            ),
        )),
        Answer::Away(why) => Err(Error::new(
            Kind::Unavailable,
            format!("the mount {point} does not answer ({why}): `ckptfs umount {point}`, then `ckptfs mount` it again"),
        )),
    }
}
