use super::client::MachineName;
use super::entry::{At, Client, Entry, LineError, Parsed, Source, Warning};
use super::lex;
use super::options::{OptionIssue, Options};
use vouch_nfs4_server::Flavour;

pub(crate) fn parse(text: &[u8]) -> Result<Parsed, Vec<LineError>> {
    let mut errors = Vec::new();
    let mut parsed = Parsed::default();
    for line in lex::lines(text, &mut errors) {
        read_line(&line, &mut parsed, &mut errors);
    }
    if errors.is_empty() { Ok(parsed) } else { Err(errors) }
}

pub(crate) fn parse_options(list: &str) -> Result<(Options, Vec<Warning>), Vec<LineError>> {
    let (mut options, mut issues) = (Options::default(), Vec::new());
    options.take(list, &mut issues);
    issues.extend(options.differences());
    let (mut warnings, mut errors) = (Vec::new(), Vec::new());
    sort_out(1, issues, &mut warnings, &mut errors);
    if errors.is_empty() { Ok((options, warnings)) } else { Err(errors) }
}

fn read_line(line: &lex::Line, parsed: &mut Parsed, errors: &mut Vec<LineError>) {
    let source = match Source::parse(&line.path) {
        Ok(source) => source,
        Err((what, cure)) => {
            errors.push(LineError::new(line.number, what, cure));
            return;
        }
    };
    let mut defaults = Options::default();
    let mut clients: Vec<Client> = Vec::new();
    for word in &line.words {
        let mut issues = Vec::new();
        // exports(5): defaults for the rest of the line.
        if let Some(list) = word.strip_prefix('-').filter(|_| !word.contains('(')) {
            defaults = Options::default();
            defaults.take(list, &mut issues);
            sort_out(line.number, issues, &mut parsed.warnings, errors);
            continue;
        }
        let Some((name, list)) = split_client(word) else {
            let cure = "write client(option,option) without spaces";
            errors.push(LineError::new(
                line.number,
                format!("{word}: parentheses do not match"),
                cure,
            ));
            continue;
        };
        if name.is_empty() {
            parsed.warnings.push(Warning {
                line: line.number,
                text: format!("({list}) has no client before it and applies to everybody; write *({list}) if that is intended"),
            });
        }
        // As in exportfs: a space before the parenthesis grants everybody the access of one host.
        let name = if name.is_empty() { "*" } else { name };
        match MachineName::parse(name) {
            Ok((who, flavour)) => {
                let options = options_of(&defaults, flavour, list, &mut issues);
                if clients
                    .iter()
                    .any(|client| client.machine == who && client.options.same_flavours(&options))
                {
                    errors.push(LineError::new(
                        line.number,
                        format!("{name} is named twice"),
                        "keep one of them",
                    ));
                }
                clients.push(Client {
                    machine: who,
                    options,
                    at: At { file: 0, line: line.number },
                });
            }
            Err((what, cure)) => errors.push(LineError::new(line.number, what, cure)),
        }
        sort_out(line.number, issues, &mut parsed.warnings, errors);
    }
    if line.words.iter().all(|word| word.starts_with('-')) {
        parsed.warnings.push(Warning {
            line: line.number,
            text: "the line names no client and applies to everybody; write * if that is intended"
                .into(),
        });
        clients.push(Client {
            machine: MachineName::Everyone,
            options: defaults,
            at: At { file: 0, line: line.number },
        });
    }
    match parsed.entries.iter_mut().find(|entry| entry.source == source) {
        Some(entry) => entry.clients.extend(clients),
        None => parsed.entries.push(Entry { source, line: line.number, clients }),
    }
}

fn options_of(
    defaults: &Options,
    flavour: Option<Flavour>,
    list: &str,
    issues: &mut Vec<OptionIssue>,
) -> Options {
    let mut options = defaults.clone();
    if let Some(flavour) = flavour {
        options.set_flavour(flavour);
    }
    options.take(list, issues);
    issues.extend(options.differences());
    options
}

fn split_client(word: &str) -> Option<(&str, &str)> {
    let Some((name, rest)) = word.split_once('(') else { return Some((word, "")) };
    let list = rest.strip_suffix(')').filter(|list| !list.contains(['(', ')']))?;
    Some((name, list))
}

fn sort_out(
    line: usize,
    issues: Vec<OptionIssue>,
    warnings: &mut Vec<Warning>,
    errors: &mut Vec<LineError>,
) {
    for issue in issues {
        match issue {
            OptionIssue::Warning(text) => warnings.push(Warning { line, text }),
            OptionIssue::Error(what, cure) => errors.push(LineError::new(line, what, cure)),
        }
    }
}

#[cfg(test)]
mod tests;
