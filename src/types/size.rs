//! Sizes, ages and names as people read them.

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

/// A time in milliseconds, in the largest unit that fills two of the next smaller one's: `90 s`, `12 min`, `5 h`, `3 days`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age(pub u64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / 1000 {
            0 => write!(f, "{} ms", self.0),
            s @ 1..120 => write!(f, "{s} s"),
            s @ 120..7200 => write!(f, "{} min", s / 60),
            s @ 7200..172_800 => write!(f, "{} h", s / 3600),
            s => write!(f, "{} days", s / 86_400),
        }
    }
}

/// Whether a character could move or turn what stands around it: no text of a store's is shown with it.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_largest_unit_that_it_fills() {
        let shown = [0, 1023, 1024, 1536, (1 << 20) - 1, 5 << 30, u64::MAX].map(|n| Size(n).to_string());
        let ages = [999, 1000, 119_999, 120_000, 7_200_000, 172_800_000].map(|ms| Age(ms).to_string());
        assert_eq!(ages, ["999 ms", "1 s", "119 s", "2 min", "2 h", "2 days"]);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1023.9 KiB", "5.0 GiB", "15.9 EiB"]);
    }
}
