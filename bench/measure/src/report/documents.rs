//! HTML page of several documents: each of their figures, and the runs that repeat it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::chart::{bars, escape};
use super::format::number;
use super::html::{METHOD, begin, conditions, cpu_drawings, delta_rows, groups, plot, write_table};
use crate::record::{CaseResult, Run, kept_run};
use crate::{Error, escape as printable};

/// The contents of a page (docs/formats/bench.md). Its author is trusted, its records are not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    title: String,
    lead: String,
    /// From the page to the directory of the contents.
    links: String,
    runs: BTreeMap<String, Source>,
    /// For readers who decide: a question, its answer, and the number of the document that shows it
    /// from 1.
    summary: Vec<(String, String, usize)>,
    documents: Vec<Document>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    file: PathBuf,
    about: String,
    /// Subjects to show. Empty: all.
    #[serde(default)]
    subjects: Vec<String>,
    /// Labels by the record, and what the page calls them.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    explained: Vec<Explained>,
}

/// Notes of a record that contain `note` give way to one sentence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Explained {
    note: String,
    why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    title: String,
    figures: Vec<Figure>,
    not_shown: Vec<[String; 2]>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    title: String,
    says: String,
    #[serde(default)]
    plots: Vec<Plots>,
    #[serde(default)]
    tables: Vec<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plots {
    run: String,
    /// Names of panels, or their beginnings.
    panels: Vec<String>,
    /// Names of cases, or their beginnings. Empty: all.
    #[serde(default)]
    cases: Vec<String>,
    /// Default: the metric of the cases. `CPU`, `added latency`, or an entry of `others`.
    #[serde(default)]
    measure: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// What was measured, and its files.
    about: String,
    #[serde(default)]
    files: Vec<PathBuf>,
}

impl Contents {
    pub fn from_json(text: &str, name: &str) -> Result<Self, Error> {
        serde_json::from_str(text)
            .map_err(|error| Error::Input(printable::word(&format!("{name}: {error}"))))
    }

    /// Names of runs, and their records relative to the contents.
    pub fn records(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.runs.iter().map(|(name, source)| (name.as_str(), source.file.as_path()))
    }

    pub fn html(&self, mut runs: BTreeMap<String, Run>) -> Result<String, Error> {
        for (name, run) in &mut runs {
            if let Some(source) = self.runs.get(name) {
                source.narrow(run);
            }
        }
        let began = runs.values().map(|run| run.began.as_str()).max().unwrap_or_default();
        let mut page = begin(&self.title, began);
        let _ = writeln!(page, "<p class=\"lead\">{}</p>", escape(&self.lead));
        self.summary(&mut page)?;
        page.push_str("<nav><h2>Documents</h2>\n<ol>\n");
        for (number, document) in self.documents.iter().enumerate() {
            let _ = writeln!(
                page,
                "<li><a href=\"#document-{number}\">{}</a>\n<ul>",
                escape(&document.title)
            );
            for (at, figure) in document.figures.iter().enumerate() {
                let _ = writeln!(
                    page,
                    "<li><a href=\"#figure-{number}-{at}\">{}</a></li>",
                    escape(&figure.title)
                );
            }
            page.push_str("</ul></li>\n");
        }
        page.push_str("</ol></nav>\n</header>\n<main>\n");
        for (number, document) in self.documents.iter().enumerate() {
            let _ = writeln!(
                page,
                "<article id=\"document-{number}\">\n<h1>{}</h1>",
                escape(&document.title)
            );
            for (at, figure) in document.figures.iter().enumerate() {
                let _ = write!(
                    page,
                    "<section id=\"figure-{number}-{at}\">\n<h2>{}</h2>\n<p>{}</p>\n",
                    escape(&figure.title),
                    escape(&figure.says)
                );
                self.figure(figure, &runs, &mut page)?;
                page.push_str("</section>\n");
            }
            not_shown(document, &mut page);
            self.conditions(document, &runs, &mut page)?;
            page.push_str("</article>\n");
        }
        let _ = write!(
            page,
            "</main>\n<footer>\n<h2>How to read the figures</h2>\n<p>{METHOD}</p>\n</footer>\n</body>\n</html>\n"
        );
        Ok(page)
    }

    fn summary(&self, page: &mut String) -> Result<(), Error> {
        page.push_str("<section class=\"summary\">\n<h2>Summary</h2>\n<table class=\"plain\">\n<thead><tr><th>question</th><th>answer</th></tr></thead>\n<tbody>\n");
        for (question, answer, document) in &self.summary {
            let number = document.checked_sub(1).filter(|number| *number < self.documents.len());
            let number = number.ok_or_else(|| {
                Error::Input(format!(
                    "the summary names document {document}, which the contents lack"
                ))
            })?;
            let _ = writeln!(
                page,
                "<tr><th>{}</th><td>{} <a href=\"#document-{number}\">Figures</a></td></tr>",
                escape(question),
                escape(answer)
            );
        }
        page.push_str("</tbody>\n</table>\n</section>\n");
        Ok(())
    }

    fn figure(
        &self,
        figure: &Figure,
        runs: &BTreeMap<String, Run>,
        page: &mut String,
    ) -> Result<(), Error> {
        let mut before = "";
        for (at, plots) in figure.plots.iter().enumerate() {
            if at == 1 {
                let _ = writeln!(
                    page,
                    "<details><summary>More charts ({})</summary>",
                    figure.plots.len() - 1
                );
            }
            let (source, run) = self.run(&plots.run, runs)?;
            if before != plots.run {
                self.source(source, run, page);
            }
            before = &plots.run;
            plots.draw(run, page)?;
        }
        if figure.plots.len() > 1 {
            page.push_str("</details>\n");
        }
        for table in &figure.tables {
            table.write(page);
            let links: Vec<String> = table.files.iter().map(|file| self.link(file)).collect();
            let _ = writeln!(
                page,
                "<p class=\"source\">{} {}</p>",
                escape(&table.about),
                links.join(", ")
            );
        }
        Ok(())
    }

    fn source(&self, source: &Source, run: &Run, page: &mut String) {
        let date = run.began.split('T').next().unwrap_or_default();
        let file = &source.file;
        let link = self.link(&if kept_run(&file.to_string_lossy()).is_some() {
            file.clone()
        } else {
            file.with_extension("txt")
        });
        let _ = writeln!(page, "<p class=\"source\">{} {date}, {link}.</p>", escape(&source.about));
    }

    fn run<'a>(
        &'a self,
        name: &str,
        runs: &'a BTreeMap<String, Run>,
    ) -> Result<(&'a Source, &'a Run), Error> {
        let unknown = || Error::Input(format!("the contents name no run {name:?}"));
        Ok((self.runs.get(name).ok_or_else(unknown)?, runs.get(name).ok_or_else(unknown)?))
    }

    fn link(&self, file: &Path) -> String {
        format!(
            "<a href=\"{}{}\">{}</a>",
            escape(&self.links),
            escape(&file.display().to_string()),
            escape(&run_name(file))
        )
    }

    fn conditions(
        &self,
        document: &Document,
        runs: &BTreeMap<String, Run>,
        page: &mut String,
    ) -> Result<(), Error> {
        let mut names: Vec<&str> = document
            .figures
            .iter()
            .flat_map(|figure| &figure.plots)
            .map(|plots| plots.run.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Ok(());
        }
        page.push_str("<section>\n<h2>How this was measured</h2>\n");
        for name in names {
            let (source, run) = self.run(name, runs)?;
            let _ = write!(
                page,
                "<details><summary>{}</summary>\n<p>{}</p>\n",
                escape(&run_name(&source.file)),
                escape(&source.about)
            );
            for note in source.notes(run) {
                let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&note));
            }
            conditions(run, page);
            page.push_str("</details>\n");
        }
        page.push_str("</section>\n");
        Ok(())
    }
}

/// Of a kept run or of a record.
fn run_name(file: &Path) -> String {
    let name = file.to_string_lossy();
    let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    kept_run(&name).map_or_else(stem, |(_, run)| run.to_owned())
}

impl Source {
    fn narrow(&self, run: &mut Run) {
        let is_shown = |label: &String| self.subjects.is_empty() || self.subjects.contains(label);
        run.subjects.retain(|about| is_shown(&about.label));
        run.results
            .iter_mut()
            .for_each(|result| result.subjects.retain(|subject| is_shown(&subject.label)));
        self.labels.iter().for_each(|(from, to)| run.rename(from, to));
        let is_explained =
            |line: &String| self.explained.iter().any(|explained| line.contains(&explained.note));
        run.left_out.retain(|line| !is_explained(line));
    }

    fn notes(&self, run: &Run) -> Vec<String> {
        let is_explained =
            |line: &&String| self.explained.iter().any(|explained| line.contains(&explained.note));
        let quick = run.quick.then(|| "Quick run (--quick): small sizes, three rounds.".to_owned());
        let explained = self.explained.iter().map(|explained| explained.why.clone());
        quick
            .into_iter()
            .chain(explained)
            .chain(run.notes.iter().filter(|line| !is_explained(line)).cloned())
            .collect()
    }
}

impl Plots {
    fn draw(&self, run: &Run, page: &mut String) -> Result<(), Error> {
        if self.measure == "added latency" {
            delta_rows(run, page);
            return Ok(());
        }
        for wanted in &self.panels {
            for (workload, panel, results) in self.found(run, wanted)? {
                match self.measure.as_str() {
                    "" => plot(run, workload, panel, &results, page),
                    measure => {
                        let _ = writeln!(page, "<h3>{}: {}</h3>", escape(panel), escape(measure));
                        drawings(measure, run, panel, &results).iter().for_each(|drawing| {
                            let _ = writeln!(page, "<figure>{drawing}</figure>");
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn found<'a>(&self, run: &'a Run, wanted: &str) -> Result<Vec<Panel<'a>>, Error> {
        let mut found = run.panels();
        let is_exact = found.iter().any(|(_, panel, _)| *panel == wanted);
        found.retain(
            |(_, panel, _)| if is_exact { *panel == wanted } else { panel.starts_with(wanted) },
        );
        let is_wanted = |case: &str| {
            self.cases.is_empty()
                || self.cases.iter().any(|wanted| case.starts_with(wanted.as_str()))
        };
        found
            .iter_mut()
            .for_each(|(_, _, results)| results.retain(|result| is_wanted(&result.name)));
        found.retain(|(_, _, results)| !results.is_empty());
        match found.is_empty() {
            true => Err(Error::Input(format!(
                "run {:?} has no panel {wanted:?} with these cases",
                self.run
            ))),
            false => Ok(found),
        }
    }
}

/// Workload, panel, results.
type Panel<'a> = (&'a str, &'a str, Vec<&'a CaseResult>);

fn drawings(measure: &str, run: &Run, panel: &str, results: &[&CaseResult]) -> Vec<String> {
    if measure == "CPU" {
        return cpu_drawings(run, panel, results).into_iter().map(|(_, drawing)| drawing).collect();
    }
    let groups = groups(run, results.iter(), |_, subject| {
        let figure = subject.rounds().others.into_iter().find(|(name, _)| name == measure)?.1;
        Some((vec![figure], None, number(figure)))
    });
    vec![bars(panel, measure, &groups)]
}

impl Table {
    fn write(&self, page: &mut String) {
        let rows = self.rows.iter().map(|row| {
            row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect::<String>()
        });
        write_table(page, "plain", self.head.iter().cloned(), rows);
    }
}

fn not_shown(document: &Document, page: &mut String) {
    if document.not_shown.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Not shown here, and why</h2>\n<dl class=\"reasons\">\n");
    for [what, why] in &document.not_shown {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(what), escape(why));
    }
    page.push_str("</dl>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use super::super::tests::steps;
    use super::*;

    const CONTENTS: &str = r#"{"title": "T", "lead": "L", "links": "../b/", "summary": [["Q?", "Answer.", 1]], "runs": {"first": {"file": "runs/x.json", "about": "A.",
        "labels": {"b": "other"}, "explained": [{"note": "NOTEMPTY", "why": "Left behind."}]}}, "documents": [{"title": "D", "figures": [
        {"title": "F", "says": "S.", "plots": [{"run": "first", "panels": ["p"]}], "tables": [{"head": ["h"], "rows": [["<c>"]], "about": "W."}]}],
        "not_shown": [["what", "why"]]}]}"#;

    fn page(contents: &str) -> Result<String, Error> {
        let mut run = steps();
        run.notes = vec!["a: REMOVE: NOTEMPTY".into(), "noisy".into()];
        Contents::from_json(contents, "contents")?.html([("first".to_owned(), run)].into())
    }

    #[test]
    fn page_has_figures_reasons_and_explained_notes() {
        let page = page(CONTENTS).expect("all names are known");
        for text in [
            "<h1>D</h1>",
            "<h2>F</h2>",
            "Answer. <a href=\"#document-0\">",
            "&lt;c&gt;",
            "../b/runs/x.txt",
            "<dt>what</dt><dd>why</dd>",
            "Left behind.",
            ">noisy<",
            "other",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert!(!page.contains("NOTEMPTY"), "{page}");
    }

    #[test]
    fn unknown_run_panel_and_field_are_refused() {
        for (from, to) in [
            (r#""run": "first""#, r#""run": "second""#),
            (r#"["p"]"#, r#"["q"]"#),
            (r#""says""#, r#""sais""#),
            (r#""Answer.", 1"#, r#""Answer.", 2"#),
        ] {
            page(&CONTENTS.replacen(from, to, 1)).expect_err(to);
        }
    }

    fn repository() -> &'static Path {
        let mut ups = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        ups.find(|up| up.join("bench/figures.jsonl").exists())
            .expect("the crate lies in the repository")
    }

    fn read(file: &Path) -> String {
        std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    #[test]
    fn page_of_kept_runs_has_all_figures() {
        let figures = read(&repository().join("bench/figures.jsonl"));
        let contents =
            Contents::from_json(&read(&repository().join("bench/results.json")), "results.json")
                .expect("valid contents");
        let runs = contents.records().map(|(name, file)| {
            let (_, run) = file.to_str().and_then(kept_run).expect("a kept run");
            (name.to_owned(), Run::from_figures(&figures, run, "figures.jsonl").expect("a record"))
        });
        let page = contents.html(runs.collect()).expect("all panels and cases are kept");
        let shown: usize = contents.documents.iter().map(|document| document.figures.len()).sum();
        assert_eq!(page.matches("<section id=\"figure-").count(), shown);
        assert!(
            !page.contains("NaN") && !page.contains("<td>0</td><td></td></tr>"),
            "a figure without rounds"
        );
        assert_all_kept(&figures, &page, "figures.jsonl#", "results.json");
    }

    #[test]
    fn runs_that_documents_name_are_kept() {
        let figures = read(&repository().join("bench/figures.jsonl"));
        for entry in std::fs::read_dir(repository().join("docs")).expect("pages") {
            let page = entry.expect("an entry").path();
            let text = if page.is_file() { read(&page) } else { continue };
            let names = text
                .split("](benchmarking.md#kept-runs)")
                .filter_map(|before| before.rsplit_once('['))
                .map(|(_, name)| name);
            let names: String = names
                .filter(|name| name.starts_with("20"))
                .map(|name| format!("figures.jsonl#{name} "))
                .collect();
            assert_all_kept(
                &figures,
                &(names + &text),
                "figures.jsonl#",
                &page.display().to_string(),
            );
        }
    }

    fn assert_all_kept(figures: &str, text: &str, before: &str, from: &str) {
        for after in text.split(before).skip(1) {
            let run: String =
                after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            assert!(
                figures.contains(&format!("{{\"run\":\"{run}\",\"began\"")),
                "{from} names a run that is not kept: {run}"
            );
        }
    }
}
