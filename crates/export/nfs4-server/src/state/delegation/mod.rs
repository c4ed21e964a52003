pub(in crate::state) mod directory;
pub(in crate::state) mod grant;
pub(in crate::state) mod recall_any;
pub(in crate::state) mod record;
