//! CREATE (RFC 8881, section 18.4).

use vouch_xdr::{Error, Reader, Writer};

use crate::attr::{FileType, SpecData};
use crate::macros::wire_struct;
use crate::{Bitmap, ChangeInfo, Fattr, Name, Wire};

/// Longest text of a symbolic link that is read from the wire; file systems allow less.
pub const LINK_TEXT_LEN_MAX: usize = 16 * 1024;

/// What to make (`createtype4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateType<'a> {
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
    /// A block device.
    Block(SpecData),
    /// A character device.
    Character(SpecData),
    /// A type that needs no more; those that CREATE can't make are among them, and answered with
    /// BADTYPE.
    Plain(FileType),
    /// A number that is no type: BADTYPE.
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

wire_struct! {
    /// `CREATE4args`.
    #[derive(Copy)]
    pub struct CreateArgs<'a> {
        /// What.
        pub kind: CreateType<'a>,
        /// Under which name.
        pub name: Name<'a>,
        /// With which attributes.
        pub attrs: Fattr<'a>,
    }
}

wire_struct! {
    /// `CREATE4resok`.
    #[derive(Copy)]
    pub struct CreateOk {
        /// What it did to the directory.
        pub change: ChangeInfo,
        /// Which attributes were set.
        pub attrs_set: Bitmap,
    }
}
