//! Reads the little XML that an S3 server answers about a bucket: elements and text, bounded, nothing else.

use crate::limits;

/// An element: attributes and namespaces are passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    /// Its own text, without that of the elements in it.
    pub(super) text: String,
    pub(super) children: Vec<Element>,
}

impl Element {
    /// Reads a document; nothing when it is none, or larger or deeper than any server makes it.
    pub(super) fn parse(document: &str) -> Option<Self> {
        if document.len() > limits::BUCKET_XML_LEN {
            return None;
        }
        // The first one stands for the document.
        let mut open = vec![Self::default()];
        let mut rest = document;
        while let Some(at) = rest.find('<') {
            let (text, tag) = rest.split_at(at);
            open.last_mut()?.text.push_str(&unescaped(text)?);
            let (tag, after) = tag.strip_prefix('<')?.split_once('>')?;
            rest = after;
            if tag.starts_with(['?', '!']) {
                continue;
            }
            if let Some(name) = tag.strip_prefix('/') {
                let done = open.pop()?;
                if done.name != local(name.trim())? {
                    return None;
                }
                open.last_mut()?.children.push(done);
                continue;
            }
            let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |t| (t, true));
            let name = local(tag.split_whitespace().next()?)?.to_owned();
            let element = Self { name, ..Self::default() };
            if empty {
                open.last_mut()?.children.push(element);
            } else if open.len() > limits::BUCKET_XML_DEPTH {
                return None;
            } else {
                open.push(element);
            }
        }
        let mut document = open.pop().filter(|_| open.is_empty())?;
        let root = document.children.pop()?;
        document.children.is_empty().then_some(root)
    }

    /// The first child of this name.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|c| c.name == name)
    }

    /// All children of this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |c| c.name == name)
    }

    /// The text of the first child of this name; empty without one.
    pub(super) fn text_of(&self, name: &str) -> &str {
        self.child(name).map_or("", |c| c.text.trim())
    }
}

/// A name without its namespace.
fn local(name: &str) -> Option<&str> {
    name.rsplit(':').next()
}

pub(super) fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        let (entity, after) = after.split_once(';')?;
        out.push_str(before);
        out.push(match entity {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let number = number.strip_prefix('#')?;
                let hex = number.strip_prefix('x').map(|h| u32::from_str_radix(h, 16));
                char::from_u32(hex.unwrap_or_else(|| number.parse()).ok()?)?
            }
        });
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_write_is_read() {
        let text = "<?xml version=\"1.0\"?>\n<A xmlns=\"http://x/\"><!-- no --><B>a&lt;b&#x26;&#65;</B><C/><s3:B>2</s3:B></A>\n";
        let a = Element::parse(text).unwrap();
        assert_eq!((a.name.as_str(), a.text_of("B"), a.text_of("C"), a.text_of("D")), ("A", "a<b&A", "", ""));
        assert_eq!(a.all("B").map(|b| b.text.as_str()).collect::<Vec<_>>(), ["a<b&A", "2"]);
    }

    #[test]
    fn anything_else_is_nothing() {
        for bad in
            ["", "x", "<a>", "<a></b>", "</a>", "<a><b></a></b>", "<a/><b/>", "<>", "<a", "<a>&x;</a>", "<a>&lt</a>"]
        {
            assert_eq!(Element::parse(bad), None, "{bad}");
        }
        assert_eq!(Element::parse(&("<a>".repeat(100) + &"</a>".repeat(100))), None);
        assert_eq!(Element::parse(&format!("<a>{}</a>", "x".repeat(limits::BUCKET_XML_LEN))), None);
    }
}
