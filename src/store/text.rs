//! Text for people, with whatever may be secret taken out.

/// Longest explanation that a message quotes: an error document of a server may be a whole page.
const LONGEST: usize = 600;

/// Environment variables whose values never appear in a message.
const SECRET: [&str; 12] = [
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
];

/// The text without user info and queries of URLs, without known secrets, control characters made harmless, and cut.
pub(super) fn without_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(LONGEST));
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end =
            after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '<' | '>')).unwrap_or(after.len());
        let (url, tail) = after.split_at(end);
        let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (host, path) = url.split_at(authority);
        out.push_str(host.rsplit('@').next().unwrap_or_default());
        out.push_str(path.split(['?', '#']).next().unwrap_or_default());
        rest = tail;
    }
    out.push_str(rest);
    // Those of the other bucket of a copy have a prefix.
    for name in SECRET.into_iter().flat_map(|name| [name.to_owned(), format!("CKPTFS_TO_{name}")]) {
        if let Ok(secret) = std::env::var(name)
            && secret.len() >= 8
        {
            out = out.replace(&secret, "***");
        }
    }
    let mut shown: String = out.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST + 1).collect();
    if shown.chars().count() > LONGEST {
        shown.pop();
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_user_info_go() {
        assert_eq!(
            without_secrets("GET https://a:b@host:1/x/y?sig=abc&se=1 in 3 s (s3://k@b/c#f) end"),
            "GET https://host:1/x/y in 3 s (s3://b/c) end"
        );
        assert_eq!(without_secrets("s3://bucket/prefix"), "s3://bucket/prefix");
        assert_eq!(without_secrets("https://u:p@h"), "https://h");
        assert_eq!(without_secrets("a\nb\x1b[31m"), "a b [31m");
        assert_eq!(without_secrets(&"x".repeat(9000)).chars().count(), LONGEST + 1);
    }
}
