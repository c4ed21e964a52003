use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use vouch_tree::proof::{Finding, HEADER_LEN_MAX, Piece, ProofHeader, Walk};
use vouch_tree::{FRAME_LEN_MAX, FileType};
use vouch_tree_client::local_statements;
use vouch_xdr::{Reader, Xdr as _};

use super::ls::FileRow;
use crate::cli::Global;
use crate::client_options::statement_directories;
use crate::exit::{At as _, Failure, Outcome};
use crate::output;
use crate::tree_path::TreePath;
use crate::when;
use vouch_daemon::printable::{JsonName, printable};

/// Check a proof of what a signed revision holds at a path, offline.
///
/// Exits with 0 if the proof is valid: the revision holds the file, or lacks the name, as printed.
/// Exits with 5 if it is not. A revision that has expired since is valid here. A revocation of the
/// tree's key is known only from --statements and /etc/vouch/statements.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch check-proof @pub.example.org,HOSTID tool.proof\n  vouch check-proof @pub.example.org,HOSTID/bin/tool tool.proof --out tool"
)]
pub(crate) struct Args {
    /// The tree, and the path that the proof must be about.
    #[arg(value_name = "NAME[/PATH]")]
    path: OsString,
    /// The proof.
    #[arg(value_name = "FILE")]
    proof: PathBuf,
    /// Write the proven content to this new file.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Directory of key statements (revocations); may be repeated. /etc/vouch/statements is always
    /// read if it exists.
    #[arg(long, value_name = "DIR")]
    statements: Vec<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let expected = TreePath::parse(&args.path)?;
    let mut file =
        BufReader::with_capacity(FRAME_LEN_MAX, File::open(&args.proof).at(args.proof.display())?);
    let refused = |why: &dyn std::fmt::Display| Failure::refused(args.proof.display(), why);
    let header = read_header(&mut file, &args.proof)?;
    let statements =
        local_statements(&statement_directories(&args.statements)?, expected.name.hostid())?;
    let verified =
        header.verify(expected.name.hostid(), &statements).map_err(|refusal| refused(&refusal))?;

    let mut content = ContentSink {
        out: args.out.as_deref().map(Output::create).transpose()?,
        ..ContentSink::default()
    };
    let fsinfo = &verified.fsinfo;
    let mut walk =
        Walk::begin(fsinfo.iv, &fsinfo.root, &header.path, &mut |piece| content.add(&piece))
            .map_err(|error| refused(&error))?;
    let wanted: Vec<&[u8]> =
        expected.path.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
    if !wanted.is_empty()
        && wanted != walk.names().iter().map(|name| name.as_bytes()).collect::<Vec<_>>()
    {
        return Err(refused(&format_args!("the proof is about /{}", printable(&header.path))));
    }
    while walk.needed().is_some() {
        let stored = read_frame(&mut file).map_err(|why| refused(&why))?;
        walk.feed(&stored, &mut |piece| content.add(&piece)).map_err(|error| refused(&error))?;
        content.check()?;
    }
    content.check()?;
    if file.read(&mut [0]).at(args.proof.display())? != 0 {
        return Err(refused(&"bytes follow the last frame"));
    }
    let finding = walk.finding().expect("a walk that needs no frame has found or missed its path");
    if let Some(out) = content.out.take() {
        if !matches!(finding, Finding::Present(inode) if inode.file_type() == FileType::Regular) {
            return Err(Failure::input(
                args.proof.display(),
                "is not about a regular file; there is no content to write",
            ));
        }
        out.finish()?;
    }
    let (file, sha256) = match finding {
        Finding::Present(inode) => {
            let is_regular = inode.file_type() == FileType::Regular;
            (
                Some(FileRow::new(last_name(&header.path), inode)),
                is_regular.then(|| HEXLOWER.encode(&content.hash.finalize())),
            )
        }
        Finding::Absent { .. } | Finding::NotADirectory { .. } => (None, None),
    };
    let report = Report {
        tree: expected.name.to_string(),
        revision: fsinfo.revision,
        tag: fsinfo.tag.clone(),
        signed: when::utc(fsinfo.start),
        certificate: verified.seen.cert_serial,
        path: JsonName::new(&header.path),
        file,
        sha256,
    };
    report.print(args.json)
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or_default()
}

fn read_header(file: &mut BufReader<File>, path: &Path) -> Outcome<ProofHeader> {
    let mut start = Vec::new();
    file.by_ref().take(HEADER_LEN_MAX as u64).read_to_end(&mut start).at(path.display())?;
    let mut reader = Reader::new(&start);
    let header = ProofHeader::decode(&mut reader)
        .map_err(|error| Failure::input(path.display(), format_args!("not a proof: {error}")))?;
    let used = (start.len() - reader.remaining()) as u64;
    file.seek(SeekFrom::Start(used)).at(path.display())?;
    Ok(header)
}

/// XDR `opaque<FRAME_LEN_MAX>`.
fn read_frame(file: &mut impl Read) -> Result<Vec<u8>, String> {
    let short = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the proof ends too early".to_owned(),
        _ => error.to_string(),
    };
    let mut len = [0; 4];
    file.read_exact(&mut len).map_err(short)?;
    let len = u32::from_be_bytes(len) as usize;
    if len > FRAME_LEN_MAX {
        return Err(format!("a frame of {len} bytes is longer than {FRAME_LEN_MAX}"));
    }
    let mut item = vec![0; len.next_multiple_of(4)];
    file.read_exact(&mut item).map_err(short)?;
    if item[len..].iter().any(|&byte| byte != 0) {
        return Err("the padding of a frame is not zero".into());
    }
    item.truncate(len);
    Ok(item)
}

/// As `sha256sum`.
#[derive(Default)]
struct ContentSink {
    hash: Sha256,
    zeros: u64,
    out: Option<Output>,
    failure: Option<Failure>,
}

impl ContentSink {
    fn add(&mut self, piece: &Piece<'_>) {
        if self.failure.is_none() {
            self.failure = self.try_add(piece).err();
        }
    }

    fn try_add(&mut self, piece: &Piece<'_>) -> Outcome {
        match piece {
            Piece::Data(bytes) => self.hash.update(bytes),
            Piece::Zeros(count) => {
                self.zeros = self.zeros.saturating_add(*count);
                if self.zeros > ZEROS_MAX {
                    return Err(Failure::refused(
                        "content",
                        format_args!("has holes of more than {ZEROS_MAX} bytes"),
                    ));
                }
                let mut left = *count;
                while left > 0 {
                    let step = left.min(ZEROS.len() as u64);
                    self.hash.update(&ZEROS[..step as usize]);
                    left -= step;
                }
            }
        }
        self.out.as_mut().map_or(Ok(()), |out| out.write(piece))
    }

    fn check(&mut self) -> Outcome {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Hashing takes time even for holes, which cost the proof nothing.
const ZEROS_MAX: u64 = 1 << 40;

static ZEROS: [u8; 4 << 10] = [0; 4 << 10];

struct Output {
    path: PathBuf,
    file: tempfile::NamedTempFile,
    len: u64,
}

impl Output {
    fn create(path: &Path) -> Outcome<Output> {
        output::require_new(path)?;
        let above =
            path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(above).at(above.display())?;
        Ok(Output { path: path.to_owned(), file, len: 0 })
    }

    fn write(&mut self, piece: &Piece<'_>) -> Outcome {
        let file = self.file.as_file_mut();
        match piece {
            Piece::Data(bytes) => {
                file.write_all(bytes).at(self.path.display())?;
                self.len += bytes.len() as u64;
            }
            Piece::Zeros(count) => {
                self.len += count;
                file.seek(SeekFrom::Start(self.len)).at(self.path.display())?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Outcome {
        self.file.as_file().set_len(self.len).at(self.path.display())?;
        self.file
            .persist_noclobber(&self.path)
            .map_err(|error| error.error)
            .at(self.path.display())?;
        Ok(())
    }
}

#[derive(Serialize)]
struct Report {
    tree: String,
    revision: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    tag: String,
    signed: String,
    certificate: u64,
    path: JsonName,
    /// `None` proves that the path does not exist.
    file: Option<FileRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

impl Report {
    fn print(&self, json: bool) -> Outcome {
        if json {
            return output::json(self);
        }
        let tag = if self.tag.is_empty() {
            String::new()
        } else {
            format!(", tag {}", printable(self.tag.as_bytes()))
        };
        let mut text = format!(
            "tree      {}\nrevision  {}{tag}, signed {}\n",
            self.tree, self.revision, self.signed
        );
        match &self.file {
            None => text.push_str(&format!("absent    /{}\n", self.path)),
            Some(row) => text.push_str(&format!("present   /{}: {row}\n", self.path)),
        }
        if let Some(sha256) = &self.sha256 {
            text.push_str(&format!("sha256    {sha256}\n"));
        }
        output::text(&text)
    }
}
