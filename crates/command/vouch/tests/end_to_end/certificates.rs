use std::os::unix::fs::PermissionsExt as _;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};

use crate::prelude::*;

pub(crate) struct Authority(Issuer<'static, KeyPair>);

pub(crate) struct Holder {
    pub(crate) addresses: bool,
    pub(crate) user: Option<&'static str>,
    pub(crate) years: std::ops::Range<i32>,
    pub(crate) serial: u64,
    pub(crate) is_server_only: bool,
}

impl Default for Holder {
    fn default() -> Self {
        Holder { addresses: false, user: None, years: 2020..2080, serial: 0, is_server_only: false }
    }
}

impl Authority {
    pub(crate) fn new(site: &TestSite, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        site.write(&format!("{name}.pem"), params.self_signed(&key).expect("a certificate").pem());
        Authority(Issuer::new(params, key))
    }

    pub(crate) fn issue(&self, site: &TestSite, name: &str, holder: Holder) -> String {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if holder.addresses {
            params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        }
        if let Some(user) = holder.user {
            params
                .subject_alt_names
                .push(SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 2238, 1, 1, 1], user.into())));
        }
        if holder.is_server_only {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        if holder.serial > 0 {
            params.serial_number = Some(SerialNumber::from(holder.serial));
        }
        params.not_before = rcgen::date_time_ymd(holder.years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(holder.years.end, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        site.write(&format!("{name}.pem"), certificate.pem());
        site.write(&format!("{name}.key"), key.serialize_pem());
        std::fs::set_permissions(
            site.path(format!("{name}.key")),
            std::fs::Permissions::from_mode(0o600),
        )
        .expect("an own file");
        use sha2::Digest as _;
        data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(certificate.der()))
    }

    pub(crate) fn revoke(&self, site: &TestSite, file: &str, serials: &[u64]) {
        let revoked = |&serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: rcgen::date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2021, 1, 1),
            next_update: rcgen::date_time_ymd(2080, 1, 1),
            crl_number: SerialNumber::from(1 + serials.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        site.write(file, list.signed_by(&self.0).expect("a list").pem().expect("PEM"));
    }
}
