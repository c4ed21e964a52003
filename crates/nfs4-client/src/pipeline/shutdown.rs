//! End of a pipeline.

use std::io::Write as _;

use super::Pipeline;

impl Drop for Pipeline {
    /// Destroys the security context at the server over an idle connection. The driver does not
    /// wait for the write or the reply.
    fn drop(&mut self) {
        let mut idle = self.connections.iter_mut().zip(&self.submitter.outputs).filter(|(_, output)| output.is_sent());
        let Some((connection, _)) = idle.next() else { return };
        if let Some((_, record)) = self.submitter.core.destroy_context() {
            // If the connection is lost, the context ends when its ticket expires.
            let _ = connection.stream.write(&record);
        }
    }
}
