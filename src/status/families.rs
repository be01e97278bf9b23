//! What `/metrics` says: every metric with its name, in one place. `docs/OPERATING.md` explains each; a test compares the two.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Status;
use super::known::Known;
use super::troubles::Trouble;
use crate::metrics::{Counter, Operation, Times};

/// The content type of what [`text`] gives.
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a process, as OpenMetrics text.
pub(super) fn text(status: &Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(status.clone())));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Families(Status);

/// Writes one family after the other.
struct Writer<'a>(DescriptorEncoder<'a>);

type Labels<'a> = [(&'a str, &'a str); 1];

impl Writer<'_> {
    fn family(
        &mut self,
        (name, help): (&str, &str),
        unit: Option<&Unit>,
        kind: MetricType,
        fill: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, unit, kind)?;
        fill(&mut encoder)
    }

    /// A counter without labels. The text adds `_total` to its name.
    fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: &Counter) -> fmt::Result {
        self.family((name, help), unit, MetricType::Counter, |e| {
            e.encode_counter::<NoLabelSet, _, u64>(&value.get(), None)
        })
    }

    /// A counter by one label.
    fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> fmt::Result {
        self.family((name, help), None, MetricType::Counter, |e| {
            for (of, value) in values {
                let labels: Labels<'_> = [(label, of)];
                e.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
            Ok(())
        })
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> fmt::Result {
        self.family((name, help), unit, MetricType::Gauge, |e| e.encode_gauge(&value))
    }

    fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> fmt::Result {
        self.family((name, help), unit, MetricType::Gauge, |e| {
            for (of, value) in values {
                let labels: Labels<'_> = [(label, of)];
                e.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        })
    }

    fn times<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, Times)>,
    ) -> fmt::Result {
        self.family((name, help), Some(&Unit::Seconds), MetricType::Histogram, |e| {
            for (of, times) in values {
                let labels: Labels<'_> = [(label, of)];
                // The encoder knows infinity as the greatest number.
                let buckets: Vec<_> = times.buckets.iter().map(|(bound, n)| (bound.min(f64::MAX), *n)).collect();
                e.encode_family(&labels)?.encode_histogram::<NoLabelSet>(times.sum, times.count, &buckets, None)?;
            }
            Ok(())
        })
    }
}

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Writer(encoder);
        let status = &self.0;
        out.family(("ckptfs_build", "The version that runs."), None, MetricType::Info, |e| {
            e.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
        })?;
        mount(&mut out, status)?;
        cache(&mut out, status)?;
        store(&mut out, status)?;
        work(&mut out, status)?;
        jobs(&mut out, &status.known())
    }
}

/// What the kernel asked for.
fn mount(out: &mut Writer<'_>, status: &Status) -> fmt::Result {
    let Some(mount) = status.mount() else { return Ok(()) };
    let counters = &mount.counters;
    let asked = Operation::ALL.map(|o| (o.name(), counters.of(o).get()));
    out.times("ckptfs_fuse_request_duration", "Requests of the kernel, until they were answered.", "operation", asked)?;
    let opens = [
        ("passthrough", counters.opens_passthrough.get()),
        ("lazy", counters.opens_lazy.get()),
        ("fallback", counters.opens_fallback.get()),
        ("text", counters.opens_text.get()),
    ];
    let help = "Files opened: read by the kernel itself, not all local yet, read by the daemon although local, made by the daemon.";
    out.counters("ckptfs_fuse_opens", help, "mode", opens)?;
    for (name, help, unit, value) in [
        ("ckptfs_fuse_reads", "Reads that the daemon answered with data.", None, &counters.reads),
        ("ckptfs_fuse_lazy_reads", "Reads that waited for the store.", None, &counters.lazy_reads),
        ("ckptfs_fuse_read", "Bytes that the daemon answered.", Some(&Unit::Bytes), &counters.read_bytes),
        ("ckptfs_fuse_hints", "Read-ahead hints for files that the kernel reads itself.", None, &counters.hints),
        ("ckptfs_fuse_waited", "Requests that had to wait for the store.", None, &counters.waited),
        ("ckptfs_fuse_deadlines", "Requests that were given up at their deadline.", None, &counters.deadlines),
        ("ckptfs_fuse_panics", "Requests that failed by a fault of the program.", None, &counters.panics),
        ("ckptfs_fuse_invalidations", "Names that the kernel was told to forget.", None, &counters.invalidations),
        (
            "ckptfs_fuse_passthrough_refused",
            "Times that the kernel did not take a file to read itself.",
            None,
            &counters.passthrough_refused,
        ),
    ] {
        out.counter(name, help, unit, value)?;
    }
    let help = "Requests that wait for the store now: the fetch queue.";
    out.gauge("ckptfs_fuse_waiting", help, None, counters.waiting.get() as f64)
}

/// The local files.
fn cache(out: &mut Writer<'_>, status: &Status) -> fmt::Result {
    let cache = &status.session().cache;
    let counters = cache.counters();
    for (name, help, unit, value) in [
        ("ckptfs_cache_hits", "Files that were wanted and found local.", None, &counters.hits),
        ("ckptfs_cache_fetched_files", "Files brought from the store.", None, &counters.fetched_files),
        ("ckptfs_cache_fetched", "Bytes brought from the store.", Some(&Unit::Bytes), &counters.fetched_bytes),
        ("ckptfs_cache_evicted_files", "Files evicted for want of room.", None, &counters.evicted_files),
        (
            "ckptfs_cache_degraded_links",
            "Files that were copied into the cache since they could not be linked.",
            None,
            &counters.degraded_links,
        ),
    ] {
        out.counter(name, help, unit, value)?;
    }
    let wrong = [("local", counters.discarded.get()), ("fetched", counters.wrong_fetched.get())];
    let help = "Local or fetched bytes that were not those of their digest, and were thrown away.";
    out.counters("ckptfs_cache_verification_failures", help, "of", wrong)?;
    let Some(room) = status.room() else { return Ok(()) };
    let limits = cache.limits();
    out.gauge("ckptfs_cache_size", "Room that the cache takes on its disk.", Some(&Unit::Bytes), room.bytes as f64)?;
    out.gauge("ckptfs_cache_files", "Files in the cache.", None, room.files as f64)?;
    out.gauge("ckptfs_cache_disk_free", "Free room on the cache's disk.", Some(&Unit::Bytes), room.free as f64)?;
    if let Some(limit) = limits.size {
        out.gauge("ckptfs_cache_limit", "Room that the cache may take.", Some(&Unit::Bytes), limit as f64)?;
    }
    Ok(())
}

/// What was asked of the store.
fn store(out: &mut Writer<'_>, status: &Status) -> fmt::Result {
    let counters = status.session().store.counters();
    let all = [
        ("put", &counters.puts, &counters.failed_puts),
        ("get", &counters.gets, &counters.failed_gets),
        ("head", &counters.heads, &counters.failed_heads),
        ("list", &counters.lists, &counters.failed_lists),
        ("delete", &counters.deletes, &counters.failed_deletes),
    ];
    out.family(
        ("ckptfs_store_requests", "Requests to the store by kind and result, each attempt counted."),
        None,
        MetricType::Counter,
        |e| {
            for (kind, asked, failed) in all {
                let failed = failed.get();
                for (result, n) in [("ok", asked.get().saturating_sub(failed)), ("failed", failed)] {
                    let labels = [("kind", kind), ("result", result)];
                    e.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&n, None)?;
                }
            }
            Ok(())
        },
    )?;
    out.counter("ckptfs_store_retries", "Attempts after a first one failed.", None, &counters.retries)?;
    out.counter("ckptfs_store_sent", "Bytes sent to the store.", Some(&Unit::Bytes), &counters.bytes_up)?;
    out.counter("ckptfs_store_received", "Bytes received from the store.", Some(&Unit::Bytes), &counters.bytes_down)
}

/// What this process wrote.
fn work(out: &mut Writer<'_>, status: &Status) -> fmt::Result {
    let work = &status.session().work;
    let results = [("ok", work.snapshots.get()), ("failed", work.failed_snapshots.get())];
    out.counters("ckptfs_snapshots", "Snapshots that this process took.", "result", results)?;
    let bytes =
        [("logical", work.logical_bytes.get()), ("new", work.new_bytes.get()), ("reused", work.reused_bytes.get())];
    let help = "Bytes of this process's snapshots: what they hold, what they sent, what a base had.";
    out.counters("ckptfs_snapshot_bytes", help, "of", bytes)?;
    let help = "Phases of snapshots and sweeps of this process.";
    out.times("ckptfs_phase_duration", help, "phase", work.phases())?;
    out.counter("ckptfs_sweeps", "Sweeps that this process made.", None, &work.sweeps)?;
    out.counter("ckptfs_swept_blobs", "Blobs that its sweeps deleted.", None, &work.swept_blobs)?;
    out.counter("ckptfs_swept", "Bytes of blobs that its sweeps deleted.", Some(&Unit::Bytes), &work.swept_bytes)
}

/// What the store has, as it was last listed.
fn jobs(out: &mut Writer<'_>, known: &Known) -> fmt::Result {
    let help = "When the store was last listed in full, in seconds since 1970; 0 before the first time.";
    out.gauge("ckptfs_listed_timestamp", help, Some(&Unit::Seconds), known.listed_seconds())?;
    let help = "Whether the last listing failed: 1 when it did.";
    out.gauge("ckptfs_listing_failed", help, None, f64::from(u8::from(known.failure.is_some())))?;
    let help = "What keeps the mount or the jobs from going on, or soon will: 1 where it is so.";
    let troubles = Trouble::ALL.map(|trouble| {
        let is_so = known.troubles().any(|told| told.trouble == trouble);
        (trouble.name(), f64::from(u8::from(is_so)))
    });
    out.gauges("ckptfs_trouble", help, None, "what", troubles)?;
    let jobs: Vec<_> = known.jobs.values().collect();
    let each = |of: fn(&super::known::Job) -> Option<f64>| {
        jobs.iter().filter_map(move |job| Some((job.listing.job.as_str(), of(job)?))).collect::<Vec<_>>()
    };
    let bytes = Some(&Unit::Bytes);
    let seconds = Some(&Unit::Seconds);
    let latest = "of the newest completed checkpoint";
    for (name, help, unit, values) in [
        ("ckptfs_job_checkpoints", "Completed checkpoints in the view.", None, each(|j| Some(j.visible as f64))),
        (
            "ckptfs_job_open",
            "Checkpoints that are begun and not decided.",
            None,
            each(|j| Some(j.listing.open.len() as f64)),
        ),
        (
            "ckptfs_job_aborted",
            "Checkpoints that were given up since the last completed one.",
            None,
            each(|j| Some(j.listing.aborted.len() as f64)),
        ),
        (
            "ckptfs_job_unreadable",
            "Checkpoints whose records cannot be believed.",
            None,
            each(|j| Some(j.listing.unreadable.len() as f64)),
        ),
        ("ckptfs_job_latest", &format!("Number {latest}."), None, each(|j| Some(j.latest()?.number.get() as f64))),
        (
            "ckptfs_job_latest_completed_timestamp",
            "When the newest checkpoint was completed, in seconds since 1970, by its writer's clock.",
            seconds,
            each(|j| Some(j.latest()?.manifest.completed_ms as f64 / 1000.0)),
        ),
        (
            "ckptfs_job_latest_duration",
            &format!("Time from begin to end {latest}."),
            seconds,
            each(|j| j.latest().map(|c| c.manifest.completed_ms.saturating_sub(c.manifest.opened_ms) as f64 / 1000.0)),
        ),
        (
            "ckptfs_job_latest_logical",
            &format!("Bytes that the directories hold {latest}."),
            bytes,
            each(|j| Some(j.latest()?.manifest.logical_bytes as f64)),
        ),
        (
            "ckptfs_job_latest_new",
            &format!("Bytes that were sent {latest}."),
            bytes,
            each(|j| Some(j.latest()?.manifest.new_bytes as f64)),
        ),
    ] {
        out.gauges(name, help, unit, "job", values)?;
    }
    Ok(())
}
