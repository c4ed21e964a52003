//! Manual pages, made from the definitions of the command line (man-pages(7)).

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::cli::Global;
use crate::exit::{At as _, EXIT_STATUS, Failure, Outcome};
use crate::output;

/// Write all manual pages into a directory, or one page to standard output.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch man --out man\n  vouch man publish | man -l -\n  vouch man audit search | man -l -\n  vouch man vouch.toml | man -l -"
)]
pub(crate) struct Args {
    /// Directory for all pages: vouch.1, vouch-publish.1, vouch.toml.5 and so on; created if
    /// missing. Pages of an earlier run are replaced.
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    out: Option<PathBuf>,
    /// Print the page of this subcommand, or of the file vouch.toml; without it, the page of vouch
    /// itself.
    #[arg(value_name = "COMMAND")]
    page: Vec<String>,
}

/// Name of the page on the configuration file.
const CONFIGURATION: &str = "vouch.toml";

/// Files of a command that has the option. A command's help says when another file is used.
const FILES: [(&str, &str, &str); 5] = [
    (
        "config",
        "/etc/vouch/vouch.toml, /etc/vouch/conf.d/*.toml",
        "Configuration, see vouch.toml(5).",
    ),
    ("statements", "/etc/vouch/statements", "Key statements: revocations and forwarding pointers."),
    (
        "cache",
        "/var/cache/vouch, $XDG_CACHE_HOME/vouch",
        "Disk cache of verified blocks, of root and of other users.",
    ),
    (
        "state_required",
        "/var/lib/vouch, $XDG_STATE_HOME/vouch",
        "The newest revision seen of each tree, of root and of other users.",
    ),
    ("audit_rules", "/usr/share/vouch/audit/*.rules", "Audit rules that come with the package."),
];

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let mut root = crate::cli::command().disable_help_subcommand(true);
    root.build();
    if let Some(dir) = args.out {
        std::fs::create_dir_all(&dir).at(dir.display())?;
        write_all(&root, &root, &dir).at(dir.display())?;
        let path = dir.join(format!("{CONFIGURATION}.5"));
        return write_new(&path, &configuration_page(&root)).at(path.display());
    }
    let page = match args.page.as_slice() {
        [name] if name == CONFIGURATION => configuration_page(&root),
        names => {
            let mut command = &root;
            for name in names {
                command = command.find_subcommand(name).ok_or_else(|| {
                    Failure::usage(name, "no such command").cure("`vouch help` lists the commands")
                })?;
            }
            command_page(command, &root).at("manual page")?
        }
    };
    output::with_stdout(|out| out.write_all(&page))
}

fn write_all(command: &Command, root: &Command, dir: &Path) -> io::Result<()> {
    for sub in visible_subcommands(command) {
        write_all(sub, root, dir)?;
    }
    write_new(&dir.join(format!("{}.1", page_name(command))), &command_page(command, root)?)
}

/// Replaces a file, and follows no link: the directory may be another user's.
fn write_new(path: &Path, page: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)?.write_all(page)
}

fn command_page(command: &Command, root: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(page_name(command).to_uppercase())
        .source(source())
        .manual("Vouch");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if visible_subcommands(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    examples(&mut roff, command);
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_STATUS {
        entry(&mut roff, &(*code as i32).to_string(), meaning);
    }
    roff.control("SH", ["FILES"]);
    for (option, files, meaning) in FILES {
        if command.get_arguments().any(|arg| arg.get_id() == option) {
            entry(&mut roff, files, meaning);
        }
    }
    see_also(&mut roff, command, root);
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// A value that an option needs is part of it. Options of all commands are left to OPTIONS.
fn synopsis(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let mut line = vec![
        bold(command.get_bin_name().unwrap_or_else(|| command.get_name())),
        roman(" [OPTIONS]"),
    ];
    if visible_subcommands(command).next().is_some() {
        line.extend([
            roman(if command.is_subcommand_required_set() { " " } else { " [" }),
            italic("COMMAND"),
        ]);
        if !command.is_subcommand_required_set() {
            line.push(roman("]"));
        }
    }
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        if arg.is_required_set() && !arg.is_positional() {
            line.extend([roman(" "), bold(format!("--{}", arg.get_long().unwrap_or_default()))]);
            if arg.get_action().takes_values() {
                line.extend([roman(" "), italic(value_name(arg))]);
            }
        }
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let is_many = matches!(arg.get_action(), ArgAction::Append);
        let (open, close) = if arg.is_required_set() { (" ", "") } else { (" [", "]") };
        line.extend([
            roman(open),
            italic(value_name(arg)),
            roman(if is_many { "..." } else { "" }),
            roman(close),
        ]);
    }
    roff.text(line);
    roff
}

/// The help's text after the options: examples, and for some commands other paragraphs.
fn examples(roff: &mut Roff, command: &Command) {
    let Some(text) = command.get_after_long_help().or(command.get_after_help()) else { return };
    let text = text.to_string();
    let mut is_listing = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Some(shown) = line.strip_prefix("  ") else {
            if is_listing {
                roff.control("fi", []).control("RE", []);
                is_listing = false;
            }
            match line.strip_suffix(':') {
                Some("Exit codes (the same for all commands)") => return,
                Some(heading) if heading.len() < 40 => {
                    roff.control("SH", [heading.to_uppercase().as_str()])
                }
                _ => roff.control("PP", []).text([roman(line)]),
            };
            continue;
        };
        if !is_listing {
            roff.control("RS", ["4"]).control("nf", []);
            is_listing = true;
        }
        roff.text([roman(shown)]);
    }
    if is_listing {
        roff.control("fi", []).control("RE", []);
    }
}

fn see_also(roff: &mut Roff, command: &Command, root: &Command) {
    let name = page_name(command);
    let mut pages: Vec<String> = Vec::new();
    // The commands above, then those below, then its siblings within a group.
    let parent =
        name.rsplit_once('-').map(|(parent, _)| parent).filter(|parent| *parent != "vouch");
    pages.extend(visible_subcommands(command).map(|sub| format!("{}(1)", page_name(sub))));
    if name != "vouch" {
        pages.insert(0, "vouch(1)".to_owned());
    }
    let group =
        parent.and_then(|parent| root.get_subcommands().find(|sub| page_name(sub) == parent));
    for page in
        group.into_iter().flat_map(|group| std::iter::once(group).chain(visible_subcommands(group)))
    {
        if page_name(page) != name {
            pages.push(format!("{}(1)", page_name(page)));
        }
    }
    if name == "vouch-mount" || name == "vouch-umount" {
        pages.extend(["mount.vouch(8)".to_owned(), "fusermount3(1)".to_owned()]);
    }
    pages.push(format!("{CONFIGURATION}(5)"));
    roff.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
    roff.control("PP", []).text([roman("The guides are in /usr/share/doc/vouch/docs.")]);
}

/// vouch.toml(5): every option that each table takes.
fn configuration_page(root: &Command) -> Vec<u8> {
    let mut roff = Roff::new();
    roff.control("TH", [&*CONFIGURATION.to_uppercase(), "5", "", &source(), "Vouch"]);
    roff.control("SH", ["NAME"]).text([roman("vouch.toml - configuration of vouch")]);
    roff.control("SH", ["SYNOPSIS"])
        .text([roman("/etc/vouch/vouch.toml, /etc/vouch/conf.d/*.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    for (index, paragraph) in CONFIGURATION_TEXT.iter().enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(*paragraph)]);
    }
    roff.control("SH", ["TABLES"]);
    for (table, meaning) in CONFIGURATION_TABLES {
        entry(&mut roff, table, meaning);
    }
    roff.control("SH", ["OPTIONS OF ALL COMMANDS THAT HAVE THEM"]);
    let mut shared: Vec<&Arg> = Vec::new();
    for arg in vouch_config::shared(root) {
        if vouch_config::key(arg).is_some()
            && !shared.iter().any(|other| other.get_id() == arg.get_id())
        {
            shared.push(arg);
        }
    }
    for arg in &shared {
        option_entry(&mut roff, arg);
    }
    tables(&mut roff, root, "", &shared);
    roff.control("SH", ["EXAMPLE"]).control("nf", []);
    for line in CONFIGURATION_EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["SEE ALSO"])
        .text([roman("vouch(1), vouch-config-check(1), vouch-config-show(1)")]);
    roff.control("PP", []).text([roman(
        "docs/configuration.md in /usr/share/doc/vouch describes precedence by examples.",
    )]);
    roff.render().into_bytes()
}

/// One section for each table `[COMMAND]`.
fn tables(roff: &mut Roff, command: &Command, prefix: &str, shared: &[&Arg]) {
    for sub in visible_subcommands(command) {
        let table = format!("{prefix}{}", sub.get_name());
        let is_own = |arg: &&Arg| {
            !arg.is_hide_set()
                && vouch_config::key(arg).is_some()
                && !shared.iter().any(|other| other.get_id() == arg.get_id())
        };
        let own: Vec<&Arg> = sub.get_arguments().filter(is_own).collect();
        if !own.is_empty() {
            roff.control("SH", [format!("TABLE [{table}]").as_str()]);
            own.iter().for_each(|arg| option_entry(roff, arg));
        }
        tables(roff, sub, &format!("{table}."), shared);
    }
}

fn option_entry(roff: &mut Roff, arg: &Arg) {
    let key = vouch_config::key(arg).expect("the caller keeps configurable options");
    let value = match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => "true | false".to_owned(),
        ArgAction::Append => format!("[{}, ...]", value_name(arg)),
        _ => value_name(arg),
    };
    roff.control("TP", []).text([bold(key), roman(" = "), italic(value)]);
    roff.text([roman(arg.get_help().map(ToString::to_string).unwrap_or_default())]);
}

fn entry(roff: &mut Roff, term: &str, meaning: &str) {
    roff.control("TP", []).text([bold(term)]).text([roman(meaning)]);
}

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn value_name(arg: &Arg) -> String {
    arg.get_value_names()
        .and_then(|names| names.first())
        .map_or_else(|| arg.get_id().as_str().to_uppercase(), ToString::to_string)
}

fn source() -> String {
    concat!("vouch ", env!("CARGO_PKG_VERSION")).to_owned()
}

const CONFIGURATION_TEXT: [&str; 4] = [
    "Every option of the command line can be set in a file, by its long name without dashes. The format is TOML. Files of conf.d are \
     read after vouch.toml, in the order of their names; a later file overrides an earlier one. --config or VOUCH_CONFIG names another \
     file, or a directory with vouch.toml and conf.d; VOUCH_CONFIG=/dev/null turns the files off.",
    "The first of these that sets an option holds: the command line; the environment; [tree.NAME.COMMAND], then [tree.NAME], for all \
     trees [namespace]; [COMMAND]; the top level; the default. A list replaces the list of a lower source.",
    "Only root, or the user of the command, may be able to write a file and the directories above it. Otherwise the command refuses the \
     file.",
    "`vouch config check` checks the files, and `vouch config show` prints which value holds and where it comes from.",
];

const CONFIGURATION_TABLES: [(&str, &str); 5] = [
    ("top level", "Options for all commands that have them."),
    ("[COMMAND]", "Options of one command, as [mount], [serve] or [audit.send]."),
    (
        "[tree.NAME]",
        "A short name for a tree: name = \"@HOST,HOSTID\", and reading options for this tree.",
    ),
    ("[tree.NAME.COMMAND]", "Options of one command for this tree."),
    ("[namespace]", "Options of a mount of all trees (vouch mount --auto)."),
];

const CONFIGURATION_EXAMPLE: &str = "\
cache-quota = \"20G\"

[tree.tools]
name = \"@pub.example.org,HOSTID\"
replica = [\"mirror.example.org\"]

[tree.tools.mount]
dir = \"/opt/tools\"
noexec = true

[serve]
db = [\"/srv/vouch/tools\"]
metrics = \"127.0.0.1:9340\"";
