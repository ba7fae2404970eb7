//! What others would use instead of Stag, one file each. Each is a [`Contender`](crate::contender::Contender); what is not
//! installed says so by [`Absence::Missing`](crate::contender::Absence::Missing) and its goals are skipped.
