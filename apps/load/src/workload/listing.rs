//! Position in a directory that READDIRPLUS lists page by page (RFC 1813 §3.3.17).

use stag_client::Error;
use stag_protocol::{
    nfs::v3::{Attributes, CookieVerifier, EntryPlus, FileHandle, ReadDirPlusArgs, Status},
    xdr::{self, Codec, Reader},
};

/// Position of one slot in its listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListingPlace {
    /// Cookie of the last entry that came; 0 before the first.
    cookie: u64,
    /// Verifier that came with the cookie.
    verifier: CookieVerifier,
    /// Names that came, without `.` and `..`.
    names: u32,
    /// Entries `.` and `..` that came.
    dots: u32,
}

/// Content of a page.
struct ListedPage {
    /// The place after its last entry.
    place: ListingPlace,
    entries: u32,
    eof: bool,
}

impl ListingPlace {
    /// The call for the next page, of at most `max` octets.
    pub const fn args(&self, dir: FileHandle, max: u32) -> ReadDirPlusArgs {
        let Self { cookie, verifier, .. } = *self;
        ReadDirPlusArgs { dir, cookie, verifier, dir_count: max, max_count: max }
    }

    /// Reads the results of the next page of a directory that has `names` names, and moves past
    /// it. After the last page, and after an error, the listing begins again.
    pub fn turn(&mut self, mut results: Reader<'_>, names: u32) -> Result<(), Error> {
        let before = std::mem::take(self);
        match Status::parse(&mut results).map_err(Error::Garbled)? {
            Status::Ok => {}
            status => {
                let attributes = Option::<Attributes>::parse(&mut results);
                return Err(match attributes.and_then(|_| results.finish()) {
                    Ok(()) => Error::Nfs(status),
                    Err(error) => Error::Garbled(error),
                });
            }
        }
        let page = before.read(results).map_err(Error::Garbled)?;
        let listed = page.place.names;
        // A listing that repeats its entries ends here, too.
        if listed > names || (page.eof && listed != names) {
            return Err(Error::Listed { names: listed, instead_of: names });
        }
        if page.place.dots > 2 {
            return Err(Error::Nonsense("a listing has . or .. more than once"));
        }
        if !page.eof {
            if page.entries == 0 {
                return Err(Error::Nonsense("a page of a directory is empty, and is not its end"));
            }
            if matches!(page.place.cookie, cookie if cookie == 0 || cookie == before.cookie) {
                return Err(Error::Nonsense("a page of a directory ends where it began"));
            }
            *self = page.place;
        }
        Ok(())
    }

    /// Reads a page, entry by entry: as [`ReadDirPlusOk`] does, in one walk instead of two.
    ///
    /// [`ReadDirPlusOk`]: stag_protocol::nfs::v3::ReadDirPlusOk
    fn read(self, mut results: Reader<'_>) -> Result<ListedPage, xdr::Error> {
        Option::<Attributes>::parse(&mut results)?;
        let mut place = Self { verifier: CookieVerifier::parse(&mut results)?, ..self };
        let mut entries = 0_u32;
        while results.bool()? {
            let EntryPlus { entry, .. } = EntryPlus::parse(&mut results)?;
            place.cookie = entry.cookie;
            let is_dot = matches!(entry.name.0, b"." | b"..");
            let count = if is_dot { &mut place.dots } else { &mut place.names };
            *count = count.saturating_add(1);
            entries = entries.saturating_add(1);
        }
        let eof = results.bool()?;
        results.finish()?;
        Ok(ListedPage { place, entries, eof })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::{
        nfs::v3::{Entry, Failure, Name, PlusLimits, ReadDirPlusResult, ReadDirPlusWriter},
        xdr::Writer,
    };

    const VERIFIER: CookieVerifier = *b"verifier";

    /// A page with these names, whose cookies count from `first` on.
    fn page(names: &[&str], first: u64, eof: bool) -> Vec<u8> {
        let mut octets = vec![0; 4_096];
        let mut writer = Writer::new(&mut octets);
        let limits = PlusLimits { dir_count: 4_096, max_count: 4_096 };
        let mut list = ReadDirPlusWriter::begin(&mut writer, None, VERIFIER, limits).unwrap();
        for (name, cookie) in names.iter().zip(first..) {
            let entry = Entry { fileid: 7, name: Name(name.as_bytes()), cookie };
            list.push(&EntryPlus { entry, attributes: None, handle: None }).unwrap();
        }
        list.finish(eof).unwrap();
        let len = writer.len();
        octets.truncate(len);
        octets
    }

    fn turn(place: &mut ListingPlace, page: &[u8], names: u32) -> Result<(), Error> {
        place.turn(Reader::new(page), names)
    }

    #[test]
    fn a_listing_continues_with_its_cookie_and_verifier_and_begins_again_after_its_end() {
        let dir = FileHandle::new(&[1]).unwrap();
        let mut place = ListingPlace::default();
        for _ in 0..2 {
            let first = place.args(dir, 512);
            assert_eq!((first.cookie, first.verifier), (0, [0; 8]));
            assert_eq!((first.dir_count, first.max_count), (512, 512));
            assert_eq!(turn(&mut place, &page(&[".", "..", "a"], 1, false), 3), Ok(()));
            let second = place.args(dir, 512);
            assert_eq!((second.cookie, second.verifier), (3, VERIFIER));
            assert_eq!(turn(&mut place, &page(&["b", "c"], 4, true), 3), Ok(()));
        }
        // RFC 1813 §3.3.16: a server need not list itself and its parent.
        assert_eq!(turn(&mut place, &page(&["a", "b", "c"], 1, true), 3), Ok(()));
        assert_eq!(place, ListingPlace::default());
    }

    #[test]
    fn a_listing_with_another_number_of_names_is_an_error_and_begins_again() {
        let mut place = ListingPlace::default();
        for (names, eof, listed) in
            [(&[".", "a"][..], true, 1), (&["a", "b", "c"], true, 3), (&["a", "b", "c"], false, 3)]
        {
            let error = turn(&mut place, &page(names, 1, eof), 2).unwrap_err();
            assert_eq!(error, Error::Listed { names: listed, instead_of: 2 });
            let sentence = format!("the listing has {listed} names instead of 2");
            assert_eq!((error.to_string(), place), (sentence, ListingPlace::default()));
        }
        // Entries that come again and again are too many at some point.
        assert_eq!(turn(&mut place, &page(&["a", "b"], 1, false), 3), Ok(()));
        assert!(turn(&mut place, &page(&["a", "b"], 1, false), 3).is_err());
    }

    #[test]
    fn a_page_without_entries_is_an_error_unless_it_is_the_end() {
        let mut place = ListingPlace::default();
        let error = turn(&mut place, &page(&[], 1, false), 2).unwrap_err().to_string();
        assert!(error.contains("empty"), "{error}");
        assert_eq!(turn(&mut place, &page(&["a", "b"], 1, false), 2), Ok(()));
        assert_eq!(turn(&mut place, &page(&[], 1, true), 2), Ok(()));
        assert_eq!(turn(&mut place, &page(&[], 1, true), 0), Ok(()));
    }

    #[test]
    fn a_listing_that_does_not_go_on_is_an_error() {
        let mut place = ListingPlace::default();
        assert_eq!(turn(&mut place, &page(&["."], 7, false), 2), Ok(()));
        let error = turn(&mut place, &page(&[".."], 7, false), 2).unwrap_err().to_string();
        assert!(error.contains("ends where it began"), "{error}");
        assert!(turn(&mut place, &page(&["."], 0, false), 2).is_err(), "cookie 0 is the beginning");
        assert_eq!(turn(&mut place, &page(&[".", ".."], 1, false), 2), Ok(()));
        let error = turn(&mut place, &page(&["."], 3, false), 2).unwrap_err().to_string();
        assert!(error.contains("more than once"), "{error}");
    }

    #[test]
    fn every_cut_of_a_page_and_every_octet_after_it_is_an_error() {
        let whole = page(&[".", "..", "a-name"], 1, true);
        let mut place = ListingPlace::default();
        for len in 0..whole.len() {
            assert!(turn(&mut place, &whole[..len], 1).is_err(), "cut to {len}");
            assert_eq!(place, ListingPlace::default());
        }
        let longer = [&whole[..], &[0; 4]].concat();
        assert!(turn(&mut place, &longer, 1).is_err());
        assert_eq!(turn(&mut place, &whole, 1), Ok(()));
    }

    #[test]
    fn a_failure_of_the_server_is_named_with_its_status() {
        let failed: ReadDirPlusResult<'_> =
            Err(Failure { status: Status::BadCookie, attributes: None });
        let mut octets = [0; 64];
        let mut writer = Writer::new(&mut octets);
        failed.emit(&mut writer).unwrap();
        let len = writer.len();
        let mut place = ListingPlace { cookie: 5, verifier: VERIFIER, names: 1, dots: 0 };
        assert_eq!(turn(&mut place, &octets[..len], 3), Err(Error::Nfs(Status::BadCookie)));
        assert_eq!(place, ListingPlace::default());
        assert!(matches!(turn(&mut place, &octets[..4], 3), Err(Error::Garbled(_))));
    }
}
