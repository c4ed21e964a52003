//! LAYOUTGET, LAYOUTRETURN and GETDEVICEINFO (RFC 8881, sections 18.43, 18.44 and 18.40), LAYOUTERROR
//! and LAYOUTSTATS (RFC 7862, sections 15.6 and 15.7) with flexible file layouts (RFC 8435), for
//! reading only.
//!
//! All data servers have the whole file: each is a mirror. A layout covers one part of a file and
//! names the servers in another order than the layout of the next part, so that a client reads the
//! parts from different servers, and from the next one if a server fails.

use std::net::SocketAddr;

use vouch_nfs4::op::{
    DeviceAddr, GetdeviceinfoArgs, GetdeviceinfoFailure, GetdeviceinfoOk, Layout, LayoutIoMode,
    LayoutReturn, LayouterrorArgs, LayoutgetArgs, LayoutgetOk, LayoutreturnArgs, LayoutreturnOk,
    LayoutstatsArgs, Op, Results,
};
use vouch_nfs4::{
    Bitmap, Bytes, DeviceId, List, NetAddr, Stateid, Status, Wire as _, flex_files,
    universal_address,
};
use vouch_vfs::{Attributes, FileType};
use vouch_xdr::Writer;

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::file_ref::FileRef;
use crate::limits::LAYOUT_LEN;

/// A client needs few alternatives, and a layout must fit into the 4 KiB that Linux expects.
const MIRRORS_MAX: usize = 8;
/// To the end of the file.
const TO_END: u64 = u64::MAX;
/// Type and length before the body of a device.
const DEVICE_HEAD_LEN: usize = 8;

pub(crate) fn layoutget(context: &mut CompoundContext<'_>, args: &LayoutgetArgs) -> OpResult {
    let file = context.current_file(Status::LAYOUTUNAVAILABLE)?;
    let stateid = context.substituted(&args.stateid)?;
    check(&file, args)?;
    let attributes = file.files().attributes(&file.id, context.blocking)?;
    if attributes.file_type != FileType::Regular {
        return Err(Status::LAYOUTUNAVAILABLE.into());
    }
    let (client, now) = (context.turn()?.client, context.now.mono_ms);
    let stateid =
        context.state(|state| state.layout_stateid(client, &stateid, &file.key(), now))?;
    let part = Part::of(args, attributes.size);
    let mut body = Writer::new();
    encode_layout(context, &file, &attributes, part, &mut body);
    // Around the body: offset, length, iomode, type and count of bytes.
    if body.as_bytes().len() + 28 > args.max_count as usize {
        return Err(Status::TOOSMALL.into());
    }
    let content = DeviceAddr { kind: flex_files::LAYOUT_TYPE, body: Bytes(body.as_bytes()) };
    let layout =
        Layout { offset: part.offset, length: part.length, iomode: LayoutIoMode::Read, content };
    let ok = LayoutgetOk { return_on_close: true, stateid, layouts: List(vec![layout]) };
    Results::Layoutget(Ok(ok)).encode(context.out);
    context.result_stateid(stateid);
    Ok(())
}

/// Section 18.43.3.
fn check(file: &FileRef, args: &LayoutgetArgs) -> Result<(), Status> {
    let ends_beyond = |length: u64| length != TO_END && args.offset.checked_add(length).is_none();
    if !file.grant.site.has_layouts() {
        return Err(Status::LAYOUTUNAVAILABLE);
    }
    if args.kind != flex_files::LAYOUT_TYPE {
        return Err(Status::UNKNOWN_LAYOUTTYPE);
    }
    if args.iomode != LayoutIoMode::Read {
        return Err(Status::BADIOMODE);
    }
    if args.length == 0
        || args.length < args.length_min
        || ends_beyond(args.length)
        || ends_beyond(args.length_min)
    {
        return Err(Status::INVAL);
    }
    Ok(())
}

/// Of a file, with one order of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    number: u64,
    offset: u64,
    length: u64,
}

impl Part {
    /// The part with the requested offset, and further ones if the client needs more bytes.
    fn of(args: &LayoutgetArgs, size: u64) -> Part {
        let unit = u64::from(LAYOUT_LEN);
        let number = args.offset / unit;
        let offset = number * unit;
        let needed = args.offset.saturating_add(args.length_min.max(1));
        let end = needed.div_ceil(unit).saturating_mul(unit);
        Part { number, offset, length: if end >= size { TO_END } else { end - offset } }
    }
}

fn encode_layout(
    context: &CompoundContext<'_>,
    file: &FileRef,
    attributes: &Attributes,
    part: Part,
    out: &mut Writer,
) {
    let servers = &file.grant.site.export.data_servers;
    let first =
        attributes.file_number.wrapping_mul(SPREAD).rotate_right(32).wrapping_add(part.number)
            % servers.len() as u64;
    let in_turn = servers.iter().cycle().skip(first as usize).take(servers.len().min(MIRRORS_MAX));
    let handle = context
        .server
        .handles()
        .seal(&FileRef { layout_change: Some(attributes.change), ..file.clone() }.named());
    // Only for clients that ignore the tight coupling.
    let (user, group) = (file.grant.caller.uid.to_string(), file.grant.caller.gid.to_string());
    let mirror = |address: &SocketAddr| {
        let server = flex_files::DataServer {
            device: device_id(address),
            // Equal, because Linux sorts the servers of all parts by their first value.
            efficiency: 1,
            stateid: Stateid::ANONYMOUS,
            handles: List(vec![handle]),
            user: Bytes(user.as_bytes()),
            group: Bytes(group.as_bytes()),
        };
        flex_files::Mirror { data_servers: List(vec![server]) }
    };
    let mirrors = List(in_turn.map(mirror).collect());
    let flags = flex_files::Flags::NO_LAYOUTCOMMIT;
    flex_files::Layout { stripe_unit: 0, mirrors, flags, stats_interval_s: 0 }.encode(out);
}

pub(crate) fn layoutreturn(
    context: &mut CompoundContext<'_>,
    args: &LayoutreturnArgs<'_>,
) -> OpResult {
    let mut left = None;
    match &args.what {
        LayoutReturn::File(returned) => {
            let file = context.current_file(Status::INVAL)?;
            let (client, stateid) =
                (context.turn()?.client, context.substituted(&returned.stateid)?);
            let next =
                context.state(|state| state.returned_layout(client, &stateid, &file.key()))?;
            // The server does not remember which other parts the client has.
            let is_whole = returned.offset == 0 && returned.length == TO_END;
            left = Some(next).filter(|_| !is_whole);
        }
        LayoutReturn::Fsid => drop(context.current_object()?),
        LayoutReturn::All => {}
    }
    // Section 18.44.3: nothing is to be reclaimed.
    if args.reclaim {
        return Err(Status::NO_GRACE.into());
    }
    Results::Layoutreturn(Ok(LayoutreturnOk { stateid: left })).encode(context.out);
    Ok(())
}

/// The client goes on with another data server; `vouch export status` shows the errors.
pub(crate) fn layouterror(context: &mut CompoundContext<'_>, args: &LayouterrorArgs) -> OpResult {
    check_layout(context, &args.stateid)?;
    for error in args.errors.0.iter().take(ERRORS_SHOWN_MAX) {
        let server = find_device(context, error.device)
            .map_or_else(|| "an unknown data server".to_owned(), |server| server.to_string());
        let failed = Op(error.op).name().unwrap_or("ILLEGAL");
        let message = format!("{failed} at data server {server} failed");
        let (origin, op) = (&context.origin, context.result.op);
        context.server.note_failure(origin, context.now, op, None, error.status, message);
    }
    Results::Layouterror(Ok(())).encode(context.out);
    Ok(())
}

/// The metrics of each data server say more.
pub(crate) fn layoutstats(
    context: &mut CompoundContext<'_>,
    args: &LayoutstatsArgs<'_>,
) -> OpResult {
    check_layout(context, &args.stateid)?;
    Results::Layoutstats(Ok(())).encode(context.out);
    Ok(())
}

fn check_layout(context: &mut CompoundContext<'_>, stateid: &Stateid) -> OpResult {
    let file = context.current_file(Status::INVAL)?;
    if !file.grant.site.has_layouts() {
        return Err(Status::NOTSUPP.into());
    }
    let (client, stateid) = (context.turn()?.client, context.substituted(stateid)?);
    context.state(|state| state.returned_layout(client, &stateid, &file.key()))?;
    Ok(())
}

pub(crate) fn getdeviceinfo(
    context: &mut CompoundContext<'_>,
    args: &GetdeviceinfoArgs,
) -> OpResult {
    if args.kind != flex_files::LAYOUT_TYPE {
        return Err(Status::UNKNOWN_LAYOUTTYPE.into());
    }
    let address = find_device(context, args.device).ok_or(Status::NOENT)?;
    let mut body = Writer::new();
    encode_device(context, address, &mut body);
    let needed = body.as_bytes().len() + DEVICE_HEAD_LEN;
    // Zero: the client wants only notifications (section 18.40.3), and there are none.
    if args.max_count > 0 && needed > args.max_count as usize {
        let needed = u32::try_from(needed).expect("a device has one address and one version");
        Results::Getdeviceinfo(Err(GetdeviceinfoFailure::TooSmall(needed))).encode(context.out);
        return Err(OpError::Encoded(Status::TOOSMALL));
    }
    let address = DeviceAddr { kind: flex_files::LAYOUT_TYPE, body: Bytes(body.as_bytes()) };
    Results::Getdeviceinfo(Ok(GetdeviceinfoOk { address, notifications: Bitmap::EMPTY }))
        .encode(context.out);
    Ok(())
}

fn find_device(context: &CompoundContext<'_>, device: DeviceId) -> Option<SocketAddr> {
    let mut servers = context.tree.sites().flat_map(|site| &site.export.data_servers);
    servers.find(|address| device_id(address) == device).copied()
}

fn encode_device(context: &CompoundContext<'_>, address: SocketAddr, out: &mut Writer) {
    let (netid, address) = universal_address(address);
    let addresses =
        List(vec![NetAddr { netid: Bytes(netid.as_bytes()), address: Bytes(address.as_bytes()) }]);
    let len_max = context.server.config().limits.io_len_max;
    let version = flex_files::DeviceVersion {
        version: 4,
        minor: context.origin.minor,
        read_len_max: len_max,
        write_len_max: len_max,
        // The data server checks each user's rights, as the metadata server does.
        is_tightly_coupled: true,
    };
    flex_files::Device { addresses, versions: List(vec![version]) }.encode(out);
}

/// From the address, so that a client never has another address for an id that it knows.
fn device_id(address: &SocketAddr) -> DeviceId {
    let hash = blake3::hash(address.to_string().as_bytes());
    DeviceId(*hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"))
}

/// Of one LAYOUTERROR, among the recent errors.
const ERRORS_SHOWN_MAX: usize = 8;

/// Odd and without pattern: spreads neighbouring file numbers over the servers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_file_without_gaps() {
        let unit = u64::from(LAYOUT_LEN);
        let part = |offset, length_min, size| {
            let (kind, iomode, stateid) =
                (flex_files::LAYOUT_TYPE, LayoutIoMode::Read, Stateid::ANONYMOUS);
            let args = LayoutgetArgs {
                signal: false,
                kind,
                iomode,
                offset,
                length: TO_END,
                length_min,
                stateid,
                max_count: 4096,
            };
            let Part { number, offset, length } = Part::of(&args, size);
            (number, offset, length)
        };
        for size in [0, 1, unit] {
            assert_eq!(part(0, 0, size), (0, 0, TO_END));
            assert_eq!(part(unit + 5, 0, size), (1, unit, TO_END));
        }
        assert_eq!(part(0, 4096, unit + 1), (0, 0, unit));
        assert_eq!(part(unit - 1, 1, unit + 1), (0, 0, unit));
        assert_eq!(part(unit - 1, 2, 4 * unit), (0, 0, 2 * unit));
        assert_eq!(part(unit, 1, 3 * unit), (1, unit, unit));
        assert_eq!(part(2 * unit + 9, 4096, 3 * unit), (2, 2 * unit, TO_END));
        assert_eq!(part(unit, TO_END, 3 * unit), (1, unit, TO_END));
        assert_eq!(part(TO_END, 1, 3 * unit).2, TO_END);
    }
}
