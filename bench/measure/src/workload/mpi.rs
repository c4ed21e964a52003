//! Two ranks: one program for metadata of one directory, one for messages from memory to memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::case::AuditWork;

#[derive(Debug)]
pub struct Mpi {
    directory: tempfile::TempDir,
    options: Vec<String>,
}

impl Mpi {
    pub fn build() -> Result<Self, String> {
        let version = run(Command::new("mpirun").arg("--version"))
            .map_err(|_| "mpirun is not installed".to_owned())?;
        let directory = tempfile::tempdir().map_err(|error| format!("a directory: {error}"))?;
        for (program, text) in [(FILES, FILES_SOURCE), (MESSAGES, MESSAGES_SOURCE)] {
            let source = directory.path().join(program).with_extension("c");
            fs::write(&source, text).map_err(|error| format!("{}: {error}", source.display()))?;
            run(Command::new("mpicc")
                .arg("-O1")
                .arg("-o")
                .arg(directory.path().join(program))
                .arg(&source))
            .map_err(|error| format!("mpicc: {error}"))?;
        }
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

    pub fn command(&self, work: AuditWork, files: u64, directory: &Path) -> Command {
        let mut command = Command::new("mpirun");
        command.args(&self.options);
        match work {
            AuditWork::Mpi => {
                command.arg(self.directory.path().join(FILES)).arg(files.to_string()).arg(directory)
            }
            _ => command
                .arg(self.directory.path().join(MESSAGES))
                .arg(work.name())
                .arg(files.to_string()),
        };
        command
    }
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

const RANKS: u32 = 2;
const FILES: &str = "files";
const MESSAGES: &str = "messages";
const FILES_SOURCE: &str = r#"#include <mpi.h>
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

/// Prints seconds, operations and bytes. Compares every message with the one sent.
const MESSAGES_SOURCE: &str = r#"#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 8, LARGE = 1 << 20 };

static int rank, size;
static char *out, *in;
static long wrong;

static void fill(int len, long turn)
{
    memset(out, (int)(turn % 251) + rank, len);
}

static void check(int len, long turn, int from)
{
    wrong += in[0] != (char)(turn % 251 + from) || in[len - 1] != in[0];
}

static void ping_pong(int len, long turn)
{
    if (rank == 0) {
        fill(len, turn);
        MPI_Send(out, len, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(in, len, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(len, turn, 1);
    } else {
        MPI_Recv(in, len, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(len, turn, 0);
        fill(len, turn);
        MPI_Send(out, len, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
}

static void exchange(int len, long turn)
{
    fill(len, turn);
    MPI_Sendrecv(out, len, MPI_CHAR, 1 - rank, 0, in, len, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(len, turn, 1 - rank);
}

static void collectives(long turn)
{
    int all[2] = {-1, -1}, mine[2] = {rank, rank + 2}, theirs[2] = {-1, -1}, told = rank == 0 ? (int)turn : -1;
    long one = turn, sum = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(&told, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(mine, 1, MPI_INT, theirs, 1, MPI_INT, MPI_COMM_WORLD);
    wrong += told != (int)turn || sum != 2 * turn || all[1] != 1 || theirs[1] != 1 + 2 * rank;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long turns = argc == 3 ? atol(argv[2]) : 0, all, messages = 2;
    const char *work = argc == 3 ? argv[1] : "";
    int len = strcmp(work, "mpi-latency") == 0 ? SHORT : LARGE;
    if (size != 2 || turns == 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (len == LARGE)
        turns = turns / 50 + 1;
    out = malloc(LARGE);
    in = malloc(LARGE);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (long turn = 0; turn < turns; turn++) {
        if (strcmp(work, "mpi-exchange") == 0) {
            exchange(len, turn);
        } else if (strcmp(work, "mpi-collectives") == 0) {
            collectives(turn);
            messages = 5;
            len = 0;
        } else {
            ping_pong(len, turn);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double spent = MPI_Wtime() - begun;
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("seconds %.9f operations %ld bytes %ld\n", spent, messages * turns, messages * turns * len);
    MPI_Finalize();
    return all != 0;
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs MPI"]
    fn ranks_leave_no_files_and_report_errors() {
        let mpi = Mpi::build().expect("the packages mpich and libmpich-dev");
        let directory = tempfile::tempdir().expect("a directory");
        run(&mut mpi.command(AuditWork::Mpi, 20, directory.path())).expect("the ranks agree");
        assert_eq!(fs::read_dir(directory.path()).expect("the file exists").count(), 0);
        assert!(
            run(&mut mpi.command(AuditWork::Mpi, 20, &directory.path().join("nowhere"))).is_err()
        );
    }

    #[test]
    #[ignore = "needs MPI"]
    fn messages_arrive_and_are_counted() {
        use crate::workload::audit::WorkReport;
        let mpi = Mpi::build().expect("the packages mpich and libmpich-dev");
        for (work, operations, bytes) in [
            (AuditWork::MpiLatency, 200, 200 * 8),
            (AuditWork::MpiBandwidth, 2 * 3, 6 << 20),
            (AuditWork::MpiExchange, 2 * 3, 6 << 20),
            (AuditWork::MpiCollectives, 5 * 3, 0),
        ] {
            let text = run(&mut mpi.command(work, 100, Path::new("/")))
                .expect("both ranks receive what was sent");
            let report = WorkReport::parse(&text).expect("a report");
            assert_eq!((report.operations, report.bytes), (operations, bytes), "{work:?}: {text}");
            assert!(report.seconds > 0.0, "{text}");
        }
        assert!(run(&mut mpi.command(AuditWork::MpiLatency, 0, Path::new("/"))).is_err());
    }
}
