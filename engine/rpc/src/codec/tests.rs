use super::*;

structure! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Point {
        x: i32,
        y: i64,
    }
}

structure! {
    #[derive(Debug, PartialEq)]
    struct Entry<'a> {
        name: Text<8>,
        at: Option<Point>,
        marks: List<u32, 3>,
    }
}

enumeration! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Idle = 0,
        Busy = 7,
    }
}

fn encoded<'a, T: XdrType>(value: &T::Of<'a>) -> Result<Vec<u8>, NoRoom> {
    let mut room = vec![0xee; T::LEN_MAX];
    let mut encoder = Encoder::new(&mut room);
    T::encode(value, &mut encoder)?;
    let (len, _) = encoder.finish();
    room.truncate(len);
    Ok(room)
}

fn decoded<T: XdrType>(octets: &[u8]) -> Result<T::Of<'_>, Error> {
    let mut decoder = Decoder::new(Reader::new(octets));
    let value = T::decode(&mut decoder)?;
    decoder.finish().map(|()| value)
}

#[test]
fn a_structure_survives_a_round_trip_and_no_cut_does() {
    let entry =
        Entry { name: "héllo", at: Some(Point { x: -1, y: i64::MIN }), marks: vec![1, 2, 3] };
    let octets = encoded::<Entry<'static>>(&entry).unwrap();
    assert_eq!(octets.len(), <Entry<'static>>::LEN_MAX, "every field is as long as it may be");
    assert_eq!(decoded::<Entry<'static>>(&octets), Ok(entry));
    for cut in 0..octets.len() {
        assert!(decoded::<Entry<'static>>(&octets[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_value_longer_than_its_type_is_not_written_and_not_read() {
    assert_eq!(encoded::<Text<4>>(&"hello"), Err(NoRoom));
    assert_eq!(encoded::<Opaque<4>>(&&b"hello"[..]), Err(NoRoom));
    assert_eq!(encoded::<Bulk<4>>(&Octets::from(b"hello")), Err(NoRoom));
    assert_eq!(encoded::<List<u32, 2>>(&vec![1, 2, 3]), Err(NoRoom));
    let hello = b"\0\0\0\x05hello\0\0\0";
    assert_eq!(decoded::<Text<4>>(hello), Err(Error::TooLong));
    assert_eq!(decoded::<Bulk<4>>(hello), Err(Error::TooLong));
    assert_eq!(decoded::<List<u32, 4>>(hello), Err(Error::TooLong));
    assert_eq!(decoded::<Text<5>>(b"\0\0\0\x01\xff\0\0\0"), Err(Error::BadValue));
}

#[test]
fn an_enumeration_has_its_values_and_no_other() {
    assert_eq!(encoded::<State>(&State::Busy).unwrap(), [0, 0, 0, 7]);
    assert_eq!(decoded::<State>(&[0; 4]), Ok(State::Idle));
    assert_eq!(decoded::<State>(&[0, 0, 0, 1]), Err(Error::BadValue));
}

#[test]
fn an_array_that_says_more_than_it_has_takes_no_memory_for_it() {
    let octets = [0xff; 4];
    assert_eq!(decoded::<List<u64, { u32::MAX as usize }>>(&octets), Err(Error::Short));
}

#[test]
fn an_item_counts_its_place_and_is_read_from_either_way() {
    type Found = (u32, Option<Bulk<16>>, u32);
    let octets = b"bulk!".as_slice();
    let mut room = [0xee; Found::LEN_MAX];
    let mut encoder = Encoder::new(&mut room);
    Found::encode(&(1, Some(octets.into()), 2), &mut encoder).unwrap();
    let (len, item) = encoder.finish();
    let (position, item) = item.unwrap();
    assert_eq!((len, position, item.as_slice()), (16, 12, octets));
    assert_eq!((Found::ITEMS, Found::ITEM_MAX), (1, 16));

    let inline = [&room[..position], octets, &[0; 3], &room[position..len]].concat();
    let read = |message, chunk| {
        let mut decoder = Decoder::with_chunk(message, chunk);
        let found = Found::decode(&mut decoder)?;
        decoder.finish().map(|()| found)
    };
    let found = Ok((1, Some(Octets::from(octets)), 2));
    assert_eq!(read(&inline, &[]), found);
    for chunk in [octets, b"bulk!\0\0\0"] {
        assert_eq!(read(&room[..len], chunk), found);
    }
    assert_eq!(read(&room[..len], b"bul"), Err(Error::Short));
    assert_eq!(read(&room[..len], b"bulk!?"), Err(Error::Misplaced));
    let none = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(read(&none, &[]), Ok((1, None, 2)));
    assert_eq!(read(&none, octets), Err(Error::Misplaced), "a chunk that belongs to nothing");
}

#[test]
fn a_message_takes_one_item() {
    let mut room = [0; 64];
    let mut encoder = Encoder::new(&mut room);
    encoder.item(Octets::from(b"one")).unwrap();
    assert_eq!(encoder.item(Octets::from(b"two")), Err(NoRoom));
}
