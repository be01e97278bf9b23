//! The planted faults: what is changed in the shipped source, and in which configurations it must be found.

/// One place of one file: the text that stands there once, and the text that is put there.
pub struct Edit {
    /// Below `src/lifecycle`.
    pub file: &'static str,
    pub old: &'static str,
    pub new: &'static str,
}

/// A fault.
pub struct Fault {
    pub name: &'static str,
    pub edits: &'static [Edit],
    /// One of these finds it; they are tried in turn.
    pub configs: &'static [&'static str],
    /// Asks for what the actors did not declare: searched without reduction.
    pub loose: bool,
}

const fn edit(file: &'static str, old: &'static str, new: &'static str) -> Edit {
    Edit { file, old, new }
}

const fn fault(name: &'static str, edits: &'static [Edit], configs: &'static [&'static str]) -> Fault {
    Fault { name, edits, configs, loose: false }
}

const fn loose(name: &'static str, edits: &'static [Edit], configs: &'static [&'static str]) -> Fault {
    Fault { name, edits, configs, loose: true }
}

/// All of them. The first is none: the copy must be what it was copied from.
pub const FAULTS: &[Fault] = &[
    fault("none", &[], &["a pin twice", "detached", "careless adoption", "two jobs"]),
    fault(
        "open: expired is looked up before the intent is created",
        &[
            edit(
                "open.rs",
                "        self.ask(Phase::CreateIntent(Box::new(intent)), vec![create])",
                "        let gets = intent.bases.iter().map(|b| Request::Get(Key::expired(&b.job, b.number))).collect();
        self.ask(Phase::LookExpired(Box::new(intent)), gets)",
            ),
            edit(
                "open.rs",
                "        let gets = intent.bases.iter().map(|b| Request::Get(Key::expired(&b.job, b.number))).collect();
        self.ask(Phase::LookExpired(intent), gets)",
                "        let gets = intent.bases.iter().map(|b| Request::Get(Key::outcome(&b.job, b.number))).collect();
        self.ask(Phase::LookOutcomes(intent), gets)",
            ),
            edit(
                "open.rs",
                "        let gets = intent.bases.iter().map(|b| Request::Get(Key::outcome(&b.job, b.number))).collect();
        self.ask(Phase::LookOutcomes(intent), gets)
    }

    fn outcomes_looked",
                "        let number = CheckpointNumber::new(intent.place.number).unwrap();
        let create = Request::Create(Key::intent(&self.plan.job, number), tri!(write(&*intent)));
        self.ask(Phase::CreateIntent(intent), vec![create])
    }

    fn outcomes_looked",
            ),
        ],
        &["two jobs", "2 writers, 1 sweeper, 1 reader"],
    ),
    fault(
        "open: expired is not looked up",
        &[edit(
            "open.rs",
            "        if dead.is_empty() {
            return self.look_outcomes(intent);",
            "        if true {
            return self.look_outcomes(intent);",
        )],
        &["two jobs", "2 writers, 1 sweeper, 1 reader"],
    ),
    fault(
        "open: an intent names no bases",
        &[edit(
            "open.rs",
            "Request::Create(Key::intent(&job, number), tri!(write(&intent)));",
            "Request::Create(Key::intent(&job, number), tri!(write(&Intent { bases: Vec::new(), ..intent.clone() })));",
        )],
        &["two jobs", "2 writers, 1 sweeper, 1 reader"],
    ),
    fault(
        "open: no look at the epoch after the intent",
        &[edit("open.rs", "        if ruling > self.epoch {", "        if false {")],
        &["take-over"],
    ),
    fault(
        "open: the pin of an own-pinned base is not looked at again",
        &[edit(
            "open.rs",
            "            Some(gets) => self.ask(Phase::LookPins(intent, dead), gets),",
            "            Some(_) => self.look_outcomes(intent),",
        )],
        &["own-pinned base"],
    ),
    fault(
        "open: the own number's floor is not looked at",
        &[edit("open.rs", "        if own {\n", "        if false {\n")],
        &["given numbers"],
    ),
    fault(
        "open: what a base has become is not looked at",
        &[
            edit(
                "open.rs",
                "        if dead.is_empty() {
            return self.look_outcomes(intent);",
                "        if true {
            return self.look_outcomes(intent);",
            ),
            edit(
                "open.rs",
                "                Ok(_) => {
                    let lost = [base.clone()];
                    return self.lose(intent, &lost, \"is not there any more\");
                }",
                "                Ok(_) => Verdict::Aborted { reason: String::new() },",
            ),
            edit("open.rs", "        if !lost.is_empty() {", "        if false {"),
        ],
        &["forget", "forget a base"],
    ),
    fault(
        "open: a rival's intent is taken for the own",
        &[edit(
            "open.rs",
            "            Created::Other(_) => match self.plan.number {",
            "            Created::Other(_) if true => {
                let list = Request::List(Prefix::job(RecordKind::Epoch, &self.plan.job));
                self.ask(Phase::LookEpoch(intent), vec![list])
            }
            Created::Other(_) => match self.plan.number {",
        )],
        &["2 writers, 1 sweeper, 1 reader", "killed writers"],
    ),
    fault(
        "survey: the highest floor alone is believed",
        &[edit(
            "survey.rs",
            "        self.numbers.iter().zip(&self.survivors).any(|(f, survivors)| n < *f && !survivors.contains(&n))",
            "        let highest = self.numbers.iter().zip(&self.survivors).max_by_key(|(f, _)| **f);
        highest.is_some_and(|(f, survivors)| n < *f && !survivors.contains(&n))",
        )],
        &["floors"],
    ),
    loose(
        "abort: the outcome is overwritten",
        &[edit(
            "abort.rs",
            "                Step::Ask(vec![create])",
            "                Step::Ask(vec![create, Request::Delete(Key::outcome(&self.job, self.number))])",
        )],
        &["detached", "2 writers, 1 sweeper, 1 reader"],
    ),
    loose(
        "complete: the outcome is overwritten",
        &[
            edit(
                "complete.rs",
                "        if let Created::Other(bytes) = tri!(created(replies)) {
            let key = Key::outcome(&self.job, self.number);",
                "        if let Created::Other(bytes) = tri!(created(replies)) {
            let key = Key::outcome(&self.job, self.number);
            if true {
                return self.ask(Phase::Expire(Vec::new()), vec![Request::Delete(key)]);
            }",
            ),
        ],
        &["detached", "killed writers"],
    ),
    loose(
        "abort: a failed task deletes its uploads",
        &[
            edit("abort.rs", "    Intent,\n    Create,\n}", "    Intent,\n    Create,\n    Blobs,\n    Deleted,\n}"),
            edit(
                "abort.rs",
                "                Created::New => Step::Done(Ok(true)),",
                "                Created::New => {
                    self.phase = Phase::Blobs;
                    Step::Ask(vec![Request::Blobs, Request::Get(Key::intent(&self.job, self.number))])
                }",
            ),
            edit(
                "abort.rs",
                "            Phase::Create => match",
                "            Phase::Blobs => {
                let key = Key::intent(&self.job, self.number);
                let (Some(Reply::Blobs(blobs)), Some(Reply::Got(intent))) = (replies.first(), replies.get(1)) else {
                    return Step::Done(Err(LifecycleError::Confused));
                };
                let Ok(Some(intent)) = read::<Intent>(&key, intent.as_ref()) else { return Step::Done(Ok(true)) };
                let own = blobs.iter().filter(|(b, _)| b.uid == intent.record.place.uid);
                self.phase = Phase::Deleted;
                Step::Ask(own.map(|(b, _)| Request::Delete(Key::blob(b))).collect())
            }
            Phase::Deleted => Step::Done(Ok(true)),
            Phase::Create => match",
            ),
        ],
        &["an aborter and an adopter"],
    ),
    fault(
        "complete: uploads are not looked for",
        &[edit(
            "complete.rs",
            "            if found != length {",
            "            if false {",
        )],
        &["careless adoption"],
    ),
    fault(
        "complete: an abort is taken for the own outcome",
        &[edit(
            "complete.rs",
            "        if let Created::Other(bytes) = tri!(created(replies)) {
            let key = Key::outcome(&self.job, self.number);",
            "        if let Created::Other(bytes) = tri!(created(replies)) {
            let key = Key::outcome(&self.job, self.number);
            if true {
                return self.done();
            }",
        )],
        &["detached", "2 writers, 1 sweeper, 1 reader"],
    ),
    fault(
        "abort: a completed one is said to be aborted",
        &[edit("abort.rs", "                        Some(Verdict::Completed(_)) => {", "                        Some(Verdict::Completed(_)) if false => {"),
          edit("abort.rs", "Some(Verdict::Aborted { .. }) | None => Step::Done(Ok(false)),", "_ => Step::Done(Ok(false)),")],
        &["detached", "2 writers, 1 sweeper, 1 reader"],
    ),
    fault(
        "take-over: what is open stays open",
        &[edit("takeover.rs", "                        && d.record.epoch < self.epoch", "                        && d.record.epoch > self.epoch")],
        &["take-over"],
    ),
    fault(
        "take-over: another's epoch is taken for the own",
        &[edit(
            "takeover.rs",
            "                Created::Other(_) if self.tries < limits::OPEN_TRIES => {",
            "                Created::Other(_) if true => {
                    self.epoch = epoch;
                    self.phase = Phase::Survey;
                    Step::Ask(Survey::lists(&self.job))
                }
                Created::Other(_) if self.tries < limits::OPEN_TRIES => {",
        )],
        &["take-over"],
    ),
    fault(
        "pin: expired is looked up before the pin is created",
        &[
            edit(
                "pin.rs",
                "            Phase::Begin => {
                let get = Request::Get(Key::outcome(&self.pin.job, self.pin.number));
                self.ask(Phase::Outcome, vec![get])
            }",
                "            Phase::Begin => {
                let get = Request::Get(Key::expired(&self.pin.job, self.pin.number));
                self.ask(Phase::LookExpired(self.pin.nonce), vec![get])
            }",
            ),
            edit(
                "pin.rs",
                "                let list = Floors::list(&self.pin.job);
                self.ask(Phase::LookFloors(uid), vec![list])",
                "                let get = Request::Get(Key::outcome(&self.pin.job, self.pin.number));
                self.ask(Phase::Outcome, vec![get])",
            ),
            edit(
                "pin.rs",
                "                let get = Request::Get(Key::expired(&self.pin.job, self.pin.number));
                self.ask(Phase::LookExpired(uid), vec![get])
            }
            Created::Other(_)",
                "                let list = Floors::list(&self.pin.job);
                self.ask(Phase::LookFloors(uid), vec![list])
            }
            Created::Other(_)",
            ),
        ],
        &["a pin twice", "1 writer, 2 sweepers, 1 reader"],
    ),
    fault(
        "pin: expired is not looked up",
        &[edit(
            "pin.rs",
            "                if tri!(got(replies)).into_iter().flatten().next().is_some() {",
            "                if false {",
        )],
        &["a pin twice"],
    ),
    fault(
        "pin: floors are not looked at",
        &[edit(
            "pin.rs",
            "        if floors.gone(self.pin.number) {",
            "        if false {",
        )],
        &["forget", "floors"],
    ),
    loose(
        "pin: expired is removed to undelete",
        &[edit(
            "pin.rs",
            "        let delete = Request::Delete(self.pin.key());",
            "        let delete = Request::Delete(Key::expired(&self.pin.job, self.pin.number));",
        )],
        &["a pin twice"],
    ),
    fault(
        "pin: a name is used twice",
        &[edit(
            "pin.rs",
            "        Key::pin(&self.job, self.number, self.holder, self.nonce)",
            "        Key::pin(&self.job, self.number, self.holder, self.holder)",
        ),
        edit(
            "pin.rs",
            "(place.holder, place.nonce) = (Some(self.pin.holder), Some(self.pin.nonce));",
            "(place.holder, place.nonce) = (Some(self.pin.holder), Some(self.pin.holder));",
        )],
        &["a pin twice"],
    ),
    fault(
        "sweep: one pass instead of two, the dead are listed last",
        &[
            edit(
                "sweep/plan.rs",
                "                self.blobs = blobs;
                self.list(Phase::Expired, RecordKind::Expired)",
                "                self.blobs = blobs;
                self.list(Phase::Pins, RecordKind::Pin)",
            ),
            edit(
                "sweep/plan.rs",
                "                self.dead = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Pins, RecordKind::Pin)",
                "                self.dead = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Floors, RecordKind::Floor)",
            ),
            edit(
                "sweep/plan.rs",
                "                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Floors, RecordKind::Floor)",
                "                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Expired, RecordKind::Expired)",
            ),
        ],
        &["two jobs", "2 writers, 1 sweeper, 1 reader"],
    ),
    fault(
        "sweep: the blobs are listed last",
        &[
            edit(
                "sweep/plan.rs",
                "            Phase::Begin => self.ask(Phase::Blobs, vec![Request::Blobs]),",
                "            Phase::Begin => self.list(Phase::Expired, RecordKind::Expired),",
            ),
            edit(
                "sweep/plan.rs",
                "                self.blobs = blobs;
                self.list(Phase::Expired, RecordKind::Expired)",
                "                self.blobs = blobs;
                self.list(Phase::Floors, RecordKind::Floor)",
            ),
            edit(
                "sweep/plan.rs",
                "                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Floors, RecordKind::Floor)",
                "                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.ask(Phase::Blobs, vec![Request::Blobs])",
            ),
            // Whose uploads these are is then in no list: they look foreign.
            edit(
                "sweep/execute.rs",
                "        let foreign = if foreign { plan.foreign.as_slice() } else { &[] };",
                "        let foreign = plan.foreign.as_slice();",
            ),
        ],
        &["two jobs", "2 writers, 1 sweeper, 1 reader"],
    ),
    fault(
        "sweep: pins are read last",
        &[
            edit(
                "sweep/plan.rs",
                "                self.dead = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Pins, RecordKind::Pin)",
                "                self.dead = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Intents, RecordKind::Intent)",
            ),
            edit(
                "sweep/plan.rs",
                "                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Floors, RecordKind::Floor)",
                "                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();
                self.list(Phase::Pins, RecordKind::Pin)",
            ),
            edit(
                "sweep/plan.rs",
                "or_default().push(pin);
                }
                self.list(Phase::Intents, RecordKind::Intent)",
                "or_default().push(pin);
                }
                self.list(Phase::Floors, RecordKind::Floor)",
            ),
        ],
        &["two jobs", "own-pinned base"],
    ),
    fault(
        "sweep: the lists of several jobs are interleaved",
        &[
            edit("sweep/plan.rs", "    options: SweepOptions,\n    phase: Phase,", "    options: SweepOptions,\n    second: bool,\n    phase: Phase,"),
            edit("sweep/plan.rs", "            options,\n            phase", "            options,\n            second: false,\n            phase"),
            edit(
                "sweep/plan.rs",
                "        self.ask(phase, vec![Request::List(Prefix::kind(kind))])",
                "        let job = Name::encode(if self.second { \"a\" } else { \"b\" });
        let prefix = match kind {
            RecordKind::Pin | RecordKind::Intent | RecordKind::Outcome => Prefix::job(kind, &job),
            _ => Prefix::kind(kind),
        };
        self.ask(phase, vec![Request::List(prefix)])",
            ),
            edit(
                "sweep/plan.rs",
                "                self.intents = tri!(listed(replies)).concat().iter().filter_map(at).collect();",
                "                self.intents.extend(tri!(listed(replies)).concat().iter().filter_map(at));",
            ),
            edit(
                "sweep/plan.rs",
                "                self.outcomes = tri!(listed(replies)).concat().iter().filter_map(at).collect();",
                "                self.outcomes.extend(tri!(listed(replies)).concat().iter().filter_map(at));
                if !self.second {
                    self.second = true;
                    return self.list(Phase::Pins, RecordKind::Pin);
                }",
            ),
        ],
        &["two jobs"],
    ),
    fault(
        "sweep: pinned ones are not kept",
        &[edit("sweep/plan.rs", "                        (_, _, true) => Rank::Pinned,\n", "")],
        &["a pin twice"],
    ),
    fault(
        "sweep: bases of open ones are not kept",
        &[edit("sweep/plan.rs", "                        (_, true, _) => Rank::Base,\n", "")],
        &["forget a base"],
    ),
    fault(
        "sweep: uploads of open ones are not kept",
        &[edit("sweep/plan.rs", "            self.keep.uploads_of(intent.place.uid);\n", "")],
        &["careless adoption", "adoption"],
    ),
    fault(
        "sweep: uploads of open ones' bases are not kept",
        &[edit("sweep/plan.rs", "                self.keep.uploads_of(uid);\n", "")],
        &["adoption"],
    ),
    fault(
        "sweep: uploads of aborted ones are not kept",
        &[edit(
            "sweep/plan.rs",
            "                Verdict::Aborted { .. } if !dead => self.keep.uploads_of(uid),\n",
            "",
        )],
        &["careless adoption", "adoption"],
    ),
    fault(
        "sweep: what went away since it was listed is passed over",
        &[edit(
            "sweep/plan.rs",
            "            let Some(d) = tri!(read::<Outcome>(&key, bytes.as_ref())) else {
                return Step::Done(Err(went_away(&key)));
            };",
            "            let Some(d) = tri!(read::<Outcome>(&key, bytes.as_ref())) else { continue };",
        )],
        &["two forget"],
    ),
    fault(
        "sweep: an intent that went away since it was listed is passed over",
        &[edit(
            "sweep/plan.rs",
            "            let Some(d) = tri!(read::<Intent>(&key, bytes.as_ref())) else {
                return Step::Done(Err(went_away(&key)));
            };",
            "            let Some(d) = tri!(read::<Intent>(&key, bytes.as_ref())) else { continue };",
        )],
        &["forget what was open"],
    ),
    fault(
        "sweep: an open one that a floor has passed since keeps nothing",
        &[edit(
            "sweep/plan.rs",
            "        let open: Vec<At> = self.intents.difference(&self.outcomes).cloned().collect();",
            "        let gone = |at: &At| self.jobs.get(&at.0).is_some_and(|numbers| numbers.floors.gone(at.1));
        let open: Vec<At> = self.intents.difference(&self.outcomes).filter(|at| !gone(at)).cloned().collect();",
        )],
        &["forget what was open"],
    ),
    fault(
        "driver: a listing error is ignored",
        &[edit(
            "driver.rs",
            "Reply::Listed(store.list(&prefix)?)",
            "Reply::Listed(store.list(&prefix).unwrap_or_default())",
        )],
        &["failing store"],
    ),
    fault(
        "forget: records are deleted without a floor",
        &[edit(
            "forget.rs",
            "        let bytes = tri!(write(&record));
        let Ok(floor)",
            "        if true {
            self.going.extend(passed);
            return self.list();
        }
        let bytes = tri!(write(&record));
        let Ok(floor)",
        )],
        &["forget"],
    ),
    fault(
        "forget: a floor does not list its survivors",
        &[edit("forget.rs", "            survivors: survivors.into_iter().collect(),", "            survivors: Vec::new(),")],
        &["floors"],
    ),
    fault(
        "forget: a floor does not list the uids that have blobs",
        &[edit(
            "forget.rs",
            "            uids: uids.filter(|u| self.numbers.uids_with_blobs.contains(u)).copied().collect(),",
            "            uids: uids.filter(|_| false).copied().collect(),",
        )],
        &["forget"],
    ),
    fault(
        "forget: a floor passes a pinned number",
        &[edit(
            "sweep/plan.rs",
            "        let needed = self.pins.keys().chain(&self.open).chain(self.bases.keys());",
            "        let needed = self.open.iter().chain(self.bases.keys());",
        )],
        &["forget"],
    ),
    fault(
        "forget: a floor passes a base of an open one",
        &[edit(
            "sweep/plan.rs",
            "        let needed = self.pins.keys().chain(&self.open).chain(self.bases.keys());",
            "        let needed = self.pins.keys().chain(&self.open);",
        )],
        &["forget"],
    ),
    fault(
        "forget: a floor passes what lives",
        &[
            edit("forget.rs", "        numbers.dead.contains(&n)\n            && ", "        "),
            edit(
                "sweep/plan.rs",
                "self.uids.iter().filter(|(_, (at, _))| self.dead.contains(at))",
                "self.uids.iter().filter(|_| true)",
            ),
        ],
        &["floors", "forget"],
    ),
    fault(
        "forget: a floor passes numbers that nobody has used",
        &[edit(
            "forget.rs",
            "        survivors.extend(unused.filter(|n| !passed.contains(n)));",
            "        survivors.extend(unused.filter(|_| false));",
        )],
        &["given numbers"],
    ),
];
