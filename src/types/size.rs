//! Sizes as people read them.

use std::fmt;

/// Bytes. `{}` prints `1.5 MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let (mut unit, mut whole, mut rest) = (0, self.0, 0);
        while whole >= 1024 && unit + 1 < UNITS.len() {
            rest = whole % 1024;
            whole /= 1024;
            unit += 1;
        }
        let name = UNITS.get(unit).copied().unwrap_or_default();
        if unit == 0 { write!(f, "{whole} {name}") } else { write!(f, "{whole}.{} {name}", rest * 10 / 1024) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_largest_unit_that_it_fills() {
        let shown = [0, 1023, 1024, 1536, (1 << 20) - 1, 5 << 30, u64::MAX].map(|n| Size(n).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1023.9 KiB", "5.0 GiB", "15.9 EiB"]);
    }
}
