//! Looks at what answers stand for before the client takes them: `object_store` reads a list out of any well-formed document, a web page
//! included, and then it is empty; it takes a page without a token for the last one, whatever that page says; it follows a token for as
//! long as it is given one; and it panics over an answer that speaks of keys which it did not ask about.

use std::future::Future;
use std::pin::Pin;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use url::form_urlencoded;

use super::xml::unescaped;

/// An answer that is not what was asked for. It may be another one next time.
#[derive(Debug, thiserror::Error)]
#[error("the answer is none of an S3 server: {0}")]
struct Strange(String);

fn strange(why: impl Into<String>) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, Strange(why.into()))
}

/// A client whose answers are looked at.
#[derive(Debug)]
pub(super) struct Looking(pub(super) HttpClient);

/// Makes such clients, as another connector makes its own.
#[derive(Debug, Default)]
pub(super) struct LookingConnector<C>(pub(super) C);

impl<C: HttpConnector> HttpConnector for LookingConnector<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Looking(self.0.connect(options)?)))
    }
}

/// What a request wants to hear.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    List {
        prefix: String,
        token: Option<String>,
    },
    /// A bulk delete, with what it was sent.
    Deletes(String),
    /// An object's bytes or its length. The store may call them a page when they begin like one; their readers know them by their digest.
    Object,
    /// An answer without a word, or one that the client itself finds wrong where something is missing.
    Other,
}

impl Asked {
    fn of(request: &HttpRequest) -> Self {
        let query = |name: &str| {
            let mut pairs = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
            pairs.find(|(n, _)| n == name).map(|(_, value)| value.into_owned())
        };
        match request.method().as_str() {
            "GET" if query("list-type").is_some() => {
                Self::List { prefix: query("prefix").unwrap_or_default(), token: query("continuation-token") }
            }
            // What we name so begins with a brace.
            "GET" | "HEAD" if !request.uri().path().ends_with(".json") => Self::Object,
            "POST" if query("delete").is_some() => {
                let sent = request.body().as_bytes().map(|b| String::from_utf8_lossy(b).into_owned());
                Self::Deletes(sent.unwrap_or_default())
            }
            _ => Self::Other,
        }
    }

    /// Whether a successful answer is one to this, in words where it is not.
    fn answered_by(&self, body: &str) -> Result<(), String> {
        match self {
            Self::List { prefix, token } => list(body, prefix, token.as_deref()),
            Self::Deletes(sent) => deletes(body, sent),
            Self::Object | Self::Other => Ok(()),
        }
    }
}

/// The name of a document's first element, without its namespace.
fn root(body: &str) -> Option<&str> {
    let first = body.split('<').skip(1).find(|tag| !tag.starts_with(['?', '!']))?;
    let name = first.split(|c: char| c.is_whitespace() || matches!(c, '>' | '/')).next()?;
    name.rsplit(':').next()
}

fn is_root(body: &str, wanted: &str) -> Result<(), String> {
    match root(body) {
        Some(name) if name == wanted => Ok(()),
        Some(name) => Err(format!("it is a {:.40} instead of a {wanted}", name.escape_debug())),
        None => Err(format!("it is no {wanted}, nor anything else")),
    }
}

/// The texts of all elements of a name, wherever they stand.
fn texts<'a>(body: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = body;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&open)?;
        let (text, after) = after.split_once(&close)?;
        rest = after;
        Some(text)
    })
}

/// The document without the elements of a name.
fn without(body: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(&open) {
        out.push_str(before);
        rest = after.split_once(&close).map_or("", |(_, after)| after);
    }
    out + rest
}

fn list(body: &str, prefix: &str, token: Option<&str>) -> Result<(), String> {
    is_root(body, "ListBucketResult")?;
    for key in texts(body, "Key") {
        if !unescaped(key).is_some_and(|key| key.starts_with(prefix)) {
            return Err(format!("{:.200} does not lie below {prefix}", key.escape_debug()));
        }
    }
    let about = without(&without(body, "Contents"), "CommonPrefixes");
    let said = |name| texts(&about, name).next().and_then(unescaped);
    if let Some(of) = said("Prefix").filter(|of| !of.is_empty() && of != prefix) {
        return Err(format!("it lists {:.200} instead of {prefix}", of.escape_debug()));
    }
    let next = said("NextContinuationToken").filter(|next| !next.is_empty());
    match said("IsTruncated").as_deref().map(str::trim) {
        Some("true") if next.is_none() => Err("it says that there is more, and not where".to_owned()),
        Some("true" | "false") | None if next.is_some() && next.as_deref() == token => {
            Err("it leads back to itself".to_owned())
        }
        Some("true" | "false") | None => Ok(()),
        Some(other) => Err(format!("it does not say whether there is more, but {:.40}", other.escape_debug())),
    }
}

fn deletes(body: &str, sent: &str) -> Result<(), String> {
    is_root(body, "DeleteResult")?;
    let asked: Vec<Option<String>> = texts(sent, "Key").map(unescaped).collect();
    for key in texts(body, "Key") {
        if !asked.contains(&unescaped(key)) {
            return Err(format!("it tells of {:.200}, which was not to be deleted", key.escape_debug()));
        }
    }
    Ok(())
}

/// What an async trait's method gives.
type Called<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Looking {
    fn call<'life0, 'async_trait>(&'life0 self, request: HttpRequest) -> Called<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let asked = Asked::of(&request);
            let response = self.0.execute(request).await?;
            if !response.status().is_success() {
                return Ok(response);
            }
            let is_page =
                response.headers().get("content-type").is_some_and(|t| t.as_bytes().starts_with(b"text/html"));
            if is_page && asked != Asked::Object {
                return Err(strange("it is a web page, of whatever stands between here and the store"));
            }
            if !matches!(asked, Asked::List { .. } | Asked::Deletes(_)) {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let bytes = body.bytes().await?;
            asked.answered_by(&String::from_utf8_lossy(&bytes)).map_err(strange)?;
            Ok(HttpResponse::from_parts(parts, bytes.into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<!DOCTYPE html><html><body><p>Log in</p></body></html>";

    fn listed(about: &str, keys: &[&str]) -> String {
        let contents: String =
            keys.iter().map(|k| format!("<Contents><Key>{k}</Key><Size>1</Size></Contents>")).collect();
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name>{about}{contents}</ListBucketResult>"
        )
    }

    #[test]
    fn a_list_is_of_what_was_asked_and_says_whether_there_is_more() {
        let asked = Asked::List { prefix: "a&b/".to_owned(), token: Some("t1".to_owned()) };
        let whole = "<Prefix>a&amp;b/</Prefix><IsTruncated>false</IsTruncated>";
        let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t2</NextContinuationToken>";
        for good in [
            listed(whole, &[]),
            listed(whole, &["a&amp;b/1", "a&#38;b/2"]),
            listed(more, &["a&amp;b/1"]),
            listed("", &[]),
            "<s3:ListBucketResult><CommonPrefixes><Prefix>a&amp;b/c</Prefix></CommonPrefixes></s3:ListBucketResult>"
                .to_owned(),
        ] {
            assert_eq!(asked.answered_by(&good), Ok(()), "{good}");
        }
        for (bad, why) in [
            (PAGE.to_owned(), "a html instead"),
            (String::new(), "nor anything"),
            ("<DeleteResult/>".to_owned(), "DeleteResult instead"),
            (listed("<Prefix>c/</Prefix>", &[]), "lists c/"),
            (listed(whole, &["a&amp;b/1", "c/1"]), "c/1 does not lie"),
            (listed("<IsTruncated>true</IsTruncated>", &["a&amp;b/1"]), "and not where"),
            (listed("<IsTruncated>tsue</IsTruncated>", &[]), "tsue"),
            (listed(&more.replace("t2", "t1"), &["a&amp;b/1"]), "back to itself"),
        ] {
            let said = asked.answered_by(&bad).unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }

    #[test]
    fn a_bulk_delete_hears_of_its_own_keys_only() {
        let asked = Asked::Deletes("<Delete><Object><Key>a&amp;b</Key></Object></Delete>".to_owned());
        let told =
            |inner: &str| asked.answered_by(&format!("<?xml version=\"1.0\"?><DeleteResult>{inner}</DeleteResult>"));
        assert_eq!(told("<Deleted><Key>a&#38;b</Key></Deleted>"), Ok(()));
        assert_eq!(told("<Error><Key>a&amp;b</Key><Code>AccessDenied</Code></Error>"), Ok(()));
        assert!(told("<Error><Key>c</Key></Error>").unwrap_err().contains("tells of c"));
        assert!(asked.answered_by(PAGE).is_err());
    }
}
