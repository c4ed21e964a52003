//! The end of a pipeline.

use std::io::Write as _;

use super::Pipeline;

impl Drop for Pipeline {
    /// Ends the security context at the server, by a connection that is not in the midst of a call
    /// and takes it at once: nobody waits for it, nor for an answer.
    fn drop(&mut self) {
        let mut idle = self.connections.iter_mut().zip(&self.submitter.outputs).filter(|(_, output)| output.is_sent());
        let Some((connection, _)) = idle.next() else { return };
        if let Some((_, record)) = self.submitter.core.destroy_context() {
            // Where the connection is lost the context ends with its ticket.
            let _ = connection.stream.write(&record);
        }
    }
}
