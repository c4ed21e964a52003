//! The choice of a set holds for a whole process, so this test has one of its own.

use vouch_krb5_seal::{ChooseError, Kernels};

#[test]
fn a_narrower_set_is_chosen_once_and_by_name() {
    let unknown = Kernels::choose("abacus").expect_err("no CPU has it");
    assert!(unknown.to_string().starts_with("this CPU has plain"), "{unknown}");
    Kernels::choose("plain").expect("the plain kernels run everywhere");
    assert!(
        std::ptr::eq(Kernels::best(), &Kernels::available()[0]),
        "the set in use is {}",
        Kernels::best().name()
    );
    assert_eq!(Kernels::choose("plain"), Err(ChooseError::InUse));
}
