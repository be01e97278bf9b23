//! Errors of clean-up: the first one counts, the later ones are kept with it.

use std::fmt;

use crate::error::{Error, Kind};

/// An error and those that came after it, while everything was still being cleaned up.
#[derive(Debug)]
pub struct Failure {
    /// The first.
    pub first: Error,
    /// The later ones, in their order.
    pub suppressed: Vec<Error>,
}

impl Failure {
    /// A failure of one error.
    #[must_use]
    pub fn new(first: Error) -> Self {
        Self { first, suppressed: Vec::new() }
    }

    /// Keeps a later error.
    pub fn suppress(&mut self, later: Error) {
        self.suppressed.push(later);
    }

    /// One error with words about what was being done; its source is this.
    #[must_use]
    pub fn into_error(self, what: impl fmt::Display) -> Error {
        Error::with_source(self.first.kind(), format!("{what}: {self}"), self)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        match self.suppressed.as_slice() {
            [] => Ok(()),
            [one] => write!(f, " (then, while cleaning up: {one})"),
            [one, more @ ..] => write!(f, " (then, while cleaning up: {one}, and {} more)", more.len()),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.first)
    }
}

/// Collects errors of steps that are all taken, whatever becomes of the others.
#[derive(Debug, Default)]
pub struct Collected(Option<Failure>);

impl Collected {
    /// Takes a step's result.
    pub fn take(&mut self, result: Result<(), Error>) {
        if let Err(e) = result {
            match &mut self.0 {
                Some(failure) => failure.suppress(e),
                None => self.0 = Some(Failure::new(e)),
            }
        }
    }

    /// The first with the later ones, if there was any.
    ///
    /// # Errors
    /// That.
    pub fn finish(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Runs what an author wrote; a panic becomes an error, so that one operator cannot take the task's clean-up with it.
///
/// # Errors
/// What it returned, or what it said when it panicked.
pub fn guarded<T>(what: &str, author: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(author)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::new(Kind::Other, format!("{what} panicked: {said}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_counts_and_later_ones_are_kept() {
        let mut collected = Collected::default();
        collected.take(Ok(()));
        collected.take(Err(Error::new(Kind::Damage, "one")));
        collected.take(Err(Error::new(Kind::Other, "two")));
        let failure = collected.finish().unwrap_err();
        assert_eq!((failure.first.message(), failure.suppressed.len()), ("one", 1));
        let e = failure.into_error("could not");
        assert_eq!((e.kind(), e.message()), (Kind::Damage, "could not: one (then, while cleaning up: two)"));
        assert!(Collected::default().finish().is_ok());
    }

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        let e = guarded("the hook", || -> Result<(), Error> { panic!("no {}", "luck") }).unwrap_err();
        assert_eq!(e.message(), "the hook panicked: no luck");
    }
}
