//! Exports of the file systems that a server meets: on loop devices, in memory, stacked, mounted
//! below one another. Each test mounts its own, where nobody else sees them, and leaves nothing
//! behind.

mod change;
mod clones;
mod cold;
mod crossing;
mod homes;
mod names;
mod quota;
mod rules;
mod world;
