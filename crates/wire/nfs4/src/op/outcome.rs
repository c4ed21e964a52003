use vouch_xdr::{Error, Reader, Writer};

use crate::{Status, Wire};

/// A status, and a body for some statuses of some operations.
pub trait Failure<'a>: From<Status> {
    fn status(&self) -> Status;

    fn decode_body(status: Status, r: &mut Reader<'a>) -> Result<Self, Error>;

    fn encode_body(&self, w: &mut Writer);

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self;
}

impl<'a> Failure<'a> for Status {
    fn status(&self) -> Status {
        *self
    }

    fn decode_body(status: Status, _: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(status)
    }

    fn encode_body(&self, _: &mut Writer) {}

    #[cfg(test)]
    fn sample(_: &mut crate::sample::Sampler) -> Self {
        Self::NOENT
    }
}

#[inline]
pub(crate) fn decode_outcome<'a, T: Wire<'a>, F: Failure<'a>>(
    r: &mut Reader<'a>,
) -> Result<Result<T, F>, Error> {
    match Status(r.u32()?) {
        Status::OK => T::decode(r).map(Ok),
        status => F::decode_body(status, r).map(Err),
    }
}

#[inline]
pub(crate) fn encode_outcome<'a, T: Wire<'a>, F: Failure<'a>>(
    outcome: &Result<T, F>,
    w: &mut Writer,
) {
    match outcome {
        Ok(body) => {
            w.u32(Status::OK.0);
            body.encode(w);
        }
        Err(failure) => {
            debug_assert!(!failure.status().is_ok(), "a failure has a status other than OK");
            w.u32(failure.status().0);
            failure.encode_body(w);
        }
    }
}

pub(crate) fn outcome_status<'a, T, F: Failure<'a>>(outcome: &Result<T, F>) -> Status {
    match outcome {
        Ok(_) => Status::OK,
        Err(failure) => failure.status(),
    }
}

#[cfg(test)]
pub(crate) fn sample_outcome<'a, T: Wire<'a>, F: Failure<'a>>(
    s: &mut crate::sample::Sampler,
) -> Result<T, F> {
    match s.below(4) {
        0 => Err(F::sample(s)),
        _ => Ok(T::sample(s)),
    }
}
