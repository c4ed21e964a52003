//! A generated C project whose output depends on every header, so that wrong data is detected.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::content::mix;
use crate::{Error, Latency, Sample, StopFlag};

pub(crate) fn is_installed() -> bool {
    let status = Command::new("cc")
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

pub(crate) fn prepare(directory: &Path, parts: u32) -> Result<(), Error> {
    let own = directory.join(name(parts));
    for place in ["include", "src"] {
        let place = own.join(place);
        fs::create_dir_all(&place).map_err(Error::file(&place))?;
    }
    let write = |name: String, text: String| {
        let path = own.join(name);
        fs::write(&path, text).map_err(Error::file(&path))
    };
    for header in 0..HEADERS {
        let mut text = format!("#ifndef HEADER_{header}\n#define HEADER_{header}\n");
        for constant in 0..CONSTANTS {
            text.push_str(&format!(
                "enum {{ h{header}_{constant} = {} }};\n",
                value(header, constant)
            ));
        }
        text.push_str("#endif\n");
        write(format!("include/header{header}.h"), text)?;
    }
    for part in 0..parts {
        let mut text = String::new();
        for header in headers_of(part) {
            text.push_str(&format!("#include \"header{header}.h\"\n"));
        }
        text.push_str(&format!("unsigned part{part}(void)\n{{\n    unsigned sum = 0;\n"));
        for header in headers_of(part) {
            let sum: Vec<String> =
                (0..CONSTANTS).map(|constant| format!("h{header}_{constant}")).collect();
            text.push_str(&format!("    sum = sum * 31 + {};\n", sum.join(" + ")));
        }
        text.push_str("    return sum;\n}\n");
        write(format!("src/part{part}.c"), text)?;
    }
    let declared: String = (0..parts).map(|part| format!("unsigned part{part}(void);\n")).collect();
    let summed: String =
        (0..parts).map(|part| format!("    sum = sum * 17 + part{part}();\n")).collect();
    let main = format!(
        "#include <stdio.h>\n{declared}int main(void)\n{{\n    unsigned sum = 0;\n{summed}    printf(\"%u\\n\", sum);\n    return 0;\n}}\n"
    );
    write("src/main.c".into(), main)
}

pub(crate) fn run(
    directory: &Path,
    parts: u32,
    jobs: u32,
    stop: &StopFlag,
    sample: &mut Sample,
) -> Result<bool, Error> {
    let own = directory.join(name(parts));
    let objects = tempfile::tempdir().map_err(Error::io("temporary directory"))?;
    let sources: Vec<String> =
        (0..parts).map(|part| format!("part{part}")).chain(["main".to_owned()]).collect();
    let (next, sum) = (AtomicU32::new(0), Mutex::new((Latency::new(), Ok(()))));
    let one = |name: &str| {
        let mut command = Command::new("cc");
        command
            .args(["-c", "-O0", "-I"])
            .arg(own.join("include"))
            .arg(own.join(format!("src/{name}.c")));
        finish(command.arg("-o").arg(objects.path().join(format!("{name}.o"))))
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(name) = sources.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let begun = Instant::now();
                    let outcome =
                        if stop.is_set() { Err(Error::Interrupted) } else { one(name).map(drop) };
                    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    sum.0.record(begun.elapsed().as_nanos() as u64);
                    if outcome.is_err() {
                        sum.1 = outcome;
                        return;
                    }
                }
            });
        }
    });
    let (latency, outcome) = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    outcome?;
    let program = objects.path().join("program");
    let mut link = Command::new("cc");
    link.arg("-o")
        .arg(&program)
        .args(sources.iter().map(|name| objects.path().join(format!("{name}.o"))));
    finish(&mut link)?;
    (sample.latency, sample.operations) = (latency, sources.len() as u64);
    Ok(finish(&mut Command::new(&program))?.trim() == result(parts).to_string())
}

fn finish(command: &mut Command) -> Result<String, Error> {
    let name = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::Program(format!("{name}: {error}")))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Error::Program(format!(
            "{name}: {}",
            stderr.trim().lines().next().unwrap_or("the program failed")
        ))),
    }
}

fn name(parts: u32) -> String {
    format!("project-{parts}")
}

fn headers_of(part: u32) -> impl Iterator<Item = u32> {
    (0..HEADERS_A_PART).map(move |at| (part * 7 + at * 5) % HEADERS)
}

fn value(header: u32, constant: u32) -> u32 {
    mix(u64::from(header) << 32 | u64::from(constant)) as u32 % 1000
}

fn result(parts: u32) -> u32 {
    let of_header = |header| (0..CONSTANTS).map(|constant| value(header, constant)).sum::<u32>();
    let headers_of = |part| {
        headers_of(part)
            .fold(0u32, |sum, header| sum.wrapping_mul(31).wrapping_add(of_header(header)))
    };
    (0..parts).fold(0u32, |sum, part| sum.wrapping_mul(17).wrapping_add(headers_of(part)))
}

const HEADERS: u32 = 24;
const HEADERS_A_PART: u32 = 12;
const CONSTANTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_altered_header() {
        let directory = tempfile::tempdir().expect("a directory");
        prepare(directory.path(), 3).expect("files");
        let compile = || run(directory.path(), 3, 2, &StopFlag::default(), &mut Sample::default());
        assert!(compile().expect("a compile"));
        let header = directory.path().join("project-3/include/header5.h");
        let text = fs::read_to_string(&header).expect("the file exists");
        fs::write(&header, text.replace("h5_7 = ", "h5_7 = 1 + ")).expect("own file is readable");
        assert!(!compile().expect("a compile"));
    }
}
