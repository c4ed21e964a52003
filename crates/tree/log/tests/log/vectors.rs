//! Examples of the specifications, and vectors that other implementations publish.

use data_encoding::HEXLOWER;
use vouch_log::append::Appender;
use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::key::{Algorithm, KeyError, Signer, VerifierKey};
use vouch_log::note::{NoteError, SignedNote};
use vouch_log::proof::TlogProof;
use vouch_log::witness::{AddCheckpoint, Reply};

const EXAMPLE_KEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";

const EXAMPLE_NOTE: &str = "This is an example message.\n\n\
    — example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

#[test]
fn example_of_signed_note_verifies() {
    let key = VerifierKey::parse(EXAMPLE_KEY).unwrap();
    assert_eq!((key.to_text().as_str(), key.id()), (EXAMPLE_KEY, 0x530d_903a));
    let note = SignedNote::parse(EXAMPLE_NOTE.as_bytes()).unwrap();
    assert_eq!(note.to_text(), EXAMPLE_NOTE);
    assert_eq!(note.verify(&[&key]).unwrap().len(), 1);
    let other = SignedNote::parse(EXAMPLE_NOTE.replace("This is", "That is").as_bytes()).unwrap();
    assert!(matches!(other.verify(&[&key]), Err(NoteError::False { .. })));
    assert!(matches!(other.verify(&[]), Err(NoteError::Unsigned)));
}

/// The example of Go's golang.org/x/mod/sumdb/note.
#[test]
fn example_of_go_is_signed_alike() {
    let secret = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    let text = "If you think cryptography is the answer to your problem,\n\
        then you don't know what your problem is.\n";
    let signer = Signer::parse(secret).unwrap();
    assert_eq!(signer.to_text().as_str(), secret);
    let mut note = SignedNote::unsigned(text.to_owned()).unwrap();
    note.sign(&signer, 0).unwrap();
    let line = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
    assert_eq!(note.to_text(), format!("{text}\n{line}"));
}

#[test]
fn examples_of_tlog_checkpoint_and_cosignature_parse() {
    let text = "example.com/behind-the-sofa\n20852163\n\
        CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
        — example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
        — witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n";
    let signed = SignedCheckpoint::parse(text.as_bytes()).unwrap();
    assert_eq!(signed.checkpoint().size, 20_852_163);
    assert_eq!(signed.to_text(), text);
    let cosignature = &signed.note().signatures()[1];
    assert_eq!((cosignature.key_id, cosignature.bytes.len()), (0x8d66_cf3f, 72));
    assert_eq!(cosignature.bytes[..8], 1_679_315_147u64.to_be_bytes());
}

#[test]
fn example_of_tlog_witness_parses() {
    let text = "old 20852014\nPlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n\
        jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=\n\
        5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=\n\
        /6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=\n\n\
        example.com/behind-the-sofa\n20852163\n\
        CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
        — example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
        — example.com/behind-the-sofa opLqBQsREYCgu6xQkYQwJr9fo45a62DN9EdmHXnZdXNqlcVGlCum2Wks+49/V6267UEjw6QUXTS5Rovnzv++qbSzm9Q=\n";
    let request = AddCheckpoint::parse(text.as_bytes()).unwrap();
    assert_eq!((request.old_size, request.proof.len()), (20_852_014, 4));
    assert_eq!(request.to_text(), text);
    let reply = "— witness.example/w1 CMp+6LWBU0anHGH5aNDTJkH/gj79sG+T6+iP2ThYN5krrDJbR1HDnucjL39QsZTSvVjyQLrdk3DXDqI5G2HgLatVs0pWh6Up69HVOw==\n\
        — witness.example/w1 I7rEps0pvK2UqkS2gSpVUDhrhVtQV9lgF6pRrWAvjJHjyWpW7VcE3SiOlVlbQNt64vWhO+DlkL0+UfzuOBMh9ChdMkP1vi/lCAsmlw==\n\
        — witness.example/w2 AWui8Sk55XjYLOijihBjhqEH6nS1ndDymE0a+6idX7pLcnoB+dhnz0854aLZgrrKbYKA7nC3HNJhm/kWl7oJlqU3rXXvpysAdyP3wQ==\n";
    let Ok(Reply::Cosignatures(lines)) = Reply::parse(200, "text/plain", reply.as_bytes()) else {
        panic!("the example is refused")
    };
    assert_eq!(lines.len(), 3);
}

#[test]
fn proof_in_the_form_of_tlog_proof_round_trips() {
    let text = "c2sp.org/tlog-proof@v1\nextra YWJj\nindex 73894\n\
        gSKyXoYZUgZ6jduWYrkDOARinOMGJveXjgMkBTcdPlQ=\n\
        B95lDa8R83lS8n0eG+o0buTxRKQTYFi//1U8anccXmA=\n\n\
        example.com/fancylog\n109482\nsFodV/vSp5O8n9a8QpW6PRY97tfOSW5bsc2Xl/EQi08=\n\n\
        — example.com/fancylog hI2DJwAA\n";
    let proof = TlogProof::parse(text.as_bytes()).unwrap();
    assert_eq!((proof.index, proof.hashes.len()), (73_894, 2));
    assert_eq!(proof.extra.as_deref(), Some(&b"abc"[..]));
    assert_eq!(proof.to_text(), text);
}

/// Leaves and roots of the reference implementation of certificate transparency.
#[test]
fn roots_match_certificate_transparency() {
    let leaves = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ];
    let roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    let mut tree = Appender::new();
    for (leaf, root) in leaves.iter().zip(roots) {
        tree.push(&HEXLOWER.decode(leaf.as_bytes()).unwrap()).unwrap();
        assert_eq!(HEXLOWER.encode(&tree.root().0), root);
    }
}

/// FIPS 204 ACVP, key generation for ML-DSA-44, test 1; SHA-256 of the public key.
#[test]
fn ml_dsa_44_key_matches_acvp() {
    use sha2::Digest;
    let seed = "93ef2e6ef1fb08999d142abe0295482370d3f43bdb254a78e2b0d5168eca065f";
    let seed = HEXLOWER.decode(seed.as_bytes()).unwrap().try_into().unwrap();
    let signer = Signer::from_seed("x", Algorithm::CosignatureMlDsa44, &seed).unwrap();
    let public = signer.verifier().public_bytes();
    let hash = "6995b20ecd5cde41719035028a712ccf35b1adf53b913030423d9d6fa188d673";
    assert_eq!(
        (public.len(), HEXLOWER.encode(&sha2::Sha256::digest(&public)).as_str()),
        (1312, hash)
    );
}

#[test]
fn malformed_keys_are_refused() {
    let parse = |text: &str| VerifierKey::parse(text).err();
    assert_eq!(parse("example.com/foo"), Some(KeyError::Form));
    assert_eq!(parse(&EXAMPLE_KEY.replace("530d903a", "530D903A")), Some(KeyError::Form));
    assert_eq!(parse(&EXAMPLE_KEY.replace("530d903a", "30d903a")), Some(KeyError::Form));
    assert_eq!(
        parse(&EXAMPLE_KEY.replace("foo", "bar")),
        Some(KeyError::Id("example.com/bar".into()))
    );
    assert_eq!(parse(&EXAMPLE_KEY.replace("foo", "f oo")), Some(KeyError::Name));
    assert_eq!(parse(&EXAMPLE_KEY.replace("U2k", "U2")), Some(KeyError::Form));
    assert_eq!(parse("x+00000000+AgAA"), Some(KeyError::Algorithm(2)));
    assert_eq!(parse("x+00000000+Aaaa"), Some(KeyError::Key("x".into())));
    assert_eq!(parse(&format!("x+00000000+{}", "A".repeat(4000))), Some(KeyError::Form));
    // A point of small order would verify signatures that nobody made.
    let small = [&[1][..], &[0; 31]].concat();
    assert!(VerifierKey::new("x", Algorithm::Ed25519, &small).is_err());
}

#[test]
fn malformed_notes_are_refused() {
    let parse = |text: &str| SignedNote::parse(text.as_bytes()).err();
    let line = &EXAMPLE_NOTE[EXAMPLE_NOTE.find('—').unwrap()..];
    for (text, error) in [
        (String::new(), NoteError::Structure),
        ("text\n".into(), NoteError::Structure),
        (format!("text\n{line}"), NoteError::Structure),
        ("text\n\n".into(), NoteError::Structure),
        (EXAMPLE_NOTE.trim_end().into(), NoteError::Structure),
        (EXAMPLE_NOTE.replace('\n', "\r\n"), NoteError::Characters),
        (format!("text\n\n{line}junk\n"), NoteError::Signature { line: 2 }),
        (format!("text\n\n{}", line.replace("—", "-")), NoteError::Signature { line: 1 }),
        (format!("text\n\n{}", line.replace("foo", "f+oo")), NoteError::Signature { line: 1 }),
        (format!("text\n\n{}", line.replace("foo", "f\u{a0}oo")), NoteError::Signature { line: 1 }),
        // Bits beyond the last byte.
        (format!("text\n\n{}", line.replace("aQM=", "aQN=")), NoteError::Signature { line: 1 }),
        ("text\n\n— x AAAAAA==\n".into(), NoteError::Signature { line: 1 }),
        // Two texts of base64, joined.
        ("text\n\n— x AAAAAA==AAAA\n".into(), NoteError::Signature { line: 1 }),
        (format!("text\n\n{}", line.repeat(101)), NoteError::TooManySignatures),
        ("x".repeat(600_000), NoteError::TooLong),
    ] {
        assert_eq!(parse(&text), Some(error), "{:.60}", text);
    }
    assert_eq!(SignedNote::parse(b"\xff\n\n").err(), Some(NoteError::Characters));
    // The text ends before the last empty line; a hundred signatures are not too many.
    let note = SignedNote::parse(format!("a\n\nb\n\n{}", line.repeat(100)).as_bytes()).unwrap();
    assert_eq!((note.text(), note.signatures().len()), ("a\n\nb\n", 100));
}
