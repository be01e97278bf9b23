//! Hosts of their own on one machine: network namespaces on a bridge. A host is cut off by taking its cable out of the bridge: its packets
//! vanish, as they do when a machine's power is gone.

use std::process::{Command, Stdio};

/// Hosts that see each other, and the machine that runs the test.
pub struct Net {
    /// The place among the nets of the machine, whoever made them: in the names and in the addresses.
    id: u32,
    hosts: usize,
}

/// A command that must succeed.
fn ip(args: &str) {
    let output = Command::new("ip").args(args.split(' ')).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("cannot run ip: {e}; install the package iproute2"));
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// How many nets a machine has addresses for.
const PLACES: u32 = 250;

/// Makes the name space of a switch, whose name is taken by nobody: other tests make nets at the same time.
fn free_place() -> u32 {
    let begin = std::process::id() % PLACES;
    let mut said = String::new();
    for place in (begin..PLACES).chain(0..begin) {
        let output = Command::new("ip").args(["netns", "add", &format!("ckn{place}")]).stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|e| panic!("cannot run ip: {e}; install the package iproute2"));
        if output.status.success() {
            return place;
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !said.contains("File exists") {
            break;
        }
    }
    panic!("no name space for a net: {said}");
}

impl Net {
    /// Makes them. Needs root.
    pub fn new(hosts: usize) -> Self {
        let net = Self { id: free_place(), hosts };
        let switch = net.switch();
        ip(&format!("-n {switch} link add bridge type bridge"));
        ip(&format!("-n {switch} link set bridge up"));
        ip(&format!("link add {switch} type veth peer name uplink netns {switch}"));
        ip(&format!("-n {switch} link set uplink master bridge up"));
        ip(&format!("addr add {}/24 dev {switch}", net.address(0)));
        ip(&format!("link set {switch} up"));
        for host in 1..=hosts {
            let name = net.name(host);
            ip(&format!("netns add {name}"));
            ip(&format!("-n {switch} link add port{host} type veth peer name eth0 netns {name}"));
            ip(&format!("-n {switch} link set port{host} master bridge up"));
            ip(&format!("-n {name} addr add {}/24 dev eth0", net.address(host)));
            ip(&format!("-n {name} link set eth0 up"));
            ip(&format!("-n {name} link set lo up"));
        }
        net
    }

    fn switch(&self) -> String {
        format!("ckn{}", self.id)
    }

    fn name(&self, host: usize) -> String {
        format!("ckn{}-{host}", self.id)
    }

    /// Of a host; 0 is the machine itself. Nothing beyond the bridge is reached by it.
    pub fn address(&self, host: usize) -> String {
        format!("10.213.{}.{}", self.id, host + 1)
    }

    /// A program on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name(host))).arg(program).stdin(Stdio::null());
        command
    }

    pub fn cut(&self, host: usize) {
        ip(&format!("-n {} link set port{host} down", self.switch()));
    }

    pub fn join(&self, host: usize) {
        ip(&format!("-n {} link set port{host} up", self.switch()));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in (1..=self.hosts).map(|h| self.name(h)).chain([self.switch()]) {
            let _ = Command::new("ip").args(["netns", "del", &name]).status();
        }
        let _ = Command::new("ip").args(["link", "del", &self.switch()]).stderr(Stdio::null()).status();
    }
}
