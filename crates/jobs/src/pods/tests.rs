use serde_json::{Value, json};
use vouch_testkit::kubernetes::Cluster;

use super::*;

const NOW_S: u64 = 1_800_000_000;

pub(crate) fn config(cluster: &Cluster) -> PodCluster {
    PodCluster {
        issuer: Cluster::ISSUER.into(),
        audience: "vouch-jobs".into(),
        keys: cluster.keys(),
        users: cluster.users(),
    }
}

fn identify(cluster: &Cluster, token: &str) -> Result<PodIdentity, PodError> {
    let (job, node) = (JobId::parse("pod-u1.v").unwrap(), NodeName::parse("n1").unwrap());
    config(cluster).identify(&PodToken::new(token.to_owned()), (&job, &node), NOW_S)
}

#[test]
fn token_of_the_cluster_names_user_and_end() {
    let cluster =
        Cluster::new("# our users\nphysics/* bob # all others\nphysics/simulation alice\n");
    config(&cluster).check().unwrap();
    let token = cluster.token(NOW_S + 600);
    let identity = identify(&cluster, &token).unwrap();
    assert_eq!(identity.user.as_str(), "alice");
    assert_eq!((&*identity.account, identity.expires_s), ("physics/simulation", NOW_S + 600));
    assert_eq!(format!("{:?}", PodToken::new(token)), "PodToken(..)");
}

#[test]
fn other_tokens_are_refused_with_the_reason() {
    let cluster = Cluster::new("physics/simulation alice\n");
    let header = Cluster::header();
    let with = |pointer: &str, value: Value| {
        let mut claims = Cluster::claims(NOW_S + 600);
        *claims.pointer_mut(pointer).unwrap() = value;
        cluster.sign(&header, &claims)
    };
    let reason = |token: &str| identify(&cluster, token).unwrap_err().to_string();
    for (token, expected) in [
        (with("/iss", json!("https://other.example")), "issuer"),
        (with("/aud", json!(["https://kubernetes.default.svc"])), "audience"),
        (with("/aud", json!("api")), "audience"),
        (with("/exp", json!(NOW_S)), "has ended"),
        (with("/nbf", json!(NOW_S + 60)), "has ended"),
        (with("/iat", json!(NOW_S - 7000)), "for more than 7200 s"),
        (with("/kubernetes.io", json!(null)), "names no pod"),
        (with("/kubernetes.io/node", json!(null)), "names no pod"),
        (with("/kubernetes.io/pod", json!(null)), "names no pod"),
        (with("/kubernetes.io/node/name", json!("n2")), "--node n2"),
        (with("/kubernetes.io/pod/uid", json!("u2")), "another's"),
        (with("/kubernetes.io/namespace", json!("chemistry")), "no line for chemistry/simulation"),
        (Cluster::new("").token(NOW_S + 600), "not signed"),
        (
            cluster.sign(&json!({"alg": "ES256", "kid": "other"}), &Cluster::claims(NOW_S + 600)),
            "not signed",
        ),
        (cluster.sign(&json!({"alg": "none"}), &Cluster::claims(NOW_S + 600)), "not signed"),
        (cluster.sign(&json!({"alg": "RS256"}), &Cluster::claims(NOW_S + 600)), "not signed"),
        (cluster.sign(&json!({"alg": "HS256"}), &Cluster::claims(NOW_S + 600)), "not signed"),
        ("a.b".into(), "three parts"),
        ("!.b.c".into(), "base64url"),
        (String::new(), "three parts"),
    ] {
        assert!(reason(&token).contains(expected), "{}, not {expected}", reason(&token));
    }
    let mut altered = cluster.token(NOW_S + 600);
    let payload = altered.find('.').unwrap() + 5;
    altered.replace_range(
        payload..payload + 1,
        if &altered[payload..=payload] == "A" { "B" } else { "A" },
    );
    assert!(reason(&altered).contains("not signed"));
}

#[test]
fn files_that_are_none_are_named() {
    let cluster = Cluster::new("physics/simulation alice bob\n");
    assert!(config(&cluster).check().unwrap_err().to_string().contains("users: line 1"));
    std::fs::write(cluster.users(), "simulation alice\n").unwrap();
    assert!(config(&cluster).check().unwrap_err().to_string().contains("line 1"));
    std::fs::write(cluster.users(), "").unwrap();
    config(&cluster).check().unwrap();
    std::fs::write(cluster.keys(), "{}").unwrap();
    assert!(config(&cluster).check().unwrap_err().to_string().contains("keys"));
    std::fs::remove_file(cluster.keys()).unwrap();
    assert!(matches!(identify(&cluster, &cluster.token(NOW_S + 1)), Err(PodError::File { .. })));
}

/// RFC 7515, appendices A.2 and A.3. Their claims are no token's.
#[test]
fn signatures_of_the_standard_verify() {
    let rs256 = r#"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#;
    let es256 = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    let payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    for (algorithm, header, key, signature) in [
        (
            "RS256",
            "eyJhbGciOiJSUzI1NiJ9",
            rs256,
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        ),
        (
            "ES256",
            "eyJhbGciOiJFUzI1NiJ9",
            es256,
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ] {
        let key: Key = serde_json::from_str(key).unwrap();
        let signed = format!("{header}.{payload}");
        let signature = base64(signature).unwrap();
        assert!(key.verifies(algorithm, signed.as_bytes(), &signature), "{algorithm}");
        assert!(!key.verifies(algorithm, header.as_bytes(), &signature), "{algorithm}");
        let other = if algorithm == "RS256" { "ES256" } else { "RS256" };
        assert!(!key.verifies(other, signed.as_bytes(), &signature), "{algorithm}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_refused(text: String) {
        let cluster = Cluster::new("");
        proptest::prop_assert!(identify(&cluster, &text).is_err());
    }
}
