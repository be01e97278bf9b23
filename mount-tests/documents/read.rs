//! What stands in a document: fenced blocks, spans of code, headings, links, and the commands in a line of shell.

/// A fenced block.
#[derive(Debug, Clone)]
pub struct Block {
    /// The line of its first fence, from 1.
    pub line: usize,
    /// What stands behind the first fence: `sh`, `sh needs a bucket`.
    pub info: String,
    pub text: String,
    /// The heading that it stands under.
    pub under: String,
}

impl Block {
    pub fn is_shell(&self) -> bool {
        self.info.split(' ').next() == Some("sh")
    }

    /// What has to be at hand before a person can run it, and a test cannot have.
    pub fn needs(&self) -> Option<&str> {
        self.info.strip_prefix("sh needs ")
    }
}

/// A document of Markdown, or a plain text with commands in it.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its path from the top of the sources.
    pub name: String,
    pub text: String,
    pub blocks: Vec<Block>,
    /// The text with its blocks left blank.
    pub prose: String,
    pub headings: Vec<String>,
}

impl Document {
    pub fn markdown(name: &str, text: &str) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open = false;
        let (mut prose, mut headings) = (String::new(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            if let Some(info) = line.strip_prefix("```") {
                if !open {
                    let under = headings.last().cloned().unwrap_or_default();
                    let info = info.trim().to_owned();
                    blocks.push(Block { line: at + 1, info, text: String::new(), under });
                }
                open = !open;
            } else if open {
                if let Some(block) = blocks.last_mut() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            } else {
                if line.starts_with('#') {
                    headings.push(line.trim_start_matches('#').trim().to_owned());
                }
                prose.push_str(line);
            }
            prose.push('\n');
        }
        assert!(!open, "{name}: a block has no end");
        Self { name: name.to_owned(), text: text.to_owned(), blocks, prose, headings }
    }

    /// Spans of code, which no empty line divides, with the `|` of tables as they are meant.
    pub fn spans(&self) -> Vec<String> {
        let paragraphs = self.prose.split("\n\n");
        let spans = paragraphs.flat_map(|p| p.split('`').skip(1).step_by(2));
        spans.map(|s| s.replace("\\|", "|").replace('\n', " ")).collect()
    }

    /// Targets of links and pictures.
    pub fn links(&self) -> Vec<String> {
        self.prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    }

    /// The anchors of its headings, as GitHub makes them.
    pub fn anchors(&self) -> Vec<String> {
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let slug = |h: &String| h.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
        self.headings.iter().map(slug).collect()
    }
}

/// The simple commands of a line of shell, and its comment.
pub fn shell(line: &str) -> (Vec<Vec<String>>, String) {
    let mut commands = vec![vec![String::new()]];
    let mut quote = None;
    let mut chars = line.char_indices();
    let word = |commands: &mut Vec<Vec<String>>| {
        if let Some(words) = commands.last_mut()
            && words.last().is_some_and(|w| !w.is_empty())
        {
            words.push(String::new());
        }
    };
    let mut comment = "";
    while let Some((at, c)) = chars.next() {
        let begins = commands.last().and_then(|words| words.last()).is_some_and(String::is_empty);
        match c {
            '\'' | '"' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            _ if quote == Some('\'') => push(&mut commands, c),
            '(' | ')' | '`' => {
                quote = None;
                commands.push(vec![String::new()]);
            }
            _ if quote.is_some() => push(&mut commands, c),
            '#' if begins => {
                comment = &line[at + 1..];
                break;
            }
            ';' | '|' | '&' | '<' | '>' => commands.push(vec![String::new()]),
            _ if c.is_whitespace() => word(&mut commands),
            '\\' => push(&mut commands, chars.next().map_or('\\', |(_, c)| c)),
            _ => push(&mut commands, c),
        }
    }
    for words in &mut commands {
        words.retain(|w| !w.is_empty() && w != "$");
    }
    commands.retain(|words| !words.is_empty());
    (commands, comment.to_owned())
}

fn push(commands: &mut [Vec<String>], c: char) {
    if let Some(word) = commands.last_mut().and_then(|words| words.last_mut()) {
        word.push(c);
    }
}

/// Sentences of a comment, which two blanks divide; quotes and marks at the end of a word are no part of it.
pub fn sentences(comment: &str) -> Vec<Vec<String>> {
    let bare = |word: &str| word.trim_matches(['"', '\'', ',', ':', '.', '?', '(', ')', ';', '`']).to_owned();
    let parts = comment.split("  ").flat_map(|part| part.split("; "));
    parts
        .map(|part| part.split_whitespace().map(bare).filter(|w| !w.is_empty()).collect())
        .filter(|words: &Vec<String>| !words.is_empty())
        .collect()
}
