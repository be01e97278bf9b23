//! Restores of real databases from a store in memory.

mod checks;
mod keyed;
mod kit;
mod local;
mod others;
