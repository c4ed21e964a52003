use vouch_tree::{BlockHandle, FRAME_LEN_MAX, FrameKind, Iv};

use crate::{Error, FrameSink, FrameSource};

/// Handles of the suite: for stores that verify them.
pub const IV: Iv = Iv::from_bytes([0x5a; 32]);

/// `make` gives an empty store each time.
///
/// # Panics
/// The store breaks a rule.
pub fn check<S: FrameSource + FrameSink>(mut make: impl FnMut() -> S) {
    missing_frames_are_none(&make());
    stored_frame_is_returned(&make());
    second_put_is_not_new(&make());
    invalid_frame_is_refused(&make());
    concurrent_puts_report_one_new_frame(&make());
}

pub fn frame(kind: FrameKind, seed: u64, len: usize) -> (BlockHandle, Vec<u8>) {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&[kind as u8, 0]);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ len as u64;
    while bytes.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_be_bytes());
    }
    bytes.truncate(len);
    (IV.handle_of(&bytes), bytes)
}

fn missing_frames_are_none(store: &(impl FrameSource + FrameSink)) {
    let (handle, _) = frame(FrameKind::Leaf, 1, 100);
    assert_eq!(store.get(&handle).expect("get works"), None, "an empty store has no frame");
    assert!(
        !store.contains(&handle).expect("the look-up succeeds"),
        "an empty store contains nothing"
    );
}

fn stored_frame_is_returned(store: &(impl FrameSource + FrameSink)) {
    let kinds = [
        FrameKind::Leaf,
        FrameKind::Indirect,
        FrameKind::DirLeaf,
        FrameKind::DirInterior,
        FrameKind::Fsinfo,
    ];
    let lens = [2, 3, 4, 5, 6, 7, 100, 4096, 65_537, FRAME_LEN_MAX - 1, FRAME_LEN_MAX];
    let frames: Vec<_> =
        kinds.iter().flat_map(|&kind| lens.iter().map(move |&len| frame(kind, 7, len))).collect();
    for (handle, bytes) in &frames {
        assert!(store.put(handle, bytes).expect("put works"), "a frame is new at its first put");
        assert_eq!(
            store.get(handle).expect("get works").as_ref(),
            Some(bytes),
            "a frame can be read at once"
        );
    }
    for (handle, bytes) in &frames {
        assert!(
            store.contains(handle).expect("the look-up succeeds"),
            "a stored frame is contained"
        );
        assert_eq!(
            store.get(handle).expect("get works").as_ref(),
            Some(bytes),
            "a stored frame is unchanged"
        );
    }
}

fn second_put_is_not_new(store: &(impl FrameSource + FrameSink)) {
    let (handle, bytes) = frame(FrameKind::DirLeaf, 3, 999);
    assert!(store.put(&handle, &bytes).expect("put works"));
    assert!(
        !store.put(&handle, &bytes).expect("put works"),
        "the second put of a frame is not new"
    );
    assert_eq!(store.get(&handle).expect("get works"), Some(bytes));
}

fn invalid_frame_is_refused(store: &(impl FrameSource + FrameSink)) {
    let too_long = [&[FrameKind::Leaf as u8, 0][..], &vec![1; FRAME_LEN_MAX - 1]].concat();
    for bytes in [&[][..], &[1], &[0, 0, 1], &[6, 0, 1], &[255, 0], &too_long] {
        let handle = IV.handle_of(bytes);
        assert!(
            matches!(store.put(&handle, bytes), Err(Error::Frame(_))),
            "{} bytes that are no frame are refused",
            bytes.len()
        );
        assert!(
            !store.contains(&handle).expect("the look-up succeeds"),
            "a refused frame is not stored"
        );
    }
}

fn concurrent_puts_report_one_new_frame(store: &(impl FrameSource + FrameSink)) {
    let frames: Vec<_> =
        (0..200).map(|seed| frame(FrameKind::Leaf, seed, 50 + seed as usize * 13)).collect();
    let new: usize = std::thread::scope(|scope| {
        let put_all = || {
            frames
                .iter()
                .filter(|(handle, bytes)| store.put(handle, bytes).expect("put works"))
                .count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(put_all)).collect();
        threads.into_iter().map(|t| t.join().expect("no thread panics")).sum()
    });
    assert_eq!(new, frames.len(), "each frame is new exactly once");
    for (handle, bytes) in &frames {
        assert_eq!(store.get(handle).expect("get works").as_ref(), Some(bytes));
    }
}
