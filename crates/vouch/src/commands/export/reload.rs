//! `vouch export reload`: makes a running server read its exports again.

use std::path::Path;

use crate::exit::{Failure, Outcome};
use crate::output;
use vouch_export::control::{Answer, Question};

/// Make the server read its list of exports again.
///
/// Clients stay connected. If the new list has errors, they are printed and the old list stays in
/// force.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(state: &Path) -> Outcome {
    match super::status::ask(state, Question::Reload)? {
        Answer::Reloaded(comments) => output::text(&comments.iter().map(|comment| format!("{comment}\n")).collect::<String>()),
        Answer::Failed(why) => Err(Failure::input("exports", why)),
        Answer::Status(_) => Err(Failure::input("server", "unexpected answer; is the server of another version?")),
    }
}
