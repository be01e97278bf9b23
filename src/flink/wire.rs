//! The primitives of Java's `DataOutput`, read with bounds: big endian integers, and UTF-8 as Java modifies it, with its length in two
//! bytes. No length is believed before that many bytes are seen to be there.

use super::FlinkError;
use crate::limits;

/// A position in bytes that somebody else wrote.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
    /// Things that lists may still have.
    items: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of the bytes. `what` is what errors call them.
    #[must_use]
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0, items: limits::FLINK_ITEMS }
    }

    /// What errors call the bytes.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// Bytes from the start.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    /// An error at this place.
    pub fn damaged(&self, why: impl Into<String>) -> FlinkError {
        FlinkError::Damaged { what: self.what, at: self.at, why: why.into() }
    }

    /// So many bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], FlinkError> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return Err(self.damaged(format!("{length} bytes should follow, {} do", self.left())));
        };
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FlinkError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// One byte.
    ///
    /// # Errors
    /// When none is left.
    pub fn u8(&mut self) -> Result<u8, FlinkError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    /// Two bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn u16(&mut self) -> Result<u16, FlinkError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn i32(&mut self) -> Result<i32, FlinkError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn i64(&mut self) -> Result<i64, FlinkError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A length or an offset in eight bytes.
    ///
    /// # Errors
    /// When it is negative, or fewer bytes are left.
    pub fn length(&mut self, of: &'static str) -> Result<u64, FlinkError> {
        let at = self.at;
        let value = self.i64()?;
        u64::try_from(value).map_err(|_| FlinkError::Damaged { what: self.what, at, why: format!("{of} is {value}") })
    }

    /// How many of something follow, in four bytes, each of which takes at least `least` bytes.
    ///
    /// # Errors
    /// When it is negative, more than `most`, or more than the bytes that are left can hold.
    pub fn count(&mut self, of: &'static str, most: usize, least: usize) -> Result<usize, FlinkError> {
        let at = self.at;
        let said = self.i32()?;
        let what = self.what;
        let count = usize::try_from(said).map_err(|_| FlinkError::Damaged {
            what,
            at,
            why: format!("the number of {of} is {said}"),
        })?;
        if count > most {
            return Err(FlinkError::Limit { what, at, of, count: count as u64, most: most as u64 });
        }
        if count.saturating_mul(least) > self.left() {
            let why = format!("{count} {of} should follow, in {} bytes", self.left());
            return Err(FlinkError::Damaged { what, at, why });
        }
        // Some take a few bytes here and a hundred in memory.
        let (most, said) =
            (limits::FLINK_ITEMS as u64, (limits::FLINK_ITEMS - self.items).saturating_add(count) as u64);
        let over = FlinkError::Limit { what, at, of: "things in all lists", count: said, most };
        self.items = self.items.checked_sub(count).ok_or(over)?;
        Ok(count)
    }

    /// Bytes with their number in four bytes before them.
    ///
    /// # Errors
    /// When fewer are there.
    pub fn bytes(&mut self, of: &'static str) -> Result<&'a [u8], FlinkError> {
        let (at, what) = (self.at, self.what);
        let said = self.i32()?;
        let left = self.left();
        let length = usize::try_from(said).ok().filter(|length| *length <= left);
        let length = length.ok_or_else(|| {
            let why = format!("the number of {of} is {said}, and {left} bytes follow");
            FlinkError::Damaged { what, at, why }
        })?;
        self.take(length)
    }

    /// Text as `DataOutput.writeUTF` writes it.
    ///
    /// # Errors
    /// When it is no such text.
    pub fn utf(&mut self) -> Result<String, FlinkError> {
        let at = self.at;
        let length = usize::from(self.u16()?);
        let bytes = self.take(length)?;
        decode(bytes).ok_or_else(|| FlinkError::Damaged {
            what: self.what,
            at,
            why: "it is not text as Java writes it".to_owned(),
        })
    }
}

/// So many of something, in a list that has never much more room than it has items: it grows by a quarter, and no further than the number
/// that was said. A number alone takes no memory, and what follows it no more than it is worth.
///
/// # Errors
/// The first of an item.
pub fn gather<T, E>(count: usize, mut one: impl FnMut() -> Result<T, E>) -> Result<Vec<T>, E> {
    let mut list = Vec::new();
    for done in 0..count {
        if list.len() == list.capacity() {
            list.reserve_exact((done / 4).max(4).min(count - done));
        }
        list.push(one()?);
    }
    Ok(list)
}

/// Modified UTF-8: 0 in two bytes, and what is beyond 16 bits as two surrogates of three bytes each.
fn decode(bytes: &[u8]) -> Option<String> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().map(|b| u16::from(*b));
    while let Some(first) = rest.next() {
        let mut more = || rest.next().filter(|b| b & 0xC0 == 0x80).map(|b| b & 0x3F);
        units.push(match first {
            0..=0x7F => first,
            0xC0..=0xDF => (first & 0x1F) << 6 | more()?,
            0xE0..=0xEF => {
                let middle = more()?;
                (first & 0x0F) << 12 | middle << 6 | more()?
            }
            _ => return None,
        });
    }
    // A lone surrogate is text to Java and to nobody else.
    Some(String::from_utf16_lossy(&units))
}

/// Writes text as `DataOutput.writeUTF` does; nothing when it is too long for it.
#[must_use]
pub fn encode_utf(text: &str) -> Option<Vec<u8>> {
    let mut out = vec![0, 0];
    for unit in text.encode_utf16() {
        let low = |shift: u16, mask: u16| u8::try_from(unit >> shift & mask).unwrap_or_default();
        match unit {
            1..=0x7F => out.push(low(0, 0x7F)),
            0 | 0x80..=0x7FF => out.extend([0xC0 | low(6, 0x1F), 0x80 | low(0, 0x3F)]),
            _ => out.extend([0xE0 | low(12, 0x0F), 0x80 | low(6, 0x3F), 0x80 | low(0, 0x3F)]),
        }
    }
    let length = u16::try_from(out.len() - 2).ok()?;
    out.get_mut(..2)?.copy_from_slice(&length.to_be_bytes());
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_javas() {
        for text in ["", "a", "ä", "中", "🙂", "\0", "count"] {
            let bytes = encode_utf(text).unwrap();
            assert_eq!(Cursor::new("x", &bytes).utf().unwrap(), text);
        }
        assert_eq!(encode_utf("\0🙂").unwrap(), [0, 8, 0xC0, 0x80, 0xED, 0xA0, 0xBD, 0xED, 0xB9, 0x82]);
        assert_eq!(encode_utf(&"x".repeat(65_536)), None);
        for bad in [&[0, 1, 0xFF][..], &[0, 1, 0xC3], &[0, 2, 0xC3, 0x03], &[0, 2, 0x61], &[0]] {
            assert!(Cursor::new("x", bad).utf().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_list_has_little_more_room_than_items() {
        for said in [0usize, 1, 2, 4, 5, 100, 10_000, usize::MAX] {
            for there in [1usize, 3, 4, 5, 63, 64, 65, 1_000, 1_025] {
                let (mut read, mut most) = (0, 0);
                let one = || {
                    read += 1;
                    if read > there { Err(()) } else { Ok([0u8; 96]) }
                };
                let list = gather(said, one);
                assert_eq!(list.is_ok(), said <= there);
                if let Ok(list) = list {
                    assert_eq!(list.len(), said);
                    most = most.max(list.capacity());
                }
                assert!(most <= said && most <= there + there / 4 + 4, "{said} {there} {most}");
            }
        }
    }

    #[test]
    fn no_count_is_believed() {
        let bytes = [0x7F, 0xFF, 0xFF, 0xFF, 1, 2];
        assert!(matches!(Cursor::new("x", &bytes).count("things", 10, 1), Err(FlinkError::Limit { .. })));
        assert!(matches!(Cursor::new("x", &bytes).count("things", usize::MAX, 1), Err(FlinkError::Damaged { .. })));
        assert!(Cursor::new("x", &[0xFF; 4]).count("things", 10, 1).is_err());
        assert!(Cursor::new("x", &[0xFF; 8]).length("a size").is_err());
        assert_eq!(Cursor::new("x", &[0, 0, 0, 2, 7, 8]).bytes("bytes").unwrap(), [7, 8]);
    }
}
