//! `GET /metrics` over HTTP/1.1 (RFC 9112), for Prometheus: on threads of its own, with a limit to
//! everything that a client can use up. No kept library of the registry is smaller than this.

use super::text::MEDIA_TYPE;
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Octets of a request, at most.
const REQUEST_MAX: usize = 8_192;
/// Clients that are heard at a time; one more is told to come later.
const CLIENTS_MAX: usize = 4;
/// Time that a client has for its request, and again for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after an `accept` that failed, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes the text of all metrics, or says why there is none.
pub type Scrape = dyn Fn() -> Result<String, String> + Send + Sync;

/// Words that a client is told.
struct Page {
    status: &'static str,
    media_type: &'static str,
    body: String,
}

impl Page {
    fn sentence(status: &'static str, sentence: &str) -> Self {
        Self { status, media_type: "text/plain; charset=utf-8", body: format!("{sentence}\n") }
    }
}

/// A client that is being heard; dropping it makes room for another one.
struct Heard(Arc<AtomicUsize>);

impl Drop for Heard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers whoever connects to `listener`, until the process ends. Returns the address in use.
///
/// # Errors
/// As starting a thread and asking for a socket's address do.
pub fn serve(listener: TcpListener, scrape: Arc<Scrape>) -> io::Result<SocketAddr> {
    let at = listener.local_addr()?;
    let heard = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        loop {
            match listener.accept() {
                Ok((client, _)) => hear(client, &heard, &scrape),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(accept)?;
    Ok(at)
}

/// Hears a client on a thread of its own, unless too many are heard already.
fn hear(mut client: TcpStream, heard: &Arc<AtomicUsize>, scrape: &Arc<Scrape>) {
    let is_too_much = heard.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX;
    let place = Heard(Arc::clone(heard));
    if is_too_much {
        // A socket that was just accepted takes so little at once.
        let _ = client.set_nonblocking(true);
        let busy = Page::sentence("503 Service Unavailable", "too many clients at once");
        let _ = client.write(&head(&busy));
        return;
    }
    let scrape = Arc::clone(scrape);
    let answer = move || {
        let _place = place;
        // A client that leaves early misses its answer.
        let _ = answer(&mut client, &*scrape);
    };
    // Without a thread nobody is heard, and the client sees the end.
    let _ = thread::Builder::new().name("metrics-client".to_owned()).spawn(answer);
}

fn answer(client: &mut TcpStream, scrape: &Scrape) -> io::Result<()> {
    let mut request = Vec::with_capacity(512);
    let page = match read_head(client, &mut request)? {
        true => page(&request, scrape),
        false => Page::sentence("431 Request Header Fields Too Large", "the request is too long"),
    };
    let is_head = request.starts_with(b"HEAD ");
    let body = if is_head { &[] } else { page.body.as_bytes() };
    let octets = [&head(&page), body].concat();
    let mut rest = octets.as_slice();
    let until = Instant::now() + PATIENCE;
    while !rest.is_empty() {
        client.set_write_timeout(Some(left(until)?))?;
        let taken = client.write(rest)?;
        rest = rest.get(taken..).filter(|_| taken > 0).ok_or(io::ErrorKind::WriteZero)?;
    }
    client.shutdown(std::net::Shutdown::Write)
}

/// Reads to the empty line behind a request's header. False when that is not in the first
/// [`REQUEST_MAX`] octets.
fn read_head(client: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<bool> {
    let until = Instant::now() + PATIENCE;
    let mut piece = [0; 1_024];
    while request.len() < REQUEST_MAX {
        client.set_read_timeout(Some(left(until)?))?;
        let len = client.read(&mut piece)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(piece.get(..len).unwrap_or_default());
        if request.windows(4).any(|four| four == b"\r\n\r\n") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The page that a request asks for.
fn page(request: &[u8], scrape: &Scrape) -> Page {
    let line = request.split(|octet| *octet == b'\r').next().unwrap_or_default();
    let mut words = line.split(|octet| *octet == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if words.next().is_some() || !version.is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return Page::sentence("400 Bad Request", "this is no request of HTTP/1.1");
    }
    if !matches!(method, Some(b"GET" | b"HEAD")) {
        return Page::sentence("405 Method Not Allowed", "GET and HEAD are served");
    }
    let path = target.unwrap_or_default().split(|octet| *octet == b'?').next();
    if path != Some(b"/metrics") {
        return Page::sentence("404 Not Found", "there is /metrics, and nothing else");
    }
    match scrape() {
        Ok(body) => Page { status: "200 OK", media_type: MEDIA_TYPE, body },
        Err(why) => Page::sentence("503 Service Unavailable", &why),
    }
}

fn head(page: &Page) -> Vec<u8> {
    let Page { status, media_type, body } = page;
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len}\r\nConnection: \
         close\r\n\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        serve(listener, Arc::new(|| Ok("a_total 1\n".to_owned()))).unwrap()
    }

    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(at).unwrap();
        // One that is turned away may be reset before it has said or read everything.
        let _ = client.write_all(request);
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn one_page_is_served_and_every_other_request_is_refused() {
        let at = start();
        let got = ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\na_total 1\n"));
        assert!(got.contains("Content-Length: 10\r\n"), "{got}");
        let got = ask(at, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(got.contains("Content-Length: 10\r\n") && got.ends_with("\r\n\r\n"), "{got}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"\x16\x03\x01\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ] {
            assert!(ask(at, request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
    }

    #[test]
    fn a_request_without_end_is_refused_at_its_limit() {
        let mut client = TcpStream::connect(start()).unwrap();
        // Exactly as much as is read, so that nothing unread resets the connection.
        client.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
        client.write_all(&vec![b'x'; REQUEST_MAX - 26]).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[test]
    fn clients_that_say_nothing_take_all_places_and_give_them_back() {
        let at = start();
        let silent: Vec<_> = (0..CLIENTS_MAX).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut told = String::new();
        TcpStream::connect(at).unwrap().read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
        drop(silent);
        // Their places are free as soon as their threads have seen their end.
        loop {
            let got = ask(at, b"GET /metrics HTTP/1.1\r\n\r\n");
            if got.starts_with("HTTP/1.1 200 ") {
                break;
            }
            assert!(got.is_empty() || got.starts_with("HTTP/1.1 503 "), "{got}");
            thread::yield_now();
        }
    }

    #[test]
    fn a_server_that_cannot_answer_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = serve(listener, Arc::new(|| Err("shard 0 is busy".to_owned()))).unwrap();
        let got = ask(at, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 503 ") && got.ends_with("shard 0 is busy\n"), "{got}");
    }
}
