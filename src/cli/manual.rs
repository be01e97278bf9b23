//! `completions` and `man`: what a package brings beside the program, made from the same descriptions as `--help`.

use std::path::PathBuf;

use ckptfs::error::{Error, Kind, Result};
use clap::Command;
use clap_complete::Shell;

use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Whose completions
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Where the pages go: ckptfs.1 and one for each verb
    directory: PathBuf,
}

pub(crate) fn completions(mut command: Command, args: &Completions) -> Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "ckptfs", &mut text);
    words::part(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}

pub(crate) fn man(command: Command, args: &Man) -> Result<Exit> {
    clap_mangen::generate_to(command, &args.directory).map_err(|e| {
        let why = format!("cannot write man pages to {}: {e} (does the directory exist?)", args.directory.display());
        Error::with_source(Kind::Other, why, e)
    })?;
    Ok(Exit::Done)
}
