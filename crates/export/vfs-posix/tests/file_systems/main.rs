//! On loop devices, in memory, stacked, mounted below one another. Each test has its own mount
//! namespace.

mod cephfs;
mod change;
mod clones;
mod cold;
mod concurrent;
mod fixture;
mod homes;
mod io_modes;
mod labels;
mod mount_crossing;
mod mounted_snapshots;
mod names;
mod quota;
mod rules;
mod snapshots;
mod watch;
