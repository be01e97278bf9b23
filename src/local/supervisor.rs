//! What a supervisor of services is told, by the protocol of `sd_notify(3)`: that the mount is ready, that it still answers, that it ends.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Where a supervisor listens: a path, or a name without one behind `@`.
const SOCKET: &str = "NOTIFY_SOCKET";
/// How long it waits for a sign of life, in microseconds, and of whom.
const WATCHDOG: (&str, &str) = ("WATCHDOG_USEC", "WATCHDOG_PID");

/// Tells the supervisor, where there is one. Says whether there is.
///
/// # Errors
/// When it cannot be reached.
pub fn tell(words: &str) -> io::Result<bool> {
    match std::env::var_os(SOCKET) {
        Some(place) if !place.is_empty() => tell_at(&place, words).map(|()| true),
        _ => Ok(false),
    }
}

fn tell_at(place: &OsStr, words: &str) -> io::Result<()> {
    let address = match place.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        Some((b'/', _)) => SocketAddr::from_pathname(place)?,
        _ => {
            let why = format!("{SOCKET} is neither a path nor a name behind @");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    };
    UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address).map(drop)
}

/// How often the supervisor wants a sign of life of this process, if it does.
#[must_use]
pub fn sign_of_life() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number(WATCHDOG.1).is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number(WATCHDOG.0).filter(|n| *n > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_at_a_path_and_at_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let name = format!("ckptfs-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (listener, place) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ] {
            tell_at(&place, "READY=1").unwrap();
            let mut buffer = [0; 64];
            let n = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..n], b"READY=1");
        }
        assert_eq!(tell_at(OsStr::new("x"), "").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(tell_at(OsStr::new("/nobody/listens"), "").is_err());
    }
}
