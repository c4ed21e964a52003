use vouch_audit::record::Refusal;
use vouch_nfs4_server::Request;
use vouch_oncrpc::AuthStat;

use super::state::Driver;
use crate::audit::Refused;
use crate::monitoring::client_faults::ClientFault;
use crate::transport::connection::Connection;
use crate::transport::rpc_call;

impl Driver {
    pub(crate) fn refuse_tls(&self, connection: &Connection, cause: &str) {
        self.tls.iter().for_each(|tls| tls.handshakes_failed.add(1));
        self.report_refusal(connection, cause);
    }

    pub(crate) fn note_refused_credential(
        &self,
        connection: &vouch_nfs4_server::Connection,
        stat: AuthStat,
    ) {
        let (client, address) = (connection.client_name(), connection.peer().ip());
        self.client_faults.note(
            ClientFault::of_auth(stat),
            client,
            address,
            format_args!("auth_stat={}", stat.0),
        );
    }

    fn report_refusal(&self, connection: &Connection, cause: &str) {
        self.tls.iter().for_each(|tls| tls.log_refusal(connection.peer(), cause));
        let refused =
            Refused { detail: cause, ..Refused::of(Refusal::Authentication, connection.engine()) };
        self.audit.iter().for_each(|audit| audit.refuse(&refused));
    }

    /// Also closes connections whose certificates are no longer accepted. Called each minute, and
    /// after a reload.
    pub(crate) fn check_tls(&self) {
        let Some(tls) = &self.tls else { return };
        tls.reload_if_changed();
        self.check_certificates();
    }

    pub(crate) fn check_certificates(&self) {
        let Some(tls) = &self.tls else { return };
        let certified: Vec<_> = self
            .connections
            .lock()
            .values()
            .filter(|one| !one.certificates().is_empty())
            .cloned()
            .collect();
        for connection in certified {
            let Some(session) = connection.engine().tls().and_then(|tls| tls.certificate.as_ref())
            else {
                continue;
            };
            if let Err(cause) = tls.check_session(connection.certificates(), session) {
                self.refuse_tls(
                    &connection,
                    &format!("the certificate of an open session is no longer accepted: {cause}"),
                );
                connection.shut_down();
            }
        }
    }

    /// AUTH_TOOWEAK before any operation, because every export of the client demands a stronger
    /// transport.
    pub(crate) fn refuse_transport(&self, connection: &Connection, request: Request) -> Vec<u8> {
        let cause = match connection.engine().transport() {
            vouch_nfs4_server::Transport::Clear => {
                "a call without TLS, which all exports of this client demand"
            }
            _ => "a call without a client certificate, which all exports of this client demand",
        };
        if let Some(tls) = &self.tls {
            tls.refused_weak.add(1);
        }
        self.report_refusal(connection, cause);
        self.note_refused_credential(connection.engine(), AuthStat::TOO_WEAK);
        let Request { xid, mut reply, .. } = request;
        reply.clear();
        rpc_call::denial(xid, AuthStat::TOO_WEAK, reply)
    }
}
