//! A cursor over RocksDB's encodings: varints, little-endian fixed integers, length-prefixed slices. Every read
//! is bounds-checked and answers `None` past the end.

/// What is left to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    pub(super) fn fixed32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn fixed64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Five bytes at most. Bits beyond 32 in the fifth byte are dropped, as RocksDB does.
    pub(super) fn varint32(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in (0..=28).step_by(7) {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Ten bytes at most. Bits beyond 64 in the tenth byte are dropped, as RocksDB does.
    pub(super) fn varint64(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..=63).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A varint32 length and that many bytes.
    pub(super) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint32()?).ok()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_end_where_they_must() {
        assert_eq!(Cursor::new(&[0xac, 0x02]).varint32(), Some(300));
        assert_eq!(Cursor::new(&[0xff; 4]).varint32(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff]).varint32(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).varint32(), Some(u32::MAX));
        let mut max = [0xff; 10];
        assert_eq!(Cursor::new(&max).varint64(), None);
        max[9] = 1;
        assert_eq!(Cursor::new(&max).varint64(), Some(u64::MAX));
    }

    #[test]
    fn a_prefix_longer_than_the_rest_is_refused() {
        assert_eq!(Cursor::new(&[3, 1, 2]).prefixed(), None);
        let mut cursor = Cursor::new(&[2, 1, 2, 9]);
        assert_eq!(cursor.prefixed(), Some(&[1u8, 2][..]));
        assert_eq!(cursor.take(1), Some(&[9u8][..]));
        assert!(cursor.is_empty());
        assert_eq!(Cursor::new(&[0; 7]).fixed64(), None);
        assert_eq!(Cursor::new(&[1, 0, 0, 0]).fixed32(), Some(1));
    }
}
