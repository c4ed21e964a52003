//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH and RESTOREFH (RFC 8881 §18.19 to 18.21, 18.8, 18.27,
//! 18.28).

use vouch_nfs4::Status;
use vouch_nfs4::op::{GetfhOk, PutfhArgs, Results};

use crate::compound::context::{CompoundContext, MachineCredential, Selected};
use crate::error::{OpError, OpResult};
use crate::files::file_ref::Object;

pub(crate) fn putfh(context: &mut CompoundContext<'_>, args: &PutfhArgs) -> OpResult {
    let named = context.server.handles().open(&args.handle)?;
    let object = context.object(named)?;
    put(context, object)?;
    Results::Putfh(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn putrootfh(context: &mut CompoundContext<'_>) -> OpResult {
    let object = context.object(context.tree.root(context.origin.connection.peer()))?;
    put(context, object)?;
    Results::Putrootfh(Ok(())).encode(context.out);
    Ok(())
}

/// The public filehandle is the root (§18.20.4).
pub(crate) fn putpubfh(context: &mut CompoundContext<'_>) -> OpResult {
    let object = context.object(context.tree.root(context.origin.connection.peer()))?;
    put(context, object)?;
    Results::Putpubfh(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn getfh(context: &mut CompoundContext<'_>) -> OpResult {
    let named = context.current_object()?.named();
    let handle = context.server.handles().seal(&named);
    Results::Getfh(Ok(GetfhOk { handle })).encode(context.out);
    Ok(())
}

pub(crate) fn savefh(context: &mut CompoundContext<'_>) -> OpResult {
    context.current_any()?;
    context.saved = context.current.clone();
    Results::Savefh(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn restorefh(context: &mut CompoundContext<'_>) -> OpResult {
    let Selected { object: Some(object), stateid } = context.saved.clone() else {
        // RFC 7530 §13.1.4.3; RFC 8881 §15.2.
        return Err(if context.origin.minor == 0 {
            Status::RESTOREFH
        } else {
            Status::NOFILEHANDLE
        }
        .into());
    };
    put(context, object)?;
    context.current.stateid = stateid;
    Results::Restorefh(Ok(())).encode(context.out);
    Ok(())
}

/// §2.6.3.1.1: WRONGSEC, unless a following operation answers it.
fn put(context: &mut CompoundContext<'_>, object: Object) -> Result<(), OpError> {
    context.call.machine = MachineCredential::NotAdmitted;
    if let Object::File(file) = &object
        && !file.grant.security_fits
        && !context.lookahead.next_op_checks_flavor()
    {
        // §2.10.8.3: the machine returns its users' state under its own flavour.
        context.admit_machine(file)?;
        context.call.machine = MachineCredential::Admitted;
    }
    context.set_current(object);
    Ok(())
}
