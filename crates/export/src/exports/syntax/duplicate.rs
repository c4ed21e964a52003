//! ClientRules that a path names more than once: what is said of them first is in force, flavour by
//! flavour, as `access.rs` joins them.

use vouch_nfs4_server::Flavour;

use super::entry::{At, Client, Entry};

/// A client that is named again, for flavours that it had already.
pub(crate) struct Duplicate<'a> {
    first: &'a Client,
    again: &'a Client,
    /// Flavours of which the later line is passed over.
    passed_over: Vec<Flavour>,
    /// Whether that is all that it has to say.
    whole: bool,
}

/// All of an entry.
pub(crate) fn duplicates(entry: &Entry) -> impl Iterator<Item = Duplicate<'_>> {
    entry.clients.iter().enumerate().filter_map(|(number, again)| {
        let before = entry.clients[..number].iter().filter(|known| known.machine == again.machine);
        let known: Vec<Flavour> = before.clone().flat_map(flavours).collect();
        let (passed_over, new): (Vec<Flavour>, Vec<Flavour>) = flavours(again).partition(|flavour| known.contains(flavour));
        let named_before = |first: &&Client| flavours(first).any(|flavour| passed_over.contains(&flavour));
        let first = before.clone().find(named_before)?;
        Some(Duplicate { first, again, whole: new.is_empty(), passed_over })
    })
}

fn flavours(client: &Client) -> impl Iterator<Item = Flavour> {
    client.options.access().into_iter().map(|access| access.flavour)
}

/// As `sec=` has it.
fn name(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::None => "none",
        Flavour::Sys => "sys",
        Flavour::Krb5 => "krb5",
        Flavour::Krb5i => "krb5i",
        Flavour::Krb5p => "krb5p",
    }
}

impl Duplicate<'_> {
    /// What is in force, and where. `place`: how a place is told.
    pub(crate) fn told(&self, source: &str, place: impl Fn(At) -> String) -> String {
        let (who, first) = (&self.again.machine, place(self.first.at));
        let names: Vec<&str> = self.passed_over.iter().map(|&flavour| name(flavour)).collect();
        let part = if self.whole { String::new() } else { format!(" of sec={}", names.join(":")) };
        format!(
            "{}: {source} names {who} again: what {first} says{part} is in force, and this is not; keep one of them",
            place(self.again.at)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;

    fn told(text: &str) -> Vec<String> {
        let parsed = parse(text.as_bytes()).expect("it can be served");
        let place = |at: super::At| format!("line {}", at.line);
        parsed
            .entries
            .iter()
            .flat_map(|entry| super::duplicates(entry).map(|duplicate| duplicate.told("/a", place)).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn a_client_that_is_named_again_is_told_with_the_line_that_is_in_force() {
        let said = told("/a *.example.org(ro) 192.0.2.0/24(ro)\n/b *(ro)\n/a *.Example.org(rw)\n/a 192.0.2.9/24(rw) @g\n");
        assert_eq!(
            said,
            [
                "line 3: /a names *.example.org again: what line 1 says is in force, and this is not; keep one of them",
                "line 4: /a names 192.0.2.0/24 again: what line 1 says is in force, and this is not; keep one of them",
            ]
        );
    }

    #[test]
    fn only_flavours_that_were_named_are_passed_over() {
        assert!(told("/a gss/krb5(ro) gss/krb5p(rw)\n/a *(rw)\n").is_empty());
        let said = told("/a *(sec=krb5,ro)\n/a *(sec=krb5:sys,rw)\n");
        assert!(said[0].contains("what line 1 says of sec=krb5 is in force"), "{said:?}");
    }
}
