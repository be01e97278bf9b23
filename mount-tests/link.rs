//! A link to the S3 server that counts, and on demand breaks what comes back: flipped bytes, cut answers, late ones, bytes of other
//! answers, none at all.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What was done to answers, by kind.
#[derive(Debug, Default)]
pub struct Done {
    pub flipped: AtomicU64,
    pub cut: AtomicU64,
    pub late: AtomicU64,
    pub swapped: AtomicU64,
    pub dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    there: u16,
    /// Answers of a hundred that are broken.
    percent: AtomicU64,
    dice: Mutex<u64>,
    gets: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of an earlier answer.
    earlier: Mutex<Vec<u8>>,
    done: Done,
}

/// The link. It ends with the test's process.
pub struct Link {
    pub port: u16,
    state: Arc<State>,
}

/// What happens to one answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Right,
    Flip(u64),
    Cut(u64),
    Late(u64),
    Swap(u64),
    Drop,
}

impl State {
    fn roll(&self, n: u64) -> u64 {
        let mut dice = self.dice.lock().unwrap();
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        *dice % n
    }

    fn fate(&self) -> Fate {
        if self.roll(100) >= self.percent.load(Ordering::SeqCst) {
            return Fate::Right;
        }
        let at = self.roll(80_000);
        match self.roll(5) {
            0 => Fate::Flip(at),
            1 => Fate::Cut(at),
            2 => Fate::Late(50 + self.roll(500)),
            3 => Fate::Swap(at),
            _ => Fate::Drop,
        }
    }
}

impl Link {
    pub fn to(there: u16, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State { there, dice: Mutex::new(seed | 1), ..State::default() });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(&state, &socket));
            }
        });
        Self { port, state }
    }

    /// From now on so many answers of a hundred are broken.
    pub fn breaks(&self, percent: u64) {
        self.state.percent.store(percent, Ordering::SeqCst);
    }

    /// GETs and bytes of answers since the last call.
    pub fn counted(&self) -> (u64, u64) {
        (self.state.gets.swap(0, Ordering::SeqCst), self.state.bytes.swap(0, Ordering::SeqCst))
    }

    pub fn done(&self) -> &Done {
        &self.state.done
    }
}

fn serve(state: &Arc<State>, near: &TcpStream) {
    let Ok(far) = TcpStream::connect(("127.0.0.1", state.there)) else { return };
    let fate = Arc::new(Mutex::new((Fate::Right, 0)));
    thread::scope(|scope| {
        let (up_near, up_far, up_fate) = (near.try_clone().unwrap(), far.try_clone().unwrap(), Arc::clone(&fate));
        scope.spawn(move || {
            let (mut near, mut far) = (up_near, up_far);
            let mut buffer = vec![0; 1 << 16];
            while let Ok(n @ 1..) = near.read(&mut buffer) {
                // A request begins, and with it another answer.
                if buffer.starts_with(b"GET ") {
                    state.gets.fetch_add(1, Ordering::SeqCst);
                    *up_fate.lock().unwrap() = (state.fate(), 0);
                } else if [&b"HEAD"[..], b"PUT ", b"POST", b"DELE"].iter().any(|m| buffer.starts_with(m)) {
                    *up_fate.lock().unwrap() = (Fate::Right, 0);
                }
                if far.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            let _ = far.shutdown(Shutdown::Both);
        });
        let (mut far, mut near) = (far, near.try_clone().unwrap());
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = far.read(&mut buffer) {
            state.bytes.fetch_add(n as u64, Ordering::SeqCst);
            let piece = &mut buffer[..n];
            if !spoil(state, &fate, piece, &mut near) || near.write_all(piece).is_err() {
                break;
            }
        }
        let _ = near.shutdown(Shutdown::Both);
        let _ = far.shutdown(Shutdown::Both);
    });
}

/// Does to a piece of an answer what is its fate. False: nothing more comes.
fn spoil(state: &State, fate: &Mutex<(Fate, u64)>, piece: &mut [u8], near: &mut TcpStream) -> bool {
    let mut fate = fate.lock().unwrap();
    let (what, passed) = *fate;
    fate.1 += piece.len() as u64;
    let inside = |at: u64| at.checked_sub(passed).map(|at| at as usize).filter(|at| *at < piece.len());
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::SeqCst);
    match what {
        Fate::Right => {
            if piece.len() > 4096 {
                *state.earlier.lock().unwrap() = piece.to_vec();
            }
        }
        Fate::Flip(at) => {
            if let Some(at) = inside(at) {
                piece[at] ^= 1 << (at % 8);
                count(&state.done.flipped);
            }
        }
        Fate::Cut(at) => {
            if let Some(at) = inside(at) {
                let _ = near.write_all(&piece[..at]);
                count(&state.done.cut);
                return false;
            }
        }
        Fate::Late(ms) => {
            fate.0 = Fate::Right;
            count(&state.done.late);
            drop(fate);
            thread::sleep(Duration::from_millis(ms));
        }
        Fate::Swap(at) => {
            let earlier = state.earlier.lock().unwrap();
            if let Some(at) = inside(at)
                && !earlier.is_empty()
            {
                for (to, from) in piece[at..].iter_mut().zip(earlier.iter().rev()) {
                    *to = *from;
                }
                fate.0 = Fate::Right;
                count(&state.done.swapped);
            }
        }
        Fate::Drop => {
            count(&state.done.dropped);
            return false;
        }
    }
    true
}
