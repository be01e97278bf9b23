//! Store faults: every kind of fault at every kind of request, over HTTP, against the client as it is. What callers were told is held
//! against what the store has, in the middle of faults and after them.
//!
//! `CKPTFS_FAULTED_REQUESTS` says how many requests meet a fault (20,000); each cell of the matrix that can exist is hit by at least a
//! thousandth of them (`CKPTFS_FAULTS_PART=work` leaves out the cells that are driven one by one). A twentieth goes to a real server. A process of its own runs them: where a store is, its environment says.

mod bucket;
mod cells;
mod conformance;
mod databases;
mod direct;
mod heal;
mod http;
mod layer;
mod random;
mod run;
mod server;
mod timed;
mod truth;
mod upstream;
mod work;
mod world;

use std::net::TcpListener;
use std::process::Command;

/// What such a process does is in this variable.
const DOES: &str = "CKPTFS_FAULTS_DOES";

/// Runs a test of this binary again, in a process whose store is at a port of its own, for one piece of work.
fn child(test: &str, does: &str, environment: &[(&str, &str)]) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("faults::{test}"), "--exact", "--nocapture"]).env(DOES, does);
    command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")).env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ACCESS_KEY_ID", "writer").env("AWS_SECRET_ACCESS_KEY", "writer-secret");
    command.env("CKPTFS_FAULTS_PORT", port.to_string()).envs(environment.iter().copied());
    assert!(command.status().unwrap().success(), "{does} failed: see above");
}

#[test]
fn store_faults_lose_nothing_and_serve_no_wrong_byte() {
    match std::env::var(DOES).as_deref() {
        Ok("all") => return run::all(),
        Ok(_) => return run::single_deletes(),
        Err(_) => {}
    }
    let again = |does, environment| child("store_faults_lose_nothing_and_serve_no_wrong_byte", does, environment);
    again("all", &[]);
    // Where deletes do not go in bulk.
    again("single deletes", &[("AWS_DISABLE_BULK_DELETE", "true")]);
}

#[test]
fn the_store_in_memory_is_like_a_real_one() {
    if std::env::var_os(DOES).is_some() {
        return conformance::both();
    }
    child("the_store_in_memory_is_like_a_real_one", "conformance", &[]);
}
