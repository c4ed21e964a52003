//! Tiles, proofs and appending, against a plain Merkle tree.

use vouch_log::append::Appender;
use vouch_log::merkle::{Hash, ProofError, verify_consistency, verify_inclusion};
use vouch_log::reader::{LogReader, ReadError};
use vouch_log::tile::{TILE_LEN, TileId, TileKind};
use vouch_testkit::SplitMix64;

use crate::{Files, entry, naive_root};

/// RFC 6962 §2.1.1, word for word.
fn naive_path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() == 1 {
        return Vec::new();
    }
    let middle = leaves.len().next_power_of_two() / 2;
    let (left, right) = leaves.split_at(middle);
    let (mut path, other) = if index < middle {
        (naive_path(index, left), right)
    } else {
        (naive_path(index - middle, right), left)
    };
    path.push(naive_root(other));
    path
}

/// RFC 6962 §2.1.2, word for word.
fn naive_subproof(old: usize, leaves: &[Hash], is_known: bool) -> Vec<Hash> {
    if old == leaves.len() {
        return if is_known { Vec::new() } else { vec![naive_root(leaves)] };
    }
    let middle = leaves.len().next_power_of_two() / 2;
    let (left, right) = leaves.split_at(middle);
    let (mut proof, other) = if old <= middle {
        (naive_subproof(old, left, is_known), right)
    } else {
        (naive_subproof(old - middle, right, false), left)
    };
    proof.push(naive_root(other));
    proof
}

/// Appends in steps, each from the files of the step before.
fn build(steps: &[u64]) -> (Files, Vec<Hash>) {
    let (mut files, mut leaves) = (Files::default(), Vec::new());
    for &step in steps {
        let size = leaves.len() as u64;
        let mut reader = LogReader::open(&files, size, naive_root(&leaves)).unwrap();
        let mut appender = Appender::open(&mut reader).unwrap();
        for number in size..size + step {
            assert_eq!(appender.push(&entry(number)), Ok(number));
            leaves.push(Hash::leaf(&entry(number)));
        }
        assert_eq!(appender.root(), naive_root(&leaves));
        files.store(appender.finish());
    }
    (files, leaves)
}

#[test]
fn empty_root_is_hash_of_empty_string() {
    use sha2::Digest;
    assert_eq!(Hash::EMPTY_TREE.0, <[u8; 32]>::from(sha2::Sha256::digest([])));
    assert_eq!(Appender::new().root(), Hash::EMPTY_TREE);
    assert!(Appender::new().finish().is_empty());
}

#[test]
fn all_proofs_of_small_trees_match_rfc_6962() {
    let (files, leaves) = build(&[1; 70]);
    for size in 1..=leaves.len() {
        let (tree, root) = (&leaves[..size], naive_root(&leaves[..size]));
        let mut reader = LogReader::open(&files, size as u64, root).unwrap();
        for index in 0..size {
            let proof = reader.inclusion_proof(index as u64).unwrap();
            assert_eq!(proof, naive_path(index, tree));
            verify_inclusion(tree[index], index as u64, size as u64, &proof, root).unwrap();
        }
        for old in 0..=size {
            let proof = reader.consistency_proof(old as u64).unwrap();
            let old_root = naive_root(&tree[..old]);
            assert_eq!(reader.root_at(old as u64).unwrap(), old_root);
            let expected = if old == 0 { Vec::new() } else { naive_subproof(old, tree, true) };
            assert_eq!(proof, expected, "{old} of {size}");
            verify_consistency((old as u64, old_root), (size as u64, root), &proof).unwrap();
        }
    }
}

#[test]
fn large_tree_is_read_and_proven_by_random_samples() {
    // 70,000 entries: the example of C2SP tlog-tiles.
    let (files, leaves) = build(&[1, 254, 1, 1, 65_278, 1, 1, 4_463]);
    let (size, root) = (leaves.len() as u64, naive_root(&leaves));
    assert_eq!(size, 70_000);
    let width = |kind, index, width| files.0.contains_key(&TileId { kind, index, width }.path());
    for (level, index, partial) in [(0, 273, 112), (1, 1, 17), (2, 0, 1)] {
        assert!(width(TileKind::Hashes(level), index, partial), "partial tile of level {level}");
    }
    assert!(width(TileKind::Hashes(0), 272, 256) && width(TileKind::Entries, 273, 112));
    let mut reader = LogReader::open(&files, size, root).unwrap();
    let mut random = SplitMix64(1);
    for _ in 0..200 {
        let (index, old) = (random.roll(size), random.roll(size) + 1);
        assert_eq!(reader.entry(index).unwrap(), entry(index));
        let proof = reader.inclusion_proof(index).unwrap();
        verify_inclusion(leaves[index as usize], index, size, &proof, root).unwrap();
        let proof = reader.consistency_proof(old).unwrap();
        let old_root = reader.root_at(old).unwrap();
        verify_consistency((old, old_root), (size, root), &proof).unwrap();
    }
    assert!(matches!(reader.entry(size), Err(ReadError::Beyond { .. })));
    assert!(matches!(reader.consistency_proof(size + 1), Err(ReadError::Beyond { .. })));
}

#[test]
fn partial_files_may_be_gone_once_full_ones_are_there() {
    let (mut files, leaves) = build(&[200, 100]);
    files.0.retain(|path, _| !path.ends_with(".p/200"));
    let mut reader = LogReader::open(&files, 200, naive_root(&leaves[..200])).unwrap();
    assert_eq!(reader.entry(199).unwrap(), entry(199));
}

#[test]
fn changed_proofs_are_refused() {
    let (files, leaves) = build(&[300]);
    let root = naive_root(&leaves);
    let mut reader = LogReader::open(&files, 300, root).unwrap();
    let mut random = SplitMix64(2);
    for _ in 0..1_500 {
        let (index, old) = (random.roll(300), random.roll(299) + 1);
        let mut proof = reader.inclusion_proof(index).unwrap();
        let (mut leaf, mut place, mut size) = (leaves[index as usize], index, 300);
        let bit = random.roll(256) as usize;
        let victim = random.roll(proof.len() as u64) as usize;
        match random.roll(6) {
            0 => proof[victim].0[bit / 8] ^= 1 << (bit % 8),
            1 => drop(proof.remove(victim)),
            2 => proof.insert(victim, Hash([9; 32])),
            3 => leaf.0[bit / 8] ^= 1 << (bit % 8),
            4 => place = (index + 1 + random.roll(299)) % 300,
            // Another size is found out unless its tree has the same way to this leaf.
            _ => size = index + 1 + random.roll(1 << 40),
        }
        let result = verify_inclusion(leaf, place, size, &proof, root);
        assert!(
            result.is_err() || (size != 300 && proof == reader.inclusion_proof(index).unwrap())
        );

        let mut proof = reader.consistency_proof(old).unwrap();
        let old_root = naive_root(&leaves[..old as usize]);
        let (mut from, mut to) = ((old, old_root), (300, root));
        let victim = random.roll(proof.len() as u64) as usize;
        match random.roll(5) {
            0 => proof[victim].0[bit / 8] ^= 1 << (bit % 8),
            1 => drop(proof.remove(victim)),
            2 => proof.insert(victim, Hash([9; 32])),
            3 => from.1.0[bit / 8] ^= 1 << (bit % 8),
            _ => to.1.0[bit / 8] ^= 1 << (bit % 8),
        }
        assert!(verify_consistency(from, to, &proof).is_err());
    }
    let sizes = verify_consistency((5, root), (4, root), &[]);
    assert_eq!(sizes, Err(ProofError::Sizes { old: 5, new: 4 }));
}

#[test]
fn appends_to_entries_in_a_bundle_that_is_full_meanwhile() {
    let (mut files, leaves) = build(&[20, 236]);
    files.0.retain(|path, _| !path.contains(".p/"));
    let mut reader = LogReader::open(&files, 20, naive_root(&leaves[..20])).unwrap();
    let mut appender = Appender::open(&mut reader).unwrap();
    appender.push(&entry(20)).unwrap();
    let (expected, _) = build(&[20, 1]);
    for file in appender.finish() {
        assert_eq!(expected.0[&file.id.path()], file.bytes);
    }
}

/// Every file of the log may lie in every way: no wrong entry, proof or root comes of it.
#[test]
fn lying_tiles_are_refused() {
    let (files, leaves) = build(&[256 * 3 + 20]);
    let (size, root) = (leaves.len() as u64, naive_root(&leaves));
    let mut paths: Vec<_> = files.0.keys().cloned().collect();
    paths.sort();
    let mut random = SplitMix64(3);
    let mut refused = 0;
    for _ in 0..1000 {
        let mut lying = files.clone();
        let path = &paths[random.roll(paths.len() as u64) as usize];
        let other = files.0[&paths[random.roll(paths.len() as u64) as usize]].clone();
        let bytes = lying.0.get_mut(path).unwrap();
        let place = random.roll(bytes.len() as u64) as usize;
        match random.roll(5) {
            0 => bytes[place] ^= 1 << random.roll(8),
            1 => bytes.truncate(place),
            2 => bytes.extend_from_slice(&[0; 32]),
            3 => *bytes = other,
            _ => drop(lying.0.remove(path)),
        }
        let is_changed = lying.0.get(path) != Some(&files.0[path]);
        let result = LogReader::open(&lying, size, root).and_then(|mut reader| {
            for index in [0, 255, 256, 600, 700, 787] {
                assert_eq!(reader.inclusion_proof(index)?, naive_path(index as usize, &leaves));
                assert_eq!(reader.entry(index)?, entry(index));
            }
            Ok(())
        });
        assert_eq!(result.is_err(), is_changed, "{path}");
        refused += u32::from(is_changed);
    }
    assert!(refused > 800);
    let wrong = LogReader::open(&files, size - 1, root).err();
    assert!(matches!(wrong, Some(ReadError::Source { .. })), "no such checkpoint was made");
}

#[test]
fn tile_paths_have_one_spelling() {
    let id = |kind, index, width| TileId { kind, index, width };
    for (path, expected) in [
        ("tile/0/000", id(TileKind::Hashes(0), 0, 256)),
        ("tile/2/x001/x234/067", id(TileKind::Hashes(2), 1_234_067, 256)),
        ("tile/entries/x001/000.p/7", id(TileKind::Entries, 1000, 7)),
        ("tile/7/000.p/127", id(TileKind::Hashes(7), 0, 127)),
    ] {
        assert_eq!(expected.path(), path);
        assert_eq!(TileId::parse(path), Some(expected));
    }
    for bad in [
        "tile/0/0",
        "tile/0/0000",
        "tile/00/000",
        "tile/8/000",
        "tile/0/x000/000",
        "tile/0/x001",
        "tile/0/001/x000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/+01",
        "tile/data/000",
        "tile/0/000/",
        "tile/0/",
        "tile/0/../000",
        "checkpoint",
        "tile/0/x/000",
        "tile/0/x999/x999/x999/x999/x999/x999/999",
    ] {
        assert_eq!(TileId::parse(bad), None, "{bad}");
    }
    assert_eq!(TILE_LEN, 8192);
}

proptest::proptest! {
    #[test]
    fn appending_in_any_steps_gives_the_same_log(steps in proptest::collection::vec(0u64..400, 1..6)) {
        let (files, leaves) = build(&steps);
        let (mut whole, size) = (Appender::new(), leaves.len() as u64);
        for number in 0..size {
            whole.push(&entry(number)).unwrap();
        }
        proptest::prop_assert_eq!(whole.root(), naive_root(&leaves));
        for file in whole.finish() {
            proptest::prop_assert_eq!(files.0.get(&file.id.path()), Some(&file.bytes));
        }
        if size > 0 {
            let mut reader = LogReader::open(&files, size, naive_root(&leaves)).unwrap();
            let hashes = reader.leaf_hashes(size - 1).unwrap();
            proptest::prop_assert_eq!(hashes, &leaves[leaves.len() - 1..]);
        }
    }
}
