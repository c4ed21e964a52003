//! Fuzz access to the decoder of layers and to the merged view.

use std::io::Read as _;

use crate::layer::Layer;
use crate::merge::Merged;

/// Reads a layer, and applies what does not need data.
pub fn layer(bytes: &[u8]) {
    let mut layer = Layer::new(bytes);
    let mut merged = Merged::new();
    merged.begin_layer();
    while let Ok(Some(item)) = layer.next_item() {
        merged.begin_layer();
        let _ = crate::unpack::apply(&mut merged, &item, vouch_tree::Blob::empty());
        let mut data = [0; 4096];
        let _ = layer.read(&mut data);
    }
    merged.check();
}
