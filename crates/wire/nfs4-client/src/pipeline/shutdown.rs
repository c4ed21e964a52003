use std::io::Write as _;

use super::Pipeline;

impl Drop for Pipeline {
    fn drop(&mut self) {
        let mut idle = self
            .connections
            .iter_mut()
            .zip(&self.submitter.outputs)
            .filter(|(_, output)| output.is_sent());
        let Some((connection, _)) = idle.next() else { return };
        if let Some((_, record)) = self.submitter.core.destroy_context() {
            let _ = connection.stream.write(&record);
        }
    }
}
