//! SECINFO and SECINFO_NO_NAME (RFC 8881, sections 18.29 and 18.45).

use vouch_nfs4::op::{Op, Results, SecinfoArgs, SecinfoNoNameArgs, SecinfoOk, SecinfoStyle};
use vouch_nfs4::{Bytes, GssInfo, GssService, List, SecInfo, Status};

use crate::Flavour;
use crate::stop::{Outcome, Stop};
use crate::walk::{Object, Walk};

/// The mechanism of Kerberos: 1.2.840.113554.1.2.2, without tag and length, as clients compare it.
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

pub(crate) fn secinfo(walk: &mut Walk<'_>, args: &SecinfoArgs<'_>) -> Outcome {
    walk.current_any()?;
    // RFC 8881, section 18.29.3: SECINFO is never refused for the flavour.
    let object = match super::lookup::find(walk, args.name) {
        // The client's machine asks for a user: it is told of the directory's export, and not whether the name is there.
        Err(Stop::Status(Status::ACCESS)) if walk.machine_operations().has(Op::SECINFO.0) => walk.current_any()?.clone(),
        found => found?,
    };
    let flavors = List(flavours(walk, &object));
    Results::Secinfo(Ok(SecinfoOk { flavors })).encode(walk.out);
    consume(walk);
    Ok(())
}

pub(crate) fn secinfo_no_name(walk: &mut Walk<'_>, args: &SecinfoNoNameArgs) -> Outcome {
    let object = match args.style {
        SecinfoStyle::CurrentFh => walk.current_any()?.clone(),
        SecinfoStyle::Parent => {
            if let Object::File(file) = walk.current_any()? {
                super::require_directory(walk, &file.clone())?;
            }
            super::lookup::above(walk)?
        }
    };
    let flavors = List(flavours(walk, &object));
    Results::SecinfoNoName(Ok(SecinfoOk { flavors })).encode(walk.out);
    consume(walk);
    Ok(())
}

/// RFC 8881, section 2.6.3.1.1.8: the current filehandle is gone afterwards; 4.0 keeps it.
fn consume(walk: &mut Walk<'_>) {
    if walk.minor > 0 {
        walk.current = None;
        walk.current_stateid = None;
    }
}

fn flavours(walk: &Walk<'_>, object: &Object) -> Vec<SecInfo<'static>> {
    let list = match object {
        Object::File(file) => file.grant.access.flavours.iter().map(|access| access.flavour).collect(),
        // The pseudo file system takes any flavour; what its exports take is told, the first ones' preference first.
        Object::Pseudo(_) => {
            let mut all = Vec::new();
            for site in walk.tree.sites() {
                for under in site.export.clients.access_for(walk.connection.peer()).iter().flat_map(|access| &access.flavours) {
                    if !all.contains(&under.flavour) {
                        all.push(under.flavour);
                    }
                }
            }
            if all.is_empty() {
                all.push(Flavour::Sys);
            }
            all
        }
    };
    list.into_iter().map(on_the_wire).collect()
}

fn on_the_wire(flavour: Flavour) -> SecInfo<'static> {
    let kerberos = |service| SecInfo::Gss(GssInfo { oid: Bytes(KERBEROS), qop: 0, service });
    match flavour {
        Flavour::None => SecInfo::Flavor(0),
        Flavour::Sys => SecInfo::Flavor(1),
        Flavour::Krb5 => kerberos(GssService::None),
        Flavour::Krb5i => kerberos(GssService::Integrity),
        Flavour::Krb5p => kerberos(GssService::Privacy),
    }
}
