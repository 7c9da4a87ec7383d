//! The page for Prometheus: a small HTTP server that knows two paths.
//!
//! A few threads wait for connections; each answers one request and closes. A request has a short time and little room, so
//! whoever connects and says nothing holds a thread for a moment only. There is no TLS and no password: the operator
//! chooses the address.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use telecl_net::Address;
use tracing::{debug, info, warn};

use super::{Broker, ServeError, metrics};

/// How many requests are answered at once.
const THREADS: usize = 3;

/// How long a request may take to arrive, and its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest head of a request.
const LONGEST: usize = 8 << 10;

const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Where metrics are to be had. Nobody listens there any more when it is dropped.
#[derive(Debug)]
pub(crate) struct Page(TcpListener);

impl Page {
    pub(crate) fn bind(address: &Address) -> Result<Page, ServeError> {
        let failed = |cause| ServeError::Metrics { address: address.clone(), cause };
        let Address::Tcp { host, port, .. } = address else {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a TCP address")));
        };
        TcpListener::bind((host.as_str(), *port)).map(Page).map_err(failed)
    }

    /// Answers from now on.
    pub(crate) fn serve(&self, broker: &Arc<Broker>) -> io::Result<()> {
        let registry = Arc::new(metrics::registry(broker));
        info!(address = %self.0.local_addr()?, "metrics at http://ADDRESS/metrics");
        for _ in 0..THREADS {
            let (listener, registry) = (self.0.try_clone()?, Arc::clone(&registry));
            let thread = thread::Builder::new().name("telecl-metrics".into()).stack_size(512 << 10);
            thread.spawn(move || answer_all(&listener, &registry))?;
        }
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Wakes those who wait in accept.
        let _ = rustix::net::shutdown(self.0.as_fd(), rustix::net::Shutdown::Both);
    }
}

fn answer_all(listener: &TcpListener, registry: &Registry) {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                if let Err(error) = answer(stream, registry) {
                    debug!(%peer, %error, "a request for metrics came to nothing");
                }
            }
            // The listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => {
                warn!(%error, "cannot accept a request for metrics");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn answer(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut stream, deadline)?;
    let (status, kind, body) = respond(&head, registry);
    let is_head = head.starts_with(b"HEAD ");
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !is_head {
        answer.push_str(&body);
    }
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Reads up to the empty line. The deadline is for all of it. Who sends too much gets an answer all the same.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() <= LONGEST {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(head)
}

/// Status line, kind of content, content.
fn respond(head: &[u8], registry: &Registry) -> (&'static str, &'static str, String) {
    let plain = |status, text: &str| (status, TEXT, format!("{text}\n"));
    if head.len() > LONGEST {
        return plain("431 Request Header Fields Too Large", "too long");
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return plain("400 Bad Request", "not a request");
    };
    if !version.starts_with(b"HTTP/1.") {
        return plain("400 Bad Request", "not HTTP/1");
    }
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => match metrics::text(registry) {
            Ok(text) => ("200 OK", METRICS, text),
            Err(_) => plain("500 Internal Server Error", "cannot write the metrics"),
        },
        (b"GET" | b"HEAD", b"/healthz") => plain("200 OK", "ok"),
        (b"GET" | b"HEAD", _) => plain("404 Not Found", "try /metrics or /healthz"),
        _ => plain("405 Method Not Allowed", "only GET"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_paths_are_known_and_nonsense_is_refused() {
        let registry = Registry::default();
        let status = |head: &[u8]| respond(head, &registry).0;
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "200 OK");
        assert_eq!(status(b"HEAD /healthz HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        for nonsense in
            [&b"\r\n\r\n"[..], b"GET /metrics\r\n\r\n", b"GET /a b HTTP/1.1\r\n\r\n", b"telecl\r\n\x03\0\r\n\r\n"]
        {
            assert_eq!(status(nonsense), "400 Bad Request", "{nonsense:?}");
        }
        assert!(status(&vec![b'a'; LONGEST + 1]).starts_with("431"));
    }

    #[test]
    fn a_request_is_answered_and_nobody_waits_for_one_that_does_not_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        answer(listener.accept().unwrap().0, &Registry::default()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nok\n"), "{text}");
        let _silent = TcpStream::connect(address).unwrap();
        let mut silent = listener.accept().unwrap().0;
        let error = read_head(&mut silent, Instant::now() + Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
    }
}
