use std::collections::BTreeSet;
use std::sync::Arc;

use tracing_subscriber::fmt::MakeWriter;

use super::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;
    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

#[test]
fn every_fault_is_counted_and_logged_with_client_cause_and_cure() {
    let (faults, lines) = (ClientFaults::new(), Lines::default());
    let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, || {
        for &fault in ClientFault::ALL {
            (0..20).for_each(|_| {
                faults.note(
                    fault,
                    Some(b"host one"),
                    [192, 0, 2, 7].into(),
                    format_args!("export=/data"),
                )
            });
        }
    });
    let mut page = Exposition::default();
    faults.write(&mut page);
    let page = page.into_text();
    let log = String::from_utf8(lines.0.lock().clone()).unwrap();
    for fault in ClientFault::ALL {
        assert!(
            page.contains(&format!(
                "vouch_export_client_faults_total{{fault=\"{}\"}} 20\n",
                fault.name()
            )),
            "{page}"
        );
        let of_fault: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&format!("fault=\"{}\"", fault.name())))
            .collect();
        assert_eq!(of_fault.len(), 5, "a loop of one client writes few lines: {of_fault:?}");
        for part in [
            "client=host one",
            "address=192.0.2.7",
            "details=export=/data",
            fault.cause(),
            fault.cure(),
        ] {
            assert!(of_fault[0].contains(part), "{part}: {}", of_fault[0]);
        }
    }
    let shown: BTreeSet<String> = faults.recent().into_iter().map(|recent| recent.fault).collect();
    assert_eq!(shown, BTreeSet::from([NAME_CONFLICT.to_owned()]));
}

/// Answers that end neither a mount nor the state of a client: results of a program's call, waits,
/// negotiations, and errors of a client's protocol.
const ORDINARY: &str = "PERM NOENT IO NXIO ACCESS EXIST XDEV NOTDIR ISDIR INVAL FBIG NOSPC ROFS MLINK NAMETOOLONG NOTEMPTY \
    BAD_COOKIE NOTSUPP TOOSMALL SERVERFAULT BADTYPE DELAY SAME DENIED LOCKED GRACE FHEXPIRED SHARE_DENIED CLID_INUSE MOVED \
    NOFILEHANDLE MINOR_VERS_MISMATCH NOT_SAME LOCK_RANGE SYMLINK RESTOREFH LEASE_MOVED ATTRNOTSUPP OLD_STATEID BAD_SEQID BADXDR \
    LOCKS_HELD OPENMODE BADOWNER BADCHAR BADNAME BAD_RANGE LOCK_NOTSUPP OP_ILLEGAL DEADLOCK FILE_OPEN CB_PATH_DOWN BADIOMODE \
    BADLAYOUT BAD_SESSION_DIGEST BADSLOT COMPLETE_ALREADY CONN_NOT_BOUND_TO_SESSION DELEG_ALREADY_WANTED BACK_CHAN_BUSY \
    LAYOUTTRYLATER LAYOUTUNAVAILABLE NOMATCHING_LAYOUT RECALLCONFLICT UNKNOWN_LAYOUTTYPE SEQ_MISORDERED SEQUENCE_POS REQ_TOO_BIG \
    REP_TOO_BIG REP_TOO_BIG_TO_CACHE RETRY_UNCACHED_REP UNSAFE_COMPOUND TOO_MANY_OPS OP_NOT_IN_SESSION HASH_ALG_UNSUPP \
    CLIENTID_BUSY PNFS_IO_HOLE SEQ_FALSE_RETRY BAD_HIGH_SLOT ENCR_ALG_UNSUPP PNFS_NO_LAYOUT NOT_ONLY_OP WRONG_TYPE \
    DIRDELEG_UNAVAIL REJECT_DELEG RETURNCONFLICT PARTNER_NOTSUPP PARTNER_NO_AUTH UNION_NOTSUPP OFFLOAD_DENIED WRONG_LFS BADLABEL \
    OFFLOAD_NO_REQS NOXATTR XATTR2BIG OK";

#[test]
fn every_status_of_the_protocol_is_a_client_fault_or_ordinary() {
    let ordinary: BTreeSet<&str> = ORDINARY.split_whitespace().collect();
    for (number, name) in (0..=10_200).filter_map(|number| Some((number, Status(number).name()?))) {
        let fault = ClientFault::of_status(Op::READ.0, number, false);
        assert_ne!(fault.is_some(), ordinary.contains(name), "{name}");
        // The words for which a user or an administrator searches.
        let named = fault.is_none_or(|fault| fault.cause().contains(name));
        assert!(named, "the line about {name} does not name it");
    }
    assert_eq!(
        ClientFault::of_status(Op::EXCHANGE_ID.0, Status::ACCESS.0, false),
        Some(ClientFault::AddressRefused)
    );
    assert_eq!(
        ClientFault::of_status(Op::CREATE_SESSION.0, Status::NOSPC.0, false),
        Some(ClientFault::ResourcesFull)
    );
    assert_eq!(
        ClientFault::of_status(Op::WRITE.0, Status::ACCESS.0, true),
        Some(ClientFault::RootSquashed)
    );
}

#[test]
fn documents_have_one_row_for_each_fault() {
    let page = include_str!("../../../../../../docs/client-faults.md");
    let mut rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
        .collect();
    let mut names: Vec<&str> = ClientFault::ALL.iter().map(|fault| fault.name()).collect();
    rows.sort_unstable();
    names.sort_unstable();
    assert_eq!(rows, names);
}
