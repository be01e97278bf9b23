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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    use super::*;
    use crate::local::xattr;
    use crate::restore::tests::World;

    const US: Owner = Owner { uid: 0, gid: 0, give: false };

    /// A directory that answers as a mount would.
    fn mount(world: &World, name: &str, store: Option<&str>) -> OwnMount {
        let point = world.path(name);
        std::fs::create_dir(&point).unwrap();
        if let Some(store) = store {
            xattr::set(std::fs::File::open(&point).unwrap(), own_mount::STORE, store.as_bytes()).unwrap();
        }
        let dev = point.metadata().unwrap().dev();
        OwnMount { point, dev, user: 0, others: false }
    }

    #[test]
    fn a_mount_is_asked_whose_it_is_and_what_it_shows() {
        let world = World::new();
        let id = world.session.store_id.to_string();
        let right = mount(&world, "right", Some(&id));
        let said = |mount: &OwnMount, owner| check(&world.session, mount, owner).map_err(|e| (e.kind(), e.to_string()));
        assert_eq!(said(&right, US), Ok(()));
        let stranger = Owner { uid: 7, ..US };
        let (kind, text) = said(&right, stranger).unwrap_err();
        assert!(
            kind == Kind::Permission && text.contains("lets in nobody but user 0") && text.contains("--uid 7"),
            "{text}"
        );
        assert_eq!(said(&OwnMount { others: true, ..right.clone() }, stranger), Ok(()));
        let (kind, text) = said(&mount(&world, "other", Some("another")), US).unwrap_err();
        assert!(kind == Kind::Invalid && text.contains("shows another store"), "{text}");
        let (kind, text) = said(&mount(&world, "old", None), US).unwrap_err();
        assert!(kind == Kind::Unsupported && text.contains("does not say which store it shows"), "{text}");
        let (kind, text) = said(&OwnMount { point: world.path("away"), ..right.clone() }, US).unwrap_err();
        assert!(kind == Kind::Unavailable && text.contains("does not answer"), "{text}");
        let (kind, _) = said(&OwnMount { dev: right.dev + 1, ..right }, US).unwrap_err();
        assert_eq!(kind, Kind::Unavailable, "something else is mounted over it");
    }

    #[test]
    fn the_first_mount_that_is_right_is_found_and_the_others_are_explained() {
        let world = World::new();
        let id = world.session.store_id.to_string();
        let (old, right) = (mount(&world, "old", None), mount(&world, "right", Some(&id)));
        let found = |all| found_mount(&world.session, all, US);
        assert_eq!(found(vec![old.clone(), right.clone()]).unwrap(), right);
        let e = found(vec![old.clone()]).unwrap_err();
        let text = e.to_string();
        assert!(e.kind() == Kind::Unavailable && text.contains("no mount of memory:// answers"), "{text}");
        assert!(text.contains(&format!("; the mount {} does not say", old.point.display())), "{text}");
        assert!(!found(Vec::new()).unwrap_err().to_string().contains(';'));
    }

    #[test]
    fn a_given_mount_is_known_by_its_place() {
        let world = World::new();
        let all = [mount(&world, "a", None), mount(&world, "b", None)];
        let link = world.path("link");
        std::os::unix::fs::symlink(&all[1].point, &link).unwrap();
        assert_eq!(given_mount(&all, &link).unwrap(), all[1]);
        assert_eq!(given_mount(&all, &all[0].point).unwrap(), all[0]);
        let dead = OwnMount { point: PathBuf::from("/away/from/here"), ..all[0].clone() };
        assert_eq!(given_mount(std::slice::from_ref(&dead), &dead.point).unwrap(), dead);
        let e = given_mount(&all, &world.path("cache")).unwrap_err();
        assert!(e.kind() == Kind::Invalid && e.to_string().contains("is no ckptfs mount of yours or root's"), "{e}");
    }
}
