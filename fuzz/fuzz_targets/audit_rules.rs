//! Any text parses or fails with line numbers, and parsed rules select from any record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_audit::Record;
use vouch_audit::rules::{Resolve, Rules};

struct TestResolver;

impl Resolve for TestResolver {
    fn user(&self, name: &str) -> Option<u32> {
        u32::try_from(name.len()).ok()
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }
}

fuzz_target!(|input: &str| {
    match Rules::parse(input, &TestResolver) {
        Ok(rules) => {
            for operation in 0..80 {
                let record = Record {
                    operation,
                    path: b"/a/b",
                    path2: b"/c",
                    uid: Some(3),
                    principal: b"a@B",
                    ..Record::default()
                };
                assert!(rules.select(&record).is_none() || rules.may_record(operation));
            }
        }
        Err(errors) => assert!(errors.iter().all(|error| error.line <= input.lines().count())),
    }
});
