//! CREATE (RFC 8881 §18.4).

use vouch_xdr::{Error, Reader, Writer};

use crate::attr::{FileType, SpecData};
use crate::macros::wire_copy;
use crate::{Bitmap, ChangeInfo, Fattr, Name, Wire};

/// Accepted by the decoder; file systems allow less.
pub const LINK_TEXT_LEN_MAX: usize = 16 * 1024;

/// `createtype4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateType<'a> {
    Symlink(&'a [u8]),
    Block(SpecData),
    Character(SpecData),
    /// Includes types that CREATE cannot create; the server answers BADTYPE.
    Plain(FileType),
    Unknown(u32),
}

impl<'a> Wire<'a> for CreateType<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        let mut ahead = r.clone();
        Ok(match FileType::decode(&mut ahead) {
            Ok(kind) => {
                *r = ahead;
                match kind {
                    FileType::Symlink => Self::Symlink(r.opaque(LINK_TEXT_LEN_MAX)?),
                    FileType::Block => Self::Block(SpecData::decode(r)?),
                    FileType::Character => Self::Character(SpecData::decode(r)?),
                    kind => Self::Plain(kind),
                }
            }
            Err(_) => Self::Unknown(r.u32()?),
        })
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Symlink(text) => {
                FileType::Symlink.encode(w);
                w.opaque(text);
            }
            Self::Block(numbers) => {
                FileType::Block.encode(w);
                numbers.encode(w);
            }
            Self::Character(numbers) => {
                FileType::Character.encode(w);
                numbers.encode(w);
            }
            Self::Plain(kind) => kind.encode(w),
            Self::Unknown(number) => w.u32(*number),
        }
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        match s.below(5) {
            0 => Self::Symlink(s.bytes(100)),
            1 => Self::Block(SpecData::sample(s)),
            2 => Self::Character(SpecData::sample(s)),
            3 => Self::Plain(FileType::Directory),
            _ => Self::Unknown(77),
        }
    }
}

wire_copy! {
    pub struct CreateArgs<'a> {
        pub kind: CreateType<'a>,
        pub name: Name<'a>,
        pub attrs: Fattr<'a>,
    }

    pub struct CreateOk { pub change: ChangeInfo, pub attrs_set: Bitmap }
}
