//! An MPI program whose ranks create, stat and remove files of one directory in step. It is
//! compiled for the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program and the options of mpirun.
#[derive(Debug)]
pub struct Mpi {
    directory: tempfile::TempDir,
    options: Vec<String>,
}

impl Mpi {
    /// Compiles the program.
    ///
    /// # Errors
    ///
    /// Names what is not installed.
    pub fn build() -> Result<Self, String> {
        let version = run(Command::new("mpirun").arg("--version")).map_err(|_| "mpirun is not installed".to_owned())?;
        let directory = tempfile::tempdir().map_err(|error| format!("a directory: {error}"))?;
        let source = directory.path().join("ranks.c");
        fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
        run(Command::new("mpicc").arg("-O1").arg("-o").arg(directory.path().join("ranks")).arg(&source))
            .map_err(|error| format!("mpicc: {error}"))?;
        let mut options = vec!["-n".to_owned(), RANKS.to_string()];
        if version.contains("Open MPI") {
            // Open MPI counts cores, and refuses to run as root.
            options.push("--oversubscribe".into());
            if rustix::process::geteuid().is_root() {
                options.push("--allow-run-as-root".into());
            }
        }
        Ok(Self { directory, options })
    }

    pub fn command(&self, files: u64, directory: &Path) -> Command {
        let mut command = Command::new("mpirun");
        command.args(&self.options).arg(self.program()).arg(files.to_string()).arg(directory);
        command
    }

    fn program(&self) -> PathBuf {
        self.directory.path().join("ranks")
    }
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

const RANKS: u32 = 2;
const SOURCE: &str = r#"#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void name(char *text, size_t len, const char *directory, long rank, long file)
{
    snprintf(text, len, "%s/rank%ld-file%ld", directory, rank, file);
}

int main(int argc, char **argv)
{
    int rank, size;
    long failed = 0, all;
    char path[4096];
    struct stat there;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long files = argc == 3 ? atol(argv[1]) / size : 0;
    failed += files == 0;
    for (long file = 0; file < files; file++) {
        name(path, sizeof path, argv[2], rank, file);
        FILE *f = fopen(path, "w");
        failed += !f || fputs("a line\n", f) < 0;
        failed += !f || fclose(f) != 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* Each looks at what its neighbour has made. */
    for (long file = 0; file < files; file++) {
        name(path, sizeof path, argv[2], (rank + 1) % size, file);
        failed += stat(path, &there) != 0 || there.st_size != 7;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (long file = 0; file < files; file++) {
        name(path, sizeof path, argv[2], rank, file);
        failed += unlink(path) != 0;
    }
    MPI_Allreduce(&failed, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all != 0;
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_leave_no_files_and_report_errors() {
        let mpi = match Mpi::build() {
            Ok(mpi) => mpi,
            Err(why) => return println!("skipped: {why}"),
        };
        let directory = tempfile::tempdir().expect("a directory");
        run(&mut mpi.command(20, directory.path())).expect("the ranks agree");
        assert_eq!(fs::read_dir(directory.path()).expect("the file exists").count(), 0);
        assert!(run(&mut mpi.command(20, &directory.path().join("nowhere"))).is_err());
    }
}
