use super::*;
use crate::segment::{OwnSegment, PeerSegment};
use fastrand::Rng;

const LEN: usize = 4096;

struct Pair {
    own: OwnSegment,
    /// The reader's file: its word at [`HEAD`] is all that counts.
    reader: OwnSegment,
    producer: Producer,
    consumer: Consumer,
}

impl Pair {
    fn new() -> Self {
        let own = OwnSegment::new(RING + LEN).unwrap();
        let reader = OwnSegment::new(RING).unwrap();
        Self { own, reader, producer: Producer::new(LEN), consumer: Consumer::new(LEN) }
    }

    fn put(&mut self, kind: u8, body: &[u8]) -> Option<u64> {
        // A part of it as a head: where it is cut makes no difference.
        let word = Word::new(kind, body.len(), 7);
        let (head, body) = body.split_at(body.len() / 3);
        self.producer.put(&self.own, &self.reader, word, RecordParts { head, body }).unwrap()
    }

    fn take(&mut self) -> Option<(u8, Vec<u8>)> {
        let front = self.consumer.front(&self.own).unwrap()?;
        let mut octets = vec![0; front.word.len()];
        self.own.copy_out(front.at, &mut octets);
        self.consumer.advance(front.word);
        assert_eq!(front.word.to(), 7);
        Some((front.word.kind(), octets))
    }
}

#[test]
fn records_come_out_as_they_went_in_whatever_lay_there_before() {
    let mut pair = Pair::new();
    let mut random = Rng::with_seed(1);
    let mut under_way = std::collections::VecDeque::new();
    let (mut puts, mut waits) = (0_u64, 0);
    while puts < 20_000 {
        if random.usize(..3) > 0 {
            let len = random.usize(..LEN / PART - WORD);
            // Content that looks like words.
            let mut body = vec![0; len];
            for octets in body.chunks_mut(8) {
                let word = Word::new(3, random.usize(..64), 7).0;
                octets.copy_from_slice(&word.to_le_bytes()[..octets.len()]);
            }
            let kind = random.u8(1..=9);
            match pair.put(kind, &body) {
                Some(_) => {
                    under_way.push_back((kind, body));
                    puts += 1;
                }
                None => waits += 1,
            }
        } else {
            let expected = under_way.pop_front();
            assert_eq!(pair.take(), expected, "after {puts} records");
            if random.bool() {
                pair.consumer.publish(&pair.reader);
            }
        }
    }
    assert!(waits > 100, "the ring was full at times");
}

#[test]
fn a_reader_that_tells_of_whole_parts_only_leaves_no_writer_waiting() {
    let mut pair = Pair::new();
    let mut random = Rng::with_seed(2);
    let mut waits = 0;
    for _ in 0..20_000 {
        let most = random.usize(1..=LEN / PART - WORD);
        let body = vec![1; random.usize(..most)];
        if pair.put(1, &body).is_some() {
            continue;
        }
        waits += 1;
        while pair.take().is_some() {
            if pair.consumer.is_due() {
                pair.consumer.publish(&pair.reader);
            }
        }
        assert!(
            pair.put(1, &body).is_some(),
            "everything was read, and {} octets find no room",
            body.len()
        );
    }
    assert!(waits > 100, "the ring was full at times");
}

#[test]
fn a_full_ring_waits_for_its_reader_and_no_longer() {
    let mut pair = Pair::new();
    let body = [7; LINE - WORD];
    let mut count = 0;
    while pair.put(1, &body).is_some() {
        count += 1;
    }
    // One line stays free: the word after the last record is cleared.
    assert_eq!(count, LEN / LINE - 1);
    assert!(pair.take().is_some());
    assert!(pair.put(1, &body).is_none(), "the reader has not said so");
    assert!(pair.consumer.publish(&pair.reader) && !pair.consumer.publish(&pair.reader));
    assert!(pair.producer.has_moved(&pair.reader));
    assert!(pair.put(1, &body).is_some());
    assert!(pair.put(1, &body).is_none());
}

#[test]
fn a_reader_that_says_the_impossible_is_found_out() {
    for (put, said) in [(2, 3 * LINE as u64), (2, u64::MAX), (0, 1)] {
        let mut pair = Pair::new();
        (0..put).for_each(|_| assert!(pair.put(1, &[]).is_some()));
        pair.reader.set_word(HEAD, said);
        assert_eq!(pair.producer.look(&pair.reader), Err(Broken));
    }
    let mut pair = Pair::new();
    assert!(pair.put(1, &[]).is_some() && pair.put(1, &[]).is_some());
    pair.reader.set_word(HEAD, LINE as u64);
    assert_eq!(pair.producer.look(&pair.reader), Ok(true));
    pair.reader.set_word(HEAD, 0);
    assert_eq!(pair.producer.look(&pair.reader), Err(Broken), "nobody reads backwards");
}

#[test]
fn a_writer_that_skips_everything_is_found_out() {
    let mut pair = Pair::new();
    pair.own.set_word(RING, Word::new(PAD, 0, 0).0);
    assert_eq!(pair.consumer.front(&pair.own), Err(Broken));
}

#[test]
fn a_record_longer_than_the_ring_allows_is_found_out() {
    let most = LEN / PART - WORD;
    for (offset, len, is_sane) in [
        (0, most, true),
        (0, most + 1, false),
        (0, (1 << 24) - 1, false),
        (LEN - 2 * LINE, 2 * LINE - WORD, true),
        (LEN - 2 * LINE, 2 * LINE - WORD + 1, false),
    ] {
        let mut pair = Pair::new();
        pair.consumer.at = RING + offset;
        pair.own.set_word(RING + offset, Word::new(1, len, 0).0);
        assert_eq!(pair.consumer.front(&pair.own).is_ok(), is_sane, "{len} octets at {offset}");
    }
}

#[test]
fn a_retracted_record_is_seen_after_the_copy() {
    let mut pair = Pair::new();
    let end = pair.put(5, &[1; 20]).unwrap();
    let front = pair.consumer.front(&pair.own).unwrap().unwrap();
    assert!(pair.consumer.is_still(&pair.own, front.word));
    pair.producer.retract(&pair.own, end - LINE as u64);
    assert!(!pair.consumer.is_still(&pair.own, front.word));
    let word = pair.consumer.front(&pair.own).unwrap().unwrap().word;
    assert_eq!(
        (word.kind(), word.len(), word.to()),
        (RETRACTED, front.word.len(), front.word.to())
    );
    // What was read is not touched: another record may be there.
    pair.consumer.advance(word);
    pair.consumer.publish(&pair.reader);
    pair.producer.look(&pair.reader).unwrap();
    let before = pair.own.word(RING);
    pair.producer.retract(&pair.own, 0);
    assert_eq!(pair.own.word(RING), before);
}

/// Two processes agree on these places, whatever either was compiled for: padding by the length of
/// the machine's lines, as `CachePadded` does, is another layout on another machine.
#[test]
fn the_words_of_a_file_have_lines_of_their_own() {
    assert_eq!((LINE, WORD, HEAD, ASLEEP, RING), (64, 8, 64, 128, 4096));
    for place in [HEAD, ASLEEP, RING] {
        assert_eq!(place % LINE, 0, "a line of its own");
    }
    // A message of up to 56 octets is one line, word included.
    assert_eq!(Word::new(1, LINE - WORD, 7).span(), LINE);
    assert_eq!(Word::new(1, LINE - WORD + 1, 7).span(), 2 * LINE);
}

#[test]
fn nothing_is_read_from_a_fresh_ring() {
    let own = OwnSegment::new(RING + LEN).unwrap();
    let theirs = PeerSegment::new(own.file(), RING + LEN).unwrap();
    assert_eq!(Consumer::new(LEN).front(&theirs), Ok(None));
}

/// Every interleaving and every order that the memory model allows, on rings of a few lines.
mod model {
    use super::super::{
        Consumer, HEAD, LINE, PART, Producer, RING, RecordParts, RingSource, RingTarget, WORD,
        Word, must_wake, set_asleep,
    };
    use loom::{
        cell::UnsafeCell,
        sync::{
            Arc, Notify,
            atomic::{AtomicU64, Ordering, fence},
        },
        thread,
    };

    /// Lines of the ring.
    const LINES: usize = 4;
    const LEN: usize = LINES * LINE;
    /// Fills a line.
    const WHOLE: Word = Word::new(1, LINE - WORD, 0);
    const _: () = assert!(LEN / PART == LINE);

    /// A file: its words, and one cell for the content of each line. A race on a cell fails the
    /// model.
    struct Model {
        head: AtomicU64,
        asleep: AtomicU64,
        words: Vec<AtomicU64>,
        cells: Vec<UnsafeCell<u8>>,
    }

    impl Model {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                head: AtomicU64::new(0),
                asleep: AtomicU64::new(0),
                words: (0..LINES).map(|_| AtomicU64::new(0)).collect(),
                cells: (0..LINES).map(|_| UnsafeCell::new(0)).collect(),
            })
        }

        fn at(&self, at: usize) -> &AtomicU64 {
            match at {
                HEAD => &self.head,
                super::ASLEEP => &self.asleep,
                _ => &self.words[(at - RING) / LINE],
            }
        }
    }

    impl RingSource for Model {
        fn word(&self, at: usize) -> u64 {
            self.at(at).load(Ordering::Acquire)
        }

        fn copy_out(&self, at: usize, to: &mut [u8]) {
            let line = (at - RING) / LINE;
            // SAFETY: loom fails when the other thread writes the cell meanwhile.
            to.fill(self.cells[line].with(|cell| unsafe { *cell }));
        }
    }

    impl RingTarget for Model {
        fn set_word(&self, at: usize, word: u64) {
            self.at(at).store(word, Ordering::Release);
        }

        fn copy_in(&self, at: usize, from: &[u8]) {
            if let Some(octet) = from.first() {
                let line = (at - RING) / LINE;
                // SAFETY: loom fails when the other thread reads the cell meanwhile.
                self.cells[line].with_mut(|cell| unsafe { *cell = *octet });
            }
        }
    }

    fn models(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    fn take(consumer: &mut Consumer, memory: &Model) -> Option<u8> {
        let front = consumer.front(memory).unwrap()?;
        let mut octet = [0];
        memory.copy_out(front.at, &mut octet);
        consumer.advance(front.word);
        Some(octet[0])
    }

    #[test]
    fn every_record_arrives_once_in_order_and_without_a_race() {
        models(|| {
            const RECORDS: u8 = 5; // more than the ring has lines
            let (writer, reader) = (Model::new(), Model::new());
            let theirs = (Arc::clone(&writer), Arc::clone(&reader));
            let producing = thread::spawn(move || {
                let (own, reader) = theirs;
                let mut producer = Producer::new(LEN);
                for record in 1..=RECORDS {
                    while producer
                        .put(
                            &*own,
                            &*reader,
                            WHOLE,
                            RecordParts { head: &[], body: &[record; LINE - WORD] },
                        )
                        .unwrap()
                        .is_none()
                    {
                        thread::yield_now();
                    }
                }
            });
            let mut consumer = Consumer::new(LEN);
            for expected in 1..=RECORDS {
                loop {
                    if let Some(octet) = take(&mut consumer, &writer) {
                        assert_eq!(octet, expected);
                        break;
                    }
                    consumer.publish(&*reader);
                    thread::yield_now();
                }
                consumer.publish(&*reader);
            }
            producing.join().unwrap();
        });
    }

    /// A sleeper that misses its wake-up sleeps for ever, which the model reports. membarrier(2)
    /// makes its caller's fence one of the other process, too; the model has to write that down at
    /// the other side.
    #[test]
    fn no_wake_up_is_lost() {
        models(|| {
            let (writer, reader) = (Model::new(), Model::new());
            let wakeup = Arc::new(Notify::new());
            let theirs = (Arc::clone(&writer), Arc::clone(&reader), Arc::clone(&wakeup));
            let producing = thread::spawn(move || {
                let (own, reader, wakeup) = theirs;
                let mut producer = Producer::new(LEN);
                assert!(
                    producer
                        .put(
                            &*own,
                            &*reader,
                            WHOLE,
                            RecordParts { head: &[], body: &[9; LINE - WORD] }
                        )
                        .unwrap()
                        .is_some()
                );
                fence(Ordering::SeqCst);
                if must_wake(&*reader, &mut 0) {
                    wakeup.notify();
                }
            });
            let mut consumer = Consumer::new(LEN);
            set_asleep(&*reader, 1);
            fence(Ordering::SeqCst);
            // The model may wake a sleeper for no reason.
            while !consumer.is_fruitful(&*writer) {
                wakeup.wait();
            }
            set_asleep(&*reader, 0);
            assert_eq!(take(&mut consumer, &writer), Some(9));
            producing.join().unwrap();
        });
    }

    /// A writer whose ring is full sleeps until it is notified that a part of it was read.
    #[test]
    fn no_news_of_room_is_lost() {
        models(|| {
            const RECORDS: u8 = LINES as u8; // one more than fit
            let (writer, reader) = (Model::new(), Model::new());
            let wakeup = Arc::new(Notify::new());
            let mut producer = Producer::new(LEN);
            let mut put = |record: u8| {
                producer
                    .put(
                        &*writer,
                        &*reader,
                        WHOLE,
                        RecordParts { head: &[], body: &[record; LINE - WORD] },
                    )
                    .unwrap()
                    .is_some()
            };
            assert!((1..RECORDS).all(&mut put) && !put(RECORDS), "the ring is full");
            let theirs = (Arc::clone(&writer), Arc::clone(&reader), Arc::clone(&wakeup));
            let reading = thread::spawn(move || {
                let (writer, own, wakeup) = theirs;
                let (mut consumer, mut woken) = (Consumer::new(LEN), 0);
                // What is there before the writer sleeps is read in one go.
                for expected in 1..RECORDS {
                    assert_eq!(take(&mut consumer, &writer), Some(expected));
                    if consumer.is_due() {
                        consumer.publish(&*own);
                        fence(Ordering::SeqCst);
                        if must_wake(&*writer, &mut woken) {
                            wakeup.notify();
                        }
                    }
                }
            });
            set_asleep(&*writer, 1);
            fence(Ordering::SeqCst);
            while !producer.has_moved(&*reader) {
                wakeup.wait();
            }
            set_asleep(&*writer, 0);
            let last = &[RECORDS; LINE - WORD];
            assert!(
                producer
                    .put(&*writer, &*reader, WHOLE, RecordParts { head: &[], body: last })
                    .unwrap()
                    .is_some()
            );
            reading.join().unwrap();
        });
    }
}
