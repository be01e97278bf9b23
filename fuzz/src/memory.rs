//! Counts the bytes that are allocated, and ends the process where a decoder takes more than its input pays for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a decoder may take besides a multiple of its input: the words of an error, first nodes of trees, small buffers.
const SLACK: usize = 16 << 10;

/// Where a measurement is asked for: prints every new largest use, in bytes for each of the input's.
const MEASURE: &str = "CKPTFS_FUZZ_MEASURE";

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn more(bytes: usize) {
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(live, Relaxed);
        let most = MOST.load(Relaxed);
        if live > most {
            // Not a panic: an allocator must not unwind. The fuzzer keeps the input of a process that is aborted.
            MOST.store(usize::MAX, Relaxed);
            eprintln!("{live} bytes are allocated where {most} may be: {bytes} more were asked for");
            std::process::abort();
        }
    }
}

// SAFETY: every request goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::more(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::more(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // What moves is counted once: what is large moves by its pages.
        if size > layout.size() {
            Self::more(size - layout.size());
        } else {
            LIVE.fetch_sub(layout.size() - size, Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Does the work, which must at no time hold more than `times` the bytes of its input and a small constant.
pub fn within<T>(times: usize, input: usize, work: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    MOST.store(before + times * input + SLACK, Relaxed);
    let done = work();
    MOST.store(usize::MAX, Relaxed);
    measure(input, PEAK.load(Relaxed) - before);
    done
}

/// Bytes for each of the input's that anything that is read may take, besides [`ROOM`].
const TIMES: usize = 16;

/// What an operation on files or a whole command line may take whatever its input is.
const ROOM: usize = 1 << 20;

/// Does the work within the bound that holds for everything that is read: 16 times its input and 1 MiB.
pub fn bounded<T>(input: usize, work: impl FnOnce() -> T) -> T {
    within(1, TIMES * input + ROOM - SLACK, work)
}

fn measure(input: usize, used: usize) {
    static ASKED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| std::env::var_os(MEASURE).is_some());
    static LARGEST: AtomicUsize = AtomicUsize::new(0);
    // Of a short input the constant is more than the multiple.
    if *ASKED && input >= 512 {
        let times = used.saturating_sub(SLACK) * 10 / input;
        if times > LARGEST.fetch_max(times, Relaxed) {
            eprintln!("{used} bytes for {input}: {} and {}.{} for each", SLACK, times / 10, times % 10);
        }
    }
}
