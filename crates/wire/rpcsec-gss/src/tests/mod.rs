mod back;
mod contexts;
mod exchange;
mod fixture;
mod many;
mod tamper;
