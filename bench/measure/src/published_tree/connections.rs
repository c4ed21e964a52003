use super::{PublishedTree, SMALL_FILES, SMALL_LEN};
use crate::subject::{ConnectSubject, RecordingProxy, Request};
use crate::target::{Target, resolve};
use crate::{Error, Run, StopFlag, Subject};

impl PublishedTree {
    /// Connections to the replica, to a private web server and to web servers of the caller.
    pub fn connections(
        &self,
        targets: &[Target],
        run: &mut Run,
        stop: &StopFlag,
    ) -> Result<Vec<Box<dyn Subject>>, Error> {
        let address = self.replica()?;
        let mut records = [Vec::new(), Vec::new()];
        for (at, name) in SMALL_FILES.iter().enumerate() {
            let recorder = RecordingProxy::begin(address)?;
            let options = self.options(&recorder.address().to_string(), &format!("state-{at}"));
            let file = format!("{}/{name}", self.name);
            let words: Vec<&str> = options.iter().map(String::as_str).collect();
            let read = super::run(
                &self.program,
                &[&["cat", "--no-cache"], &words[..], &[&file]].concat(),
            )?;
            if read.len() != SMALL_LEN {
                return Err(Error::Corrupt(file));
            }
            records[at] = recorder.calls();
        }
        let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(ConnectSubject::new(
            "replica".into(),
            address,
            Request::Records(records),
            None,
            stop,
        ))];
        let paths = SMALL_FILES.map(|name| format!("/{name}"));
        match &self.web {
            Err(why) => run.left_out.push(format!("private web server: {why}")),
            Ok(web) => {
                run.machine.with_version("nginx", "-v");
                run.machine.with_version("openssl", "version");
                let (http, https) = (Request::Http(paths.clone()), Request::Https(paths));
                subjects.push(Box::new(ConnectSubject::new(
                    "nginx HTTP".into(),
                    web.http,
                    http,
                    Some(web.cpu()),
                    stop,
                )));
                subjects.push(Box::new(ConnectSubject::new(
                    "nginx HTTPS".into(),
                    web.https,
                    https,
                    Some(web.cpu()),
                    stop,
                )));
            }
        }
        for target in targets {
            let Target::Http { tls, host, port, path } = target else { continue };
            let paths = [path.clone(), format!("/one/two{path}")];
            let (label, asked) = if *tls {
                ("https", Request::Https(paths))
            } else {
                ("http", Request::Http(paths))
            };
            let subject = ConnectSubject::new(
                format!("{label} {host}:{port}"),
                resolve(host, *port)?,
                asked,
                None,
                stop,
            );
            subjects.push(Box::new(subject.named(host)));
        }
        Ok(subjects)
    }
}
