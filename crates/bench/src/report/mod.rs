//! A run for readers: a table on the terminal, CSV for spreadsheets, a page with plots. From the record alone.

mod chart;
mod compare;
mod csv;
mod html;
mod table;
mod words;

pub use compare::compare;
pub use csv::csv;
pub use html::html;
pub use table::table;
