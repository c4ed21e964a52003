//! VERIFY and NVERIFY (RFC 8881 §18.31 and 18.15).

use vouch_nfs4::op::{Results, VerifyArgs};
use vouch_nfs4::{Fattr, Status, Wire as _};
use vouch_xdr::{Reader, Writer};

use crate::attributes;
use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::delegation_conflict;

pub(crate) fn verify(context: &mut CompoundContext<'_>, args: &VerifyArgs<'_>) -> OpResult {
    if !same(context, &args.attrs)? {
        return Err(Status::NOT_SAME.into());
    }
    Results::Verify(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn nverify(context: &mut CompoundContext<'_>, args: &VerifyArgs<'_>) -> OpResult {
    if same(context, &args.attrs)? {
        return Err(Status::SAME.into());
    }
    Results::Nverify(Ok(())).encode(context.out);
    Ok(())
}

fn same(context: &mut CompoundContext<'_>, theirs: &Fattr<'_>) -> Result<bool, OpError> {
    let object = context.current_object()?;
    let view = delegation_conflict::current_view(context, &object, theirs.mask)?;
    // §18.31.3: ATTRNOTSUPP for unsupported attributes, INVAL for incomparable ones.
    let wanted = theirs.comparison(view.supported())?;
    let mut ours = Writer::new();
    attributes::encode(&view, theirs.mask, Status::OK, &context.owners(), &mut ours)?;
    // A value longer than clients can send is different.
    let Ok(ours) = Fattr::decode(&mut Reader::new(ours.as_bytes())) else { return Ok(false) };
    if ours.values == theirs.values && ours.mask == theirs.mask {
        return Ok(true);
    }
    Ok(ours.attributes().is_ok_and(|ours| ours == wanted))
}
