//! Questions about a bucket itself, which `object_store` has no calls for: its own signer and its own client make them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{ClientOptions, Error};

use super::answers::LookingConnector;
use super::backend::{BucketAnswer, BucketSetting};
use super::error::explain;
use crate::limits;

/// How long a signed question is good for.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// Makes clients as `object_store` would, and keeps the last, which is the one for the bucket.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptClient(Arc<Mutex<Option<HttpClient>>>);

impl HttpConnector for KeptClient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = LookingConnector(ReqwestConnector::default()).connect(options)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

impl KeptClient {
    pub(super) fn client(&self) -> Option<HttpClient> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A bucket that can be asked.
pub(super) struct Bucket {
    pub(super) signer: Arc<AmazonS3>,
    pub(super) client: HttpClient,
}

impl Bucket {
    /// One question. Whatever is no answer is a reason why it is not known: nothing depends on it.
    pub(super) async fn ask(&self, setting: BucketSetting) -> Result<BucketAnswer, Error> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        let method = request.method().clone();
        let name = match setting {
            BucketSetting::Lifecycle => "lifecycle",
            BucketSetting::Versioning => "versioning",
        };
        let options = SignedUrlOptions::new().with_query([(name, "")]);
        let url = self.signer.signed_url_opts(method, &Path::default(), GOOD_FOR, &options).await?;
        // The URL is a secret for as long as it is good: it is in no message.
        let Ok(uri) = url.as_str().parse() else { return Ok(unknown("the question cannot be written as a URL")) };
        *request.uri_mut() = uri;
        let response = match self.client.execute(request).await {
            Ok(response) => response,
            Err(e) => return Ok(unknown(&explain(&e))),
        };
        let status = response.status().as_u16();
        let mut pieces = response.into_body().bytes_stream();
        let mut body = Vec::new();
        while let Some(piece) = pieces.next().await {
            let Ok(piece) = piece else { return Ok(unknown("its answer broke off")) };
            if body.len().saturating_add(piece.len()) > limits::BUCKET_XML_LEN {
                return Ok(unknown("its answer is too long"));
            }
            body.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok(match status {
            200 => BucketAnswer::Text(text),
            // Only a bucket without rules says so; a server that does not know the question says something else.
            404 if text.contains("NoSuchLifecycleConfiguration") => BucketAnswer::None,
            401 | 403 => unknown("these credentials may not ask"),
            status => unknown(&format!("the server answered with status {status}")),
        })
    }
}

fn unknown(why: &str) -> BucketAnswer {
    BucketAnswer::Unknown(why.to_owned())
}
