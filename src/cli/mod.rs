//! The command line: one file per verb.

mod abort;
mod ack;
mod check;
mod complete;
mod copy;
#[cfg(feature = "rocksdb")]
mod demo;
mod diff;
mod doctor;
mod du;
mod exit;
mod expire;
mod gc;
mod hide;
mod import;
mod labels;
mod ls;
mod manual;
mod mount;
mod open;
mod owners;
mod path;
mod pin;
mod rates;
mod restore;
mod room;
mod show;
mod snapshot;
#[cfg(feature = "rocksdb")]
mod state;
mod umount;
mod verify;
mod warm;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use ckptfs::engine::SessionOptions;
use ckptfs::error::Result;
use ckptfs::local::process::ReadyPipe;
use ckptfs::store::Environment;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};

/// Checkpoints of stateful stream processors: cheap to take, safe to keep, open at once.
#[derive(Debug, Parser)]
#[command(name = "ckptfs", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Args {
    /// The store: file:///path, s3://bucket/prefix, gs://... or az://... Default: file:// under the user's data directory
    #[arg(long, global = true, env = "CKPTFS_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<String>,
    /// The cache of local files. Default: the user's cache directory, or one on the device of the directory that is snapshotted
    #[arg(long, global = true, env = "CKPTFS_CACHE", value_name = "DIR")]
    cache: Option<PathBuf>,
    /// A file with the key (64 hex digits) that signs all records; unsigned ones are refused then. Several lines: the first signs, all verify
    #[arg(long, global = true, env = "CKPTFS_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    rates: rates::Args,
    /// Print JSON for scripts instead of tables for people
    #[arg(long, global = true)]
    json: bool,
    /// Say more; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Use a file:// store on NFS, SMB, 9p or FUSE. It risks lost checkpoints: those do not keep what link, rename and fsync promise
    #[arg(long, global = true)]
    allow_unsafe_file_system: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show a store's checkpoints as a read-only directory
    Mount(mount::Args),
    /// Unmount, wait for the daemon, heal a dead mount
    Umount(umount::Args),
    /// Take a RocksDB checkpoint (or a stopped database's directory) as a checkpoint of a job
    Snapshot(snapshot::Args),
    /// Take checkpoints of another program in
    Import(import::Args),
    /// Copy checkpoints into another store: another region, a backup
    Copy(copy::Args),
    /// Begin a checkpoint that several processes or hosts will acknowledge
    Open(open::Args),
    /// Store a directory as one subtask's part of an open checkpoint
    Ack(ack::Args),
    /// Publish a checkpoint whose subtasks have all acknowledged
    Complete(complete::Args),
    /// Give an open checkpoint up
    Abort(abort::Args),
    /// List jobs, or a job's checkpoints
    Ls(ls::Args),
    /// Show what a checkpoint consists of
    Show(show::Args),
    /// Look into a checkpoint of Flink's: its operators, states and rows
    #[cfg(feature = "rocksdb")]
    State(state::Args),
    /// Compare two checkpoints file by file
    Diff(diff::Args),
    /// Logical, new and unique bytes
    Du(du::Args),
    /// Print the path of a checkpoint below the mount, with `latest` resolved
    Path(path::Args),
    /// Bring a checkpoint back as a local directory
    Restore(restore::Args),
    /// Fetch a checkpoint's files into the cache, so that a mount serves them at native speed and without the store
    Warm(warm::Args),
    /// Take a checkpoint out of the view; `unhide` brings it back
    Hide(hide::Args),
    /// Bring a hidden checkpoint back
    Unhide(hide::Args),
    /// End a checkpoint's life, for ever; `gc` then frees what only it needed
    Expire(expire::Args),
    /// Keep a checkpoint's bytes, even when it expires
    Pin(pin::Args),
    /// Take pins away
    Unpin(pin::UnpinArgs),
    /// List pins
    Pins(pin::ListArgs),
    /// Say what a sweep would delete and why; with --delete, delete it
    Gc(gc::Args),
    /// Check that every reference resolves; with --read, that every byte is right
    Verify(verify::Args),
    /// Say whether each job's newest checkpoint is young enough: for alerts without a daemon
    Check(check::Args),
    /// Look whether store, cache, kernel and FUSE will do, and say what to do where not
    Doctor(doctor::Args),
    /// Print completions for a shell
    Completions(manual::Completions),
    /// Write the man pages
    #[command(hide = true)]
    Man(manual::Man),
    /// Watch a job take checkpoints, die, and be restored from the mount
    #[cfg(feature = "rocksdb")]
    Demo(demo::Args),
}

/// What every verb gets.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The store's URL, where one was given.
    pub(crate) store: Option<String>,
    /// The cache's directory, where one was given.
    pub(crate) cache: Option<PathBuf>,
    /// JSON instead of tables.
    pub(crate) json: bool,
    /// Only errors.
    pub(crate) quiet: bool,
    /// How much more to say.
    pub(crate) verbose: u8,
    /// The key file, where one was given.
    pub(crate) key_file: Option<PathBuf>,
    /// How fast a bucket is written and read.
    pub(crate) rates: rates::Args,
    allow_unsafe_file_system: bool,
}

impl Context {
    /// Options for a verb that reads.
    pub(crate) fn options(&self) -> SessionOptions {
        SessionOptions {
            store: self.store.clone(),
            cache: self.cache.clone(),
            near: None,
            create: false,
            allow_unsafe_file_system: self.allow_unsafe_file_system,
            key_file: self.key_file.clone(),
            rates: self.rates.rates(),
            environment: Environment::default(),
        }
    }
}

/// Reads a command line: the program's name and its arguments.
pub(crate) fn parse(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> std::result::Result<Args, clap::Error> {
    let args = Args::try_parse_from(words)?;
    if let Verb::Expire(expire) = &args.verb
        && let Err(why) = expire.check()
    {
        return Err(Args::command().error(clap::error::ErrorKind::MissingRequiredArgument, why));
    }
    if let Verb::Copy(copy) = &args.verb
        && let Err(why) = copy.check()
    {
        return Err(Args::command().error(clap::error::ErrorKind::ArgumentConflict, why));
    }
    if let Verb::Restore(restore) = &args.verb
        && let Err(why) = restore.check()
    {
        return Err(Args::command().error(clap::error::ErrorKind::ValueValidation, why));
    }
    Ok(args)
}

/// Does what the arguments say; returns the exit code.
pub(crate) fn main() -> u8 {
    let args = match parse(std::env::args_os()) {
        Ok(args) => args,
        Err(e) => return exit::usage(&e),
    };
    log_to_stderr(args.verbose, args.quiet);
    if let Err(e) = ckptfs::local::signal::too_long_files_fail() {
        log::debug!("a limit of file sizes ends this process without a word: {e}");
    }
    if let Err(e) = ckptfs::local::process::set_not_dumpable() {
        log::debug!("credentials may stand in a core dump: {e}");
    }
    let context = Context {
        store: args.store,
        cache: args.cache,
        json: args.json,
        quiet: args.quiet,
        verbose: args.verbose,
        key_file: args.key_file,
        rates: args.rates,
        allow_unsafe_file_system: args.allow_unsafe_file_system,
    };
    exit::code(run(&context, args.verb))
}

fn run(context: &Context, verb: Verb) -> Result<exit::Exit> {
    match verb {
        Verb::Mount(args) => mount::run(context, &args),
        Verb::Umount(args) => umount::run(context, &args),
        Verb::Snapshot(args) => snapshot::run(context, &args),
        Verb::Import(args) => import::run(context, &args),
        Verb::Copy(args) => copy::run(context, &args),
        Verb::Open(args) => open::run(context, &args),
        Verb::Ack(args) => ack::run(context, &args),
        Verb::Complete(args) => complete::run(context, &args),
        Verb::Abort(args) => abort::run(context, &args),
        Verb::Ls(args) => ls::run(context, &args),
        Verb::Show(args) => show::run(context, &args),
        #[cfg(feature = "rocksdb")]
        Verb::State(args) => state::run(context, &args),
        Verb::Diff(args) => diff::run(context, &args),
        Verb::Du(args) => du::run(context, &args),
        Verb::Path(args) => path::run(context, &args),
        Verb::Restore(args) => restore::run(context, &args),
        Verb::Warm(args) => warm::run(context, &args),
        Verb::Hide(args) => hide::run(context, &args),
        Verb::Unhide(args) => hide::back(context, &args),
        Verb::Expire(args) => expire::run(context, &args),
        Verb::Pin(args) => pin::run(context, &args),
        Verb::Unpin(args) => pin::unpin(context, &args),
        Verb::Pins(args) => pin::list(context, &args),
        Verb::Gc(args) => gc::run(context, &args),
        Verb::Verify(args) => verify::run(context, &args),
        Verb::Check(args) => check::run(context, &args),
        Verb::Doctor(args) => doctor::run(context, &args),
        Verb::Completions(args) => manual::completions(Args::command(), &args),
        Verb::Man(args) => manual::man(Args::command(), &args),
        #[cfg(feature = "rocksdb")]
        Verb::Demo(args) => demo::run(context, &args),
    }
}

fn log_to_stderr(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => log::LevelFilter::Error,
        (false, 0) => log::LevelFilter::Warn,
        (false, 1) => log::LevelFilter::Info,
        (false, 2) => log::LevelFilter::Debug,
        (false, _) => log::LevelFilter::Trace,
    };
    // Only our own: libraries below may log requests with their headers.
    let mut builder = env_logger::Builder::new();
    builder.filter_level(log::LevelFilter::Off).filter_module("ckptfs", level).format_target(false);
    // A daemon's words are read long after they were said.
    if verbose == 0 && !ReadyPipe::is_inherited() {
        builder.format_timestamp(None);
    }
    builder.init();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What clap itself asserts in builds with debug assertions: a verb has each group of options and each option once.
    #[test]
    fn every_verb_has_each_of_its_options_once() {
        let mut verbs = 0;
        for verb in Args::command().get_subcommands() {
            let mut seen = std::collections::BTreeSet::new();
            for group in verb.get_groups() {
                assert!(seen.insert(format!("group {}", group.get_id())), "{}: {}", verb.get_name(), group.get_id());
            }
            for option in verb.get_arguments() {
                assert!(seen.insert(option.get_id().to_string()), "{}: {}", verb.get_name(), option.get_id());
            }
            verbs += 1;
        }
        assert!(verbs > 20, "{verbs}");
    }
}
