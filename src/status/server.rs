//! The HTTP server: one thread that takes requests, some more that find answers. It listens where it is told, on loopback unless an
//! address says otherwise, and answers GET and HEAD only.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use super::page::{self, Answer};
use super::{Status, families};
use crate::error::{Error, Kind, Result};
use crate::limits;

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a probe waits for the mount.
const HEALTH: Duration = Duration::from_secs(5);

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What every connection shares.
struct Shared {
    status: Status,
    /// Clients that are served.
    places: Semaphore,
    /// Pages that are being made: whether the mount lives is told also while all of them wait for a dead store.
    pages: Semaphore,
    /// A page of another name than ours could make a browser here ask us on behalf of somebody else's page.
    loopback: bool,
}

impl Server {
    /// Listens and answers until it is dropped.
    ///
    /// # Errors
    /// When the address is taken, or is none of this host's.
    pub fn start(address: SocketAddr, status: Status) -> Result<Self> {
        let failed = |e: std::io::Error| {
            let why =
                format!("cannot listen on {address}: {e} (another daemon may: choose another port with --listen)");
            Error::with_source(Kind::Resources, why, e)
        };
        // With one thread that takes requests, however many ask; answers are found by others.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits::STATUS_ANSWERS + limits::STATUS_PROBES)
            .thread_name("ckptfs-status")
            .build()
            .map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::new(Shared {
            status,
            places: Semaphore::new(limits::STATUS_CONNECTIONS),
            pages: Semaphore::new(limits::STATUS_ANSWERS),
            loopback: address.ip().is_loopback(),
        });
        let run = move || {
            runtime.block_on(serve(listener, shared, stopped));
            // An answer that waits for a dead store keeps nobody from ending.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("ckptfs-status".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    loop {
        let stream = tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // No descriptors are left, most likely: others are about to close theirs.
                    log::debug!("a connection could not be taken: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let Ok(_place) = shared.places.try_acquire() else { return };
            let answering = Arc::clone(&shared);
            let service = service_fn(move |request| answer(Arc::clone(&answering), request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(limits::STATUS_REQUEST)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(e) = connection.await {
                log::debug!("a client of the status page: {e}");
            }
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let head = request.method() == Method::HEAD;
    let answer = if request.method() != Method::GET && !head {
        Answer::words(StatusCode::METHOD_NOT_ALLOWED, "this server only shows: GET and HEAD")
    } else if shared.loopback && !names_this_host(request.headers()) {
        Answer::words(StatusCode::FORBIDDEN, "ask by this host's address: another name was given as its own")
    } else {
        route(&shared, request.uri().path()).await
    };
    Ok(respond(answer, head))
}

/// Whether the host that a browser believes to talk to is this one by its address, and no name that somebody made point here.
fn names_this_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|h| h.to_str().ok()) else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

async fn route(shared: &Shared, path: &str) -> Answer {
    let status = shared.status.clone();
    match path {
        "/healthz" => {
            let asked = tokio::task::spawn_blocking(move || status.illness());
            match tokio::time::timeout(HEALTH, asked).await {
                Ok(Ok(None)) => Answer::words(StatusCode::OK, "ok"),
                Ok(Ok(Some(why))) => Answer::words(StatusCode::SERVICE_UNAVAILABLE, &why),
                Ok(Err(_)) => {
                    Answer::words(StatusCode::INTERNAL_SERVER_ERROR, "it could not be found out: see the log")
                }
                Err(_) => {
                    let why = format!("the mount did not answer within {} s", HEALTH.as_secs());
                    Answer::words(StatusCode::SERVICE_UNAVAILABLE, &why)
                }
            }
        }
        // From memory: it waits for nothing.
        "/metrics" => match families::text(&status) {
            Ok(text) => Answer { status: StatusCode::OK, kind: families::OPENMETRICS, body: text },
            Err(_) => Answer::words(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written"),
        },
        _ => {
            let (_turn, path) = (shared.pages.acquire().await, path.to_owned());
            let made = tokio::task::spawn_blocking(move || page::answer(&status, &path)).await;
            made.unwrap_or_else(|_| {
                Answer::words(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made: see the log")
            })
        }
    }
}

fn respond(answer: Answer, head: bool) -> Response<Full<Bytes>> {
    let length = answer.body.len();
    let body = if head { Bytes::new() } else { Bytes::from(answer.body) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, answer.kind),
        // Nothing of a page comes from elsewhere, and nothing of it runs.
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if answer.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::super::Mount;
    use super::*;
    use crate::cache::{Session, SessionOptions};

    #[test]
    fn a_mount_that_does_not_answer_is_told_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let store = Some(format!("file://{}", at("store").display()));
        let options = SessionOptions { store, cache: Some(at("cache")), create: true, ..SessionOptions::default() };
        let session = Session::open(&options).unwrap();
        let mount = Mount { point: at("mnt"), counters: Arc::default() };
        let status = Status::new(&session, Some(mount)).unwrap();
        let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), status).unwrap();
        let ask = || {
            let mut socket = TcpStream::connect(server.address()).unwrap();
            socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            answer
        };
        let sick = ask();
        assert!(sick.starts_with("HTTP/1.1 503 ") && sick.contains("mnt does not answer: "), "{sick}");
        std::fs::create_dir(at("mnt")).unwrap();
        let well = ask();
        assert!(well.starts_with("HTTP/1.1 200 ") && well.ends_with("ok\n"), "{well}");
    }

    #[test]
    fn a_name_that_points_here_is_not_this_host() {
        let with = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            names_this_host(&headers)
        };
        for ours in ["localhost", "localhost:9464", "LOCALHOST:1", "127.0.0.1:9464", "127.0.0.1", "[::1]:9464", "::1"] {
            assert!(with(ours), "{ours}");
        }
        for not in ["evil.example:9464", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""] {
            assert!(!with(not), "{not}");
        }
        assert!(names_this_host(&HeaderMap::new()), "HTTP/1.0 says no host");
    }
}
