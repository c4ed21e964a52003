use super::abi::{IN_HEADER_LEN, Opcode};

/// `fuse_in_header`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// One request, with its own copy of the bytes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) header: Header,
    pub(crate) opcode: Option<Opcode>,
    bytes: Vec<u8>,
}

impl Request {
    /// `None` if the bytes are shorter than a header.
    pub(crate) fn new(bytes: Vec<u8>) -> Option<Self> {
        let mut fields = Fields(&bytes);
        let _len = fields.u32()?;
        let opcode = Opcode::of(fields.u32()?);
        let (unique, node) = (fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        fields.u32()?;
        Some(Self { header: Header { unique, node, uid, gid, pid }, opcode, bytes })
    }

    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields(&self.bytes[IN_HEADER_LEN..])
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads arguments in the machine's byte order. `None` if the request is too short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*value))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*value))
    }

    /// Up to the zero byte.
    pub(crate) fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        [40 + body.len() as u32, opcode].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        [7_u64, 1].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        [1000_u32, 100, 42, 0].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        bytes.extend(body);
        bytes
    }

    #[test]
    fn reads_header_and_name_of_lookup() {
        let request = Request::new(request(1, b"name\0")).unwrap();
        let Header { unique, node, uid, gid, pid } = request.header;
        assert_eq!((unique, node, uid, gid, pid), (7, 1, 1000, 100, 42));
        assert_eq!(request.opcode, Some(Opcode::Lookup));
        assert_eq!(request.fields().name(), Some(&b"name"[..]));
    }

    #[test]
    fn short_request_has_no_fields() {
        assert!(Request::new(request(1, b"")[..39].to_vec()).is_none());
        let mut fields = Fields(&[1, 2, 3]);
        assert_eq!((fields.u32(), fields.u64(), fields.name()), (None, None, None));
        assert_eq!(fields.bytes(4), None);
        assert_eq!(Opcode::of(4096), None);
    }
}
