//! A proxy between a client and an S3 server that knows where requests begin and end. At one of them the client dies: before the server
//! hears of it, after the server answered, or when it has half of the body.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::mode::Mode;

/// What happens, and at which of the requests to which it can: all, or only those of one kind.
#[derive(Debug, Clone)]
pub struct Plan {
    pub mode: Mode,
    pub k: u64,
    pub only: Option<String>,
}

#[derive(Default)]
struct State {
    there: u16,
    /// The client; 0 until it is known.
    client: AtomicI32,
    plan: Mutex<Option<Plan>>,
    seen: AtomicU64,
    hit: Mutex<Option<String>>,
    /// Requests of a run, in their order, and whether each has a body.
    requests: Mutex<Vec<(String, bool)>>,
}

pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

struct Request {
    head: Vec<u8>,
    method: String,
    path: String,
    length: u64,
}

impl Proxy {
    /// It ends with the test's process.
    pub fn to(there: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State { there, ..State::default() });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(&state, &near));
            }
        });
        Self { port, state }
    }

    /// A new run begins.
    pub fn plan(&self, plan: &Plan) {
        self.state.client.store(0, SeqCst);
        self.state.seen.store(0, SeqCst);
        *self.state.plan.lock().unwrap() = (plan.mode != Mode::Quiet).then(|| plan.clone());
        *self.state.hit.lock().unwrap() = None;
        self.state.requests.lock().unwrap().clear();
    }

    pub fn client(&self, pid: i32) {
        self.state.client.store(pid, SeqCst);
    }

    /// The request that was hit, and all that were seen.
    pub fn seen(&self) -> (Option<String>, Vec<(String, bool)>) {
        *self.state.plan.lock().unwrap() = None;
        (self.state.hit.lock().unwrap().take(), self.state.requests.lock().unwrap().clone())
    }
}

impl State {
    fn decide(&self, request: &Request) -> Option<Mode> {
        let class = format!("{} {}", request.method, request.path);
        self.requests.lock().unwrap().push((class.clone(), request.length > 1));
        let Plan { mode, k, only } = self.plan.lock().unwrap().clone()?;
        if mode == Mode::Torn && request.length < 2 || only.is_some_and(|only| only != class) {
            return None;
        }
        if self.seen.fetch_add(1, SeqCst) + 1 != k {
            return None;
        }
        *self.hit.lock().unwrap() = Some(class);
        Some(mode)
    }

    fn kill(&self) {
        loop {
            match self.client.load(SeqCst) {
                0 => thread::sleep(Duration::from_millis(1)),
                pid => return crate::trace::kill(pid),
            }
        }
    }
}

fn serve(state: &State, near: &TcpStream) {
    let Ok(far) = TcpStream::connect(("127.0.0.1", state.there)) else { return };
    let _ = carry(state, near, &far);
    let _ = near.shutdown(Shutdown::Both);
    let _ = far.shutdown(Shutdown::Both);
}

fn carry(state: &State, near: &TcpStream, far: &TcpStream) -> std::io::Result<()> {
    let (mut from_near, mut from_far) = (BufReader::new(near), BufReader::new(far));
    let (mut to_near, mut to_far) = (near, far);
    while let Some(request) = request(&mut from_near)? {
        let act = state.decide(&request);
        if act == Some(Mode::Before) {
            state.kill();
            return Ok(());
        }
        to_far.write_all(&request.head)?;
        let sent = if act == Some(Mode::Torn) { request.length / 2 } else { request.length };
        std::io::copy(&mut (&mut from_near).take(sent), &mut to_far)?;
        if act == Some(Mode::Torn) {
            state.kill();
            return Ok(());
        }
        let answer = answer(&mut from_far, &request.method)?;
        if act == Some(Mode::After) {
            state.kill();
            return Ok(());
        }
        to_near.write_all(&answer)?;
    }
    Ok(())
}

/// Lines up to the empty one. Nothing at the end of the connection.
fn head(from: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        if from.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
        if head.len() - before <= 2 {
            return Ok(Some(head));
        }
    }
}

fn field(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head).into_owned();
    let found = text.lines().filter_map(|l| l.split_once(':')).find(|(n, _)| n.eq_ignore_ascii_case(name))?;
    Some(found.1.trim().to_ascii_lowercase())
}

fn length(head: &[u8]) -> Option<u64> {
    field(head, "content-length").and_then(|l| l.parse().ok())
}

fn request(from: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let Some(head) = head(from)? else { return Ok(None) };
    let first = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default());
    // Bucket and prefix differ from run to run; of a query only the first word says what it is.
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let below = path.splitn(4, '/').nth(3).unwrap_or_default();
    let below = super::kind::kind(std::path::Path::new("/none"), std::path::Path::new(below));
    let query = query.split(['=', '&']).next().unwrap_or_default();
    let path = if query.is_empty() { below } else { format!("{below}?{query}") };
    let length = length(&head).unwrap_or(0);
    Ok(Some(Request { head, method, path, length }))
}

fn answer(from: &mut impl BufRead, method: &str) -> std::io::Result<Vec<u8>> {
    let ended = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let mut all = head(from)?.ok_or_else(ended)?;
    let status = String::from_utf8_lossy(&all).split(' ').nth(1).unwrap_or_default().to_owned();
    if method == "HEAD" || status == "204" || status == "304" {
        return Ok(all);
    }
    if let Some(length) = length(&all) {
        from.take(length).read_to_end(&mut all)?;
    } else if field(&all, "transfer-encoding").as_deref() == Some("chunked") {
        loop {
            let mut line = Vec::new();
            from.read_until(b'\n', &mut line)?;
            let size = u64::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).map_err(|_| ended())?;
            all.extend(line);
            from.take(size + 2).read_to_end(&mut all)?;
            if size == 0 {
                break;
            }
        }
    } else {
        from.read_to_end(&mut all)?;
    }
    Ok(all)
}
