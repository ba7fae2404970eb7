//! Directory listing, collected from pages, for READDIR of both versions and READDIRPLUS.

use crate::{DirEntry, Error};
use std::collections::HashSet;

/// Octets that a listing may take: about three million entries.
const OCTETS_MAX: usize = 1 << 30;

/// The pages so far.
#[derive(Debug, Default)]
pub(crate) struct PagedListing {
    entries: Vec<DirEntry>,
    octets: usize,
    /// Cookies of the last entries of all pages.
    ends: HashSet<u64>,
    /// The last one.
    cookie: u64,
}

impl PagedListing {
    /// The cookie that the next page begins after.
    pub(crate) const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Adds a page. True when it was the last one.
    ///
    /// # Errors
    /// A page that leads nowhere, or back to entries that came before; and more entries than there
    /// is room for.
    pub(crate) fn turn(&mut self, page: Vec<DirEntry>, eof: bool) -> Result<bool, Error> {
        self.turn_within(page, eof, OCTETS_MAX)
    }

    fn turn_within(
        &mut self,
        page: Vec<DirEntry>,
        eof: bool,
        octets_max: usize,
    ) -> Result<bool, Error> {
        match page.last() {
            Some(last) if !eof && (last.cookie == 0 || !self.ends.insert(last.cookie)) => {
                return Err(Error::Nonsense(
                    "a directory repeats a cookie: the listing would have no end",
                ));
            }
            Some(last) => self.cookie = last.cookie,
            None if !eof => {
                return Err(Error::Nonsense("a page of a directory is empty, and is not its end"));
            }
            None => {}
        }
        self.octets += page.iter().map(|it| size_of::<DirEntry>() + it.name.len()).sum::<usize>();
        if self.octets > octets_max {
            return Err(Error::Nonsense(
                "a directory has more entries than fit into a listing of 1 GiB",
            ));
        }
        self.entries.extend(page);
        Ok(eof)
    }

    /// All entries.
    pub(crate) fn into_entries(self) -> Vec<DirEntry> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(cookies: &[u64]) -> Vec<DirEntry> {
        let entry = |cookie: &u64| DirEntry {
            name: vec![b'x'; 100],
            fileid: 1,
            cookie: *cookie,
            attributes: None,
            handle: None,
        };
        cookies.iter().map(entry).collect()
    }

    #[test]
    fn pages_become_one_listing() {
        let mut listing = PagedListing::default();
        assert_eq!(listing.turn(page(&[9, 3]), false), Ok(false));
        assert_eq!(listing.cookie(), 3);
        assert_eq!(listing.turn(page(&[7]), true), Ok(true));
        assert_eq!(listing.into_entries().len(), 3);
    }

    #[test]
    fn a_listing_that_comes_back_to_a_cookie_is_refused_however_long_the_way() {
        for round in 1..5 {
            let mut listing = PagedListing::default();
            for cookie in 1..=round {
                assert_eq!(listing.turn(page(&[cookie]), false), Ok(false));
            }
            let refused = listing.turn(page(&[1]), false).unwrap_err().to_string();
            assert!(refused.contains("repeats a cookie"), "{refused}");
        }
        let mut listing = PagedListing::default();
        assert!(listing.turn(page(&[0]), false).is_err(), "it would begin anew");
        assert!(listing.turn(Vec::new(), false).is_err());
    }

    #[test]
    fn the_memory_of_a_listing_has_a_limit() {
        let mut listing = PagedListing::default();
        let mut cookies = 1..;
        let refused = loop {
            let cookie = cookies.next().unwrap();
            match listing.turn_within(page(&[cookie]), false, 100_000) {
                Ok(is_last) => assert!(!is_last),
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains("more entries than fit"), "{refused}");
        let octets: usize = listing.entries.iter().map(|it| it.name.len()).sum();
        assert!(octets <= 100_000);
    }
}
