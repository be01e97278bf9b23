//! The server that clients talk to: a thread for each connection, and one for what is done late.

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::cells::{Ask, Kind};
use super::http::{Answer, Request, read_body};
use super::layer::{Delivery, Layer};

/// The longest that the server sits on a connection that its client has forgotten.
const LONGEST_HANG: Duration = Duration::from_secs(20);

/// Serves a layer at a port, as long as the process lives.
pub fn start(layer: &Arc<Layer>, port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let shared = Arc::clone(layer);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let layer = Arc::clone(&shared);
            // A thread that cannot be had is a connection that breaks.
            let _ = std::thread::Builder::new().stack_size(256 << 10).spawn(move || drop(serve(&layer, &socket)));
        }
    });
    let shared = Arc::clone(layer);
    std::thread::spawn(move || {
        while !shared.ended.load(Ordering::Relaxed) {
            shared.catch_up();
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

fn serve(layer: &Layer, socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 << 10, socket.try_clone()?);
    while let Some((mut request, length)) = Request::read(&mut reader)? {
        layer.requests.fetch_add(1, Ordering::Relaxed);
        let ask = Ask::of(&request);
        // What sends a body is known by its target; the others by their bodies, too.
        let early = ask.is_some_and(|a| matches!(a, Ask::Create | Ask::Put | Ask::Part));
        let mut kind = None;
        if let Some(ask) = ask.filter(|_| early) {
            kind = layer.choose(ask, &request);
            if kind == Some(Kind::Truncated) && length > 0 {
                // It breaks in the middle: nothing was stored.
                read_body(&mut reader, length / 2)?;
                layer.cut(ask, &request);
                return socket.shutdown(std::net::Shutdown::Both);
            }
        }
        request.body = read_body(&mut reader, length)?;
        let Some(ask) = ask else {
            send(socket, &request, &layer.handle(&request), Delivery::Whole)?;
            continue;
        };
        if !early {
            kind = layer.choose(ask, &request);
        }
        let (answer, delivery) = layer.act(kind, ask, &request);
        send(socket, &request, &answer, delivery)?;
    }
    Ok(())
}

fn send(mut socket: &TcpStream, request: &Request, answer: &Answer, delivery: Delivery) -> io::Result<()> {
    let body = if request.method == "HEAD" { &[][..] } else { &answer.body };
    let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
    match delivery {
        Delivery::Whole => {
            let mut all = answer.head(false);
            if body.len() < 64 << 10 {
                all.extend_from_slice(body);
                return socket.write_all(&all);
            }
            socket.write_all(&all)?;
            socket.write_all(body)
        }
        Delivery::Cut(at) => {
            socket.write_all(&answer.head(true))?;
            socket.write_all(&body[..at.min(body.len())])?;
            socket.shutdown(std::net::Shutdown::Both)?;
            Err(closed())
        }
        Delivery::Close => {
            socket.shutdown(std::net::Shutdown::Both)?;
            Err(closed())
        }
        Delivery::Hang => {
            socket.set_read_timeout(Some(LONGEST_HANG))?;
            let _ = socket.read(&mut [0]);
            Err(closed())
        }
        Delivery::Drip(time) => drip(socket, answer, body, time),
    }
}

fn drip(mut socket: &TcpStream, answer: &Answer, body: &[u8], time: Duration) -> io::Result<()> {
    let begun = Instant::now();
    let pieces = 10;
    std::thread::sleep(time / pieces);
    socket.write_all(&answer.head(false))?;
    for piece in body.chunks(body.len().div_ceil(pieces as usize).max(1)) {
        let left = time.saturating_sub(begun.elapsed());
        std::thread::sleep(left.min(time / pieces));
        socket.write_all(piece)?;
    }
    Ok(())
}
