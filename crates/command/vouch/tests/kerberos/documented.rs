//! Commands and files of docs/directories.md, with the host names of the tests.

const PAGE: &str = include_str!("../../../../../docs/directories.md");
const NAMES: [(&str, &str); 3] = [
    ("example.org", "vouch.test"),
    ("EXAMPLE.ORG", "VOUCH.TEST"),
    ("EXAMPLE\\.ORG", "VOUCH\\.TEST"),
];

/// The command that begins with `start`, without its prompt and the comment behind it.
pub(crate) fn command(start: &str) -> String {
    let joined = PAGE.replace("\\\n", "");
    let commands = joined
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once("# ").map(|(_, command)| command));
    let mut found = commands.filter(|command| command.starts_with(start));
    let command =
        found.next().unwrap_or_else(|| panic!("no command of the page begins with `{start}`"));
    rename(command.split(" # ").next().unwrap_or_default().trim_end())
}

/// A command in the page's prose, between backquotes, that begins with `start`.
pub(crate) fn quoted(start: &str) -> String {
    let found = PAGE.split('`').find(|text| text.starts_with(start));
    rename(
        &found
            .unwrap_or_else(|| panic!("no command of the page begins with `{start}`"))
            .replace('\n', " "),
    )
}

/// What the page has typed into ktutil(1).
pub(crate) fn keytab_command(start: &str) -> String {
    let mut typed = PAGE.lines().filter_map(|line| line.trim().strip_prefix("ktutil:  "));
    rename(
        typed
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("ktutil: no `{start}`")),
    )
}

/// The file of which the page shows this part.
pub(crate) fn file(part: &str) -> String {
    let mut blocks = PAGE.split("```").skip(1).step_by(2);
    rename(
        blocks
            .find(|block| block.contains(part))
            .unwrap_or_else(|| panic!("no file of the page has `{part}`"))
            .trim_start(),
    )
}

fn rename(text: &str) -> String {
    NAMES.iter().fold(text.to_owned(), |text, (example, ours)| text.replace(example, ours))
}
