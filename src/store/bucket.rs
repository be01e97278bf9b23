//! What a bucket does by itself to the objects in it: rules that delete, move or keep them. S3 servers can be asked; of others it
//! can only be said what to look at.

use super::backend::BucketAnswer;
use super::error::Result;
use super::xml::Element;
use super::{BucketSetting, Store};

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked<T> {
    /// The server said so.
    Told(T),
    /// It could not be asked, or its answer not be understood, for this reason.
    Unknown(String),
}

/// A rule by which the server deletes or moves objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LifecycleRule {
    /// Its name.
    pub id: String,
    /// Keys of the bucket that it is about begin so.
    pub prefix: String,
    /// It is only about objects with tags, which ours have not.
    pub tagged: bool,
    /// When it deletes objects, in its own words: `30 days`.
    pub deletes: Option<String>,
    /// Storage classes that it moves objects to.
    pub moves_to: Vec<String>,
    /// It deletes versions that were overwritten or deleted.
    pub ends_old_versions: bool,
    /// It ends uploads that were begun and not completed.
    pub ends_uploads: bool,
}

impl LifecycleRule {
    /// Whether it is about objects below this directory of the bucket (empty: all of it).
    #[must_use]
    pub fn concerns(&self, directory: &str) -> bool {
        let own = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        !self.tagged && (self.prefix.starts_with(&own) || own.starts_with(&self.prefix))
    }

    /// Whether it is about every object below this directory.
    #[must_use]
    pub fn covers(&self, directory: &str) -> bool {
        let own = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        !self.tagged && own.starts_with(&self.prefix)
    }
}

/// What a bucket does by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketRules {
    /// The store's directory in the bucket; empty at its top.
    pub directory: String,
    /// Rules that are switched on.
    pub lifecycle: Asked<Vec<LifecycleRule>>,
    /// Whether old versions of objects are kept.
    pub versioned: Asked<bool>,
}

impl Store {
    /// Asks what the bucket does by itself; nothing where the store is no bucket.
    ///
    /// # Errors
    /// When the store does not answer at all.
    pub fn bucket_rules(&self) -> Result<Option<BucketRules>> {
        let Some(directory) = self.0.backend.bucket_directory().map(str::to_owned) else { return Ok(None) };
        let ask = |setting| self.retrying(0, || self.0.backend.ask_bucket(setting));
        let lifecycle = read(&ask(BucketSetting::Lifecycle)?, Vec::new(), lifecycle);
        let versioned = read(&ask(BucketSetting::Versioning)?, false, versioning);
        Ok(Some(BucketRules { directory, lifecycle, versioned }))
    }
}

fn read<T>(answer: &BucketAnswer, none: T, understand: impl FnOnce(&Element) -> Option<T>) -> Asked<T> {
    match answer {
        BucketAnswer::None => Asked::Told(none),
        BucketAnswer::Unknown(why) => Asked::Unknown(why.clone()),
        BucketAnswer::Text(text) => match Element::parse(text).as_ref().and_then(understand) {
            Some(told) => Asked::Told(told),
            None => Asked::Unknown("its answer is not what S3 documents".to_owned()),
        },
    }
}

fn versioning(root: &Element) -> Option<bool> {
    (root.name == "VersioningConfiguration").then(|| root.text_of("Status") == "Enabled")
}

fn lifecycle(root: &Element) -> Option<Vec<LifecycleRule>> {
    if root.name != "LifecycleConfiguration" {
        return None;
    }
    Some(root.all("Rule").filter(|r| r.text_of("Status") == "Enabled").map(rule).collect())
}

fn rule(element: &Element) -> LifecycleRule {
    let filter = element.child("Filter");
    // `And` holds what else would stand in the filter itself.
    let filter = filter.map(|f| f.child("And").unwrap_or(f));
    let prefix = filter.map_or_else(|| element.text_of("Prefix"), |f| f.text_of("Prefix"));
    let deletes = element.child("Expiration").and_then(|e| match (e.text_of("Days"), e.text_of("Date")) {
        ("", "") => None,
        ("", date) => Some(format!("on {date}")),
        (days, _) => Some(format!("after {days} days")),
    });
    LifecycleRule {
        id: element.text_of("ID").to_owned(),
        prefix: prefix.to_owned(),
        tagged: filter.is_some_and(|f| f.child("Tag").is_some()),
        deletes,
        moves_to: element.all("Transition").map(|t| t.text_of("StorageClass").to_owned()).collect(),
        ends_old_versions: element.child("NoncurrentVersionExpiration").is_some(),
        ends_uploads: element.child("AbortIncompleteMultipartUpload").is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Rule><ID>logs</ID><Filter><Prefix>logs/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>3</Days></Expiration></Rule>
  <Rule><ID>old</ID><Prefix></Prefix><Status>Enabled</Status><Expiration><Date>2027-01-01T00:00:00Z</Date></Expiration>
    <Transition><Days>30</Days><StorageClass>GLACIER</StorageClass></Transition></Rule>
  <Rule><ID>off</ID><Filter/><Status>Disabled</Status><Expiration><Days>1</Days></Expiration></Rule>
  <Rule><ID>tags</ID><Filter><And><Prefix>a/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter>
    <Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>
  <Rule><ID>tidy</ID><Filter/><Status>Enabled</Status>
    <Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>
    <NoncurrentVersionExpiration><NoncurrentDays>7</NoncurrentDays></NoncurrentVersionExpiration>
    <AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>
</LifecycleConfiguration>"#;

    #[test]
    fn rules_are_read_as_s3_writes_them() {
        let rules = lifecycle(&Element::parse(RULES).unwrap()).unwrap();
        let ids: Vec<&str> = rules.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids, ["logs", "old", "tags", "tidy"]);
        assert_eq!(rules[0].deletes.as_deref(), Some("after 3 days"));
        assert_eq!(
            (rules[1].deletes.as_deref(), &rules[1].moves_to[..]),
            (Some("on 2027-01-01T00:00:00Z"), &["GLACIER".to_owned()][..])
        );
        assert!(rules[2].tagged && rules[2].prefix == "a/");
        assert!(rules[3].deletes.is_none() && rules[3].ends_old_versions && rules[3].ends_uploads);
    }

    #[test]
    fn a_rule_concerns_what_it_overlaps_with() {
        let rule = |prefix: &str| LifecycleRule { prefix: prefix.to_owned(), ..LifecycleRule::default() };
        for (prefix, directory, concerns, covers) in [
            ("", "", true, true),
            ("", "a/b", true, true),
            ("a", "a/b", true, true),
            ("a/b/", "a/b", true, true),
            ("a/b/blobs/", "a/b", true, false),
            ("a/bc", "a/b", false, false),
            ("logs/", "a", false, false),
            ("blobs/3", "", true, false),
        ] {
            let rule = rule(prefix);
            assert_eq!(
                (rule.concerns(directory), rule.covers(directory)),
                (concerns, covers),
                "{prefix:?} {directory:?}"
            );
        }
        assert!(!LifecycleRule { tagged: true, ..rule("") }.concerns(""));
    }

    #[test]
    fn answers_are_understood_or_said_not_to_be() {
        let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        let told = |text: &str| read(&BucketAnswer::Text(text.to_owned()), false, versioning);
        assert_eq!(told(enabled), Asked::Told(true));
        assert_eq!(told("<VersioningConfiguration/>"), Asked::Told(false));
        assert!(matches!(told("<html>no</html>"), Asked::Unknown(_)));
        assert!(matches!(told("no"), Asked::Unknown(_)));
        assert_eq!(read(&BucketAnswer::None, false, versioning), Asked::Told(false));
    }
}
