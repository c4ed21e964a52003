mod chart;
mod compare;
mod csv;
mod documents;
mod fairness;
mod format;
mod glance;
mod html;
mod table;

pub use compare::compare;
pub use csv::csv;
pub use documents::Contents;
pub use fairness::fairness_svg;
pub use format::figure;
pub use html::{html, html_of_runs};
pub use table::table;

#[cfg(test)]
pub(crate) mod tests {
    use crate::case::{Load, Metric};
    use crate::record::CaseResult;
    use crate::subject::SubjectInfo;
    use crate::{Case, Run, Sample};

    pub(crate) fn steps() -> Run {
        let mut run = Run::begin("test".into(), false);
        run.subjects = ["a", "b"]
            .map(|label| SubjectInfo {
                label: label.into(),
                target: "x".into(),
                sec: None,
                details: Vec::new(),
            })
            .into();
        let rounds = |times: u64| {
            let round = |us: u64| {
                let mut sample = Sample { seconds: 1.0, operations: 1000, ..Sample::default() };
                sample.latency.record_many(us * times * 1000, 1000);
                sample
            };
            [90, 100, 100, 100, 100, 110].map(round).to_vec()
        };
        let load = Load { rate: Some(1000.0), ..Load::READS };
        let mut result = CaseResult {
            case: Some(Case::Load(load)),
            ..CaseResult::new("iops", "p", "n", Metric::OperationsPerSecond)
        };
        result.x = load.rate;
        result.sum_up("a", vec![("a".into(), rounds(1)), ("b".into(), rounds(2))]);
        run.results.push(result);
        run
    }
}
