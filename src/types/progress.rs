//! Telling whoever waits how a long piece of work goes on.

/// Who wants to know how a snapshot or a restore goes on. Called from several threads.
pub trait Progress: Sync {
    /// So many files and bytes lie ahead.
    fn plan(&self, _files: u64, _bytes: u64) {}
    /// A phase begins.
    fn phase(&self, _name: &'static str) {}
    /// So many bytes are done.
    fn advance(&self, _bytes: u64) {}
}

/// Tells nobody.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}
