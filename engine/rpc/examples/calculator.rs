//! A calculator: typed arguments and results, and an error that is one of them.
//!
//! ```sh
//! cargo run -p stag-rpc --example calculator -- serve iwarp://127.0.0.1:4000 tcp://127.0.0.1:4001
//! cargo run -p stag-rpc --example calculator -- iwarp://127.0.0.1:4000 84 / 2
//! ```

use stag_rpc::{Failure, Replied, Replier, Server, enumeration, program, structure};

enumeration! {
    /// An operation.
    #[derive(Clone, Copy, Debug)]
    pub enum Operation {
        /// The sum.
        Add = 0,
        /// The difference.
        Subtract = 1,
        /// The product.
        Multiply = 2,
        /// The quotient.
        Divide = 3,
    }
}

structure! {
    /// A term: two numbers and an operation.
    #[derive(Clone, Copy, Debug)]
    pub struct Term {
        /// The number on the left.
        pub left: i64,
        /// The operation.
        pub operation: Operation,
        /// The number on the right.
        pub right: i64,
    }
}

program! {
    /// Calculates.
    pub mod calculator: 0x2053_5443, version 1 {
        /// The value of a term; none when it has none.
        1 => fn evaluate(term: Term) -> Option<i64>;
    }
}

/// The service. It has no state.
#[derive(Clone, Copy, Debug)]
pub struct Calculator;

impl calculator::Service for Calculator {
    fn evaluate(&mut self, term: Term, reply: Replier<'_, '_, Option<i64>>) -> Replied {
        let Term { left, operation, right } = term;
        reply.send(match operation {
            Operation::Add => left.checked_add(right),
            Operation::Subtract => left.checked_sub(right),
            Operation::Multiply => left.checked_mul(right),
            Operation::Divide => left.checked_div(right),
        })
    }
}

/// Starts the service at these URLs.
///
/// # Errors
/// An address cannot be listened at.
pub fn serve(urls: &[&str]) -> Result<Server, stag_rpc::SetupError> {
    let builder = urls.iter().fold(Server::builder(), |builder, url| builder.listen(url));
    builder.serve(|| calculator::Serve(Calculator))
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
        [url, left, sign, right] => {
            let operation = match *sign {
                "+" => Operation::Add,
                "-" => Operation::Subtract,
                "x" => Operation::Multiply,
                "/" => Operation::Divide,
                _ => return Err("the operations are + - x /".into()),
            };
            let term = Term { left: left.parse()?, operation, right: right.parse()? };
            match calculator::Client::connect(url)?.evaluate(term)? {
                Some(value) => println!("{value}"),
                None => println!("the term has no value"),
            }
            Ok(())
        }
        _ => Err("usage: calculator serve URL... | calculator URL LEFT +|-|x|/ RIGHT".into()),
    }
}
