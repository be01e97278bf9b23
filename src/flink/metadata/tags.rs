//! The numbers that say what follows.

pub(super) const MAGIC: i32 = 0x4960_672D;
/// `0xC96B_1696`, which Java reads as a negative number.
pub(super) const MASTER_STATE: i32 = -0x3694_E96A;

pub(super) const NULL: u8 = 0;

pub(super) const INLINE: u8 = 1;
pub(super) const FILE: u8 = 2;
pub(super) const RELATIVE: u8 = 6;
pub(super) const SEGMENT: u8 = 15;
pub(super) const EMPTY_SEGMENT: u8 = 16;

/// Of a keyed handle, and of a stream as well.
pub(super) const KEY_GROUPS: u8 = 3;
pub(super) const KEY_GROUPS_V2: u8 = 12;
pub(super) const SAVEPOINT: u8 = 7;
pub(super) const INCREMENTAL: u8 = 5;
pub(super) const INCREMENTAL_V2: u8 = 11;
pub(super) const CHANGELOG: u8 = 8;
pub(super) const CHANGELOG_V2: u8 = 14;
pub(super) const CHANGELOG_IN_MEMORY: u8 = 9;
pub(super) const CHANGELOG_FILES: u8 = 10;
pub(super) const CHANGELOG_FILES_V2: u8 = 13;

pub(super) const OPERATOR: u8 = 4;
pub(super) const OPERATOR_MERGING: u8 = 17;

/// Input and result, in this order.
pub(super) const PLAIN_CHANNEL: [u8; 2] = [1, 2];
pub(super) const MERGED_CHANNEL: [u8; 2] = [3, 4];
