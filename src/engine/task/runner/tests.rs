//! One owner of the clean-up, whoever runs, cancels or closes.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use super::*;

#[derive(Debug, Default, Clone)]
struct Seen(Arc<[AtomicUsize; 2]>);

impl Seen {
    fn counts(&self) -> (usize, usize) {
        (self.0[0].load(Ordering::SeqCst), self.0[1].load(Ordering::SeqCst))
    }
}

#[derive(Debug)]
struct Lease(Seen);

impl Resources for Lease {
    fn release(&mut self) -> Result<()> {
        self.0.0[0].fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[derive(Debug)]
struct State(Seen);

impl Produced for State {
    fn sizes(&self) -> Sizes {
        Sizes { state: 10, sent: 3 }
    }

    fn discard(&mut self) -> Result<()> {
        self.0.0[1].fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn future(
    registry: &Registry,
    work: impl FnOnce(&Cancel) -> Result<()> + Send + 'static,
) -> (Seen, Result<Arc<AsyncSnapshot<Lease, State>>>) {
    let seen = Seen::default();
    let state = State(seen.clone());
    let future = run("a snapshot", registry, Lease(seen.clone()), move |_, cancel| work(cancel).map(|()| state));
    (seen, future)
}

#[test]
fn row3_who_runs_it_releases_and_hands_over() {
    let (seen, future) = future(&Registry::default(), |_| Ok(()));
    let future = future.unwrap();
    future.run();
    future.run();
    assert!(future.take().is_ok() && future.take().is_err(), "taken once");
    assert_eq!(future.cancel().unwrap(), Sizes::default(), "nothing is left to discard");
    assert_eq!(seen.counts(), (1, 0), "released once, and not discarded");
}

#[test]
fn row3_cancelled_before_it_ran_releases_and_never_runs() {
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let (seen, future) = future(&Registry::default(), move |_| {
        runs.store(true, Ordering::SeqCst);
        Ok(())
    });
    let future = future.unwrap();
    assert_eq!(future.cancel().unwrap(), Sizes::default());
    assert_eq!(seen.counts(), (1, 0), "released at once");
    future.run();
    future.cancel().unwrap();
    assert_eq!(future.take().unwrap_err().kind(), Kind::Conflict);
    assert_eq!((seen.counts(), ran.load(Ordering::SeqCst)), ((1, 0), false));
}

#[test]
fn row3_cancelled_while_it_runs_stops_first_and_is_released_by_the_runner_alone() {
    let (began, wait) = mpsc::channel();
    let (seen, future) = future(&Registry::default(), move |cancel| {
        began.send(()).unwrap();
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        Err(Error::new(Kind::Other, "a stream was closed"))
    });
    let future = future.unwrap();
    let running = Arc::clone(&future);
    let runner = std::thread::spawn(move || running.run());
    wait.recv().unwrap();
    assert_eq!(seen.counts(), (0, 0));
    future.cancel().unwrap();
    runner.join().unwrap();
    let e = future.take().unwrap_err();
    assert_eq!((e.kind(), e.message()), (Kind::Conflict, "a snapshot: cancelled"), "whatever the stream said");
    assert_eq!(seen.counts(), (1, 0));
}

#[test]
fn row3_finished_though_cancelled_is_discarded() {
    let (began, wait) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (seen, future) = future(&Registry::default(), move |_| {
        began.send(()).unwrap();
        gone.recv().unwrap();
        Ok(())
    });
    let future = future.unwrap();
    let running = Arc::clone(&future);
    let runner = std::thread::spawn(move || running.run());
    wait.recv().unwrap();
    future.cancel().unwrap();
    go.send(()).unwrap();
    runner.join().unwrap();
    assert!(future.take().is_err());
    assert_eq!(seen.counts(), (1, 1));
}

#[test]
fn row2_cancelled_after_it_finished_is_discarded_with_its_sizes() {
    let (seen, future) = future(&Registry::default(), |_| Ok(()));
    let future = future.unwrap();
    future.run();
    assert_eq!(future.cancel().unwrap(), Sizes { state: 10, sent: 3 });
    assert_eq!(future.cancel().unwrap(), Sizes::default());
    assert_eq!(seen.counts(), (1, 1));
}

#[test]
fn row3_closing_the_backend_cancels_what_runs_and_refuses_what_comes() {
    let registry = Registry::default();
    let (seen, running) = future(&registry, |_| Ok(()));
    let running = running.unwrap();
    registry.close();
    running.run();
    assert!(running.take().is_err());
    assert_eq!(seen.counts(), (1, 0));
    let (seen, refused) = future(&registry, |_| Ok(()));
    assert!(refused.unwrap_err().message().contains("closed"));
    assert_eq!(seen.counts(), (1, 0), "what was prepared is released");
}

#[test]
fn row3_a_panic_in_the_work_is_an_error_and_releases() {
    let (seen, future) = future(&Registry::default(), |_| panic!("bad luck"));
    let future = future.unwrap();
    future.run();
    assert_eq!(future.take().unwrap_err().message(), "a snapshot panicked: bad luck");
    assert_eq!(seen.counts(), (1, 0));
}
