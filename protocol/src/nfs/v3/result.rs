//! Results of every procedure but NULL: a status, then the arm of success or the arm of failure
//! (RFC 1813 §3.3).

use super::Status;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// The failure arm of a procedure: the status, and `F`, the attributes that come with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<F> {
    /// Never [`Status::Ok`].
    pub status: Status,
    /// The attributes that every failure of this procedure carries.
    pub attributes: F,
}

/// A failure about whose attributes nothing is known.
impl<F: Default> From<Status> for Failure<F> {
    fn from(status: Status) -> Self {
        Self { status, attributes: F::default() }
    }
}

impl<'a, T: Codec<'a>, F: Codec<'a>> Codec<'a> for Result<T, Failure<F>> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match Status::parse(reader)? {
            Status::Ok => Ok(T::parse(reader)?),
            // RFC 4506 §4.15 [4506-17]: a union is its discriminant and the arm it selects
            status => Err(Failure { status, attributes: F::parse(reader)? }),
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Ok(value) => {
                Status::Ok.emit(writer)?;
                value.emit(writer)
            }
            Err(failure) => {
                debug_assert_ne!(failure.status, Status::Ok, "a failure has a cause");
                failure.status.emit(writer)?;
                failure.attributes.emit(writer)
            }
        }
    }
}
