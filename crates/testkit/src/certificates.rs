//! Authorities of certificates. Certificates, keys and lists are files of one directory.

use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use sha2::Digest as _;

pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pub certificate: Certificate,
}

pub struct Holder {
    /// Names beside that of the file, which is the common name too.
    pub others: Vec<SanType>,
    pub years: Range<i32>,
    /// Random, unless greater than 0.
    pub serial: u64,
    pub is_server_only: bool,
}

impl Default for Holder {
    fn default() -> Self {
        Holder { others: Vec::new(), years: 2020..2080, serial: 0, is_server_only: false }
    }
}

impl Holder {
    /// With the address of this machine's own interface.
    pub fn on_loopback() -> Self {
        Holder { others: vec![SanType::IpAddress([127, 0, 0, 1].into())], ..Holder::default() }
    }
}

/// The name of a user of Kerberos or NFSv4.
pub fn user_name(user: &str) -> SanType {
    SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 2238, 1, 1, 1], user.into()))
}

impl Authority {
    /// Writes `name.pem`.
    pub fn new(directory: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        write(&directory.join(format!("{name}.pem")), &certificate.pem());
        Authority { directory: directory.to_owned(), issuer: Issuer::new(params, key), certificate }
    }

    /// Writes `name.pem` and `name.key`. Returns the fingerprint.
    pub fn issue(&self, name: &str, holder: Holder) -> String {
        let (certificate, key) = self.certify(name, holder);
        write(&self.directory.join(format!("{name}.pem")), &certificate.pem());
        write_key(&self.directory.join(format!("{name}.key")), &key);
        data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(certificate.der()))
    }

    pub fn certify(&self, name: &str, holder: Holder) -> (Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.extend(holder.others);
        if holder.is_server_only {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        params.serial_number = (holder.serial > 0).then(|| SerialNumber::from(holder.serial));
        params.not_before = rcgen::date_time_ymd(holder.years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(holder.years.end, 1, 1);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("a certificate"), key)
    }

    pub fn revoke(&self, file: &str, serials: &[u64]) {
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
        let list = list.signed_by(&self.issuer).expect("a list");
        write(&self.directory.join(file), &list.pem().expect("PEM"));
    }
}

/// Writes `cert.pem` and `key.pem`.
pub fn self_signed(directory: &Path, name: &str) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    write(&directory.join("cert.pem"), &made.cert.pem());
    write_key(&directory.join("key.pem"), &made.signing_key);
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
}

/// Only the owner may read a key.
fn write_key(path: &Path, key: &KeyPair) {
    write(path, &key.serialize_pem());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("an own file");
}
