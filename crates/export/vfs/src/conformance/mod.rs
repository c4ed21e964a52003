//! Each rule panics with its sentence. [`conformance_tests!`](crate::conformance_tests) makes one
//! `#[test]` of each rule, with a new, empty file system.

mod acls;
mod attributes;
mod creation;
mod data;
mod fixture;
mod listing;
mod names;
mod read_only;
mod rights;
mod times;

pub use fixture::{Fixture, Rule};
pub use read_only::check_read_only;

pub const RULES: &[&[Rule]] = &[
    names::RULES,
    creation::RULES,
    data::RULES,
    listing::RULES,
    attributes::RULES,
    times::RULES,
    rights::RULES,
    acls::RULES,
];

/// # Panics
///
/// If the file system violates the rule, or no rule has this name.
pub fn check(name: &str, fixture: &Fixture) {
    let rule = RULES.iter().flat_map(|rules| rules.iter()).find(|rule| rule.0 == name);
    apply(rule.unwrap_or_else(|| panic!("no rule is called {name}")), fixture);
}

/// Rules about rights need several callers.
fn apply(rule: &Rule, fixture: &Fixture) {
    let is_about_rights = rights::RULES.iter().any(|other| other.0 == rule.0);
    if !is_about_rights || fixture.has_callers() {
        rule.1(fixture);
    }
}

/// # Panics
///
/// With the first rule that does not hold.
pub fn check_all(make: impl Fn() -> Fixture) {
    for rule in RULES.iter().flat_map(|rules| rules.iter()) {
        eprintln!("rule {}", rule.0);
        apply(rule, &make());
    }
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
                expected_files_alone_lose_their_names
                rename_to_another_link_of_the_file_changes_nothing only_empty_directories_are_removed parents_lead_to_the_root
                symbolic_links_are_read_and_never_followed special_files_are_created_but_not_opened
                racing_renames_lose_no_file lookups_racing_renames_stay_below_root removal_reports_last_name
                guarded_creation_refuses_existing_name unchecked_creation_opens_existing_file
                exclusive_creation_recognizes_retry racing_creations_create_file_once
                creation_beside_removals_misses_no_name umask_is_applied
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
                times_are_stored_exactly changes_update_times new_names_update_times_of_directory
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
