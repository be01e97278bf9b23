//! What has no verb: this binary runs itself, and the child does it by the library.

use std::process::Command;

use ckptfs::lifecycle::driver;
use ckptfs::lifecycle::takeover::TakeOver;
use ckptfs::types::{Name, Uid};

use super::yard::Yard;

const WANTED: &str = "CKPTFS_CAMPAIGN_HELPER";

/// The command that does it.
pub fn command(yard: &Yard, args: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::helper::helper", "--exact", "--nocapture", "--test-threads=1"]).env(WANTED, &args[0]);
    command.env("CKPTFS_CAMPAIGN_YARD", &yard.root).env("CKPTFS_CAMPAIGN_CACHE", &yard.cache);
    yard.surround(&mut command);
    command
}

#[test]
fn helper() {
    let Ok(wanted) = std::env::var(WANTED) else { return };
    assert_eq!(wanted, "take-over");
    // As the program begins.
    ckptfs::local::signal::too_long_files_fail().unwrap();
    let root = std::env::var("CKPTFS_CAMPAIGN_YARD").unwrap();
    let yard = Yard::at(root.as_ref(), &std::env::var("CKPTFS_CAMPAIGN_CACHE").unwrap());
    let done = yard.session(&yard.cache).and_then(|session| {
        let machine = TakeOver::new(Name::encode("app"), Uid::random().unwrap(), session.cache.id(), "here".to_owned());
        driver::run(&session.store, machine).map_err(|e| ckptfs::error::Error::from(e).to_string())
    });
    // As the program ends.
    let code = match done {
        Ok(_) => 0,
        Err(e) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "ckptfs: {e}");
            1
        }
    };
    std::process::exit(code);
}
