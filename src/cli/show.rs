//! `show`: what a checkpoint consists of.

use ckptfs::engine::Session;
use ckptfs::error::Result;
use ckptfs::format::phases;
use ckptfs::lifecycle::Checkpoint;
use ckptfs::restore::inspect::{manifests, usage};
use ckptfs::restore::{Selection, select};
use serde_json::{Value, json};

use super::Context;
use super::exit::Exit;
use super::words;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JOB/chk-N, or JOB/chk-N/OPERATOR/SUBTASK for its files
    #[arg(value_parser = words::selection)]
    checkpoint: Selection,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit> {
    let selection = &args.checkpoint;
    let session = Session::open(&context.options())?;
    let checkpoint = selection.resolve(&session.catalog)?;
    if selection.subtask.is_some() {
        return files(context, &session, selection, &checkpoint);
    }
    let jobs = session.catalog.jobs()?;
    let listings: Vec<_> = jobs.iter().map(|j| session.catalog.job(j)).collect::<std::result::Result<_, _>>()?;
    let unique = usage(&session, &listings)?;
    let unique = unique.checkpoints.get(&(checkpoint.job.clone(), checkpoint.number)).copied().unwrap_or_default();
    let m = &checkpoint.manifest;
    let origin = imported(&session, &checkpoint)?;
    let manifests = manifests(&session, &checkpoint)?;
    let phases: Vec<_> = manifests.iter().map(|manifest| phases::of(m, manifest)).collect();
    if context.json {
        let mut value = serde_json::to_value(&**m)
            .map_err(|e| ckptfs::error::Error::with_source(ckptfs::error::Kind::Other, "cannot make JSON", e))?;
        if let Some(object) = value.as_object_mut() {
            object.insert("job".to_owned(), json!(checkpoint.job.as_str()));
            object.insert("checkpoint".to_owned(), json!(checkpoint.number.to_string()));
            object.insert("uid".to_owned(), json!(checkpoint.uid));
            object.insert("unique_bytes".to_owned(), json!(unique.unique));
            if let Some(subtasks) = object.get_mut("subtasks").and_then(Value::as_array_mut) {
                for (subtask, phases) in subtasks.iter_mut().filter_map(Value::as_object_mut).zip(&phases) {
                    let phases = phases.iter().map(|(name, ms)| ((*name).to_owned(), json!(ms))).collect();
                    subtask.insert("phases".to_owned(), phases);
                }
            }
            if let Some(properties) = &origin {
                object.insert("imported".to_owned(), json!(properties));
            }
        }
        words::json(&value)?;
        return Ok(Exit::Done);
    }
    words::line(&format!("{}/{}", checkpoint.job, checkpoint.number))?;
    let bases: Vec<String> = m.bases.iter().map(|b| format!("{}/{}", b.job, b.number)).collect();
    let kind = format!("{:?}", m.kind).to_lowercase();
    for (name, value) in [
        ("kind", kind),
        ("uid", checkpoint.uid.to_string()),
        (
            "completed",
            format!(
                "{} UTC, {} ms after it was opened",
                words::time(m.completed_ms),
                m.completed_ms.saturating_sub(m.opened_ms)
            ),
        ),
        ("epoch", m.epoch.to_string()),
        ("writer", m.writer.to_string()),
        ("bases", if bases.is_empty() { "none".to_owned() } else { bases.join(", ") }),
        ("files", m.files.to_string()),
        ("logical", words::size(m.logical_bytes)),
        ("new", words::size(m.new_bytes)),
        ("unique", words::size(unique.unique)),
    ] {
        words::line(&format!("  {name:10} {value}"))?;
    }
    for (key, value) in m.labels.iter() {
        words::line(&words::clean(&format!("  {:10} {key}={value}", "label")))?;
    }
    for (key, value) in origin.iter().flatten() {
        words::line(&words::clean(&format!("  {key}: {value}")))?;
    }
    let mut rows =
        vec![["OPERATOR", ">SUBTASK", ">FILES", ">LOGICAL", ">NEW", ">BUNDLES", "NAME"].map(str::to_owned).to_vec()];
    for (entry, manifest) in m.subtasks.iter().zip(&manifests) {
        rows.push(vec![
            entry.operator.to_string(),
            entry.subtask.to_string(),
            entry.files.to_string(),
            words::size(entry.logical_bytes),
            words::size(entry.new_bytes),
            manifest.blobs.iter().filter(|b| b.bundle).count().to_string(),
            entry.display_name.clone(),
        ]);
    }
    words::table(&rows)?;
    times(&checkpoint, &phases)?;
    Ok(Exit::Done)
}

/// How long each subtask's phases took, where it is known.
fn times(checkpoint: &Checkpoint, phases: &[Vec<(&'static str, u64)>]) -> Result<()> {
    let columns = phases::columns(phases);
    if columns.is_empty() {
        return Ok(());
    }
    let mut head = vec!["OPERATOR".to_owned(), ">SUBTASK".to_owned()];
    head.extend(columns.iter().map(|name| format!(">{} MS", phases::words(name).to_uppercase())));
    let mut rows = vec![head];
    for (entry, phases) in checkpoint.manifest.subtasks.iter().zip(phases) {
        let mut row = vec![entry.operator.to_string(), entry.subtask.to_string()];
        let ms =
            |name| phases.iter().find(|(known, _)| known == name).map(|(_, ms)| ms.to_string()).unwrap_or_default();
        row.extend(columns.iter().map(ms));
        rows.push(row);
    }
    words::line("")?;
    words::table(&rows)
}

/// What an import noted of the checkpoint as a whole: where it came from, and what was left out.
fn imported(session: &Session, checkpoint: &Checkpoint) -> Result<Option<std::collections::BTreeMap<String, String>>> {
    let Some(entry) = checkpoint.manifest.subtasks.iter().find(|s| s.operator.is_flink()) else { return Ok(None) };
    let mut properties = select::task_manifest(session, checkpoint, entry)?.properties.clone();
    properties.retain(|name, _| !phases::is_phase(name));
    Ok(Some(properties))
}

fn files(context: &Context, session: &Session, selection: &Selection, checkpoint: &Checkpoint) -> Result<Exit> {
    let mut rows = vec![["PATH", ">SIZE", "STORED", "COLUMN FAMILY", ">LEVEL", "DIGEST"].map(str::to_owned).to_vec()];
    let mut values = Vec::new();
    for entry in selection.subtasks(checkpoint)? {
        let manifest = select::task_manifest(session, checkpoint, entry)?;
        for f in &manifest.files {
            let bundled = f.extents.iter().filter_map(|e| manifest.blobs.get(e.blob as usize)).any(|b| b.bundle);
            let stored = match (bundled, f.extents.len()) {
                (false, 1) => "own blob".to_owned(),
                (_, 0 | 1) => "bundle".to_owned(),
                (_, n) => format!("{n} extents"),
            };
            let sst = f.sst.as_ref();
            rows.push(vec![
                f.path.to_string(),
                words::size(f.size),
                stored,
                sst.map(|s| s.column_family.clone()).unwrap_or_default(),
                sst.map(|s| s.level.to_string()).unwrap_or_default(),
                f.digest.to_string().chars().take(16).collect(),
            ]);
        }
        if context.json {
            values.push(serde_json::to_value(&*manifest).unwrap_or_default());
        }
    }
    if context.json {
        words::json(&Value::Array(values))?;
    } else {
        words::table(&rows)?;
    }
    Ok(Exit::Done)
}
