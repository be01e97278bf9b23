//! Where a store is: reads its URL and opens what it names.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use url::Url;

use super::backend::Backend;
use super::error::{Result, StoreError, explain};
use super::file::FileBackend;
use super::object::ObjectBackend;
use super::options::StoreOptions;
use super::settings::{Bucket, KeptClient};
use super::text;

/// A store's URL, read and found harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    place: Place,
    shown: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Directory(PathBuf),
    Bucket(Cloud, Url, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cloud {
    S3,
    Google,
    Azure,
}

fn invalid(url: &str, why: impl Into<String>) -> StoreError {
    StoreError::Invalid { object: text::without_secrets(url), why: why.into() }
}

/// A URL without the slashes at its end; the root of a file system is one.
fn spelled(url: &Url) -> String {
    let short = url.as_str().trim_end_matches('/');
    if short.ends_with(':') { url.as_str().to_owned() } else { short.to_owned() }
}

/// A path without `..`, which a URL takes by its letters, and the system by what is there: what is shown must lead to the same place.
fn without_parents(path: PathBuf) -> std::io::Result<PathBuf> {
    let all: Vec<Component<'_>> = path.components().collect();
    let Some(last) = all.iter().rposition(|c| *c == Component::ParentDir) else { return Ok(path) };
    let (above, below) = all.split_at(last.saturating_add(1));
    Ok(std::fs::canonicalize(above.iter().collect::<PathBuf>())?.join(below.iter().collect::<PathBuf>()))
}

impl Location {
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(invalid("the store's URL", "it is empty"));
        }
        if !text.contains("://") {
            // `s3:bucket` and `file:x` are typing errors, not directories.
            if let Some((scheme, _)) = text.split_once(':')
                && ["file", "s3", "s3a", "gs", "az", "http", "https"].contains(&scheme)
            {
                return Err(invalid(text, format!("write {scheme}://...")));
            }
            return Self::directory(Path::new(text), text);
        }
        let url = Url::parse(text).map_err(|e| invalid(text, format!("it is not a URL: {e}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid(text, "credentials do not belong into the URL; put them into the environment"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid(text, "a store's URL has no ? or #; settings come from the environment"));
        }
        let cloud = match url.scheme() {
            "file" => {
                if url.host_str().is_some_and(|host| !host.is_empty()) {
                    return Err(invalid(text, "a file URL has three slashes: file:///path"));
                }
                let path = url.to_file_path().map_err(|()| invalid(text, "it is not an absolute path"))?;
                return Self::directory(&path, text);
            }
            "s3" | "s3a" => Cloud::S3,
            "gs" => Cloud::Google,
            "az" | "azure" | "abfs" | "abfss" => Cloud::Azure,
            other => {
                let hint =
                    if other.starts_with("http") { " (S3 servers: s3://bucket and AWS_ENDPOINT_URL)" } else { "" };
                return Err(invalid(text, format!("{other}:// is not supported; use file, s3, gs or az{hint}")));
            }
        };
        if url.host_str().is_none_or(str::is_empty) {
            return Err(invalid(text, "the bucket is missing"));
        }
        let prefix = object_store::path::Path::from_url_path(url.path())
            .map_err(|e| invalid(text, format!("its path cannot be used: {}", explain(&e))))?;
        let shown = spelled(&url);
        Ok(Self { place: Place::Bucket(cloud, url, prefix.as_ref().to_owned()), shown })
    }

    fn directory(path: &Path, text: &str) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|e| invalid(text, format!("it is not a path: {e}")))?;
        let path = without_parents(path).map_err(|e| invalid(text, format!("its `..` leads nowhere: {e}")))?;
        let url = Url::from_file_path(&path).map_err(|()| invalid(text, "it is not an absolute path"))?;
        Ok(Self { place: Place::Directory(path), shown: spelled(&url) })
    }

    /// The URL for messages.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn open(&self, options: &StoreOptions) -> Result<Arc<dyn Backend>> {
        match &self.place {
            Place::Directory(path) => {
                FileBackend::open(path, &self.shown, options).map(|backend| Arc::new(backend) as _)
            }
            Place::Bucket(cloud, url, prefix) => {
                let fail =
                    |e: object_store::Error| invalid(&self.shown, format!("it cannot be opened: {}", explain(&e)));
                let open = |store, parts| ObjectBackend::new(store, parts, prefix, &self.shown, options);
                let backend = match cloud {
                    Cloud::S3 => {
                        let kept = KeptClient::default();
                        let builder = s3(url.as_str(), &self.shown, options)?.with_http_connector(kept.clone());
                        let store = Arc::new(builder.build().map_err(fail)?);
                        let bucket = kept.client().map(|client| Bucket { signer: Arc::clone(&store), client });
                        open(Arc::clone(&store) as _, store as _).with_bucket(bucket)
                    }
                    Cloud::Google => {
                        let store = Arc::new(google(url, options).build().map_err(fail)?);
                        open(Arc::clone(&store) as _, store as _)
                    }
                    Cloud::Azure => {
                        let store = Arc::new(azure(url, options).build().map_err(fail)?);
                        open(Arc::clone(&store) as _, store as _)
                    }
                };
                Ok(Arc::new(backend))
            }
        }
    }

    /// The bucket alone, to read what is not ours.
    pub(super) fn bucket(&self, options: &StoreOptions) -> Result<Arc<dyn ObjectStore>> {
        let fail = |e: object_store::Error| invalid(&self.shown, format!("it cannot be opened: {}", explain(&e)));
        match &self.place {
            Place::Directory(_) => Err(invalid(&self.shown, "it is a directory, not a bucket")),
            Place::Bucket(Cloud::S3, url, _) => {
                let builder = s3(url.as_str(), &self.shown, options)?.with_http_connector(KeptClient::default());
                Ok(Arc::new(builder.build().map_err(fail)?))
            }
            Place::Bucket(Cloud::Google, url, _) => Ok(Arc::new(google(url, options).build().map_err(fail)?)),
            Place::Bucket(Cloud::Azure, url, _) => Ok(Arc::new(azure(url, options).build().map_err(fail)?)),
        }
    }
}

/// A builder with the settings of the store's environment.
fn configured<B: Default, K: FromStr>(
    options: &StoreOptions,
    cloud: &str,
    from_env: impl FnOnce() -> B,
    with_config: impl Fn(B, K, String) -> B,
) -> B {
    let own = options.environment.own(cloud);
    if own.is_empty() {
        return from_env();
    }
    // As the builders themselves read the environment.
    let keys = own.into_iter().filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)));
    keys.fold(B::default(), |builder, (key, value)| with_config(builder, key, value))
}

fn google(url: &Url, options: &StoreOptions) -> GoogleCloudStorageBuilder {
    configured(options, "GOOGLE_", GoogleCloudStorageBuilder::from_env, GoogleCloudStorageBuilder::with_config)
        .with_url(url.as_str())
        .with_config(GoogleConfigKey::Client(ClientConfigKey::Timeout), NO_TIMEOUT)
        .with_retry(retry(options))
}

fn azure(url: &Url, options: &StoreOptions) -> MicrosoftAzureBuilder {
    configured(options, "AZURE_", MicrosoftAzureBuilder::from_env, MicrosoftAzureBuilder::with_config)
        .with_url(url.as_str())
        .with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), NO_TIMEOUT)
        .with_retry(retry(options))
}

/// The client's own timeout covers a whole transfer, however large: ours, which know the size, stand in for it.
const NO_TIMEOUT: &str = "1 day";

/// What the client tries again by itself: little, because unclear answers must come back to us.
fn retry(options: &StoreOptions) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        },
        max_retries: 2,
        retry_timeout: options.deadline / 3,
    }
}

fn s3(url: &str, shown: &str, options: &StoreOptions) -> Result<AmazonS3Builder> {
    let get = |name: &str| options.environment.get("AWS_", name);
    let mut builder = configured(options, "AWS_", AmazonS3Builder::from_env, AmazonS3Builder::with_config)
        .with_url(url)
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), NO_TIMEOUT)
        .with_retry(retry(options));
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|name| get(name));
    if let Some(endpoint) = endpoint {
        let endpoint =
            Url::parse(&endpoint).map_err(|e| invalid(shown, format!("AWS_ENDPOINT_URL is not a URL: {e}")))?;
        if !endpoint.username().is_empty() || endpoint.password().is_some() {
            return Err(invalid(
                shown,
                "AWS_ENDPOINT_URL holds credentials; use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ));
        }
        let set = |name: &str| get(name).is_some();
        let allowed =
            get("AWS_ALLOW_HTTP").is_some_and(|v| ["1", "true", "yes", "on"].contains(&v.to_lowercase().as_str()));
        if endpoint.scheme() == "http" && !allowed {
            return Err(invalid(shown, "AWS_ENDPOINT_URL is plain http; set AWS_ALLOW_HTTP=true if that is meant"));
        }
        // Servers of one's own do not care, but the signature needs one.
        if !set("AWS_REGION") && !set("AWS_DEFAULT_REGION") {
            builder = builder.with_region("us-east-1");
        }
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (text, shown) in [
            ("file:///a/b", "file:///a/b"),
            ("file:///a%20b/", "file:///a%20b"),
            ("/a/b/", "file:///a/b"),
            ("/", "file:///"),
            ("file:///", "file:///"),
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
            ("s3://bucket", "s3://bucket"),
            ("gs://bucket/x", "gs://bucket/x"),
            ("az://container/x", "az://container/x"),
        ] {
            assert_eq!(Location::parse(text).unwrap().shown(), shown, "{text}");
        }
        // What a URL would take by its letters alone.
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("far/away")).unwrap();
        std::os::unix::fs::symlink(root.join("far/away"), root.join("near")).unwrap();
        let by_link = Location::parse(root.join("near/../store").to_str().unwrap()).unwrap();
        assert_eq!(by_link.shown(), format!("file://{}", root.join("far/store").display()));
        let nowhere = Location::parse(root.join("no/../store").to_str().unwrap()).unwrap_err();
        assert!(nowhere.to_string().contains("`..`"), "{nowhere}");
        let relative = Location::parse("some/dir").unwrap();
        assert_eq!(relative.place, Place::Directory(std::env::current_dir().unwrap().join("some/dir")));
        let Place::Bucket(_, _, prefix) = Location::parse("s3://b/p%20q/r").unwrap().place else { panic!() };
        assert_eq!(prefix, "p q/r");
    }

    #[test]
    fn bad_urls_are_refused_without_telling_secrets() {
        for bad in [
            "",
            "s3:bucket",
            "file:x",
            "file://host/x",
            "http://h/b",
            "ftp://h/b",
            "s3://",
            "s3:///x",
            "s3://AKIA:topsecret@bucket/x",
            "s3://bucket/x?token=topsecret",
            "s3://bucket/a//b",
            "s3://bucket/a/%2e%2e/b%00",
        ] {
            let error = Location::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("topsecret"), "{error}");
        }
    }
}
