//! Programs: their description, and the routing of calls to them.

use crate::{
    CallOutcome,
    codec::{Decoder, XdrType},
    reply::{AnswerableCall, Replied, Replier},
};
use stag_engine::{CallId, Cx, PeerId};
use stag_protocol::{
    rpc::Accepted,
    xdr::{NoRoom, Reader, Writer},
};
use std::ops::RangeInclusive;

/// One procedure of a program, as [`program!`](crate::program) describes it.
pub trait Procedure {
    /// The program's number.
    const PROGRAM: u32;
    /// Its version.
    const VERSION: u32;
    /// The procedure's number.
    const NUMBER: u32;
    /// A tuple of its arguments.
    type Arguments: XdrType;
    /// Its results.
    type Results: XdrType;
}

/// The values of the arguments of `P`: a tuple.
pub type ArgumentsOf<'a, P> = <<P as Procedure>::Arguments as XdrType>::Of<'a>;

/// The value of the results of `P`.
pub type ResultsOf<'a, P> = <<P as Procedure>::Results as XdrType>::Of<'a>;

/// The programs of a server: one, a tuple of them, or none: `()`.
///
/// [`program!`](crate::program) implements it for `Serve` of each program.
pub trait Programs {
    /// Returns true if this version of this program is served.
    fn serves(&self, program: u32, version: u32) -> bool;

    /// The lowest and the highest version of this program that are served.
    fn versions(&self, program: u32) -> Option<RangeInclusive<u32>>;

    /// Answers a call of a version that is served.
    fn answer(&mut self, call: IncomingCall<'_, '_>) -> Replied;

    /// A call that was made by [`call`](crate::call) has ended.
    fn on_reply(&mut self, _cx: &mut Cx<'_>, _outcome: &CallOutcome<'_>) {}

    /// A peer is gone.
    fn on_peer_down(&mut self, _peer: PeerId) {}
}

impl Programs for () {
    fn serves(&self, _: u32, _: u32) -> bool {
        false
    }

    fn versions(&self, _: u32) -> Option<RangeInclusive<u32>> {
        None
    }

    fn answer(&mut self, call: IncomingCall<'_, '_>) -> Replied {
        call.refuse(Accepted::ProgUnavail)
    }
}

impl<P: Programs + ?Sized> Programs for Box<P> {
    fn serves(&self, program: u32, version: u32) -> bool {
        (**self).serves(program, version)
    }

    fn versions(&self, program: u32) -> Option<RangeInclusive<u32>> {
        (**self).versions(program)
    }

    fn answer(&mut self, call: IncomingCall<'_, '_>) -> Replied {
        (**self).answer(call)
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: &CallOutcome<'_>) {
        (**self).on_reply(cx, outcome);
    }

    fn on_peer_down(&mut self, peer: PeerId) {
        (**self).on_peer_down(peer);
    }
}

/// The range of both: a caller gets the lowest and the highest version (RFC 5531 §9).
fn joined(
    one: Option<RangeInclusive<u32>>,
    other: Option<RangeInclusive<u32>>,
) -> Option<RangeInclusive<u32>> {
    match (one, other) {
        (Some(one), Some(other)) => {
            Some(*one.start().min(other.start())..=*one.end().max(other.end()))
        }
        (one, other) => one.or(other),
    }
}

/// Two programs; more are pairs of pairs. Each receives all outcomes, and recognizes its own by
/// their tokens.
impl<A: Programs, B: Programs> Programs for (A, B) {
    fn serves(&self, program: u32, version: u32) -> bool {
        self.0.serves(program, version) || self.1.serves(program, version)
    }

    fn versions(&self, program: u32) -> Option<RangeInclusive<u32>> {
        joined(self.0.versions(program), self.1.versions(program))
    }

    fn answer(&mut self, call: IncomingCall<'_, '_>) -> Replied {
        let header = &call.0.call.header;
        match self.0.serves(header.program, header.version) {
            true => self.0.answer(call),
            false => self.1.answer(call),
        }
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: &CallOutcome<'_>) {
        self.0.on_reply(cx, outcome);
        self.1.on_reply(cx, outcome);
    }

    fn on_peer_down(&mut self, peer: PeerId) {
        self.0.on_peer_down(peer);
        self.1.on_peer_down(peer);
    }
}

/// A call that arrived completely, to be passed to its procedure.
#[derive(Debug)]
pub struct IncomingCall<'c, 'k>(pub(crate) AnswerableCall<'c, 'k>);

impl<'c, 'k> IncomingCall<'c, 'k> {
    /// The ID of the call.
    pub const fn id(&self) -> CallId {
        self.0.call.id
    }

    /// The number of the procedure that is called.
    pub const fn procedure(&self) -> u32 {
        self.0.call.header.procedure
    }

    /// Decodes the arguments of procedure `P`, and returns them with the means to reply. Arguments
    /// that do not decode are answered with GARBAGE_ARGS.
    ///
    /// # Errors
    /// If the call was answered with GARBAGE_ARGS.
    pub fn decode<P: Procedure>(
        self,
    ) -> Result<(ArgumentsOf<'c, P>, Replier<'c, 'k, P::Results>), Replied> {
        const { assert!(P::Arguments::ITEMS <= 1, "a call has one item for a chunk") };
        let mut decoder = Decoder::new(self.0.call.arguments.clone());
        let arguments = P::Arguments::decode(&mut decoder)
            .and_then(|arguments| decoder.finish().map(|()| arguments));
        match arguments {
            Ok(arguments) => Ok((arguments, Replier::new(self.0))),
            Err(_) => Err(self.refuse(Accepted::GarbageArgs)),
        }
    }

    /// The encoded arguments, for a program that decodes its messages by its own code.
    pub fn arguments(&self) -> Reader<'c> {
        self.0.call.arguments.clone()
    }

    /// Replies with results that `write` puts into the message, of a few hundred octets. If there
    /// is no room for them, the caller gets SYSTEM_ERR.
    pub fn reply_with(self, write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>) -> Replied {
        let header = self.0.call.header.reply(Accepted::Success);
        match self.0.cx.answer_short(self.0.call.id, header, write) {
            Ok(()) => {
                self.0.is_settled.set(true);
                Replied::said()
            }
            Err(NoRoom) => self.refuse(Accepted::SystemErr),
        }
    }

    /// Replies that the procedure was not executed.
    pub fn refuse(self, why: Accepted) -> Replied {
        Replier::<()>::new(self.0).refuse(why)
    }

    /// Routes the call to its program, or refuses it.
    pub(crate) fn route(self, programs: &mut impl Programs) -> Replied {
        let (program, version) = (self.0.call.header.program, self.0.call.header.version);
        match programs.serves(program, version) {
            // RFC 5531 §12.1. Control messages of RPCSEC_GSS come here, too.
            true if self.procedure() == 0 && self.0.cx.deny_other_flavor(&self.0.call) => {
                Replied::said()
            }
            true if self.procedure() == 0 => match self.decode::<Null>() {
                Ok(((), replier)) => replier.send(()),
                Err(refused) => refused,
            },
            true => programs.answer(self),
            false => {
                let mismatch = |versions: RangeInclusive<u32>| Accepted::ProgMismatch {
                    low: *versions.start(),
                    high: *versions.end(),
                };
                self.refuse(programs.versions(program).map_or(Accepted::ProgUnavail, mismatch))
            }
        }
    }
}

/// The procedure that every program has (RFC 5531 §12.1).
enum Null {}

impl Procedure for Null {
    const PROGRAM: u32 = 0;
    const VERSION: u32 = 0;
    const NUMBER: u32 = 0;
    type Arguments = ();
    type Results = ();
}

/// Describes a program once: its number, its version, and its procedures with their types.
///
/// Defines a module with
///
/// - `Service`, the trait that a server implements: one method for each procedure;
/// - `Serve`, which makes [`Programs`] of a `Service`. It answers procedure 0 by itself, and
///   returns `PROG_UNAVAIL`, `PROG_MISMATCH`, `PROC_UNAVAIL` and `GARBAGE_ARGS` where they apply;
/// - `Client` and `AsyncClient`, with the same methods for callers;
/// - `procedures`, one type for each, to call a peer from inside a service;
/// - `PROGRAM` and `VERSION`.
///
/// Arguments and results are [`XdrType`]s. Values of type [`Bulk`](crate::Bulk), one in the
/// arguments and one in the results, may travel in chunks.
///
/// ```
/// use stag_rpc::{Replied, Replier};
///
/// stag_rpc::program! {
///     /// Adds.
///     pub mod adder: 0x2053_5400, version 1 {
///         /// The sum of both numbers.
///         1 => fn add(a: i64, b: i64) -> i64;
///     }
/// }
///
/// struct Adder;
///
/// impl adder::Service for Adder {
///     fn add(&mut self, a: i64, b: i64, reply: Replier<'_, '_, i64>) -> Replied {
///         reply.send(a.wrapping_add(b))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let serve = || adder::Serve(Adder);
/// let server = stag_rpc::Server::builder().listen("sim://0").serve(serve)?;
/// let mut client = adder::Client::connect(&server.addresses()[0])?;
/// assert_eq!(client.add(-2, 44)?, 42);
/// assert_eq!((adder::PROGRAM, adder::VERSION), (0x2053_5400, 1));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! program {
    (
        $(#[$meta:meta])*
        $vis:vis mod $module:ident: $program:literal, version $version:literal {
            $(
                $(#[$procedure_meta:meta])*
                $number:literal => fn $procedure:ident($($argument:ident: $type:ty),* $(,)?)
                    $(-> $results:ty)?;
            )+
        }
    ) => {
        $(#[$meta])*
        $vis mod $module {
            #[allow(unused_imports)]
            use super::*;

            /// The program's number.
            pub const PROGRAM: u32 = $program;
            /// Its version.
            pub const VERSION: u32 = $version;

            /// The procedures, as types.
            #[allow(non_camel_case_types)]
            pub mod procedures {
                #[allow(unused_imports)]
                use super::*;

                $(
                    $(#[$procedure_meta])*
                    #[derive(Clone, Copy, Debug)]
                    pub enum $procedure {}

                    impl $crate::Procedure for $procedure {
                        const PROGRAM: u32 = $program;
                        const VERSION: u32 = $version;
                        const NUMBER: u32 = $number;
                        type Arguments = ($($type,)*);
                        type Results = $crate::results!($($results)?);
                    }
                )+
            }

            /// The server's side. Each method answers one procedure.
            pub trait Service {
                $(
                    $(#[$procedure_meta])*
                    fn $procedure(
                        &mut self,
                        $($argument: <$type as $crate::XdrType>::Of<'_>,)*
                        reply: $crate::Replier<'_, '_, $crate::results!($($results)?)>,
                    ) -> $crate::Replied;
                )+

                /// A call that this service made by `stag_rpc::call` has ended.
                fn on_reply(
                    &mut self,
                    _cx: &mut $crate::Cx<'_>,
                    _outcome: &$crate::CallOutcome<'_>,
                ) {}

                /// A peer is gone.
                fn on_peer_down(&mut self, _peer: $crate::PeerId) {}
            }

            /// A service, as one of the programs of a server.
            #[derive(Clone, Debug, Default)]
            pub struct Serve<S>(pub S);

            impl<S: Service> $crate::Programs for Serve<S> {
                fn serves(&self, program: u32, version: u32) -> bool {
                    (program, version) == (PROGRAM, VERSION)
                }

                fn versions(&self, program: u32) -> Option<::std::ops::RangeInclusive<u32>> {
                    (program == PROGRAM).then_some(VERSION..=VERSION)
                }

                fn answer(&mut self, call: $crate::IncomingCall<'_, '_>) -> $crate::Replied {
                    match call.procedure() {
                        $($number => match call.decode::<procedures::$procedure>() {
                            Ok((($($argument,)*), reply)) => {
                                self.0.$procedure($($argument,)* reply)
                            }
                            Err(refused) => refused,
                        },)+
                        _ => call.refuse($crate::Accepted::ProcUnavail),
                    }
                }

                fn on_reply(&mut self, cx: &mut $crate::Cx<'_>, outcome: &$crate::CallOutcome<'_>) {
                    self.0.on_reply(cx, outcome);
                }

                fn on_peer_down(&mut self, peer: $crate::PeerId) {
                    self.0.on_peer_down(peer);
                }
            }

            $crate::clients! {
                $(
                    $(#[$procedure_meta])*
                    fn $procedure($($argument: $type),*) -> $crate::results!($($results)?);
                )+
            }

            $crate::async_clients! {
                $(
                    $(#[$procedure_meta])*
                    fn $procedure($($argument: $type),*) -> $crate::results!($($results)?);
                )+
            }
        }
    };
}

/// Results, where none are written.
#[doc(hidden)]
#[macro_export]
macro_rules! results {
    () => {
        ()
    };
    ($type:ty) => {
        $type
    };
}
