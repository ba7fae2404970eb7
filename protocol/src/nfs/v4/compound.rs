//! COMPOUND and CB_COMPOUND: a head, and operations that are read one after another (RFC 8881
//! §16.2, §20.2).

use core::marker::PhantomData;

use super::forms::record;
use super::{Status4, Text};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// Octets of the longest tag that is parsed. Linux sends none.
pub const TAG_LEN_MAX: usize = 1024;
/// Operation number that stands for every undefined one.
pub const ILLEGAL: u32 = 10044;

/// An operation that is not carried out: its number, and the status. It is the last one of its
/// compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationFault<N> {
    /// The operation; `None` is ILLEGAL.
    pub operation: Option<N>,
    /// NOTSUPP, BADXDR or OP_ILLEGAL from our own reading; any failure in a peer's answer.
    pub status: Status4,
}

impl<N: Copy + Into<u32> + TryFrom<u32>> OperationFault<N> {
    /// Takes the result of an unknown operation: a failure.
    pub(super) fn parse(number: u32, reader: &mut Reader<'_>) -> Result<Self, Error> {
        let status = Status4::parse(reader)?;
        let operation = N::try_from(number).ok();
        if status == Status4::Ok || (operation.is_none() && number != ILLEGAL) {
            return Err(Error::BadValue);
        }
        Ok(Self { operation, status })
    }

    /// Writes number and status.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert_ne!(self.status, Status4::Ok, "a refusal has a cause");
        // RFC 8881 §15.1.3.4 [8881-15]: an undefined operation is answered as ILLEGAL
        writer.u32(self.operation.map_or(ILLEGAL, Into::into))?;
        self.status.emit(writer)
    }
}

/// The operations of one direction.
pub trait OperationSet<'a>: Sized {
    /// Their numbers.
    type Number: Copy + Into<u32> + TryFrom<u32>;

    /// The operation of this number, if the minor version defines it.
    fn number(number: u32, minor_version: u32) -> Option<Self::Number>;
    /// Returns true if the operation is served.
    fn is_served(number: Self::Number) -> bool;
    /// Takes the arguments of an operation that is served.
    fn parse(number: Self::Number, reader: &mut Reader<'a>) -> Result<Self, Error>;
}

record! {
    /// Head of a COMPOUND's arguments (`COMPOUND4args`).
    #[derive(Copy)]
    CompoundHead<'a> {
        /// Comes back in the reply.
        tag: Text<'a, TAG_LEN_MAX>,
        /// Minor version.
        minor_version: u32,
        /// Number of operations.
        operations: u32,
    }
}

record! {
    /// Head of a CB_COMPOUND's arguments (`CB_COMPOUND4args`).
    #[derive(Copy)]
    CallbackHead<'a> {
        /// Comes back in the reply.
        tag: Text<'a, TAG_LEN_MAX>,
        /// Minor version.
        minor_version: u32,
        /// Of version 4.0: ignored.
        ident: u32,
        /// Number of operations.
        operations: u32,
    }
}

/// Head of a compound, in either direction.
pub trait RequestHead {
    /// The minor version.
    fn minor_version(&self) -> u32;
    /// Number of operations.
    fn operations(&self) -> u32;
}

impl RequestHead for CompoundHead<'_> {
    fn minor_version(&self) -> u32 {
        self.minor_version
    }
    fn operations(&self) -> u32 {
        self.operations
    }
}

impl RequestHead for CallbackHead<'_> {
    fn minor_version(&self) -> u32 {
        self.minor_version
    }
    fn operations(&self) -> u32 {
        self.operations
    }
}

/// Arguments of a compound: `H` is its head, `R` are the requests of its direction. Iterates over
/// the operations, and ends after one that cannot be carried out.
#[derive(Clone, Debug)]
pub struct Operations<'a, H, R> {
    head: H,
    reader: Reader<'a>,
    left: u32,
    request: PhantomData<R>,
}

impl<'a, H: Codec<'a> + RequestHead, R: OperationSet<'a>> Operations<'a, H, R> {
    /// Takes the head. An error is GARBAGE_ARGS: there is not even a tag to answer with.
    pub fn parse(mut reader: Reader<'a>) -> Result<Self, Error> {
        let head = H::parse(&mut reader)?;
        let left = head.operations();
        Ok(Self { head, reader, left, request: PhantomData })
    }

    /// The head.
    pub const fn head(&self) -> &H {
        &self.head
    }

    /// Operations that were not read yet.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Ends reading after the last operation: an error when there are operations or octets left.
    pub fn finish(self) -> Result<(), Error> {
        if self.left > 0 { Err(Error::Trailing) } else { self.reader.finish() }
    }

    #[inline(always)]
    fn read(&mut self) -> Result<R, OperationFault<R::Number>> {
        let refused = |operation, status| OperationFault { operation, status };
        let Ok(number) = self.reader.u32() else {
            return Err(refused(None, Status4::BadXdr));
        };
        let Some(number) = R::number(number, self.head.minor_version()) else {
            return Err(refused(None, Status4::OpIllegal));
        };
        // RFC 8881 §15.1.1.5 [8881-17]: an operation that is not implemented is NOTSUPP
        if !R::is_served(number) {
            return Err(refused(Some(number), Status4::NotSupp));
        }
        // RFC 8881 §15.1.1.1 [8881-16]: arguments that cannot be decoded are BADXDR
        R::parse(number, &mut self.reader).map_err(|_| refused(Some(number), Status4::BadXdr))
    }
}

impl<'a, H: Codec<'a> + RequestHead, R: OperationSet<'a>> Iterator for Operations<'a, H, R> {
    type Item = Result<R, OperationFault<R::Number>>;

    // Inlined, so that an operation is read where it is carried out.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let request = self.read();
        if request.is_err() {
            // RFC 8881 §16.2.3 [8881-18]: no operation is executed after one that failed
            self.left = 0;
            self.reader = Reader::new(&[]);
        }
        Some(request)
    }
}

record! {
    /// Head of a compound's results, in either direction (`COMPOUND4res`).
    #[derive(Copy)]
    ReplyHead<'a> {
        /// Status of the last operation.
        status: Status4,
        /// That of the request.
        tag: Text<'a, TAG_LEN_MAX>,
        /// Number of results.
        results: u32,
    }
}

/// Results of a compound: iterates over those of its operations, `A`.
#[derive(Clone, Debug)]
pub struct Results<'a, A> {
    head: ReplyHead<'a>,
    reader: Reader<'a>,
    left: u32,
    answer: PhantomData<A>,
}

/// An operation's results with their number.
pub trait AnswerSet<'a>: Sized {
    /// Takes number and results.
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error>;
    /// Writes number and results.
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom>;
    /// Status with which the operation ended.
    fn status(&self) -> Status4;
}

impl<'a, A: AnswerSet<'a>> Results<'a, A> {
    /// Takes the head.
    pub fn parse(mut reader: Reader<'a>) -> Result<Self, Error> {
        let head = ReplyHead::parse(&mut reader)?;
        Ok(Self { head, reader, left: head.results, answer: PhantomData })
    }

    /// The head.
    pub const fn head(&self) -> &ReplyHead<'a> {
        &self.head
    }

    /// Ends reading after the last result.
    pub fn finish(self) -> Result<(), Error> {
        if self.left > 0 { Err(Error::Trailing) } else { self.reader.finish() }
    }
}

impl<'a, A: AnswerSet<'a>> Iterator for Results<'a, A> {
    type Item = Result<A, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let answer = A::parse(&mut self.reader);
        if answer.is_err() {
            self.left = 0;
        }
        Some(answer)
    }
}

/// Writes a compound's results in place: status and count are filled in at the end.
#[derive(Debug)]
pub struct ResultsWriter<'w, 'b> {
    writer: &'w mut Writer<'b>,
    status_at: usize,
    count_at: usize,
    count: u32,
    status: Status4,
}

impl<'w, 'b> ResultsWriter<'w, 'b> {
    /// Begins after what `writer` holds.
    pub fn begin(writer: &'w mut Writer<'b>, tag: Text<'_, TAG_LEN_MAX>) -> Result<Self, NoRoom> {
        let status_at = writer.len();
        writer.u32(0)?;
        // RFC 8881 §16.2.3 [8881-19]: the tag of the request comes back
        tag.emit(writer)?;
        let count_at = writer.len();
        writer.u32(0)?;
        Ok(Self { writer, status_at, count_at, count: 0, status: Status4::Ok })
    }

    /// Adds the results of an operation. Results that do not fit leave no trace. Nothing follows a
    /// failure.
    pub fn push<'a>(&mut self, answer: &impl AnswerSet<'a>) -> Result<(), NoRoom> {
        self.push_with(answer.status(), |writer| answer.emit(writer))
    }

    /// Adds results that `emit` writes: number, status, and the status' arm.
    pub fn push_with(
        &mut self,
        status: Status4,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        debug_assert_eq!(self.status, Status4::Ok, "a compound ends with its first failure");
        let before = self.writer.len();
        if let Err(no_room) = emit(self.writer) {
            self.writer.truncate(before);
            return Err(no_room);
        }
        self.count = self.count.saturating_add(1);
        self.status = status;
        Ok(())
    }

    /// Octets written so far, those in front of the results included.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Returns true if there are no results yet.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ends the results with the status of the last of them.
    pub fn finish(self) -> Status4 {
        let status = self.status;
        self.finish_with(status);
        status
    }

    /// Ends the results with a status of the compound's own: MINOR_VERS_MISMATCH, without results.
    pub fn finish_with(self, status: Status4) {
        // RFC 8881 §16.2.3 [8881-20]: the status of a compound is that of its last operation
        let patched = self.writer.patch_u32(self.status_at, status as u32);
        patched
            .and_then(|()| self.writer.patch_u32(self.count_at, self.count))
            .expect("`begin` wrote both words");
    }
}
