//! `umount`: unmounts, waits for the daemon, heals a dead mount.

use std::path::PathBuf;

use ckptfs::error::Result;
use ckptfs::fuse::{Unmounted, umount};

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Also when files are open: they stay readable, and the daemon ends when the last is closed
    #[arg(long)]
    lazy: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let shown = args.mountpoint.display();
    match umount(&args.mountpoint, args.lazy)? {
        Unmounted::Ended => {}
        Unmounted::Lingers => {
            words::tell(
                context.quiet,
                &format!("{shown} is unmounted; its daemon goes on until open files are closed"),
            );
        }
        Unmounted::Healed => words::tell(context.quiet, &format!("{shown}: only a dead mount was there; it is gone")),
    }
    Ok(Exit::Done)
}
