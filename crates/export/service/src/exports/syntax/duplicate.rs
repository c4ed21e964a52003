use vouch_nfs4_server::Flavour;

use super::entry::{At, Client, Entry};

pub(crate) struct Duplicate<'a> {
    first: &'a Client,
    again: &'a Client,
    ignored_flavours: Vec<Flavour>,
    whole: bool,
}

pub(crate) fn duplicates(entry: &Entry) -> impl Iterator<Item = Duplicate<'_>> {
    entry.clients.iter().enumerate().filter_map(|(number, again)| {
        let before = entry.clients[..number].iter().filter(|known| known.machine == again.machine);
        let known: Vec<Flavour> = before.clone().flat_map(flavours).collect();
        let (ignored_flavours, new): (Vec<Flavour>, Vec<Flavour>) =
            flavours(again).partition(|flavour| known.contains(flavour));
        let named_before =
            |first: &&Client| flavours(first).any(|flavour| ignored_flavours.contains(&flavour));
        let first = before.clone().find(named_before)?;
        Some(Duplicate { first, again, whole: new.is_empty(), ignored_flavours })
    })
}

fn flavours(client: &Client) -> impl Iterator<Item = Flavour> {
    client.options.access().into_iter().map(|access| access.flavour)
}

pub(super) fn flavour_name(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::None => "none",
        Flavour::Sys => "sys",
        Flavour::Krb5 => "krb5",
        Flavour::Krb5i => "krb5i",
        Flavour::Krb5p => "krb5p",
    }
}

impl Duplicate<'_> {
    pub(crate) fn warning(&self, source: &str, place: impl Fn(At) -> String) -> String {
        let (who, first) = (&self.again.machine, place(self.first.at));
        let names: Vec<&str> =
            self.ignored_flavours.iter().map(|&flavour| flavour_name(flavour)).collect();
        let part = if self.whole { String::new() } else { format!(" for sec={}", names.join(":")) };
        format!(
            "{}: {source} names {who} again; {first} applies{part}, this entry does not; remove one of them",
            place(self.again.at)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;

    fn warnings(text: &str) -> Vec<String> {
        let parsed = parse(text.as_bytes()).expect("the request can be served");
        let place = |at: super::At| format!("line {}", at.line);
        parsed
            .entries
            .iter()
            .flat_map(|entry| {
                super::duplicates(entry)
                    .map(|duplicate| duplicate.warning("/a", place))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn warning_names_the_line_that_applies() {
        let texts = warnings(
            "/a *.example.org(ro) 192.0.2.0/24(ro)\n/b *(ro)\n/a *.Example.org(rw)\n/a 192.0.2.9/24(rw) @g\n",
        );
        assert_eq!(
            texts,
            [
                "line 3: /a names *.example.org again; line 1 applies, this entry does not; remove one of them",
                "line 4: /a names 192.0.2.0/24 again; line 1 applies, this entry does not; remove one of them",
            ]
        );
    }

    #[test]
    fn warns_only_about_repeated_flavours() {
        assert!(warnings("/a gss/krb5(ro) gss/krb5p(rw)\n/a *(rw)\n").is_empty());
        let texts = warnings("/a *(sec=krb5,ro)\n/a *(sec=krb5:sys,rw)\n");
        assert!(texts[0].contains("line 1 applies for sec=krb5"), "{texts:?}");
    }
}
