//! The store's own history: rivals create the same keys with `If-None-Match: *`, without any code of ours between. One must win, and what
//! it wrote must be what is read afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, RetryConfig};

use crate::s3::BUCKET;

const LANES: usize = 4;

/// What became of many keys.
#[derive(Debug, Default)]
pub struct History {
    /// Keys of which one rival was told that it won, and whose object is that rival's.
    pub sound: u64,
    /// Nobody was told that it won: the answers were errors, which say neither.
    pub unclear: u64,
    /// By rival: who won.
    pub wins: BTreeMap<usize, u64>,
    /// Winners' objects that another rival could not look at at once, for an error.
    pub unread: u64,
    /// Winners' objects that another rival did not see at once, in words.
    pub stale: Vec<String>,
    /// Keys with two winners, or without what the winner wrote, in words.
    pub broken: Vec<String>,
}

fn client(endpoint: &str) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_access_key_id("writer")
        .with_secret_access_key("writer-secret")
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // A retry could meet its own success.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_client_options(ClientOptions::new().with_allow_http(true).with_timeout(Duration::from_secs(5)))
        .build()
        .unwrap()
}

/// Some races at once, as the answer to one may not come while a host is away. Ends when told to. Without a condition (`mode`) every rival
/// wins: then this must say so.
pub fn race(endpoints: &[String], prefix: &str, mode: &PutMode, over: &AtomicBool) -> History {
    let mut all = History::default();
    let histories: Vec<History> = std::thread::scope(|scope| {
        let lane = |n| scope.spawn(move || race_alone(endpoints, &format!("{prefix}/{n}"), mode, over));
        let lanes: Vec<_> = (0..LANES).map(lane).collect();
        lanes.into_iter().map(|l| l.join().unwrap()).collect()
    });
    for history in histories {
        all.sound += history.sound;
        all.unclear += history.unclear;
        all.unread += history.unread;
        all.stale.extend(history.stale);
        all.broken.extend(history.broken);
        for (rival, wins) in history.wins {
            *all.wins.entry(rival).or_default() += wins;
        }
    }
    all
}

/// Races for one key after another until told to stop; then reads them all again.
fn race_alone(endpoints: &[String], prefix: &str, mode: &PutMode, over: &AtomicBool) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients: Vec<AmazonS3> = endpoints.iter().map(|e| client(e)).collect();
    let mut won = Vec::new();
    let mut history = History::default();
    for n in 0_u64.. {
        if over.load(SeqCst) {
            break;
        }
        let key = Path::from(format!("{prefix}/{n:08}"));
        let tries = clients.iter().enumerate().map(|(rival, client)| {
            let body = format!("{n} by rival {rival}");
            let key = &key;
            async move { client.put_opts(key, body.into(), mode.clone().into()).await }
        });
        let answers = runtime.block_on(futures_util::future::join_all(tries));
        let winners: Vec<usize> = (0..answers.len()).filter(|r| answers[*r].is_ok()).collect();
        match winners[..] {
            [] => history.unclear += 1,
            [one] => {
                *history.wins.entry(one).or_default() += 1;
                // Whoever lost looks at once at what stands there: strongly consistent reads are the other half of the promise.
                let other = &clients[(one + 1) % clients.len()];
                match runtime.block_on(async { other.get(&key).await?.bytes().await }) {
                    Ok(found) if found == format!("{n} by rival {one}") => {}
                    Ok(found) => history.stale.push(format!("{key}: rival {one} won, another reads {found:?} at once")),
                    Err(Error::NotFound { .. }) => {
                        history.stale.push(format!("{key}: rival {one} won, another finds nothing at once"));
                    }
                    Err(_) => history.unread += 1,
                }
                won.push((key, one));
            }
            _ => history.broken.push(format!("{key}: rivals {winners:?} were all told that they created it")),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for (key, rival) in won {
        let read = |client: &AmazonS3| {
            runtime.block_on(async {
                for _ in 0..30 {
                    match client.get(&key).await {
                        Ok(found) => return found.bytes().await.map(|b| String::from_utf8_lossy(&b).into_owned()).ok(),
                        Err(Error::NotFound { .. }) => return Some("nothing".to_owned()),
                        Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                    }
                }
                None
            })
        };
        let seen = read(&clients[0]);
        match seen {
            Some(text) if text.ends_with(&format!("by rival {rival}")) => history.sound += 1,
            Some(text) => history.broken.push(format!("{key}: rival {rival} won, and {text} is read")),
            None => history.broken.push(format!("{key}: rival {rival} won, and it cannot be read")),
        }
    }
    history
}

/// Creates keys of which none, or all, exist; how often the answer was that it was created, and that it exists.
pub fn claim(endpoint: &str, prefix: &str, keys: u64) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = client(endpoint);
    let mut told = (0, 0);
    for n in 0..keys {
        let key = Path::from(format!("{prefix}/{n:08}"));
        match runtime.block_on(client.put_opts(&key, endpoint.to_owned().into(), PutMode::Create.into())) {
            Ok(_) => told.0 += 1,
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => told.1 += 1,
            Err(_) => {}
        }
    }
    told
}
