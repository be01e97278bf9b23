//! Milliseconds since 1970 as a date and a time of day in UTC, for people.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The moment, in milliseconds since 1970 by this host's clock. For people: nothing about safety is decided by it.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A moment in UTC. `{}` prints `2026-11-29 16:18:00`, `{:#}` prints `2026-11-29T16:18:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let of_day = seconds % 86_400;
        // Days to year, month, day, after Howard Hinnant's `civil_from_days`, for days since 1970 only.
        let z = seconds / 86_400 + 719_468;
        let era = z / 146_097;
        let day_of_era = z % 146_097;
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let (h, m, s) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        if f.alternate() {
            write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", self.0 % 1000)
        } else {
            write!(f, "{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Utc;

    #[test]
    fn dates() {
        assert_eq!(Utc(0).to_string(), "1970-01-01 00:00:00");
        assert_eq!(Utc(951_782_400_000).to_string(), "2000-02-29 00:00:00");
        assert_eq!(Utc(1_796_000_000_123).to_string(), "2026-11-30 00:53:20");
        assert_eq!(format!("{:#}", Utc(1_796_000_000_123)), "2026-11-30T00:53:20.123Z");
        assert_eq!(format!("{:#}", Utc(951_782_400_123)), "2000-02-29T00:00:00.123Z");
        assert_eq!(format!("{:#}", Utc(4_107_542_400_000)), "2100-03-01T00:00:00.000Z");
    }
}
