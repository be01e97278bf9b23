//! All mutants of a file at once: each place that one changes gets a switch, and the mutant is what the switch turns on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::list::Mutant;

/// A file with its switches, and which of its bytes each mutant is.
pub struct Woven {
    pub text: String,
    pub marks: Vec<(Range<usize>, u32)>,
    /// Mutants that have no switch: another operator between `let`s does not compile.
    pub unviable: Vec<u32>,
    /// Those for which this knows no form.
    pub unknown: Vec<u32>,
}

enum Form {
    Instead(String),
    /// Before a function's statements.
    Return(Vec<(u32, String)>),
    Compare {
        left: Range<usize>,
        operator: String,
        right: Range<usize>,
        others: Vec<(u32, String)>,
    },
    Lazy {
        left: Range<usize>,
        and: bool,
        right: Range<usize>,
        number: u32,
    },
    Equal {
        inner: Range<usize>,
        number: u32,
    },
    Reckon {
        left: Range<usize>,
        operator: String,
        right: Range<usize>,
        others: Vec<(u32, String)>,
    },
    Assign {
        left: Range<usize>,
        operator: String,
        right: Range<usize>,
        others: Vec<(u32, String)>,
    },
    Unary {
        sign: String,
        inner: Range<usize>,
        number: u32,
    },
    Guard {
        guard: Option<Range<usize>>,
        gone: Option<u32>,
        always: Option<u32>,
        never: Option<u32>,
    },
    Fields(Vec<(u32, Range<usize>)>),
}

struct Rewrite {
    span: Range<usize>,
    form: Form,
}

struct Finder<'a> {
    source: &'a str,
    at: BTreeMap<(&'a str, usize), Vec<&'a Mutant>>,
    rewrites: Vec<Rewrite>,
    unviable: Vec<u32>,
    used: BTreeSet<u32>,
    /// Constant functions that constants of the file are computed by.
    constant: BTreeSet<String>,
}

fn bytes(span: Span) -> Range<usize> {
    span.byte_range()
}

impl<'a> Finder<'a> {
    fn take(&mut self, genre: &'a str, start: usize) -> Vec<(u32, String)> {
        let found = self.at.remove(&(genre, start)).unwrap_or_default();
        self.used.extend(found.iter().map(|mutant| mutant.number));
        found.iter().map(|mutant| (mutant.number, mutant.replacement.clone())).collect()
    }

    fn add(&mut self, span: Range<usize>, form: Form) {
        self.rewrites.push(Rewrite { span, form });
    }
}

/// Whether a `let` stands in this chain of conditions.
fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let operator = bytes(node.op.span());
        let others = self.take("BinaryOperator", operator.start);
        let (span, left, right) = (bytes(node.span()), bytes(node.left.span()), bytes(node.right.span()));
        let operator = self.source[operator].to_owned();
        if let Some((number, _)) = others.first() {
            let number = *number;
            let form = match operator.as_str() {
                "==" | "!=" => Form::Equal { inner: left.start..right.end, number },
                "<" | "<=" | ">" | ">=" => Form::Compare { left, operator, right, others },
                "&&" | "||" if has_let(&node.left) || has_let(&node.right) => {
                    self.unviable.push(number);
                    return visit::visit_expr_binary(self, node);
                }
                "&&" | "||" => Form::Lazy { left, and: operator == "&&", right, number },
                _ if operator.ends_with('=') => Form::Assign { left, operator, right, others },
                _ => Form::Reckon { left, operator, right, others },
            };
            self.add(span, form);
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        let span = bytes(node.span());
        if let Some((number, _)) = self.take("UnaryOperator", span.start).first() {
            let sign = &self.source[span.start..span.start + 1];
            self.add(span, Form::Unary { sign: sign.to_owned(), inner: bytes(node.expr.span()), number: *number });
        }
        visit::visit_expr_unary(self, node);
    }

    fn visit_arm(&mut self, node: &'ast syn::Arm) {
        let gone = self.take("MatchArm", bytes(node.span()).start).first().map(|(number, _)| *number);
        let guard = node.guard.as_ref().map(|(_, expr)| bytes(expr.span()));
        let guards = guard.as_ref().map(|guard| self.take("MatchArmGuard", guard.start)).unwrap_or_default();
        let of = |word: &str| guards.iter().find(|(_, text)| text == word).map(|(number, _)| *number);
        let (always, never) = (of("true"), of("false"));
        if gone.is_some() || always.is_some() || never.is_some() {
            let end = bytes(node.pat.span()).end;
            self.add(guard.clone().unwrap_or(end..end), Form::Guard { guard, gone, always, never });
        }
        visit::visit_arm(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        let all = |arm: &syn::Arm| match &arm.pat {
            syn::Pat::Wild(_) => arm.guard.is_none(),
            syn::Pat::Ident(name) => arm.guard.is_none() && name.subpat.is_none(),
            _ => false,
        };
        if !node.arms.iter().any(all) {
            // Without the arm the match is not exhaustive.
            for arm in node.arms.iter().filter(|arm| arm.guard.is_none()) {
                let gone = self.take("MatchArm", bytes(arm.span()).start);
                self.unviable.extend(gone.iter().map(|(number, _)| *number));
            }
        }
        visit::visit_expr_match(self, node);
    }

    fn visit_item_const(&mut self, node: &'ast syn::ItemConst) {
        // A constant that a function computes is computed when it is first used: a switch cannot stand in a constant.
        if let syn::Expr::Call(call) = &*node.expr {
            let (name, kind, value) = (node.ident.span(), node.ty.span(), call.span());
            let text = |span: Span| &self.source[bytes(span)];
            let lazy = "std::sync::LazyLock";
            let static_ = format!("static {}: {lazy}<{}> = {lazy}::new(|| {});", text(name), text(kind), text(value));
            if let syn::Expr::Path(path) = &*call.func
                && path.path.get_ident().is_some_and(|name| self.constant.contains(&name.to_string()))
            {
                let start = bytes(node.const_token.span()).start;
                self.add(start..bytes(node.semi_token.span()).end, Form::Instead(static_));
            }
        }
        visit::visit_item_const(self, node);
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        let feature = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg") && self.source[bytes(attribute.span())].contains("feature")
        };
        if node.attrs.iter().any(feature) {
            // It is not built without the feature.
            let span = bytes(node.block.span());
            self.at.retain(|(_, start), of| {
                let there = span.contains(start);
                if there {
                    self.unviable.extend(of.iter().map(|mutant| mutant.number));
                    self.used.extend(of.iter().map(|mutant| mutant.number));
                }
                !there
            });
            return;
        }
        if let Some(constant) = &node.sig.constness
            && self.constant.contains(&node.sig.ident.to_string())
        {
            self.add(bytes(constant.span()), Form::Instead(String::new()));
        }
        visit::visit_item_fn(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        let mut fields = Vec::new();
        for field in &node.fields {
            let span = bytes(field.span());
            for (number, _) in self.take("StructField", span.start) {
                fields.push((number, span.clone()));
            }
        }
        if !fields.is_empty() {
            self.add(bytes(node.span()), Form::Fields(fields));
        }
        visit::visit_expr_struct(self, node);
    }

    fn visit_block(&mut self, node: &'ast syn::Block) {
        if let Some(first) = node.stmts.first() {
            let start = bytes(first.span()).start;
            let values = self.take("FnValue", start);
            if !values.is_empty() {
                self.add(start..start, Form::Return(values));
            }
        }
        visit::visit_block(self, node);
    }
}

/// Puts switches for `mutants` (all of one file) into its source.
pub fn weave(source: &str, mutants: &[&Mutant]) -> Woven {
    let mut at: BTreeMap<(&str, usize), Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        at.entry((&mutant.genre, mutant.start)).or_default().push(mutant);
    }
    let file = syn::parse_file(source).expect("source that compiles");
    let mut finder = Finder {
        source,
        at,
        rewrites: Vec::new(),
        unviable: Vec::new(),
        used: BTreeSet::new(),
        constant: BTreeSet::new(),
    };
    for item in &file.items {
        if let syn::Item::Fn(function) = item
            && function.sig.constness.is_some()
        {
            let span = bytes(function.block.span());
            if mutants.iter().any(|mutant| span.contains(&mutant.start)) {
                finder.constant.insert(function.sig.ident.to_string());
            }
        }
    }
    finder.visit_file(&file);
    let unknown = mutants.iter().map(|mutant| mutant.number).filter(|number| !finder.used.contains(number)).collect();
    let mut rewrites = finder.rewrites;
    // What encloses another comes first; what only inserts comes before what begins there.
    rewrites.sort_by_key(|rewrite| {
        let length = rewrite.span.len();
        (rewrite.span.start, if length == 0 { 0 } else { 1 }, usize::MAX - length)
    });
    let mut writer = Writer { source, rewrites: &rewrites, text: String::new(), marks: Vec::new() };
    writer.render(0..source.len(), 0);
    Woven { text: writer.text, marks: writer.marks, unviable: finder.unviable, unknown }
}

struct Writer<'a> {
    source: &'a str,
    rewrites: &'a [Rewrite],
    text: String,
    marks: Vec<(Range<usize>, u32)>,
}

impl Writer<'_> {
    /// Writes the source in `range`, with the rewrites from the `from`th on that lie in it.
    fn render(&mut self, range: Range<usize>, from: usize) {
        let mut position = range.start;
        for (index, rewrite) in self.rewrites.iter().enumerate().skip(from) {
            let span = &rewrite.span;
            if span.start < position || span.end > range.end || span.start >= range.end.max(range.start + 1) {
                continue;
            }
            self.text.push_str(&self.source[position..span.start]);
            self.write(rewrite, index + 1);
            position = span.end;
        }
        self.text.push_str(&self.source[position..range.end]);
    }

    fn marked(&mut self, number: u32, start: usize) {
        self.marks.push((start..self.text.len(), number));
    }

    fn part(&mut self, number: u32, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        self.marked(number, start);
    }

    fn write(&mut self, rewrite: &Rewrite, next: usize) {
        let on = |number: u32| format!("crate::mutant::on({number})");
        let begun = self.text.len();
        match &rewrite.form {
            Form::Instead(text) => self.text.push_str(text),
            Form::Return(values) => {
                for (number, value) in values {
                    self.part(*number, &format!("if {} {{ return {value}; }} ", on(*number)));
                }
            }
            Form::Equal { inner, number } => {
                self.text.push_str("((");
                self.render(inner.clone(), next);
                let _ = write!(self.text, ") ^ {})", on(*number));
                self.marked(*number, begun);
            }
            Form::Lazy { left, and, right, number } => {
                self.text.push_str("({ let left: bool = ");
                self.render(left.clone(), next);
                let _ = write!(self.text, "; if left ^ {} {{ ", on(*number));
                if *and {
                    self.render(right.clone(), next);
                    self.text.push_str(" } else { left } })");
                } else {
                    self.text.push_str("left } else { ");
                    self.render(right.clone(), next);
                    self.text.push_str(" } })");
                }
                self.marked(*number, begun);
            }
            Form::Compare { left, operator, right, others } => {
                self.text.push_str("(match (&(");
                self.render(left.clone(), next);
                self.text.push_str("), &(");
                self.render(right.clone(), next);
                let _ = write!(self.text, ")) {{ (left, right) => crate::mutant::pick(left {operator} right, &[");
                for (number, other) in others {
                    self.part(*number, &format!("({number}, left {other} right), "));
                }
                self.text.push_str("]) })");
            }
            Form::Reckon { left, operator, right, others } => {
                self.text.push_str("(match ((");
                self.render(left.clone(), next);
                self.text.push_str("), (");
                self.render(right.clone(), next);
                self.text.push_str(")) { (left, right) => ");
                for (number, other) in others {
                    self.part(*number, &format!("if {} {{ left {other} right }} else ", on(*number)));
                }
                let _ = write!(self.text, "{{ left {operator} right }} }})");
            }
            Form::Assign { left, operator, right, others } => {
                self.text.push_str("({ ");
                for (number, other) in others {
                    let start = self.text.len();
                    let _ = write!(self.text, "if {} {{ ", on(*number));
                    self.render(left.clone(), next);
                    let _ = write!(self.text, " {other} ");
                    self.render(right.clone(), next);
                    self.text.push_str(" } else ");
                    self.marked(*number, start);
                }
                self.text.push_str("{ ");
                self.render(left.clone(), next);
                let _ = write!(self.text, " {operator} ");
                self.render(right.clone(), next);
                self.text.push_str(" } })");
            }
            Form::Unary { sign, inner, number } => {
                self.text.push_str("(match ");
                self.render(inner.clone(), next);
                let _ = write!(self.text, " {{ value => if {} {{ value }} else {{ {sign}value }} }})", on(*number));
                self.marked(*number, begun);
            }
            Form::Guard { guard, gone, always, never } => {
                self.text.push_str(if guard.is_some() { "" } else { " if " });
                self.text.push_str(&gone.map(|number| format!("!{} && ", on(number))).unwrap_or_default());
                match guard {
                    None => self.text.push_str("true"),
                    Some(guard) => {
                        let always = always.map(|number| format!("{} || ", on(number))).unwrap_or_default();
                        let never = never.map(|number| format!("!{} && ", on(number))).unwrap_or_default();
                        let _ = write!(self.text, "({always}{never}(");
                        self.render(guard.clone(), next);
                        self.text.push_str("))");
                    }
                }
                for number in [gone, always, never].into_iter().flatten() {
                    self.marked(*number, begun);
                }
            }
            Form::Fields(fields) => {
                self.text.push('(');
                for (number, field) in fields {
                    let span = &rewrite.span;
                    let after = self.source[field.end..span.end].trim_start_matches(',');
                    let without = format!("{}{after}", &self.source[span.start..field.start]);
                    self.part(*number, &format!("if {} {{ {without} }} else ", on(*number)));
                }
                self.text.push_str("{ ");
                self.render(rewrite.span.clone(), next);
                self.text.push_str(" })");
            }
        }
    }
}
