pub(in crate::state) mod sequence;
