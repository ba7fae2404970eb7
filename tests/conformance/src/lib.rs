//! The conformance suite: every promise of the contract as a test that any provider runs (DESIGN
//! D3).
//!
//! A provider writes a [`Fixture`] and calls [`conformance_tests!`](crate::conformance_tests),
//! which makes one `#[test]` of each case. A program that tries a device has them as values
//! ([`cases`]), each of which panics where the device breaks a promise. Beside what a case looks
//! at, its [`World`] checks in every case what always holds: work completes exactly once and in
//! order with the right kind of memory, events follow the life of their connection, every window
//! ends exactly once, `Disconnected` is last, and at the end all memory is back in its pool.
//!
//! Two promises are beyond the suite: a Read sees an earlier Write of the same octets (a window
//! grants one direction only), and a window that is not rung out is of no use yet (providers may
//! open it earlier).
// This is test code: a wrong index is a failed test.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

pub mod connections;
pub mod endings;
pub mod memory;
pub mod messages;
mod seat;
mod world;

pub use world::World;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stag_pools::{Class, Pool};
use stag_verbs::{Limits, Provider, Qp, Time};
use std::{os::fd::BorrowedFd, time::Duration};
use world::{A, B};

/// Environment that a provider supplies to the suite.
pub trait Fixture: Sized {
    /// The provider.
    type P: Provider;

    /// Number of runs of each case; a simulated fabric takes another seed each time.
    const RUNS: u64 = 1;
    /// Time limit for a condition, on the fixture's clock.
    const PATIENCE: Duration = Duration::from_secs(10);
    /// Time without an event after which the suite assumes that none follows.
    const QUIET: Duration = Duration::from_millis(30);
    /// True if this fabric reports to both sides which rule was broken
    /// ([`stag_verbs::Cause::PeerFault`], [`stag_verbs::Cause::Terminated`]).
    const TELLS_FAULTS: bool = true;

    /// True if this fabric's set-up messages have fields of fixed size: the peer's private data
    /// arrive padded with zeros.
    const PADS_PRIVATE_DATA: bool = false;

    /// True if this fabric checks the bounds of a window. Without it the suite shows only that keys
    /// and rights are checked.
    const CHECKS_BOUNDS: bool = true;

    /// True if this process moves the data, and counts them ([`Provider::take_moved`]).
    const MOVES_DATA: bool = true;

    /// A fresh fabric for run number `run`, counted from 0.
    fn new(run: u64) -> Self;

    /// The memory of all ends of one case.
    fn pool(&self, classes: &[Class]) -> Pool {
        Pool::new(classes).unwrap()
    }

    /// One more end, whose memory comes from `pool`.
    fn end(&mut self, limits: Limits, pool: &Pool) -> Self::P;

    /// Returns an address on which an end can listen: another free one with each call, or one that
    /// lets the provider choose.
    fn listen_address(&mut self) -> <Self::P as Provider>::Address;

    /// Returns an address without a listener.
    fn nowhere(&mut self) -> <Self::P as Provider>::Address;

    /// The next moment. A simulated fabric jumps to the next due event, or a little further when
    /// nothing is; a real one gives others a chance to run (it yields or sleeps for some
    /// microseconds) and reads its clock.
    fn step(&mut self) -> Time;

    /// Windows of `end` that a peer can use.
    fn windows_bound(&self, end: &Self::P) -> usize;

    /// Returns true once the windows bound on `qp` are open to the peer. The contract puts a bind
    /// ahead of later work only: a device may still be at it when [`Provider::ring`] returns, and
    /// the suite uses keys without a message that brings them.
    fn has_opened(&self, end: &Self::P, qp: Qp) -> bool {
        let _ = (end, qp);
        true
    }

    /// Returns true if `fd` becomes readable within `patience`. Called only if
    /// [`Provider::wait_fd`] returns a descriptor.
    fn is_readable(&self, fd: BorrowedFd<'_>, patience: Duration) -> bool {
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap() == 1
    }

    /// Why this provider cannot run `case`, if it cannot.
    fn skip(case: &str) -> Option<&'static str> {
        let _ = case;
        None
    }
}

/// Runs one case as often as the fixture requires, and checks that everything came back.
pub fn run<F: Fixture>(name: &str, case: fn(&mut World<F>)) {
    if let Some(reason) = F::skip(name) {
        println!("skipped: {name}: {reason}");
        return;
    }
    for number in 0..F::RUNS {
        run_once(case, number);
    }
}

fn run_once<F: Fixture>(case: fn(&mut World<F>), number: u64) {
    let mut world = World::new(F::new(number));
    case(&mut world);
    world.finish();
}

/// A case of the suite, for the fixture `F`.
pub struct ConformanceCase<F: Fixture> {
    /// The module of the case: the subject that it is about.
    pub group: &'static str,
    /// Its name, which reads as a sentence.
    pub name: &'static str,
    run: fn(&mut World<F>),
}

impl<F: Fixture> ConformanceCase<F> {
    /// Runs the case once, whatever [`Fixture::skip`] says, in the fixture of run `number`.
    ///
    /// # Panics
    /// A promise of the contract is broken; the message says which.
    pub fn run(&self, number: u64) {
        run_once(self.run, number);
    }
}

/// Cases in which a peer invalidates.
const INVALIDATING: [&str; 8] = [
    "a_copy_invalidates_as_a_posted_message_does",
    "a_window_tells_what_is_not_an_earlier_owners",
    "a_write_is_placed_before_the_message_behind_it",
    "a_write_reaches_exactly_its_window",
    "an_invalidated_window_is_dead_at_once",
    "one_window_too_many_is_refused",
    "what_was_posted_before_a_disconnect_arrives",
    "writes_side_by_side_are_in_place_and_complete_each",
];

/// Why `case` cannot run where no peer invalidates ([`Limits::bears_invalidation`]), because
/// regions take the place of windows; if it cannot.
pub fn needs_windows(case: &str) -> Option<&'static str> {
    match case {
        "a_window_of_another_connection_is_out_of_reach" => {
            Some("keys of regions are good for all connections, which are to one host")
        }
        case if INVALIDATING.contains(&case) => Some("a peer cannot invalidate a region"),
        _ => None,
    }
}

/// All cases, in the order of the list.
pub fn cases<F: Fixture>() -> Vec<ConformanceCase<F>> {
    crate::conformance_cases! { @values F }
}

/// Makes one `#[test]` of every case for the given [`Fixture`]; call it in a module of its own.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:ty) => {
        $crate::conformance_cases! { @tests $fixture }
    };
}

/// The list of all cases, which it gives to `conformance_made`.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    (@$made:ident $fixture:ty) => {
        $crate::conformance_made! { @$made $fixture;
            connections::private_data_reaches_both_sides
            connections::too_much_private_data_is_refused
            connections::a_rejected_peer_hears_why
            connections::nobody_at_an_address_refuses
            connections::a_connector_may_send_when_it_is_established
            connections::an_acceptor_may_send_when_it_is_established
            connections::nothing_is_posted_before_it_is_established
            connections::a_closed_door_keeps_its_guests
            connections::an_address_is_listened_to_once
            connections::a_peer_has_an_address_as_long_as_it_is_there
            connections::one_connection_too_many_is_refused
            connections::names_of_connections_go_stale
            connections::a_connect_can_be_given_up
            messages::messages_of_every_length_arrive
            messages::a_message_too_long_ends_its_connection_only
            messages::messages_keep_their_order
            messages::nothing_leaves_before_the_doorbell
            messages::copies_and_posted_messages_keep_their_order
            messages::a_copy_invalidates_as_a_posted_message_does
            messages::a_full_send_queue_refuses
            messages::completions_that_nobody_polls_are_all_kept
            messages::a_message_without_a_receive_waits
            messages::a_starved_connection_still_moves_memory
            messages::receives_outlive_connections
            messages::receives_have_limits
            messages::a_receive_holds_nothing_but_the_message
            messages::connections_do_not_disturb_each_other
            messages::a_copy_arrives_without_a_completion
            messages::copies_keep_their_place_among_what_is_posted
            messages::a_copy_goes_nowhere_without_a_connection
            messages::an_event_that_is_there_prevents_sleep
            messages::an_arrival_ends_sleep
            memory::a_write_is_placed_before_the_message_behind_it
            memory::writes_side_by_side_are_in_place_and_complete_each
            memory::data_that_this_process_moves_are_counted_once
            memory::a_write_behind_its_neighbours_keeps_to_its_window
            memory::a_window_tells_what_is_not_an_earlier_owners
            memory::a_write_reaches_exactly_its_window
            memory::a_write_of_nothing_needs_no_window
            memory::a_read_fetches_its_spans_in_order
            memory::a_read_of_nothing_completes
            memory::many_reads_complete_in_order
            memory::an_invalidated_window_is_dead_at_once
            memory::keys_that_are_not_the_peers_cannot_be_invalidated
            memory::a_local_invalidation_gives_the_buffer_back
            memory::unknown_keys_are_not_invalidated
            memory::one_window_too_many_is_refused
            memory::work_that_contradicts_itself_is_refused
            memory::a_write_that_breaks_a_rule_changes_nothing
            memory::a_read_that_breaks_a_rule_fails
            memory::a_window_of_another_connection_is_out_of_reach
            endings::all_work_completes_when_the_peer_disconnects
            endings::all_work_completes_when_we_disconnect
            endings::all_work_completes_when_the_peer_breaks_a_rule
            endings::windows_end_with_their_connection
            endings::a_flushed_invalidation_proves_nothing
            endings::nothing_is_posted_to_what_has_ended
            endings::what_was_posted_before_a_disconnect_arrives
            endings::both_sides_may_disconnect_at_once
            endings::a_dropped_end_is_missed
        }
    };
}

/// Makes tests or values of a list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_made {
    (@tests $fixture:ty; $($group:ident::$case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::run::<$fixture>(stringify!($case), $crate::$group::$case);
            }
        )*
    };
    (@values $fixture:ty; $($group:ident::$case:ident)*) => {
        vec![$(
            $crate::ConformanceCase::<$fixture> {
                group: stringify!($group),
                name: stringify!($case),
                run: $crate::$group::$case,
            }
        ),*]
    };
}
