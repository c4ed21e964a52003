//! fio verifies page checksums, which detect no lost write.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::case::{Load, Order};
use crate::{Error, Sample, StopFlag};

pub(super) fn is_installed() -> bool {
    Command::new("fio")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

pub(super) fn lay_out(file: &Path, len: u64, stop: &StopFlag) -> Result<(), Error> {
    let args = [
        format!("--size={len}"),
        "--rw=write".into(),
        "--bs=1M".into(),
        "--do_verify=0".into(),
        "--end_fsync=1".into(),
    ];
    run(file, &args, stop).map(drop)
}

pub(super) fn verify(file: &Path, len: u64, stop: &StopFlag) -> Result<(), Error> {
    run(file, &[format!("--size={len}"), "--rw=read".into(), "--bs=1M".into()], stop).map(drop)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub direct: bool,
    pub durable: bool,
    pub warm: bool,
    pub seed: u64,
}

/// One thread for each call in flight. Also returns these threads' CPU seconds, without fio's start
/// and report.
pub(super) fn load(
    file: &Path,
    load: &Load,
    how: How,
    stop: &StopFlag,
) -> Result<(Sample, Option<f64>), Error> {
    let args = args(load, how);
    let report = run(file, &args, stop)?;
    let (mut sample, cpu) = (sample(&report)?, cpu_s(&report));
    if let Some(cpu) = cpu {
        sample.busy(cpu / f64::from(load.depth) / sample.seconds);
    }
    Ok((sample, cpu))
}

fn args(load: &Load, how: How) -> Vec<String> {
    let random = if load.order == Order::Random { "rand" } else { "" };
    let kind = match load.read_percent {
        100 => "read",
        0 => "write",
        _ => "rw",
    };
    // In whole blocks: otherwise fio would extend the file.
    let part =
        load.file_len / u64::from(load.depth) / u64::from(load.block) * u64::from(load.block);
    let part = (load.order == Order::Sequential && load.depth > 1 && part > 0).then_some(part);
    let args = [
        format!("--size={}", part.unwrap_or(load.file_len)),
        format!("--rw={random}{kind}"),
        format!("--rwmixread={}", load.read_percent),
        format!("--bs={}", load.block),
        format!("--numjobs={}", load.depth),
        format!("--runtime={}ms", (load.seconds * 1e3).round().max(1.0)),
        format!("--direct={}", u8::from(how.direct)),
        // By default fio drops a file's cache first.
        format!("--invalidate={}", u8::from(!how.warm)),
        format!("--randseed={}", how.seed),
        "--time_based".into(),
        "--group_reporting".into(),
        "--do_verify=0".into(),
    ];
    // Reads need no O_DSYNC.
    let durable = (how.durable && load.read_percent < 100).then(|| "--sync=dsync".to_owned());
    args.into_iter()
        .chain(durable)
        .chain(part.map(|part| format!("--offset_increment={part}")))
        .collect()
}

fn run(file: &Path, args: &[String], stop: &StopFlag) -> Result<Value, Error> {
    let directory = file.parent().unwrap_or(file);
    let mut command = Command::new("fio");
    command.arg("--name=vouch-bench").arg(format!("--filename={}", file.display())).args(args);
    command.args([
        "--ioengine=psync",
        "--thread",
        "--verify=crc32c",
        "--verify_interval=4096",
        "--verify_state_save=0",
    ]);
    command.args(["--allow_file_create=1", "--output-format=json+"]);
    let mut child = command
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::Program(format!("fio: {error}")))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = |from: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = from.map(|mut from| from.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(out.map(|out| Box::new(out) as _));
    let err = read(err.map(|err| Box::new(err) as _));
    let status = super::child_process::wait(&mut child, stop)
        .map_err(|error| Error::Program(format!("fio: {error}")))?;
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if stop.is_set() {
        return Err(Error::Interrupted);
    }
    if err.contains("verify failed") || err.contains("verify: bad") || out.contains("verify: bad") {
        return Err(Error::Corrupt(file.display().to_string()));
    }
    if !status.success() {
        let why = err
            .lines()
            .chain(out.lines())
            .find(|line| line.contains("fio:"))
            .unwrap_or("it failed")
            .to_owned();
        return Err(Error::Program(format!("{}: {why}", file.display())));
    }
    let json = out.find('{').map_or("", |at| &out[at..]);
    serde_json::from_str(json).map_err(|error| Error::Program(format!("fio's report: {error}")))
}

fn sample(report: &Value) -> Result<Sample, Error> {
    let job =
        report["jobs"].get(0).ok_or_else(|| Error::Program("fio's report holds no job".into()))?;
    let mut sample = Sample::default();
    for direction in ["read", "write"] {
        let part = &job[direction];
        sample.operations += part["total_ios"].as_u64().unwrap_or(0);
        sample.bytes += part["io_bytes"].as_u64().unwrap_or(0);
        sample.seconds = sample.seconds.max(part["runtime"].as_f64().unwrap_or(0.0) / 1e3);
        for (nanoseconds, count) in part["clat_ns"]["bins"].as_object().into_iter().flatten() {
            if let (Ok(nanoseconds), Some(count)) = (nanoseconds.parse(), count.as_u64()) {
                sample.latency.record_many(nanoseconds, count);
            }
        }
    }
    if sample.seconds <= 0.0 {
        return Err(Error::Program("fio measured nothing".into()));
    }
    Ok(sample)
}

/// CPU seconds of all threads. fio reports percent of their total run time.
fn cpu_s(report: &Value) -> Option<f64> {
    let job = report["jobs"].get(0)?;
    let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
    Some(percent / 100.0 * job["job_runtime"].as_f64()? / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_share_of_run_time() {
        let report =
            serde_json::json!({"jobs": [{"usr_cpu": 10.0, "sys_cpu": 15.0, "job_runtime": 4000}]});
        assert_eq!(cpu_s(&report), Some(1.0));
        assert_eq!(cpu_s(&serde_json::json!({"jobs": [{"usr_cpu": 10.0}]})), None);
    }

    #[test]
    #[ignore = "needs fio"]
    fn short_load_has_at_most_run_time_of_threads() {
        let at = tempfile::tempdir().expect("a directory");
        let (file, stop) = (at.path().join("large"), StopFlag::default());
        lay_out(&file, 1 << 20, &stop).expect("a file");
        let load_of = Load { depth: 2, seconds: 0.05, ..Load::READS };
        let (sample, cpu) = load(
            &file,
            &load_of,
            How { direct: false, durable: false, warm: false, seed: 1 },
            &stop,
        )
        .expect("fio accepts the job");
        let cpu = cpu.expect("the value is reported");
        // At most the run time of two threads. fio counts in milliseconds.
        assert!(cpu <= 2.0 * sample.seconds + 0.05, "{cpu} in {}", sample.seconds);
    }

    #[test]
    fn warm_load_keeps_cache_and_rounds_differ_in_order() {
        let load = Load { depth: 2, seconds: 0.05, ..Load::READS };
        let has = |warm, seed, what: &str| {
            args(&load, How { direct: false, durable: false, warm, seed })
                .iter()
                .any(|arg| arg == what)
        };
        assert!(has(true, 1, "--invalidate=0") && has(false, 1, "--invalidate=1"));
        assert!(has(true, 1, "--randseed=1") && has(true, 2, "--randseed=2"));
    }

    #[test]
    fn sums_reads_and_writes_of_report() {
        let report = serde_json::json!({"jobs": [{
            "read": {"total_ios": 10, "io_bytes": 40960, "runtime": 500, "clat_ns": {"bins": {"1000": 9, "2000": 1}}},
            "write": {"total_ios": 5, "io_bytes": 20480, "runtime": 501, "clat_ns": {"bins": {"4000": 5}}}
        }]});
        let sample = sample(&report).expect("a report");
        assert_eq!((sample.operations, sample.bytes, sample.latency.count()), (15, 61440, 15));
        assert!((sample.seconds - 0.501).abs() < 1e-9);
        assert!(super::sample(&serde_json::json!({"jobs": []})).is_err());
    }
}
