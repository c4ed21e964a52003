//! Kerberos by a real KDC: the realm that the tests stand on.

mod kdc;
mod realm;
