//! Rules for every file system: each panics with the violated sentence.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes one `#[test]` of each rule, with a new,
//! empty file system. A file system for one caller skips rules about others, with a message.

mod acls;
mod attributes;
mod creation;
mod data;
mod listing;
mod names;
mod read_only;
mod rights;
mod times;

use std::any::Any;
use std::sync::Arc;

use crate::{
    AccessOverride, Attributes, Blocking, Caller, Content, CreateHow, Created, Error, FileId, FileSystem, Name, NewNode, OpenAccess,
    OpenFile, ReadInto, Result, SetAttributes, Stability,
};

pub use read_only::check_read_only;

/// Empty file system under test.
pub struct Fixture {
    pub fs: Arc<dyn FileSystem>,
    pub owner: Caller,
    pub any_caller: bool,
    pub keep: Box<dyn Any>,
}

pub type Rule = (&'static str, fn(&Fixture));

pub const RULES: &[&[Rule]] =
    &[names::RULES, creation::RULES, data::RULES, listing::RULES, attributes::RULES, times::RULES, rights::RULES, acls::RULES];

/// # Panics
/// If the file system violates the rule, or no rule has this name.
pub fn check(name: &str, fixture: &Fixture) {
    let rule = RULES.iter().flat_map(|rules| rules.iter()).find(|rule| rule.0 == name);
    rule.unwrap_or_else(|| panic!("no rule is called {name}")).1(fixture);
}

/// # Panics
/// With the first rule that does not hold.
pub fn check_all(make: impl Fn() -> Fixture) {
    for (name, rule) in RULES.iter().flat_map(|rules| rules.iter()) {
        eprintln!("rule {name}");
        rule(&make());
    }
}

pub(crate) const READ: OpenAccess = OpenAccess { read: true, write: false };
pub(crate) const WRITE: OpenAccess = OpenAccess { read: false, write: true };
pub(crate) const BOTH: OpenAccess = OpenAccess { read: true, write: true };

pub(crate) fn alice() -> Caller {
    Caller::new(1001, 2001, [3001, 3002])
}

pub(crate) fn bob() -> Caller {
    Caller::new(1002, 2002, [3002])
}

pub(crate) fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).expect("tests use names")
}

pub(crate) fn mode(mode: u16) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

macro_rules! refused {
    ($result:expr, $pattern:pat, $($why:tt)*) => {
        match $result {
            Err($pattern) => {}
            Err(other) => panic!("{}: failed with {other:?}", format!($($why)*)),
            Ok(_) => panic!("{}: succeeded", format!($($why)*)),
        }
    };
}
pub(crate) use refused;

impl Fixture {
    /// If false, prints a message: rules about several callers cannot be checked.
    pub(crate) fn has_callers(&self) -> bool {
        if !self.any_caller {
            eprintln!("not applicable: acts for one caller only");
        }
        self.any_caller
    }

    pub(crate) fn root(&self) -> FileId {
        self.fs.root()
    }

    pub(crate) fn attributes(&self, id: &FileId) -> Attributes {
        self.fs.attributes(id, Blocking::Allowed).expect("attributes of a file that exists")
    }

    pub(crate) fn change(&self, id: &FileId) -> u64 {
        self.attributes(id).change
    }

    pub(crate) fn create_as(
        &self,
        caller: &Caller,
        directory: &FileId,
        file: &str,
        how: CreateHow,
        set: &SetAttributes,
    ) -> Result<Created> {
        self.fs.create(caller, directory, name(file), how, set, BOTH)
    }

    pub(crate) fn file(&self, directory: &FileId, file: &str, content: &[u8]) -> FileId {
        let made = self.create_as(&self.owner, directory, file, CreateHow::Guarded, &mode(0o644)).expect("creating a file succeeds");
        write(&*made.open, 0, content);
        made.id
    }

    pub(crate) fn directory(&self, directory: &FileId, new: &str, bits: u16) -> FileId {
        let made = self.fs.make(&self.owner, directory, name(new), NewNode::Directory, &mode(bits));
        made.expect("creating a directory succeeds").0
    }

    pub(crate) fn lookup(&self, directory: &FileId, file: &str) -> Result<FileId> {
        self.fs.lookup(&self.owner, directory, name(file), Blocking::Allowed).map(|found| found.0)
    }

    pub(crate) fn remove(&self, directory: &FileId, file: &str) -> Option<FileId> {
        self.fs.remove(&self.owner, directory, name(file)).expect("the name can be removed").1
    }

    pub(crate) fn open(&self, id: &FileId, access: OpenAccess) -> Arc<dyn OpenFile> {
        self.fs.open(&self.owner, id, access, AccessOverride::None, Blocking::Allowed).expect("the owner can open the file")
    }

    pub(crate) fn content(&self, id: &FileId) -> Vec<u8> {
        read(&*self.open(id, READ), 0, 1 << 20).0
    }

    pub(crate) fn set(&self, id: &FileId, set: SetAttributes) {
        self.fs.set_attributes(&self.owner, id, None, &set).expect("the owner can set attributes");
    }

    pub(crate) fn names(&self, directory: &FileId) -> Vec<String> {
        let mut names = Vec::new();
        let done = self.fs.read_directory(&self.owner, directory, 0, false, Blocking::Allowed, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            std::ops::ControlFlow::Continue(())
        });
        assert!(done.expect("the owner can list"), "an uninterrupted listing reaches the end");
        names.sort();
        names
    }
}

pub(crate) fn write(open: &dyn OpenFile, offset: u64, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        let written =
            open.write(offset + done as u64, &data[done..], Stability::Unstable, Blocking::Allowed).expect("an open file can be written");
        assert!(written.len > 0, "a write writes something");
        done += written.len;
    }
}

pub(crate) fn read(open: &dyn OpenFile, offset: u64, len: usize) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    match open.read(offset, len, ReadInto { bytes: &mut bytes, span_allowed: false }, Blocking::Allowed).expect("an open file can be read")
    {
        Content::Bytes { len, eof } => {
            assert_eq!(len, bytes.len(), "the returned length is the number of appended bytes");
            (bytes, eof)
        }
        Content::Span { .. } => panic!("a span was not allowed"),
    }
}

pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % sides
    }
}

pub(crate) fn is_stale<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Stale))
}

#[macro_export]
macro_rules! conformance_tests {
    ($module:ident, $make:expr) => {
        mod $module {
            use super::*;
            $crate::conformance_tests!(@each $make,
                lookup_finds_only_existing_names identities_survive_renames invalid_identity_is_refused
                identities_of_removed_files_are_stale hard_links_share_one_file directories_cannot_be_hard_linked
                rename_replaces_only_same_file_type directory_cannot_be_moved_below_itself
                rename_to_another_link_of_the_file_changes_nothing only_empty_directories_are_removed parents_lead_to_the_root
                symbolic_links_are_read_and_never_followed special_files_are_created_but_not_opened
                racing_renames_lose_no_file lookups_racing_renames_stay_below_root removal_reports_last_name
                guarded_creation_refuses_existing_name unchecked_creation_opens_existing_file
                exclusive_creation_recognizes_retry racing_creations_create_file_once umask_is_applied
                new_file_is_open_despite_its_mode failed_creation_leaves_no_file
                remove_incomplete_removes_only_the_created_file racing_remove_incomplete_removes_no_other_file
                new_file_becomes_durable_despite_its_mode
                reads_return_written_data holes_read_as_zeros_and_are_found truncation_cuts_and_extends unlinked_file_stays_while_open
                open_file_is_limited_to_requested_access regions_are_allocated_and_punched ranges_are_copied_and_cloned commits_succeed
                open_files_of_others_are_refused random_writes_agree_with_model
                listings_name_each_entry_once cookies_stay_valid_during_changes reserved_cookies_are_refused
                listings_include_identities_and_attributes large_directory_is_listed_in_pieces
                attributes_describe_the_file modes_are_set_and_masked every_change_moves_the_change_attribute
                directory_changes_report_before_and_after free_space_is_reported paths_are_reported xattrs_are_stored
                times_are_stored_exactly changes_update_times
                mode_is_enforced_for_each_class supplementary_groups_count superuser_bypasses_mode
                sticky_bit_restricts_removal set_gid_directory_passes_on_its_group
                only_owners_set_attributes write_clears_set_id_bits owner_bypasses_mode_if_requested
                execute_right_allows_reading_if_requested lookup_requires_search_permission files_belong_to_their_creator open_file_keeps_its_rights
                acls_are_stored_and_enforced default_acls_are_inherited minimal_acl_equals_mode
            );
        }
    };
    (@each $make:expr, $($rule:ident)*) => {
        $(#[test]
        fn $rule() {
            $crate::conformance::check(stringify!($rule), &$make());
        })*

        #[test]
        fn every_rule_is_tested() {
            let here = [$(stringify!($rule)),*];
            for (name, _) in $crate::conformance::RULES.iter().flat_map(|rules| rules.iter()) {
                assert!(here.contains(name), "{name} has no test");
            }
        }
    };
}
