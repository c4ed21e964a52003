//! A user, as an export looks it up.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use vouch_export::{UserLookup, look_up_user};

use crate::finding::{Fault, Finding};

/// Looks the user up in the name service, and measures the time of the look-up of its groups.
pub fn check_user(name: &str) -> Finding {
    let (send, receive) = mpsc::channel();
    let (asked, began) = (name.to_owned(), Instant::now());
    // The look-up cannot be ended: a thread that hangs ends with this process.
    thread::spawn(move || send.send(look_up_user(&asked)));
    let answer = receive.recv_timeout(LOOKUP_MAX);
    let took = began.elapsed();
    let silent = |what: String| {
        Finding::problem(Fault::NameServiceSilent, name, what)
            .cure("see that sssd or nslcd runs and reaches the directory; `getent passwd USER` must answer at once")
    };
    match answer {
        Err(_) => silent(format!("no answer from the name service within {} s", LOOKUP_MAX.as_secs())),
        Ok(Err(failed)) => silent(failed),
        Ok(Ok(None)) => Finding::problem(Fault::UserWithoutAccount, name, "the name service does not know this user")
            .cure("`getent passwd USER` must show the user; else map the principal by auth_to_local in krb5.conf or by --principal-map"),
        Ok(Ok(Some(UserLookup { uid, gid, groups }))) if took > SLOW => {
            Finding::note(Fault::NameServiceSlow, name, format_args!("uid {uid}, gid {gid}, {groups} groups, after {} ms", took.as_millis()))
                .cure("index uid, uidNumber, gidNumber and memberUid in the directory, and see how far it is")
        }
        Ok(Ok(Some(UserLookup { uid, gid, groups }))) => {
            Finding::ok(name, format_args!("uid {uid}, gid {gid}, {groups} groups, after {} ms", took.as_millis()))
        }
    }
}

const LOOKUP_MAX: Duration = Duration::from_secs(30);
const SLOW: Duration = Duration::from_secs(1);
