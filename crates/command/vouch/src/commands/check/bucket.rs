//! `vouch check s3://…`: one of several publishers at once may win.

use vouch_diagnose::{Fault, Finding};
use vouch_tree_bucket::Fitness;

use crate::exit::{Failure, Outcome};

pub(super) fn check(address: &str) -> Outcome<Finding> {
    let checked = vouch_tree_bucket::check_fitness(address);
    let Fitness { address, endpoint, faults } =
        checked.map_err(|error| Failure::from(vouch_tree_store::Error::of_bucket(error)))?;
    let subject = format!("{address} at {endpoint}");
    if faults.is_empty() {
        return Ok(Finding::ok(subject, "fit: of eight writers, one won in each of ten rounds"));
    }
    let what = format!("unfit for several publishers: {}", faults.join("; "));
    Ok(Finding::problem(Fault::BucketUnfit, subject, what)
        .cure("let one machine publish into it only, or use a server that docs/object-storage.md lists as fit"))
}
