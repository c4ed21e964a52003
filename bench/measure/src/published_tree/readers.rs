use std::path::Path;

use super::mounted::Mounted;
use super::{Peers, PublishedTree};
use crate::cpu::ServerCpu;
use crate::nfs::{NfsOptions, NfsSubject};
use crate::subject::{DropCaches, ReadSubject, Sshd, SubjectInfo};
use crate::target::Target;
use crate::{Error, Run, StopFlag, Subject};

impl PublishedTree {
    /// The source directory; the tree with cold, warm and no caches; sshfs cold and warm; NFS
    /// servers.
    pub fn readers(
        &self,
        peers: Peers<'_>,
        run: &mut Run,
        stop: &StopFlag,
    ) -> Result<Vec<Box<dyn Subject>>, Error> {
        let source = self.directory.path().join("src");
        let build = peers.build;
        let local = subject_info(
            "local directory",
            source.display().to_string(),
            "source directory of the tree",
        );
        let local = ReadSubject::new(local, source.clone(), Box::new(|| Ok(None)), None, stop)
            .with_build(build.map(str::to_owned));
        let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(local)];
        self.add_mounts(build, stop, &mut subjects)?;
        self.add_sshfs(&source, build, run, stop, &mut subjects)?;
        run.machine.with_version("sshfs", "--version");
        add_nfs(peers, stop, &mut subjects)?;
        Ok(subjects)
    }

    fn add_mounts(
        &self,
        build: Option<&str>,
        stop: &StopFlag,
        subjects: &mut Vec<Box<dyn Subject>>,
    ) -> Result<(), Error> {
        for (label, detail, warm, cached) in [
            (
                "tree cold",
                "mounted again for each round, empty disk cache; every byte verified",
                false,
                true,
            ),
            ("tree warm", "mounted once; caches of the client and of the kernel", true, true),
            (
                "tree without disk cache",
                "mounted again for each round, without a disk cache",
                false,
                false,
            ),
        ] {
            let at = self.place(label)?;
            let cache =
                cached.then(|| self.directory.path().join(format!("cache-{}", subjects.len())));
            let mut mounted = Mounted::tree(
                &self.program,
                self.options(&self.replica.address, "state"),
                &self.name,
                cache,
                &at,
                warm,
            );
            mounted.renew()?;
            let forget: DropCaches = Box::new(move || mounted.renew());
            let server = Some(ServerCpu::Process(self.replica.child.id()));
            let reader = ReadSubject::new(
                subject_info(label, self.name.clone(), detail),
                at,
                forget,
                server,
                stop,
            );
            subjects.push(Box::new(reader.with_build(build.map(str::to_owned))));
        }
        Ok(())
    }

    fn add_sshfs(
        &self,
        source: &Path,
        build: Option<&str>,
        run: &mut Run,
        stop: &StopFlag,
        subjects: &mut Vec<Box<dyn Subject>>,
    ) -> Result<(), Error> {
        for (label, detail, warm) in [
            (
                "sshfs cold",
                "sshfs of the directory, by an sshd on loopback, mounted again for each round",
                false,
            ),
            ("sshfs warm", "the same, mounted once", true),
        ] {
            let keys = self.place(&format!("{label} keys"))?;
            let at = self.place(label)?;
            let made = Sshd::start(&keys).and_then(|server| {
                let cpu = server.cpu();
                let mut mounted = Mounted::sshfs(server, source, &at, warm);
                mounted.renew().map(|_| (mounted, cpu))
            });
            match made {
                Err(error) => run.left_out.push(format!("{label}: {error}")),
                Ok((mut mounted, cpu)) => {
                    let forget: DropCaches = Box::new(move || mounted.renew());
                    let about =
                        subject_info(label, format!("sshfs of {}", source.display()), detail);
                    subjects.push(Box::new(
                        ReadSubject::new(about, at, forget, Some(cpu), stop)
                            .with_build(build.map(str::to_owned)),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn add_nfs(
    peers: Peers<'_>,
    stop: &StopFlag,
    subjects: &mut Vec<Box<dyn Subject>>,
) -> Result<(), Error> {
    for target in peers.targets {
        let Target::Nfs(target) = target else { continue };
        for &sec in peers.sec {
            let options = NfsOptions {
                label: format!("{}:{} {sec}", target.host, target.port),
                target: target.clone(),
                sec,
                service: peers.service.map(str::to_owned),
                tls: None,
                sessions: 1,
                connections: 1,
                slots: NFS_SLOTS,
                server_cpu: ServerCpu::listening_at(target.address()?),
                not_empty: false,
            };
            subjects.push(Box::new(NfsSubject::connect(options, stop)?));
        }
    }
    Ok(())
}

fn subject_info(label: &str, target: String, detail: &str) -> SubjectInfo {
    SubjectInfo { label: label.into(), target, sec: None, details: vec![detail.into()] }
}

const NFS_SLOTS: usize = 8;
