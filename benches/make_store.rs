//! Makes a large store for `scripts/bench.sh sweep`: records as the program writes them, blobs without their bytes.
//!
//! usage: `make_store DIR CHECKPOINTS FILES FORGOTTEN [SUBTASKS]`: so many live checkpoints of job `app`, whose subtasks have so many files
//! each, of which one in a hundred is new, above so many numbers that floors have passed.

use std::io::Write;
use std::path::Path;

use ckptfs::error::Result;
use ckptfs::format::records::{FloorRecord, StoreRecord};
use ckptfs::format::{
    BlobEntry, CheckpointKind, CheckpointManifest, ExpectedOperator, FileEntry, FilePath, Intent, Labels, Outcome,
    Place, Record, Role, SubtaskEntry, TaskManifest, Verdict, encode,
};
use ckptfs::lifecycle::forget;
use ckptfs::lifecycle::sweep::Numbers;
use ckptfs::types::{BlobName, CheckpointNumber, Digest, Epoch, Extent, Key, Name, Uid};

const TABLE: u64 = 64 << 20;

struct Store<'a> {
    root: &'a Path,
    job: Name,
    operator: Name,
}

fn uid(n: u64) -> Uid {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    Uid::from_bytes(bytes)
}

fn number(n: u64) -> CheckpointNumber {
    CheckpointNumber::new(n).unwrap_or(CheckpointNumber::FIRST)
}

impl Store<'_> {
    fn put(&self, key: &Key, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.root.join(key.as_str());
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)?;
        }
        std::fs::write(path, bytes)
    }

    fn record<R: Record>(&self, key: &Key, record: &R) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let bytes = encode(record)?;
        self.put(key, &bytes)?;
        Ok(bytes)
    }

    fn checkpoint(&self, n: u64, subtasks: &[&[(BlobName, u64)]]) -> Result<(), Box<dyn std::error::Error>> {
        let place = |role| Place::new(role, &self.job, n, uid(n));
        let intent = Intent {
            place: place(Role::Intent),
            epoch: Epoch::default(),
            writer: uid(0),
            bases: Vec::new(),
            expected: vec![ExpectedOperator {
                operator: self.operator.clone(),
                parallelism: u32::try_from(subtasks.len())?,
            }],
            kind: CheckpointKind::Checkpoint,
            detached: false,
            opened_ms: n,
            stop: false,
            labels: Labels::default(),
        };
        self.record(&Key::intent(&self.job, number(n)), &intent)?;
        let entries = (0..).zip(subtasks).map(|(index, files)| self.task(n, index, files));
        let subtasks = entries.collect::<Result<Vec<SubtaskEntry>, _>>()?;
        let sum = |of: fn(&SubtaskEntry) -> u64| subtasks.iter().map(of).sum();
        let manifest = CheckpointManifest {
            kind: CheckpointKind::Checkpoint,
            epoch: Epoch::default(),
            writer: uid(0),
            bases: Vec::new(),
            logical_bytes: sum(|s| s.logical_bytes),
            new_bytes: sum(|s| s.new_bytes),
            files: sum(|s| s.files),
            opened_ms: n,
            completed_ms: n,
            labels: Labels::default(),
            phases: Default::default(),
            subtasks,
        };
        let outcome = Outcome { place: place(Role::Outcome), verdict: Verdict::Completed(manifest) };
        self.record(&Key::outcome(&self.job, number(n)), &outcome)?;
        Ok(())
    }

    fn task(&self, n: u64, index: u32, files: &[(BlobName, u64)]) -> Result<SubtaskEntry, Box<dyn std::error::Error>> {
        let mut task = TaskManifest {
            place: Place::new(Role::Task, &self.job, n, uid(n)),
            display_name: "db".to_owned(),
            blobs: files.iter().map(|(name, _)| BlobEntry { name: *name, length: TABLE, bundle: false }).collect(),
            files: Vec::new(),
            logical_bytes: TABLE * files.len() as u64,
            new_bytes: TABLE,
            backend: None,
            key_groups: None,
            states: Vec::new(),
            properties: Default::default(),
            other_state: Default::default(),
            origins: Default::default(),
        };
        task.place.subtask = Some((self.operator.clone(), index));
        for (blob, (name, table)) in files.iter().enumerate() {
            task.files.push(FileEntry {
                path: FilePath::db(&format!("{table:06}.sst"))?,
                size: TABLE,
                digest: name.digest,
                extents: vec![Extent { blob: u32::try_from(blob)?, offset: 0, length: TABLE }],
                tree: None,
                tail: None,
                sst: None,
            });
        }
        task.files.sort_by(|a, b| a.path.cmp(&b.path));
        let bytes = self.record(&Key::task(&self.job, number(n), &self.operator, index), &task)?;
        Ok(SubtaskEntry {
            operator: self.operator.clone(),
            display_name: "db".to_owned(),
            subtask: index,
            manifest: Digest::of(&bytes),
            manifest_length: bytes.len() as u64,
            logical_bytes: task.logical_bytes,
            new_bytes: task.new_bytes,
            files: task.files.len() as u64,
        })
    }

    /// Floors as sweeps after every few checkpoints would have left them.
    fn floors(&self, forgotten: u64) -> Result<(), Box<dyn std::error::Error>> {
        let mut passed = 0;
        let mut numbers = Numbers::default();
        let mut floors = Vec::new();
        while passed < forgotten {
            passed = forgotten.min(passed + forget::step(&numbers) as u64);
            let f = number(passed + 1);
            let place = Place::new(Role::Floor, &self.job, f.get(), uid(passed + 1));
            self.record(&Key::floor(&self.job, f), &FloorRecord { place, survivors: Vec::new(), uids: Vec::new() })?;
            floors.push(Key::floor(&self.job, f));
            numbers.floors.take_list(&floors);
        }
        Ok(writeln!(std::io::stdout(), "{} floors", floors.len())?)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (dir, numbers) = args.split_first().ok_or("usage: make_store DIR CHECKPOINTS FILES FORGOTTEN [SUBTASKS]")?;
    let numbers = numbers.iter().map(|n| n.parse()).collect::<Result<Vec<u64>, _>>()?;
    let [checkpoints, count, forgotten, subtasks] = match numbers.as_slice() {
        [a, b, c] => [*a, *b, *c, 1],
        [a, b, c, d] => [*a, *b, *c, *d],
        _ => return Err("usage: make_store DIR CHECKPOINTS FILES FORGOTTEN [SUBTASKS]".into()),
    };
    let store = Store { root: Path::new(dir), job: Name::encode("app"), operator: Name::encode("db") };
    let mut place = Place::new(Role::Store, &store.job, 0, uid(1));
    place.job = None;
    store.record(&Key::store(), &StoreRecord { place, created_by: "ckptfs bench".to_owned() })?;
    store.floors(forgotten)?;
    let mut tables: Vec<Vec<(BlobName, u64)>> = vec![Vec::new(); usize::try_from(subtasks)?];
    let mut next = 0_u64;
    for n in forgotten + 1..=forgotten + checkpoints {
        for tables in &mut tables {
            let new = if tables.is_empty() { count } else { (count / 100).max(1) };
            for _ in 0..new {
                next += 1;
                let name = BlobName { digest: Digest::of(&next.to_le_bytes()), uid: uid(n) };
                store.put(&Key::blob(&name), b"")?;
                tables.push((name, next));
            }
        }
        let live = |all: &Vec<_>| all.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
        let lived: Vec<&[_]> = tables.iter().map(|all| all.get(live(all)..).unwrap_or_default()).collect();
        store.checkpoint(n, &lived)?;
    }
    Ok(())
}
