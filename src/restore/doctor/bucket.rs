//! Judges what a bucket does by itself: a rule that deletes blobs loses data, a missing one costs money.

use super::{Finding, Severity};
use crate::store::{Asked, BucketRules, LifecycleRule};

/// Storage classes whose objects cannot be read at once.
const COLD: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

const LIFECYCLE: &str = "bucket lifecycle";
const VERSIONS: &str = "bucket versions";
const UPLOADS: &str = "unfinished uploads";

pub(super) fn judge(rules: &BucketRules) -> Vec<Finding> {
    let directory = rules.directory.as_str();
    let mut findings = Vec::new();
    let own: Vec<&LifecycleRule> = match &rules.lifecycle {
        Asked::Told(all) => all.iter().filter(|r| r.concerns(directory)).collect(),
        Asked::Unknown(why) => {
            findings.push(by_hand(
                LIFECYCLE,
                why,
                "look yourself that no rule deletes or archives objects of the store, and that one ends uploads that were \
                 never completed: aws s3api get-bucket-lifecycle-configuration --bucket NAME",
            ));
            Vec::new()
        }
    };
    let before = findings.len();
    for rule in &own {
        let name = format!("the rule {:?}", rule.id);
        if let Some(when) = &rule.deletes {
            let says = format!("{name} deletes objects {when}, whether checkpoints need them or not");
            let remedy = "take the store's prefix out of it; `ckptfs gc` deletes what nothing needs";
            findings.push(Finding::new(LIFECYCLE, Severity::Fails, says, remedy));
        }
        if let Some(class) = rule.moves_to.iter().find(|c| COLD.contains(&c.as_str())) {
            let says =
                format!("{name} moves objects to {class}, where they cannot be read at once: restores and mounts fail");
            let remedy = "take the store's prefix out of it, or choose a class that is read at once";
            findings.push(Finding::new(LIFECYCLE, Severity::Fails, says, remedy));
        }
    }
    if matches!(rules.lifecycle, Asked::Told(_)) {
        if findings.len() == before {
            findings.push(Finding::fine(LIFECYCLE, "no rule deletes or archives what the store needs"));
        }
        findings.push(uploads(&own, directory));
    }
    findings.push(versions(rules, &own));
    findings
}

fn by_hand(check: &'static str, why: &str, remedy: &str) -> Finding {
    Finding::new(check, Severity::Note, format!("not known: {why}"), remedy)
}

fn uploads(own: &[&LifecycleRule], directory: &str) -> Finding {
    if own.iter().any(|r| r.ends_uploads && r.covers(directory)) {
        return Finding::fine(UPLOADS, "a rule ends those that a writer that died left behind");
    }
    let says =
        "no rule ends them: what a writer that died had sent of a large file is in no list, and is paid for ever";
    let remedy = "add a rule with AbortIncompleteMultipartUpload after 7 days";
    Finding::new(UPLOADS, Severity::Warning, says, remedy)
}

fn versions(rules: &BucketRules, own: &[&LifecycleRule]) -> Finding {
    match &rules.versioned {
        Asked::Told(false) => Finding::fine(VERSIONS, "what is deleted is gone"),
        Asked::Told(true) if own.iter().any(|r| r.ends_old_versions && r.covers(&rules.directory)) => {
            Finding::fine(VERSIONS, "kept for a time, after which a rule deletes them")
        }
        Asked::Told(true) => Finding::new(
            VERSIONS,
            Severity::Warning,
            "kept for ever: what `ckptfs gc` deletes frees nothing",
            "add a rule with NoncurrentVersionExpiration, which also leaves time to undo a deletion",
        ),
        Asked::Unknown(why) => by_hand(
            VERSIONS,
            why,
            "if the bucket keeps versions, a rule must delete old ones: aws s3api get-bucket-versioning --bucket NAME",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lifecycle: Vec<LifecycleRule>, versioned: bool) -> BucketRules {
        BucketRules {
            directory: "team/store".to_owned(),
            lifecycle: Asked::Told(lifecycle),
            versioned: Asked::Told(versioned),
        }
    }

    fn rule(prefix: &str) -> LifecycleRule {
        LifecycleRule { id: "r".to_owned(), prefix: prefix.to_owned(), ..LifecycleRule::default() }
    }

    fn severity(rules: &BucketRules, check: &str) -> Severity {
        let found = judge(rules);
        let worst = found.iter().filter(|f| f.check == check).map(|f| f.severity).max();
        assert!(found.iter().all(|f| f.severity == Severity::Fine || !f.remedy.is_empty()), "{found:?}");
        worst.unwrap_or_else(|| panic!("{check}: {found:?}"))
    }

    #[test]
    fn rules_that_delete_what_is_needed_are_found() {
        let deletes = |prefix: &str| LifecycleRule { deletes: Some("after 30 days".to_owned()), ..rule(prefix) };
        for (prefix, expected) in [
            ("", Severity::Fails),
            ("team/", Severity::Fails),
            ("team/store/blobs/3", Severity::Fails),
            ("team/stores/", Severity::Fine),
            ("logs/", Severity::Fine),
        ] {
            assert_eq!(severity(&rules(vec![deletes(prefix)], false), LIFECYCLE), expected, "{prefix}");
        }
        let tagged = LifecycleRule { tagged: true, ..deletes("") };
        assert_eq!(severity(&rules(vec![tagged], false), LIFECYCLE), Severity::Fine);
        let moved =
            |class: &str| LifecycleRule { moves_to: vec!["STANDARD_IA".to_owned(), class.to_owned()], ..rule("") };
        assert_eq!(severity(&rules(vec![moved("DEEP_ARCHIVE")], false), LIFECYCLE), Severity::Fails);
        assert_eq!(severity(&rules(vec![moved("GLACIER_IR")], false), LIFECYCLE), Severity::Fine);
    }

    #[test]
    fn what_would_cost_for_ever_is_found() {
        let tidy = LifecycleRule { ends_uploads: true, ends_old_versions: true, ..rule("team/") };
        let part = LifecycleRule { prefix: "team/store/blobs/".to_owned(), ..tidy.clone() };
        for (lifecycle, versioned, uploads, versions) in [
            (vec![], false, Severity::Warning, Severity::Fine),
            (vec![], true, Severity::Warning, Severity::Warning),
            (vec![tidy], true, Severity::Fine, Severity::Fine),
            (vec![part], true, Severity::Warning, Severity::Warning),
        ] {
            let rules = rules(lifecycle, versioned);
            assert_eq!((severity(&rules, UPLOADS), severity(&rules, VERSIONS)), (uploads, versions), "{rules:?}");
        }
    }

    #[test]
    fn what_cannot_be_asked_is_said_with_what_to_look_at() {
        let unknown = BucketRules {
            directory: String::new(),
            lifecycle: Asked::Unknown("these credentials may not ask".to_owned()),
            versioned: Asked::Unknown("no".to_owned()),
        };
        let found = judge(&unknown);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|f| f.severity == Severity::Note && f.remedy.contains("aws s3api")), "{found:?}");
    }
}
