//! One point: a copy of the state, a run that is cut off or fails there, what a person does then, and the full check.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use ckptfs::fuse::{MountRequest, Mounted};
use ckptfs::local::mount;
use ckptfs::view::View;

use super::kind::kind;
use super::mode::Mode;
use super::reader::{self, Shared};
use super::scenarios::{How, Scenario, Step, is_mounted, keep};
use super::yard::{Truth, Yard, copy};
use super::{check, helper};
use crate::ends::limits::{Below, Disk};
use crate::trace::{self, Act, Call, Ran};

/// Longer than anything that a step does.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call as it is counted: its name and the kind of its path.
pub type Class = String;

pub struct Visit {
    /// The call that was hit. Nothing: the run ended before it came so far.
    pub hit: Option<Class>,
    /// Calls of the run that the mode can happen to, in their order, and whether each could be torn.
    pub calls: Vec<(Class, bool)>,
    /// Whether the program said that it did what it was asked.
    pub success: bool,
    /// Its error, with paths and numbers blanked.
    pub words: Option<String>,
    pub verdict: Result<(), String>,
}

/// A directory where points are visited, one after the other.
pub struct Field<'a> {
    pub templates: &'a Path,
    pub work: PathBuf,
    /// Only calls of this kind count.
    pub only: Option<Class>,
}

/// What is noted while a step runs.
struct Notes<'a> {
    hit: &'a RefCell<Option<Class>>,
    calls: &'a RefCell<Vec<(Class, bool)>>,
    words: &'a RefCell<Option<String>>,
    filler: &'a Option<PathBuf>,
}

/// An error's last line, with what differs from run to run blanked.
fn blanked(root: &Path, err: &str) -> String {
    let line = err.lines().rfind(|l| l.starts_with("ckptfs: ")).unwrap_or_default();
    let line = line.replace(root.to_str().unwrap(), "");
    line.split(' ').map(|word| kind(Path::new("/none"), Path::new(word))).collect::<Vec<_>>().join(" ")
}

/// A mount by this process itself, for steps that need one.
struct Beside(#[allow(dead_code)] Option<Mounted>, PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        heal(&self.1);
        drop(self.0.take());
    }
}

pub fn template(templates: &Path, scenario: &Scenario, step: usize) -> PathBuf {
    templates.join(format!("{}-{step}", scenario.name.replace(' ', "-")))
}

fn heal(point: &Path) {
    let _ = mount::heal(point);
    if is_mounted(point) {
        let _ = mount::unmount(point, true);
    }
}

impl Field<'_> {
    /// Visits a step's call `k`, counted from 1 among those that the mode can happen to.
    pub fn visit(&self, scenario: &Scenario, step: usize, mode: Mode, k: u64) -> Visit {
        let root = self.work.join("yard");
        heal(&root.join("mnt"));
        let _ = fs::remove_dir_all(&root);
        let all = Disk::of(mode, &self.work, Below::Everything);
        fs::create_dir_all(&self.work).unwrap();
        // A clone notes where it is: it is made in the place itself.
        let made = if scenario.mounted { 0 } else { step };
        copy(&template(self.templates, scenario, made), &root);
        let mut yard = Yard::at(&root, scenario.cache);
        let own = Disk::of(mode, &self.work, Below::Cache);
        if let Some(disk) = &own {
            yard.cache = disk.take(&root, scenario.cache);
        }
        let before = yard.truth();
        let hit = RefCell::new(None);
        let calls = RefCell::new(Vec::new());
        let success = Cell::new(false);
        let words = RefCell::new(None);
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _beside = scenario.mounted.then(|| beside(&yard));
            let disk = all.as_ref().or(own.as_ref());
            for step in scenario.steps.get(made..step).unwrap_or_default() {
                again(&yard, step, false)?;
            }
            let filler = disk.map(Disk::fill);
            let done = self.run(
                &yard,
                &scenario.steps[step],
                mode,
                k,
                &Notes { hit: &hit, calls: &calls, words: &words, filler: &filler },
            )?;
            success.set(done);
            recover(&yard, scenario, step, done, &before)
        }));
        let verdict = verdict.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(format!("panicked: {}", text.unwrap_or_else(|| "?".to_owned())))
        });
        Visit {
            hit: hit.into_inner(),
            calls: calls.into_inner(),
            success: success.get(),
            words: words.into_inner(),
            verdict,
        }
    }

    /// Whether the step did what it was asked.
    fn run(&self, yard: &Yard, step: &Step, mode: Mode, k: u64, notes: &Notes<'_>) -> Result<bool, String> {
        let Notes { hit, calls, words, filler } = notes;
        let shared = Shared { filler: (*filler).clone(), ..Shared::default() };
        let mut at = 0;
        let mut decide = |call: &Call| {
            let class = || format!("{} {}", call.name, kind(&yard.root, &call.path));
            if mode == Mode::Quiet {
                calls.borrow_mut().push((class(), call.tearable));
                return Act::Go;
            }
            if !mode.applies(call) || self.only.as_ref().is_some_and(|only| *only != class()) {
                return Act::Go;
            }
            at += 1;
            let failing = at == k || matches!(mode, Mode::From(_)) && at > k && !shared.healed.load(SeqCst);
            if !failing {
                return Act::Go;
            }
            hit.borrow_mut().get_or_insert_with(class);
            mode.act()
        };
        let args = (step.args)(yard);
        let mut command = match step.how {
            How::Helper => helper::command(yard, &args),
            How::Verb | How::Mount => yard.command(&args),
        };
        if let Mode::Under(limit) = mode {
            limit.set(&mut command);
            *hit.borrow_mut() = Some("the whole run".to_owned());
        }
        let roots = [yard.root.as_path()];
        let mut traced = || trace::run(&mut command, &roots, mode.watch(), PATIENCE, &mut decide);
        let ran = if step.how == How::Mount {
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| reader::read(yard, &shared));
                let ran = traced();
                shared.over.store(true, SeqCst);
                heal(&yard.path("mnt"));
                let seen = reader.join().map_err(|_| "the reader panicked".to_owned())?;
                // Of a dead daemon nothing can be read.
                let unread = seen.unread.iter().filter(|_| !ran.killed && !mode.lasts());
                match seen.wrong.iter().chain(unread).next() {
                    Some(wrong) => Err(format!("{wrong}; the daemon said {}", ran.words())),
                    None if mode == Mode::Quiet && (seen.errors > 0 || seen.right == 0) => Err(format!("{seen:?}")),
                    None => Ok(ran),
                }
            })?
        } else {
            traced()
        };
        shared.heal();
        judge(&ran, mode)?;
        if ran.code == Some(1) {
            *words.borrow_mut() = Some(blanked(&yard.root, &ran.err));
        }
        let done = !ran.killed && ran.code == Some(0);
        if done && step.keeps {
            keep(yard, &ran.out);
        }
        if mode == Mode::Quiet && !done {
            return Err(format!("it fails although nothing was done to it: {}", ran.words()));
        }
        Ok(done)
    }
}

/// A program ends in the way that it was made to, or with a clear error.
fn judge(ran: &Ran, mode: Mode) -> Result<(), String> {
    let bad = |what: &str| Err(format!("{what}: {}", ran.words()));
    if ran.hung {
        return bad("it hangs");
    }
    // Without memory there is no other end: the allocator says so, and nothing is unwound.
    if mode.starves() && ran.code.is_none() && ran.err.contains("memory allocation of") {
        return Ok(());
    }
    if ran.err.contains("panicked") || ran.err.contains("RUST_BACKTRACE") {
        return bad("it panics");
    }
    match ran.code {
        _ if ran.killed => Ok(()),
        Some(0) => Ok(()),
        Some(1) if !mode.kills() => {
            // What was tried, on what, why it failed, and what to do.
            let last = ran.err.lines().rfind(|l| l.starts_with("ckptfs: ")).unwrap_or_default();
            let remedied = !last.ends_with(')') || last.matches('(').count() >= 2;
            if last.contains('/') && last.contains(':') && remedied { Ok(()) } else { bad("its error says too little") }
        }
        _ => bad("it ends with another code"),
    }
}

fn beside(yard: &Yard) -> Beside {
    let session = yard.session("other").unwrap();
    let point = yard.path("mnt");
    let mut request = MountRequest::new(&point);
    request.passthrough = crate::kit::passthrough();
    let mounted = ckptfs::fuse::mount(&request, View::of_session(&session)).unwrap();
    Beside(Some(mounted), point)
}

fn recover(yard: &Yard, scenario: &Scenario, step: usize, done: bool, before: &Truth) -> Result<(), String> {
    let decided = yard.decided();
    // Somebody who comes now, from another host, finds everything whole.
    if yard.path("store/ckptfs.json").exists() {
        let session = yard.session("onlooker")?;
        check::whole(yard, &session, scenario, before, scenario.ends).map_err(|e| format!("at once: {e}"))?;
    }
    for (i, next) in scenario.steps.iter().enumerate().skip(step) {
        if i == step && done {
            continue;
        }
        again(yard, next, i == step).map_err(|e| format!("then: {e}"))?;
    }
    check::after(yard, scenario, before, &decided).map_err(|e| format!("at the end: {e}"))
}

/// A step without anything that is done to it.
pub fn again(yard: &Yard, step: &Step, repeated: bool) -> Result<(), String> {
    if let Some(again) = step.again.filter(|_| repeated) {
        return again(yard);
    }
    let args = (step.args)(yard);
    let said: crate::tool::Said = match step.how {
        How::Verb => yard.run(&args),
        How::Helper => helper::command(yard, &args).output().unwrap().into(),
        How::Mount => {
            let mut decide = |_: &Call| Act::Go;
            let shared = Shared::default();
            let (ran, seen) = std::thread::scope(|scope| {
                let reader = scope.spawn(|| reader::read(yard, &shared));
                let roots = [yard.root.as_path()];
                let ran = trace::run(&mut yard.command(&args), &roots, trace::Watch::Changes, PATIENCE, &mut decide);
                shared.over.store(true, SeqCst);
                heal(&yard.path("mnt"));
                (ran, reader.join().unwrap())
            });
            if ran.code != Some(0) || !seen.wrong.is_empty() || seen.errors > 0 || seen.right == 0 {
                return Err(format!("mounted again: {}, {seen:?}", ran.words()));
            }
            return Ok(());
        }
    };
    if said.code != 0 {
        return Err(format!("{:?} fails: {}", step.name, said.err.trim()));
    }
    if step.keeps {
        keep(yard, &said.out);
    }
    Ok(())
}

/// Makes the states before all steps.
pub fn prepare(templates: &Path, scenario: &Scenario, seed: u64) {
    let first = template(templates, scenario, 0);
    fs::create_dir_all(first.join("mnt")).unwrap();
    (scenario.prepare)(&Yard::at(&first, scenario.cache), seed);
    for i in 1..if scenario.mounted { 1 } else { scenario.steps.len() } {
        let next = template(templates, scenario, i);
        copy(&template(templates, scenario, i - 1), &next);
        let yard = Yard::at(&next, scenario.cache);
        again(&yard, &scenario.steps[i - 1], false).unwrap();
    }
}

/// How often each was hit.
pub type Hits = BTreeMap<String, u64>;
