//! The way to a real server: requests are passed on as they came, so that their signatures hold.

use std::io::{self, BufReader};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::http::{Answer, Request};

pub struct Upstream {
    port: u16,
    idle: Mutex<Vec<BufReader<TcpStream>>>,
}

impl Upstream {
    pub fn new(port: u16) -> Self {
        Self { port, idle: Mutex::default() }
    }

    fn once(&self, request: &Request, connection: &mut BufReader<TcpStream>) -> io::Result<Answer> {
        request.write(connection.get_mut())?;
        Answer::read(connection, request.method == "HEAD")
    }

    pub fn handle(&self, request: &Request) -> Answer {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut connection) = idle {
            // One that the server closed meanwhile says so before it takes anything.
            match self.once(request, &mut connection) {
                Ok(answer) => return self.keep(connection, answer),
                Err(e) if request.method != "GET" && e.kind() != io::ErrorKind::BrokenPipe => {
                    return Answer::error(503, "SlowDown");
                }
                Err(_) => {}
            }
        }
        let connected = TcpStream::connect(("127.0.0.1", self.port)).and_then(|socket| {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(Duration::from_secs(30)))?;
            Ok(BufReader::new(socket))
        });
        let Ok(mut connection) = connected else { return Answer::error(503, "SlowDown") };
        match self.once(request, &mut connection) {
            Ok(answer) => self.keep(connection, answer),
            Err(_) => Answer::error(503, "SlowDown"),
        }
    }

    fn keep(&self, connection: BufReader<TcpStream>, answer: Answer) -> Answer {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        answer
    }
}
