//! `vouch get --oci`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use vouch_image::{Packed, Place, Platform};

use super::{Args, partial_name, put};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::image_options::RegistryArgs;
use crate::tree_path::{OpenTree, TreePath};
use crate::{client_options, copy_out, interrupt, output, progress};

#[derive(Debug, clap::Args)]
pub(super) struct ImageArgs {
    /// Make an OCI image of the directory, of one layer, instead of a copy: oci-layout:DIR[:REF],
    /// oci-archive:FILE[:REF], or docker://HOST/NAME:TAG, which pushes it.
    #[arg(
        long,
        value_name = "DEST",
        conflicts_with_all = ["dest", "no_owner", "suid", "dev", "no_xattrs"],
    )]
    pub(super) oci: Option<Place>,
    /// Platform in the image [default: that of the image from which the tree came, or this
    /// machine's].
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", requires = "oci")]
    platform: Option<Platform>,
    #[command(flatten)]
    registry: RegistryArgs,
}

pub(super) fn run(args: &Args, place: &Place, global: &Global) -> Outcome {
    let path = TreePath::parse(&args.path)?;
    let target = place.path();
    target.as_deref().map(output::require_new).transpose()?;
    let scratch = target.is_none().then(tempfile::tempdir).transpose()?;
    let above = scratch.as_ref().map(|scratch| scratch.path().join("image"));
    let partial = target.as_deref().or(above.as_deref()).map(partial_name).unwrap_or_default();
    // The layout's own name, or a place for the layout of which an archive or upload is made.
    let layout = partial.with_extension("layout");
    let of_duty = (partial.clone(), layout.clone());
    let duty = interrupt::on_interrupt(move || {
        copy_out::remove(&of_duty.0);
        copy_out::remove(&of_duty.1);
    });
    let made = make(args, place, &path, (&layout, &partial), global).and_then(|report| {
        let from = if place.is_layout() { &layout } else { &partial };
        target.map_or(Ok(()), |target| put(from, &target).at(target.display()))?;
        Ok(report)
    });
    drop(duty);
    copy_out::remove(&partial);
    copy_out::remove(&layout);
    let report = made?;
    match args.json {
        true => output::json(&report),
        false => report.print(),
    }
}

fn make(
    args: &Args,
    place: &Place,
    path: &TreePath,
    (layout, partial): (&PathBuf, &Path),
    global: &Global,
) -> Outcome<Report> {
    let started = Instant::now();
    let bar = progress::spinner(global, "packing");
    let (revision, packed) = client_options::block_on(async {
        let client = args.client.client().await?;
        let mut open = OpenTree::open(&client, &path.name, &args.client, &args.revision).await?;
        let inode = open.enter(&path.path).await?;
        if !inode.is_directory() {
            return Err(Failure::input(place, "an image is made of a directory"));
        }
        let platform = args.image.platform.as_ref();
        let packed =
            vouch_image::pack(&open.tree, &inode, layout, place.reference(), platform).await?;
        client.flush().await;
        Ok((open.revision.number(), packed))
    })?;
    packed.deliver(layout, place, partial, &args.image.registry.options())?;
    bar.finish_and_clear();
    let Packed { digest, layer_len, entries, left_out, opaque, .. } = packed;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Report { revision, digest, layer_bytes: layer_len, entries, left_out, opaque, seconds })
}

#[derive(Serialize)]
struct Report {
    revision: u64,
    /// Of the manifest.
    digest: String,
    layer_bytes: u64,
    entries: u64,
    /// Sockets.
    left_out: u64,
    /// Opaque directories, which the image has empty.
    opaque: u64,
    seconds: f64,
}

impl Report {
    fn print(&self) -> Outcome {
        let mut text = format!(
            "revision {}: {} entries, a layer of {}, in {:.1} s\n{}\n",
            self.revision,
            self.entries,
            output::bytes(self.layer_bytes),
            self.seconds,
            self.digest
        );
        if self.left_out > 0 {
            text.push_str(&format!("{} sockets were left out\n", self.left_out));
        }
        if self.opaque > 0 {
            text.push_str(&format!("{} opaque directories are empty\n", self.opaque));
        }
        output::text(&text)
    }
}
