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

/// Runs a test of this binary in a process whose store is at a port of its own.
fn child(test: &str, environment: &[(&str, &str)]) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("faults::{test}"), "--exact", "--ignored", "--nocapture"]);
    command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")).env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ACCESS_KEY_ID", "writer").env("AWS_SECRET_ACCESS_KEY", "writer-secret");
    command.env("CKPTFS_FAULTS_PORT", port.to_string()).envs(environment.iter().copied());
    assert!(command.status().unwrap().success(), "{test} failed: see above");
}

#[test]
fn store_faults_lose_nothing_and_serve_no_wrong_byte() {
    child("run::all", &[]);
    // Where deletes do not go in bulk.
    child("run::single_deletes", &[("AWS_DISABLE_BULK_DELETE", "true")]);
}

#[test]
fn the_store_in_memory_is_like_a_real_one() {
    child("conformance::both", &[]);
}
