//! The examples, as a client sees them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)]
#[path = "../examples/calculator.rs"]
mod calculator_example;
#[allow(dead_code)]
#[path = "../examples/kv.rs"]
mod kv_example;
#[allow(dead_code)]
#[path = "../examples/progress.rs"]
mod progress_example;

use stag_rpc::Octets;
use std::{cell::RefCell, path::PathBuf, rc::Rc};

/// Path and URL of a socket of this test alone, which does not exist yet.
fn socket(name: &str) -> (PathBuf, String) {
    let path = std::env::temp_dir().join(format!("stag-rpc-{name}-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let url = format!("shm://{}", path.display());
    (path, url)
}

#[test]
fn the_calculator_calculates() {
    use calculator_example::{Operation, Term, calculator::Client, serve};
    let server = serve(&["sim://0"]).unwrap();
    let mut client = Client::connect(&server.addresses()[0]).unwrap();
    for (left, operation, right, value) in [
        (1, Operation::Add, 2, Some(3)),
        (1, Operation::Subtract, 2, Some(-1)),
        (i64::MAX, Operation::Multiply, 2, None),
        (84, Operation::Divide, 2, Some(42)),
        (84, Operation::Divide, 0, None),
    ] {
        let term = Term { left, operation, right };
        assert_eq!(client.evaluate(term).unwrap(), value, "{term:?}");
    }
}

#[test]
fn values_of_every_size_are_kept_over_every_fabric() {
    use kv_example::{VALUE_MAX, kv::Client, serve};
    let (_, shm) = socket("kv");
    let server = serve(&[&shm, "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"]).unwrap();
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 3);
    for (place, url) in addresses.iter().enumerate() {
        let mut client = Client::connect(url).unwrap();
        assert_eq!(client.get("nothing").unwrap(), None);
        for len in [0, 1, 100, 4_000, 4_096, 70_001, VALUE_MAX] {
            let value: Vec<u8> = (0..len).map(|octet| (octet * 7 + place) as u8).collect();
            assert!(client.put("value", Octets::from(&value)).unwrap());
            // The store is one, whichever fabric leads to it.
            for url in addresses {
                let mut other = Client::connect(url).unwrap();
                let kept = other.get("value").unwrap().unwrap();
                assert!(kept.as_slice() == value, "{len} octets over {url}");
            }
        }
    }
    server.stop().unwrap();
}

#[test]
fn work_tells_its_client_of_every_step() {
    use progress_example::{Worker, run, work};
    let (_, shm) = socket("progress");
    for url in [&*shm, "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0", "sim://0"] {
        let server = stag_rpc::Server::builder()
            .listen(url)
            .serve(|| work::Serve(Worker::default()))
            .unwrap();
        let heard = Rc::new(RefCell::new(Vec::new()));
        let steps = Rc::clone(&heard);
        let told =
            run(&server.addresses()[0], 5, move |done, of| steps.borrow_mut().push((done, of)));
        assert_eq!(told.unwrap(), 5, "{url}");
        assert_eq!(*heard.borrow(), [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)], "{url}");
        server.stop().unwrap();
    }
}
