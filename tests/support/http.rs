//! A client for the little HTTP that tests need.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Service;

/// Asks for a path; head and body of the answer.
///
/// # Panics
/// If nobody listens there. Whoever answers with nothing is answered for.
pub fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

/// Where a service that was told to offers its metrics: it chose the port, and says so in its log each time it starts.
///
/// # Panics
/// If it does not.
pub fn metrics_address(service: &Service) -> String {
    let log = service.log();
    let line = log.lines().rfind(|line| line.contains("metrics at http://")).unwrap_or_else(|| panic!("{log}"));
    let address = line.split(' ').find_map(|word| word.strip_prefix("address="));
    address.unwrap_or_else(|| panic!("{line}")).to_owned()
}

/// The sum of what a service's metrics say under this name with these labels.
///
/// # Panics
/// If they say nothing of it.
pub fn metric(service: &Service, name: &str, labels: &[&str]) -> f64 {
    let page = get(&metrics_address(service), "/metrics").1;
    let wanted = |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
    assert!(page.lines().any(|line| wanted(&line)), "no {name} {labels:?} in {page}");
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
    page.lines().filter(wanted).map(|line| value(line).unwrap_or_else(|| panic!("{line}"))).sum()
}
