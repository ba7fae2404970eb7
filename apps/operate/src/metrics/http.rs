//! `GET /metrics` and `GET /ready` over HTTP/1.1 (RFC 9112), for Prometheus and for service
//! managers: on threads of its own, with a limit to everything that a client can use up. No
//! maintained library of the registry is smaller than this.

use super::text::MEDIA_TYPE;
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Octets of a request, at most.
const REQUEST_MAX: usize = 8_192;
/// Clients that are served at a time. One host has half of the places at most.
const CLIENTS_MAX: usize = 8;
/// Time that a client has for its whole request, and again for receiving the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after an `accept` that failed, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes the text of a page, or says why the server cannot do its work.
pub type Scrape = dyn Fn() -> Result<String, String> + Send + Sync;

/// The pages that there are.
pub struct Pages {
    /// The text of all metrics.
    pub metrics: Box<Scrape>,
    /// Sentences about what is missing; an error while no client can connect.
    pub ready: Box<Scrape>,
}

/// A response to a client.
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

/// The places of clients; a clone is another handle of them.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<PlaceList>>);

/// Places in use, the oldest first, and the number of the next one.
#[derive(Default)]
struct PlaceList {
    taken: Vec<TakenPlace>,
    next: u64,
}

/// The place of a client.
struct TakenPlace {
    number: u64,
    host: IpAddr,
    socket: Arc<TcpStream>,
    /// Its request has arrived. Until then it makes room for others.
    has_asked: bool,
}

impl Places {
    fn list(&self) -> MutexGuard<'_, PlaceList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a client. A host gets a free one while it has fewer places than are free.
    /// Otherwise the oldest client of the host is closed, if its request has not arrived, and for a
    /// host without a place the oldest such client of all.
    fn take(&self, host: IpAddr, socket: Arc<TcpStream>) -> Option<PlaceGuard> {
        let PlaceList { taken, next } = &mut *self.list();
        let of_host = taken.iter().filter(|place| place.host == host).count();
        if of_host >= CLIENTS_MAX.saturating_sub(taken.len()) {
            let yields =
                |place: &TakenPlace| !place.has_asked && (of_host == 0 || place.host == host);
            let oldest = taken.iter().position(yields)?;
            // Its thread sees the end of the connection, and ends.
            let _ = taken.remove(oldest).socket.shutdown(Shutdown::Both);
        }
        let number = *next;
        *next += 1;
        taken.push(TakenPlace { number, host, socket, has_asked: false });
        Some(PlaceGuard { places: self.clone(), number })
    }
}

/// The place of a client that is being served; dropping it makes room for another one.
struct PlaceGuard {
    places: Places,
    number: u64,
}

impl PlaceGuard {
    /// Marks that the request has arrived: the client keeps its place until it is answered.
    fn set_asked(&self) {
        let mut list = self.places.list();
        let own = list.taken.iter_mut().find(|place| place.number == self.number);
        if let Some(own) = own {
            own.has_asked = true;
        }
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        self.places.list().taken.retain(|place| place.number != self.number);
    }
}

/// Answers connections to `listener`, until the process ends. Returns the address in use.
///
/// # Errors
/// As starting a thread and asking for a socket's address do.
pub fn serve(listener: TcpListener, pages: Arc<Pages>) -> io::Result<SocketAddr> {
    let at = listener.local_addr()?;
    let places = Places::default();
    let accept = move || {
        loop {
            match listener.accept() {
                Ok((client, from)) => hear(client, from, &places, &pages),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(accept)?;
    Ok(at)
}

/// Serves a client on a thread of its own, unless all places are taken.
fn hear(client: TcpStream, from: SocketAddr, places: &Places, pages: &Arc<Pages>) {
    let client = Arc::new(client);
    let Some(place) = places.take(from.ip().to_canonical(), Arc::clone(&client)) else {
        // A socket that was just accepted has room for this short answer.
        let _ = client.set_nonblocking(true);
        let busy = Page::sentence("503 Service Unavailable", "too many clients at once");
        let _ = (&*client).write(&head(&busy));
        return;
    };
    let pages = Arc::clone(pages);
    // A client that leaves early misses its answer.
    let answer = move || drop(answer(&client, &place, &pages));
    // If no thread can be started, the connection is closed.
    let _ = thread::Builder::new().name("metrics-client".to_owned()).spawn(answer);
}

fn answer(mut client: &TcpStream, place: &PlaceGuard, pages: &Pages) -> io::Result<()> {
    let mut request = Vec::with_capacity(512);
    let is_whole = read_head(client, &mut request)?;
    place.set_asked();
    let page = match is_whole {
        true => page(&request, pages),
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
    client.shutdown(Shutdown::Write)
}

/// Reads up to the empty line after a request's header. False when that is not in the first
/// [`REQUEST_MAX`] octets.
fn read_head(mut client: &TcpStream, request: &mut Vec<u8>) -> io::Result<bool> {
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
fn page(request: &[u8], pages: &Pages) -> Page {
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
    let answer = match path {
        Some(b"/metrics") => {
            (pages.metrics)().map(|body| Page { status: "200 OK", media_type: MEDIA_TYPE, body })
        }
        Some(b"/ready") => (pages.ready)().map(|sentence| Page::sentence("200 OK", &sentence)),
        _ => {
            let known = "there are /metrics and /ready, and nothing else";
            return Page::sentence("404 Not Found", known);
        }
    };
    answer.unwrap_or_else(|why| Page::sentence("503 Service Unavailable", &why))
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

    fn pages(metrics: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Arc<Pages> {
        let ready = || Err("mlx5_0 is gone".to_owned());
        Arc::new(Pages { metrics: Box::new(metrics), ready: Box::new(ready) })
    }

    fn start() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        serve(listener, pages(|| Ok("a_total 1\n".to_owned()))).unwrap()
    }

    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(at).unwrap();
        // A refused client may be reset before it has sent or read everything.
        let _ = client.write_all(request);
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn two_pages_are_served_and_every_other_request_is_refused() {
        let at = start();
        let got = ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\na_total 1\n"));
        assert!(got.contains("Content-Length: 10\r\n"), "{got}");
        let got = ask(at, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(got.contains("Content-Length: 10\r\n") && got.ends_with("\r\n\r\n"), "{got}");
        let got = ask(at, b"GET /ready HTTP/1.1\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 503 ") && got.ends_with("\r\n\r\nmlx5_0 is gone\n"));
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"\x16\x03\x01\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ] {
            let answer = ask(at, request);
            let request = String::from_utf8_lossy(request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer:?}");
        }
    }

    #[test]
    fn a_request_without_end_is_refused_at_its_limit() {
        let mut client = TcpStream::connect(start()).unwrap();
        // Exactly as much as is read, because unread octets would reset the connection.
        client.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
        client.write_all(&vec![b'x'; REQUEST_MAX - 26]).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[test]
    fn clients_that_say_nothing_make_room_for_one_that_asks() {
        let at = start();
        let silent: Vec<_> = (0..3 * CLIENTS_MAX)
            .map(|_| {
                let mut silent = TcpStream::connect(at).unwrap();
                silent.write_all(b"GET /metrics").unwrap();
                silent
            })
            .collect();
        let got = ask(at, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        drop(silent);
    }

    #[test]
    fn a_host_leaves_places_to_others_and_an_answer_is_not_interrupted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let host = |last: u8| IpAddr::from([192, 0, 2, last]);
        let places = Places::default();
        let take = |last| places.take(host(last), Arc::clone(&socket));
        let mut asked: Vec<_> = (0..CLIENTS_MAX / 2).map(|_| take(1).unwrap()).collect();
        asked.iter().for_each(PlaceGuard::set_asked);
        assert!(take(1).is_none(), "it has its part, and all are being answered");
        // Silent clients take the rest, and are closed for each other and for another host.
        let mut silent: Vec<_> = (2..20).map(|last| take(last).unwrap()).collect();
        assert_eq!(places.list().taken.len(), CLIENTS_MAX);
        asked.push(take(100).unwrap());
        asked.last().unwrap().set_asked();
        assert_eq!(places.list().taken.len(), CLIENTS_MAX);
        silent.clear();
        assert_eq!(places.list().taken.len(), asked.len());
        asked.clear();
        assert!(places.list().taken.is_empty());
    }

    #[test]
    fn a_server_that_cannot_answer_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = serve(listener, pages(|| Err("shard 0 is busy".to_owned()))).unwrap();
        let got = ask(at, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 503 ") && got.ends_with("shard 0 is busy\n"), "{got}");
    }
}
