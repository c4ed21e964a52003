use vouch_audit::Record;
use vouch_audit_pipeline::record_text;

/// Output format of records.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Form {
    /// Print each record as a JSON object in Elastic Common Schema, one on a line.
    #[arg(long)]
    json: bool,
    /// Print records in the kernel's audit log format, for ausearch and aureport.
    #[arg(long, conflicts_with = "json")]
    kernel_text: bool,
}

impl Form {
    pub(super) fn of(self, record: &Record<'_>, boot: Option<[u8; 16]>) -> String {
        let mut text = String::new();
        if self.json {
            vouch_audit::json::write(record, boot, &mut text);
        } else if self.kernel_text {
            vouch_audit::text::write(record, &mut text);
        } else {
            text = record_text::line(record, boot);
            text.push('\n');
        }
        text
    }
}
