//! What has no verb: this binary runs itself, and the child does it by the library.

use std::fs;
use std::process::Command;

use ckptfs::lifecycle::driver;
use ckptfs::lifecycle::takeover::TakeOver;
use ckptfs::types::{Name, Uid};

use super::check;
use super::scenarios::{SCENARIOS, Scenario};
use super::yard::Yard;

const WANTED: &str = "CKPTFS_CAMPAIGN_HELPER";

/// The command that does it.
pub fn command(yard: &Yard, args: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::helper::helper", "--exact", "--nocapture", "--test-threads=1"]).env(WANTED, &args[0]);
    command.env("CKPTFS_CAMPAIGN_YARD", &yard.root).env("CKPTFS_CAMPAIGN_CACHE", &yard.cache);
    command.env("CKPTFS_CAMPAIGN_SCENARIO", args.get(1).map_or("", String::as_str));
    yard.surround(&mut command);
    command
}

#[test]
fn helper() {
    let Ok(wanted) = std::env::var(WANTED) else { return };
    // As the program begins.
    ckptfs::local::signal::too_long_files_fail().unwrap();
    let root = std::env::var("CKPTFS_CAMPAIGN_YARD").unwrap();
    let mut yard = Yard::at(root.as_ref(), &std::env::var("CKPTFS_CAMPAIGN_CACHE").unwrap());
    let store = std::env::var("CKPTFS_STORE").unwrap();
    if store.starts_with("s3:") {
        yard.remote = Some((store, std::env::var("AWS_ENDPOINT_URL").unwrap()));
    }
    let scenario = std::env::var("CKPTFS_CAMPAIGN_SCENARIO").unwrap();
    let scenario = SCENARIOS.iter().find(|s| s.name == scenario);
    let done = match (wanted.as_str(), scenario) {
        ("take-over", _) => take_over(&yard),
        ("look", Some(scenario)) => look(&yard, scenario),
        ("check", Some(scenario)) => full(&yard, scenario),
        _ => panic!("{wanted}?"),
    };
    // As the program ends.
    let code = match done {
        Ok(()) => 0,
        Err(e) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "ckptfs: {e}");
            1
        }
    };
    std::process::exit(code);
}

fn take_over(yard: &Yard) -> Result<(), String> {
    let session = yard.session(&yard.cache)?;
    let machine = TakeOver::new(Name::encode("app"), Uid::random().unwrap(), session.cache.id(), "here".to_owned());
    driver::run(&session.store, machine).map(drop).map_err(|e| ckptfs::error::Error::from(e).to_string())
}

/// Somebody who comes at once, from another host, finds everything whole; and what is decided by then is noted.
fn look(yard: &Yard, scenario: &Scenario) -> Result<(), String> {
    fs::write(yard.path("decided.json"), serde_json::to_vec(&yard.decided()).unwrap()).unwrap();
    let session = yard.session("onlooker")?;
    check::whole(yard, &session, scenario, &yard.truth(), scenario.ends).map(drop)
}

/// The full check.
fn full(yard: &Yard, scenario: &Scenario) -> Result<(), String> {
    let decided = serde_json::from_slice(&fs::read(yard.path("decided.json")).unwrap()).unwrap();
    check::after(yard, scenario, &yard.truth(), &decided)
}
