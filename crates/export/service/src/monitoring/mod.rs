pub(crate) mod client_faults;
pub(crate) mod counter;
pub(crate) mod operation_metrics;
pub(crate) mod refusals;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod traffic;
