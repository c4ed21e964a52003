//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH and RESTOREFH (RFC 8881, sections 18.19 to 18.21,
//! 18.8, 18.27, 18.28).

use vouch_nfs4::Status;
use vouch_nfs4::op::{GetfhOk, PutfhArgs, Results};

use crate::stop::{Outcome, Stop};
use crate::walk::{Object, Walk};

pub(crate) fn putfh(walk: &mut Walk<'_>, args: &PutfhArgs) -> Outcome {
    let named = walk.server.handles().open(&args.handle)?;
    let object = walk.object(named)?;
    put(walk, object)?;
    Results::Putfh(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn putrootfh(walk: &mut Walk<'_>) -> Outcome {
    let object = walk.object(walk.tree.root(walk.connection.peer()))?;
    put(walk, object)?;
    Results::Putrootfh(Ok(())).encode(walk.out);
    Ok(())
}

/// The public filehandle is the root's (RFC 8881, section 18.20.4 leaves it to the server).
pub(crate) fn putpubfh(walk: &mut Walk<'_>) -> Outcome {
    let object = walk.object(walk.tree.root(walk.connection.peer()))?;
    put(walk, object)?;
    Results::Putpubfh(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn getfh(walk: &mut Walk<'_>) -> Outcome {
    let named = walk.current_object()?.named();
    let handle = walk.server.handles().seal(&named);
    Results::Getfh(Ok(GetfhOk { handle })).encode(walk.out);
    Ok(())
}

pub(crate) fn savefh(walk: &mut Walk<'_>) -> Outcome {
    let object = walk.current_any()?.clone();
    walk.saved = Some(object);
    // RFC 8881, section 16.2.3.1.2: the stateid is saved with the filehandle.
    walk.saved_stateid = walk.current_stateid;
    Results::Savefh(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn restorefh(walk: &mut Walk<'_>) -> Outcome {
    let Some(object) = walk.saved.clone() else {
        // RFC 7530, section 13.1.4.3; RFC 8881, section 15.2 lists NOFILEHANDLE for RESTOREFH.
        return Err(if walk.minor == 0 { Status::RESTOREFH } else { Status::NOFILEHANDLE }.into());
    };
    let stateid = walk.saved_stateid;
    put(walk, object)?;
    walk.current_stateid = stateid;
    Results::Restorefh(Ok(())).encode(walk.out);
    Ok(())
}

/// RFC 8881, section 2.6.3.1.1: whether a filehandle may be put under a flavour that its export
/// does not take depends on what follows. Where that decides, it is left to it; otherwise it is
/// refused here, so that the client knows which one to ask about.
fn put(walk: &mut Walk<'_>, object: Object) -> Result<(), Stop> {
    walk.core.machine_admitted = false;
    if let Object::File(file) = &object
        && !file.grant.flavour_fits
        && !walk.rest.judges_flavour()
    {
        // Section 2.10.8.3: what the machine gives back for its users goes under the machine's own flavour,
        // whatever the export takes.
        walk.admit_machine(file)?;
        walk.core.machine_admitted = true;
    }
    walk.set_current(object);
    Ok(())
}
