//! Every bound on untrusted input, with its reason. Whatever comes from a store, a disk, a socket or a person
//! is checked against one of these before memory is spent on it.

/// Longest encoded name (job, operator, state) in bytes: leaves room in a 255-byte directory entry for suffixes.
pub const NAME_LEN: usize = 200;

/// Longest display name in bytes that is kept beside the encoded one: enough for Flink's generated operator names.
pub const DISPLAY_NAME_LEN: usize = 4096;

/// Longest file name inside a RocksDB directory: what Linux file systems take.
pub const FILE_NAME_LEN: usize = 255;

/// Longest path of a file inside a task manifest: a kind, a state name and a file name, with separators.
pub const FILE_PATH_LEN: usize = 1024;

/// Largest checkpoint or task number, parallelism and subtask index: 2^15 is Flink's own maximum parallelism.
pub const PARALLELISM: u32 = 1 << 15;

/// Largest header line of a metadata object in bytes: a digest, a length and a few short requirement names.
pub const HEADER_LEN: usize = 4096;

/// Most entries in a header's `requires` and `requires_write` lists.
pub const REQUIRES: usize = 32;

/// Most keys of a key file: one that signs, and those before it whose records are still there.
pub const SIGNING_KEYS: usize = 16;

/// Largest key file in bytes: that many keys in hex, with comments.
pub const KEY_FILE_LEN: u64 = 16 << 10;

/// Largest answer of a server about its bucket in bytes: S3's 1,000 lifecycle rules at 500 bytes each.
pub const BUCKET_XML_LEN: usize = 512 << 10;

/// Deepest element of such an answer: S3's own have five.
pub const BUCKET_XML_DEPTH: usize = 16;

/// Largest metadata object in bytes (header and body): a task manifest of 100,000 files at 600 bytes each.
pub const METADATA_LEN: u64 = 64 << 20;

/// Most files in one task manifest: RocksDB directories beyond it do not open in useful time.
pub const FILES_PER_TASK: usize = 100_000;

/// Most of them that one snapshot packs into one: each byte of a growing database is then packed some three times in a thousand snapshots.
pub const BUNDLES_MERGED: usize = 6;

/// Most blobs in one task manifest: one per file and the bundles.
pub const BLOBS_PER_TASK: usize = FILES_PER_TASK + BUNDLES_PER_MANIFEST;

/// Most extents of one file: one per bundle that a growing file was continued in, and its first blob.
pub const EXTENTS_PER_FILE: usize = BUNDLES_PER_MANIFEST + 1;

/// Most bundles that one task manifest names; more are re-packed. Bounds the GETs of a cold open.
pub const BUNDLES_PER_MANIFEST: usize = 16;

/// Most subtasks in one checkpoint manifest: 64 operators at Flink's largest parallelism.
pub const SUBTASKS: usize = 1 << 21;

/// Most bases of an intent: the newest completed checkpoint, a restored one, and a run of aborted attempts.
pub const BASES: usize = 64;

/// Most operators that an intent expects.
pub const OPERATORS: usize = 4096;

/// Most phases that a checkpoint manifest tells of: those that there are, and room for later ones.
pub const PHASES: usize = 32;

/// Longest name of one in bytes.
pub const PHASE_NAME_LEN: usize = 32;

/// Most labels of a checkpoint: they are read with every listing of its job.
pub const LABELS: usize = 16;

/// Longest key of a label in bytes: what Kubernetes takes, whose labels may be copied here.
pub const LABEL_KEY_LEN: usize = 63;

/// Longest value of a label in bytes: a commit's id, a URL, a sentence.
pub const LABEL_VALUE_LEN: usize = 200;

/// Most free properties and state descriptors of a task manifest.
pub const PROPERTIES: usize = 4096;

/// Most values of JSON in all state descriptors of a task manifest: 64 for each. One of two bytes may take some two hundred in memory.
pub const STATE_VALUES: usize = 64 * PROPERTIES;

/// Longest property key or value in bytes.
pub const PROPERTY_LEN: usize = 64 << 10;

/// Largest blob in bytes (1 TiB): S3's largest object is 5 TiB, RocksDB files are far below.
pub const BLOB_LEN: u64 = 1 << 40;

/// Largest sum of file sizes in one task manifest (1 PiB), so that sums of sums stay within 64 bits.
pub const TASK_BYTES: u64 = 1 << 50;

/// Largest checkpoint number: 20 digits hold every `u64`, and one is kept free so that `n + 1` cannot overflow.
pub const CHECKPOINT_NUMBER: u64 = u64::MAX - 1;

/// Most entries that one listing may return (all jobs' records of one kind): 10,000,000 keys are about 1 GiB of names.
pub const LISTED: usize = 10_000_000;

/// Most survivors and uids that a floor lists.
pub const FLOOR_ENTRIES: usize = 1_000_000;

/// Bytes of a hash group: the smallest run that can be verified alone (BLAKE3 over 64 chunks of 1 KiB).
pub const GROUP: u64 = 64 << 10;

/// Longest key bound of an SST in a task manifest, in bytes; longer keys are cut outward.
pub const KEY_BOUND: usize = 64;

/// Requests to the store that one step of the protocol keeps in flight: hides a round trip without exhausting connection pools.
pub const PARALLEL_REQUESTS: usize = 16;

/// Directories that are synced at once. The kernel joins flushes that are asked for together; one after another, each waits for the disk.
pub const PARALLEL_SYNCS: usize = 4;

/// Records that a sweep asks for at once, and holds in memory: a task manifest has some hundred kilobytes.
pub const SWEEP_BATCH: usize = 64;

/// Objects that are removed by one step of a sweep: the most that S3 takes in one request.
pub const DELETE_BATCH: usize = 1000;

/// Dead numbers that a job's first floor passes at least. Floors stay for ever and are read by every open, so that a floor must be
/// worth it; each needs a quarter of this more than the one before, so that 100,000 dead numbers have some 50 floors.
pub const FLOOR_STEP: usize = 256;

/// Unused numbers that one floor lists as survivors, since somebody may be about to begin them; no floor passes a wider gap.
pub const FLOOR_GAP: u64 = 1 << 16;

/// How often an open checkpoint may lose its bases to an expiry before the caller is told: each try costs six requests.
pub const OPEN_TRIES: u32 = 16;

/// SST and blob-db files from this size on are blobs of their own; smaller ones go into the bundle, where they cost no request.
pub const OWN_BLOB_IMMUTABLE: u64 = 128 << 10;

/// Other files above this size are blobs of their own.
pub const OWN_BLOB_OTHER: u64 = 1 << 20;

/// Bytes of files that a snapshot holds in memory at once while it hashes and sends them.
pub const UPLOAD_MEMORY: u64 = 256 << 20;

/// Largest WAL, MANIFEST or other file that is not immutable: such a file is held in memory whole while it is compared with its base.
pub const MUTABLE_FILE: u64 = 4 << 30;

/// Files up to this size are read once, into memory, hashed there and sent from there; larger ones are read twice. Above RocksDB's
/// usual 64 MiB tables and their overshoot, and half of [`UPLOAD_MEMORY`], so that two go at once.
pub const READ_ONCE: u64 = 128 << 20;

/// Up to this size a file of the cache without a record is hashed by every process that needs it: cheaper than the sync that a
/// record must wait for.
pub const VOUCHED_ONLY: u64 = 1 << 20;

/// Bytes of new tables that a snapshot begins to store before its checkpoint is open: what takes a disk about as long as opening
/// does, and little to lose when it is not opened.
pub const READ_AHEAD: u64 = 32 << 20;

/// Files that a snapshot works on at once.
pub const UPLOAD_THREADS: usize = 8;

/// Largest bundle that is built, in bytes; tails that would exceed it are left out (they only save requests).
pub const BUNDLE_LEN: u64 = 256 << 20;
// RocksDB MANIFEST

/// Largest RocksDB MANIFEST in bytes: RocksDB begins a new one at 1 GiB by default, after the record that passes it.
pub const ROCKS_MANIFEST: usize = (1 << 30) + ROCKS_RECORD;

/// Largest record of a RocksDB MANIFEST, and most bytes of one atomic group: a new MANIFEST begins with one record per
/// column family that has all its live files; 100,000 of them with two keys of half a kilobyte each.
pub const ROCKS_RECORD: usize = 128 << 20;

/// Most files (tables, blob files, tracked WALs) that a RocksDB MANIFEST may have live, or change in one edit: more do
/// not fit a task manifest.
pub const ROCKS_FILES: usize = FILES_PER_TASK;

/// Most column families of a RocksDB database: Flink has one per state, others some hundreds.
pub const ROCKS_COLUMN_FAMILIES: usize = 1 << 16;

/// Most edits of one atomic group in a RocksDB MANIFEST: an atomic flush has one or two per column family.
pub const ROCKS_ATOMIC_GROUP: usize = 2 * ROCKS_COLUMN_FAMILIES;

/// Longest name of a column family or comparator in bytes: every file's entry in a task manifest repeats it.
pub const ROCKS_NAME_LEN: usize = DISPLAY_NAME_LEN;

/// Highest level of a RocksDB tree: 7 levels are usual, dozens have been seen.
pub const ROCKS_LEVEL: u32 = 1023;

/// Longest tail of a table file that a bundle takes (8 MiB): index and filter of a table of 256 MiB and more. Without a
/// bound one table could fill a bundle; what is cut off is fetched when it is read.
pub const ROCKS_TAIL: u64 = 8 << 20;
/// Largest record of a clone in bytes: two paths, and a text per operator that it holds.
pub const CLONE_MARK_LEN: usize = 1 << 20;

/// Bytes that a cache leaves free on its disk, unless it is told otherwise: a live database beside it needs room for a compaction. At
/// most 1 / [`CACHE_FREE_PART`] of the disk, of its inodes as well.
pub const CACHE_FREE: u64 = 10 << 30;

/// See [`CACHE_FREE`].
pub const CACHE_FREE_PART: u64 = 20;

/// How far beyond its limit a cache may be, at least, before it keeps nothing more of what is read in parts: what a fast link brings while
/// room is made.
pub const CACHE_SLACK: u64 = 64 << 20;

/// A file that was used within so many seconds is not driven out by what nobody waits for.
pub const CACHE_RECENT_S: u64 = 600;

/// Largest record of a cache in bytes: an id and two numbers.
pub const CACHE_RECORD_LEN: usize = 4096;

/// Bytes of one range GET of a large blob: long enough that its latency does not show, short enough to hold several.
pub const FETCH_CHUNK: u64 = 8 << 20;

/// Most range GETs at once for one file: with [`FETCH_CHUNK`] at most 32 MiB of memory.
pub const FETCH_WIDTH: usize = 4;

/// Most extra range GETs at once in one cache, beyond the first of each file: at most 128 MiB of memory for all of them.
pub const FETCH_STREAMS: usize = 16;

/// A file up to this size is fetched by one request when anything of it is read.
pub const LAZY_WHOLE: u64 = 1 << 20;

/// Most groups of one request for a part of a file: 4 MiB, long enough that a round trip of 20 ms does not show at 1 Gbit/s when
/// several are on their way.
pub const LAZY_RUN: u64 = 64;

/// Most requests for parts of files that are on their way at once: with [`LAZY_RUN`] at most 128 MiB of memory.
pub const LAZY_REQUESTS: usize = 32;

/// Most of them that nobody waits for.
pub const LAZY_BEHIND: usize = 8;

/// Most runs ahead of readers that wait for their turn.
pub const LAZY_SOON: usize = 1024;

/// How often a part of a file is asked for again when its bytes are wrong: damage on the way passes, damage in the store does not.
pub const LAZY_TRIES: usize = 3;

/// Most uploads of one content that are remembered to fetch it from.
pub const LAZY_UPLOADS: usize = 8;

/// Most runs of data that are looked for in a file with holes: what lies behind is fetched anew.
pub const DATA_RANGES: usize = 1 << 16;

/// Most bundles of one manifest that are fetched at once.
pub const BUNDLES_AT_ONCE: usize = 8;

/// Most files that one process remembers to have hashed itself: about 100 MiB. Beyond it they are hashed again.
pub const VERIFIED_FILES: usize = 1_000_000;

/// Parsed task manifests that are remembered before those that nobody uses are dropped.
pub const PARSED_MANIFESTS: usize = 4096;

/// Files of the task manifests that a mount holds in memory, some 300 bytes each: enough for a large job's databases to be opened at once.
pub const VIEW_MANIFEST_FILES: usize = 100_000;

/// Most of these manifests, which are searched one by one.
pub const VIEW_MANIFESTS: usize = 1024;

/// Largest file that is held in memory while it is read, where the cache's disk is full. What RocksDB reads whole is smaller, and its
/// tables are read in parts.
pub const UNKEPT_LEN: u64 = 64 << 20;

/// Bytes of such files that are held at once: some databases' worth of what is not read in parts.
pub const UNKEPT_TOTAL: u64 = 256 << 20;

/// Most last uses of files that a cache writes down, 40 bytes each.
pub const USES: usize = 1_000_000;

/// Bytes of bundles that a verification holds in memory at once: the largest that is built, with its trees and tails.
pub const VERIFY_MEMORY: u64 = 2 * BUNDLE_LEN;

/// Longest OPTIONS file of RocksDB's that is looked at: one of a thousand column families has some hundred kilobytes more.
pub const ROCKS_OPTIONS: u64 = 8 << 20;

/// Small reads by which a store's latency is measured: the middle one of them is no accident.
pub const MEASURE_READS: usize = 5;

/// Bytes of such a read: little enough that its bytes cost nothing.
pub const MEASURE_SMALL: u64 = 1 << 10;

/// Reads at once by which a store's rate is measured.
pub const MEASURE_AT_ONCE: usize = 8;

/// Bytes of each of those: 8 MiB in all, which take less than a second at 100 Mbit/s.
pub const MEASURE_CHUNK: u64 = 1 << 20;

/// Milliseconds after which no further measurement is begun.
pub const MEASURE_MS: u64 = 3000;

/// Blobs that a verification of a single job looks at one by one before it lists all blobs instead, by pages of a thousand.
pub const LOOKS: usize = 1000;

/// Longest file that remembers an interrupted verification: 65 bytes for each of 16 million objects.
pub const RESUME_LEN: u64 = 1 << 30;

/// Bytes of an import's subtasks that are prepared at once, in memory.
pub const IMPORT_MEMORY: u64 = 256 << 20;

/// Bytes for bundles that the subtasks which are copied at once hold in memory, unless a single one has more: as large as one bundle, which
/// is held in any case.
pub const COPY_MEMORY: u64 = BUNDLE_LEN;

/// Largest stream of Flink's whose parts are shown as files: it is in memory while they are hashed.
pub const FLINK_SHOWN_STREAM: u64 = 256 << 20;

/// Aborted checkpoints whose barrier has not come that a subtask remembers one by one, as Flink does; what is older counts as aborted.
pub const ABORTED_REMEMBERED: usize = 128;
/// Most partitions of one operator state in one subtask: each is a file of its own in the checkpoint, and a task manifest has room for
/// [`FILES_PER_TASK`] files.
pub const OPERATOR_PARTITIONS: usize = 1 << 16;

// Flink's _metadata

/// Largest `_metadata` of Flink in bytes: state below 20 KB lies inside it by default, for 50,000 such handles.
pub const FLINK_METADATA_LEN: usize = 1 << 30;

/// Most master states of it: one per hook, and a job has a few sources at most that have one.
pub const FLINK_MASTER_STATES: usize = 4096;

/// Most things in all lists of one of Flink's files together: some take three bytes in the file and two hundred in memory. A job of 32,768
/// subtasks with a hundred tables each has as many.
pub const FLINK_ITEMS: usize = 1 << 22;

/// How deep its handles may lie in each other: Flink itself writes a changelog over a handle, and no changelog in a changelog.
pub const FLINK_NESTING: usize = 8;

/// How deep the object at its end is followed, in objects and in parents of classes: Flink's has four levels.
pub const FLINK_JAVA_NESTING: usize = 32;

// Flink's keyed state

/// Deepest nesting of Flink's serializers that is read: types of jobs have a handful of levels, and reading recurses.
pub const FLINK_TYPE_NESTING: usize = 32;

/// Longest description of a keyed state backend of Flink's in bytes: 65,535 states with 256 bytes each; some hundred bytes per state are usual.
pub const FLINK_DESCRIPTION_LEN: u64 = 16 << 20;

/// Most fields of one of Flink's tuples, rows and classes, and most constants of an enum: tuples have 25, tables some hundred columns.
pub const FLINK_FIELDS: usize = 4096;

/// Longest name of a field or of an enum's constant, in bytes: it is repeated with every value of a list.
pub const FLINK_FIELD_NAME: usize = 256;

/// Values that may be read from one of Flink's rows beyond one per byte: a field of a row that is null takes one bit.
pub const FLINK_NULLS: usize = 1024;

/// Longest of Java's big numbers in bytes, 2,466 decimal digits: turning one into text takes the square of its length.
pub const FLINK_BIG_NUMBER: usize = 1024;

/// Most options and most serializers of one of Flink's states: it writes one and four.
pub const FLINK_STATE_PROPERTIES: usize = 64;

/// Clients of the status page that are served at once: a few people and scrapers, and what a stranger may take of our descriptors.
pub const STATUS_CONNECTIONS: usize = 64;

/// Threads that make pages: each may wait for a dead store.
pub const STATUS_ANSWERS: usize = 8;

/// Threads beside them that look whether the mount answers: more hang only where it does not.
pub const STATUS_PROBES: usize = 4;

/// Bytes of a request's head: a browser sends some hundreds. The HTTP server allows no smaller bound than this.
pub const STATUS_REQUEST: usize = 8192;
