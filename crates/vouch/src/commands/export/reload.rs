//! `vouch export reload`: has a server that runs read its exports anew.

use std::path::Path;

use crate::exit::{Failure, Outcome};
use crate::output;
use vouch_export::control::{Answer, Question};

/// Have the server read its list of exports anew.
///
/// No client is dropped. If the new list is faulty the old one stays in force, and this says what
/// is wrong with it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(state: &Path) -> Outcome {
    match super::status::ask(state, Question::Reload)? {
        Answer::Reloaded(comments) => output::text(&comments.iter().map(|comment| format!("{comment}\n")).collect::<String>()),
        Answer::Failed(why) => Err(Failure::input("exports", why)),
        Answer::Status(_) => Err(Failure::input("server", "answered something else; is it of another version?")),
    }
}
