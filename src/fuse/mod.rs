//! The kernel's side of the view: requests, errno, passthrough, mount.
