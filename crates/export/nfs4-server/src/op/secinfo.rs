//! SECINFO and SECINFO_NO_NAME (RFC 8881 §18.29 and 18.45).

use vouch_nfs4::op::{Op, Results, SecinfoArgs, SecinfoNoNameArgs, SecinfoOk, SecinfoStyle};
use vouch_nfs4::{Bytes, GssInfo, GssService, List, SecInfo, Status};

use crate::Flavour;
use crate::compound::context::{CompoundContext, Selected};
use crate::error::{OpError, OpResult};
use crate::files::file_ref::Object;

/// 1.2.840.113554.1.2.2 without tag and length.
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

pub(crate) fn secinfo(context: &mut CompoundContext<'_>, args: &SecinfoArgs<'_>) -> OpResult {
    context.current_any()?;
    // Never refused for the flavour (§18.29.3).
    let object = match crate::files::directory::find(context, args.name) {
        // The machine credential does not learn whether the name exists.
        Err(OpError::Status(Status::ACCESS)) if context.machine_operations().has(Op::SECINFO.0) => {
            context.current_any()?.clone()
        }
        found => found?,
    };
    let flavors = List(flavours(context, &object));
    Results::Secinfo(Ok(SecinfoOk { flavors })).encode(context.out);
    consume_current_filehandle(context);
    Ok(())
}

pub(crate) fn secinfo_no_name(
    context: &mut CompoundContext<'_>,
    args: &SecinfoNoNameArgs,
) -> OpResult {
    let object = match args.style {
        SecinfoStyle::CurrentFh => context.current_any()?.clone(),
        SecinfoStyle::Parent => {
            if let Object::File(file) = context.current_any()? {
                crate::files::directory::require_directory(context, &file.clone())?;
            }
            crate::files::directory::parent_of(context)?
        }
    };
    let flavors = List(flavours(context, &object));
    Results::SecinfoNoName(Ok(SecinfoOk { flavors })).encode(context.out);
    consume_current_filehandle(context);
    Ok(())
}

/// §2.6.3.1.1.8.
fn consume_current_filehandle(context: &mut CompoundContext<'_>) {
    if context.origin.minor > 0 {
        context.current = Selected::default();
    }
}

fn flavours(context: &CompoundContext<'_>, object: &Object) -> Vec<SecInfo<'static>> {
    let list = match object {
        Object::File(file) => {
            file.grant.access.flavours.iter().map(|access| access.flavour).collect()
        }
        Object::Pseudo(_) => {
            let mut all = Vec::new();
            for site in context.tree.sites() {
                for under in site
                    .export
                    .clients
                    .access_for(context.origin.connection.peer())
                    .iter()
                    .flat_map(|access| &access.flavours)
                {
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
    list.into_iter().map(to_wire).collect()
}

fn to_wire(flavour: Flavour) -> SecInfo<'static> {
    let kerberos = |service| SecInfo::Gss(GssInfo { oid: Bytes(KERBEROS), qop: 0, service });
    match flavour {
        Flavour::None => SecInfo::Flavor(0),
        Flavour::Sys => SecInfo::Flavor(1),
        Flavour::Krb5 => kerberos(GssService::None),
        Flavour::Krb5i => kerberos(GssService::Integrity),
        Flavour::Krb5p => kerberos(GssService::Privacy),
    }
}
