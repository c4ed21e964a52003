//! Parser of exports(5). Pure: it reads no file and asks no name service.

use super::client::Who;
use super::entry::{At, Client, Comment, Entry, Fault, Parsed, Source};
use super::lex;
use super::options::{Objection, Options};

/// Reads a file. All faults are told, not the first alone.
pub(crate) fn parse(text: &[u8]) -> Result<Parsed, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut parsed = Parsed::default();
    for line in lex::lines(text, &mut faults) {
        read_line(&line, &mut parsed, &mut faults);
    }
    if faults.is_empty() { Ok(parsed) } else { Err(faults) }
}

/// Reads a list of options alone, for the command line.
pub(crate) fn parse_options(list: &str) -> Result<(Options, Vec<Comment>), Vec<Fault>> {
    let (mut options, mut objections) = (Options::default(), Vec::new());
    options.take(list, &mut objections);
    objections.extend(options.differences());
    let (mut comments, mut faults) = (Vec::new(), Vec::new());
    sort_out(1, objections, &mut comments, &mut faults);
    if faults.is_empty() { Ok((options, comments)) } else { Err(faults) }
}

fn read_line(line: &lex::Line, parsed: &mut Parsed, faults: &mut Vec<Fault>) {
    let source = match Source::parse(&line.path) {
        Ok(source) => source,
        Err((what, cure)) => {
            faults.push(Fault::new(line.number, what, cure));
            return;
        }
    };
    let mut defaults = Options::default();
    let mut clients: Vec<Client> = Vec::new();
    for word in &line.words {
        let mut objections = Vec::new();
        // exports(5): a dash and options are the defaults of what follows on the line.
        if let Some(list) = word.strip_prefix('-').filter(|_| !word.contains('(')) {
            defaults = Options::default();
            defaults.take(list, &mut objections);
            sort_out(line.number, objections, &mut parsed.comments, faults);
            continue;
        }
        let (name, list) = match word.split_once('(') {
            None => (word.as_str(), ""),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(list) if !list.contains(['(', ')']) => (name, list),
                _ => {
                    faults.push(Fault::new(
                        line.number,
                        format!("{word}: parentheses do not match"),
                        "write client(option,option) without spaces",
                    ));
                    continue;
                }
            },
        };
        let name = if name.is_empty() {
            // What exportfs warns of too: a space before the parenthesis gives the world what was meant for one
            // host.
            parsed.comments.push(Comment {
                line: line.number,
                text: format!("({list}) has no client before it and is for everybody; write *({list}) if that is meant"),
            });
            "*"
        } else {
            name
        };
        match Who::parse(name) {
            Ok((who, flavour)) => {
                let mut options = defaults.clone();
                if let Some(flavour) = flavour {
                    options.set_flavour(flavour);
                }
                options.take(list, &mut objections);
                objections.extend(options.differences());
                if clients.iter().any(|client| client.who == who && client.options.same_flavours(&options)) {
                    faults.push(Fault::new(line.number, format!("{name} is named twice"), "keep one of them"));
                }
                clients.push(Client { who, options, at: At { file: 0, line: line.number } });
            }
            Err((what, cure)) => faults.push(Fault::new(line.number, what, cure)),
        }
        sort_out(line.number, objections, &mut parsed.comments, faults);
    }
    if line.words.iter().all(|word| word.starts_with('-')) {
        parsed
            .comments
            .push(Comment { line: line.number, text: "no client is named, so it is for everybody; write * if that is meant".into() });
        clients.push(Client { who: Who::Everyone, options: defaults, at: At { file: 0, line: line.number } });
    }
    match parsed.entries.iter_mut().find(|entry| entry.source == source) {
        Some(entry) => entry.clients.extend(clients),
        None => parsed.entries.push(Entry { source, line: line.number, clients }),
    }
}

fn sort_out(line: usize, objections: Vec<Objection>, comments: &mut Vec<Comment>, faults: &mut Vec<Fault>) {
    for objection in objections {
        match objection {
            Objection::Comment(text) => comments.push(Comment { line, text }),
            Objection::Fault(what, cure) => faults.push(Fault::new(line, what, cure)),
        }
    }
}

#[cfg(test)]
mod tests;
