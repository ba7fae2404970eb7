//! A key-value store. Values of up to 1 MiB travel in chunks: the server reads them from the
//! client's memory, and writes them there.
//!
//! ```sh
//! cargo run -p stag-rpc --example kv -- serve \
//!     shm:///tmp/kv.sock iwarp://127.0.0.1:4000 tcp://127.0.0.1:4001
//! cargo run -p stag-rpc --example kv -- put shm:///tmp/kv.sock name FILE
//! cargo run -p stag-rpc --example kv -- get iwarp://127.0.0.1:4000 name FILE
//! ```

use stag_rpc::{Bulk, Failure, Octets, Replied, Replier, Server, Text, program};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Octets of the longest value.
pub const VALUE_MAX: usize = 1 << 20;
/// Values at most.
const VALUES_MAX: usize = 1_024;

program! {
    /// Keeps values under keys.
    pub mod kv: 0x2053_544b, version 1 {
        /// Keeps a value under a key; false when the store is full.
        1 => fn put(key: Text<255>, value: Bulk<VALUE_MAX>) -> bool;
        /// The value under a key.
        2 => fn get(key: Text<255>) -> Option<Bulk<VALUE_MAX>>;
    }
}

/// The service. Its shards, one for each fabric, share the values.
#[derive(Clone, Debug, Default)]
pub struct Store(Arc<Mutex<HashMap<String, Vec<u8>>>>);

impl kv::Service for Store {
    fn put(&mut self, key: &str, value: Octets<'_>, reply: Replier<'_, '_, bool>) -> Replied {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = values.len() < VALUES_MAX || values.contains_key(key);
        if has_room {
            values.insert(key.to_owned(), value.to_vec());
        }
        reply.send(has_room)
    }

    fn get(&mut self, key: &str, reply: Replier<'_, '_, Option<Bulk<VALUE_MAX>>>) -> Replied {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reply.send(values.get(key).map(Octets::from))
    }
}

/// Starts the service at these URLs.
///
/// # Errors
/// An address cannot be listened at.
pub fn serve(urls: &[&str]) -> Result<Server, stag_rpc::SetupError> {
    let store = Store::default();
    let builder = urls.iter().fold(Server::builder(), |builder, url| builder.listen(url));
    builder.serve(move || kv::Serve(store.clone()))
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", urls @ ..] => {
            let server = serve(urls)?;
            println!("serving at {}", server.addresses().join(" "));
            Ok(server.wait()?)
        }
        ["put", url, key, file] => {
            let value = std::fs::read(file)?;
            let is_kept = kv::Client::connect(url)?.put(key, Octets::from(&value))?;
            println!("{}", if is_kept { "kept" } else { "the store is full" });
            Ok(())
        }
        ["get", url, key, file] => {
            let mut client = kv::Client::connect(url)?;
            match client.get(key)? {
                Some(value) => std::fs::write(file, value.as_slice())?,
                None => println!("there is no value under this key"),
            }
            Ok(())
        }
        _ => Err("usage: kv serve URL... | kv put URL KEY FILE | kv get URL KEY FILE".into()),
    }
}
