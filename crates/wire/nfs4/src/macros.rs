//! One definition generates both codec directions.

/// Structures whose fields are encoded in order.
macro_rules! wire_struct {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident $(<$lt:lifetime>)? { $( $(#[$fmeta:meta])* pub $field:ident : $type:ty ),* $(,)? }
    )+) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name $(<$lt>)? { $( $(#[$fmeta])* pub $field: $type ),* }

        $crate::macros::wire_struct!(@impl $name $(<$lt>)?, $($field: $type),*);
    )+ };
    (@impl $name:ident <$lt:lifetime>, $($fields:tt)*) => {
        impl<$lt> $crate::Wire<$lt> for $name<$lt> {
            $crate::macros::wire_struct!(@body $lt, $($fields)*);
        }
    };
    (@impl $name:ident, $($fields:tt)*) => {
        impl<'wire> $crate::Wire<'wire> for $name {
            $crate::macros::wire_struct!(@body 'wire, $($fields)*);
        }
    };
    (@body $lt:lifetime, $($field:ident : $type:ty),*) => {
        #[inline]
        fn decode(r: &mut vouch_xdr::Reader<$lt>) -> Result<Self, vouch_xdr::Error> {
            Ok(Self { $( $field: <$type as $crate::Wire<$lt>>::decode(r)? ),* })
        }

        #[inline]
        fn encode(&self, w: &mut vouch_xdr::Writer) {
            $( $crate::Wire::encode(&self.$field, w); )*
        }

        #[cfg(test)]
        fn sample(s: &mut $crate::sample::Sampler) -> Self {
            Self { $( $field: <$type as $crate::Wire<$lt>>::sample(s) ),* }
        }
    };
}

/// As `wire_struct`, and `Copy`.
macro_rules! wire_copy {
    ($( $(#[$meta:meta])* pub struct $name:ident $(<$lt:lifetime>)? { $($fields:tt)* } )+) => {
        $crate::macros::wire_struct! {
            $( $(#[$meta])* #[derive(Copy)] pub struct $name $(<$lt>)? { $($fields)* } )+
        }
    };
}

macro_rules! wire_newtype {
    ($( $(#[$meta:meta])* pub struct $name:ident(pub $inner:ty); )*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $inner);

        impl<'wire> $crate::Wire<'wire> for $name {
            #[inline]
            fn decode(r: &mut vouch_xdr::Reader<'wire>) -> Result<Self, vouch_xdr::Error> {
                $crate::Wire::decode(r).map(Self)
            }

            #[inline]
            fn encode(&self, w: &mut vouch_xdr::Writer) {
                $crate::Wire::encode(&self.0, w);
            }

            #[cfg(test)]
            fn sample(s: &mut $crate::sample::Sampler) -> Self {
                Self($crate::Wire::sample(s))
            }
        }
    )* };
}

/// A set of flags. Unknown flags are preserved.
macro_rules! wire_bits {
    ($(#[$meta:meta])* pub struct $name:ident { $( $(#[$bmeta:meta])* $bit:ident = $value:expr ),* $(,)? }) => {
        $crate::macros::wire_newtype! { $(#[$meta])* pub struct $name(pub u32); }

        impl $name {
            $( $(#[$bmeta])* pub const $bit: Self = Self($value); )*

            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitAnd for $name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }
    };
}

/// An enumeration. Other values are decoding errors.
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident = $what:literal { $( $(#[$vmeta:meta])* $variant:ident = $value:literal ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name { $( $(#[$vmeta])* $variant = $value ),* }

        impl<'wire> $crate::Wire<'wire> for $name {
            #[inline]
            fn decode(r: &mut vouch_xdr::Reader<'wire>) -> Result<Self, vouch_xdr::Error> {
                match r.u32()? {
                    $( $value => Ok(Self::$variant), )*
                    value => Err(vouch_xdr::Error::Unknown { what: $what, value }),
                }
            }

            #[inline]
            fn encode(&self, w: &mut vouch_xdr::Writer) {
                w.u32(*self as u32);
            }

            #[cfg(test)]
            fn sample(s: &mut $crate::sample::Sampler) -> Self {
                let all = [$( Self::$variant ),*];
                all[s.below(all.len())]
            }
        }
    };
}

macro_rules! wire_union {
    ($(#[$meta:meta])* pub enum $name:ident <$lt:lifetime> = $what:literal {
        $( $(#[$vmeta:meta])* $value:literal => $variant:ident $( ( $part:ident : $type:ty ) )? ),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name<$lt> { $( $(#[$vmeta])* $variant $( ($type) )? ),* }

        impl<$lt> $crate::Wire<$lt> for $name<$lt> {
            $crate::macros::wire_union!(@body $lt, $what, $( $value => $variant $( ($part: $type) )? ),*);
        }
    };
    ($(#[$meta:meta])* pub enum $name:ident = $what:literal {
        $( $(#[$vmeta:meta])* $value:literal => $variant:ident $( ( $part:ident : $type:ty ) )? ),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $( $(#[$vmeta])* $variant $( ($type) )? ),* }

        impl<'wire> $crate::Wire<'wire> for $name {
            $crate::macros::wire_union!(@body 'wire, $what, $( $value => $variant $( ($part: $type) )? ),*);
        }
    };
    (@body $lt:lifetime, $what:literal, $( $value:literal => $variant:ident $( ( $part:ident : $type:ty ) )? ),*) => {
        fn decode(r: &mut vouch_xdr::Reader<$lt>) -> Result<Self, vouch_xdr::Error> {
            match r.u32()? {
                $( $value => Ok(Self::$variant $( (<$type as $crate::Wire<$lt>>::decode(r)?) )?), )*
                value => Err(vouch_xdr::Error::Unknown { what: $what, value }),
            }
        }

        fn encode(&self, w: &mut vouch_xdr::Writer) {
            match self {
                $( Self::$variant $( ($part) )? => {
                    w.u32($value);
                    $( $crate::Wire::encode($part, w); )?
                } )*
            }
        }

        #[cfg(test)]
        fn sample(s: &mut $crate::sample::Sampler) -> Self {
            let count = [$( $value ),*].len();
            let mut chosen = s.below(count);
            $(
                if chosen == 0 {
                    return Self::$variant $( (<$type as $crate::Wire<$lt>>::sample(s)) )?;
                }
                chosen = chosen.wrapping_sub(1);
            )*
            unreachable!("no variant {chosen} of {count}")
        }
    };
}

macro_rules! wire_failure {
    ($(#[$meta:meta])* pub enum $name:ident $(<$lt:lifetime>)? { $(#[$vmeta:meta])* $special:ident => $variant:ident($type:ty) }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name $(<$lt>)? {
            $(#[$vmeta])*
            $variant($type),
            Status($crate::Status),
        }

        impl $(<$lt>)? From<$crate::Status> for $name $(<$lt>)? {
            fn from(status: $crate::Status) -> Self {
                debug_assert!(status != $crate::Status::$special, "this status requires a body");
                Self::Status(status)
            }
        }

        $crate::macros::wire_failure!(@impl $name $(<$lt>)?, $special, $variant, $type);
    };
    (@impl $name:ident <$lt:lifetime>, $special:ident, $variant:ident, $type:ty) => {
        impl<$lt> $crate::op::Failure<$lt> for $name<$lt> {
            $crate::macros::wire_failure!(@body $lt, $special, $variant, $type);
        }
    };
    (@impl $name:ident, $special:ident, $variant:ident, $type:ty) => {
        impl<'wire> $crate::op::Failure<'wire> for $name {
            $crate::macros::wire_failure!(@body 'wire, $special, $variant, $type);
        }
    };
    (@body $lt:lifetime, $special:ident, $variant:ident, $type:ty) => {
        fn status(&self) -> $crate::Status {
            match self {
                Self::$variant(_) => $crate::Status::$special,
                Self::Status(status) => *status,
            }
        }

        fn decode_body(status: $crate::Status, r: &mut vouch_xdr::Reader<$lt>) -> Result<Self, vouch_xdr::Error> {
            Ok(match status {
                $crate::Status::$special => Self::$variant(<$type as $crate::Wire<$lt>>::decode(r)?),
                status => Self::Status(status),
            })
        }

        fn encode_body(&self, w: &mut vouch_xdr::Writer) {
            if let Self::$variant(body) = self {
                $crate::Wire::encode(body, w);
            }
        }

        #[cfg(test)]
        fn sample(s: &mut $crate::sample::Sampler) -> Self {
            match <bool as $crate::Wire>::sample(s) {
                true => Self::$variant(<$type as $crate::Wire<$lt>>::sample(s)),
                false => Self::Status($crate::Status::NOENT),
            }
        }
    };
}

macro_rules! operations {
    ($lt:lifetime, $what:literal; $(
        $(#[$meta:meta])*
        $number:literal $constant:ident $variant:ident $( ( $args:ident : $args_type:ty ) )? -> $result_type:ty, $since:literal, $effect:ident;
    )*) => {
        impl Op {
            $( $(#[$meta])* pub const $constant: Self = Self($number); )*

            /// As in the RFCs, without prefix; `None` for undefined numbers.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $number => Some(stringify!($constant)), )*
                    _ => None,
                }
            }

            /// The first minor version that has the operation; `None` for undefined numbers.
            pub const fn since(self) -> Option<u32> {
                match self.0 {
                    $( $number => Some($since), )*
                    _ => None,
                }
            }

            /// `None` for undefined numbers.
            pub const fn effect(self) -> Option<$crate::op::Effect> {
                match self.0 {
                    $( $number => Some($crate::op::Effect::$effect), )*
                    _ => None,
                }
            }

            /// Of all minor versions, in ascending order.
            pub const ALL: &'static [Self] = &[$( Self::$constant ),*];
        }

        /// The numbers as records of an audit trail hold them.
        pub mod number {
            $( pub const $constant: u16 = $number; )*
        }

        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Args<$lt> {
            $( $(#[$meta])* $variant $( ($args_type) )?, )*
            /// Not in the minor version. The rest of the compound cannot be decoded.
            Illegal(Op),
        }

        impl<$lt> Args<$lt> {
            pub fn decode(minor: u32, r: &mut Reader<$lt>) -> Result<Self, Error> {
                let op = Op(r.u32()?);
                if op.since().is_none_or(|since| since > minor) {
                    return Ok(Self::Illegal(op));
                }
                match op.0 {
                    $( $number => Ok(Self::$variant $( (<$args_type as $crate::Wire<$lt>>::decode(r)?) )?), )*
                    _ => Ok(Self::Illegal(op)),
                }
            }

            pub fn encode(&self, w: &mut Writer) {
                w.u32(self.op().0);
                match self {
                    $( Self::$variant $( ($args) )? => { $( $crate::Wire::encode($args, w) )? } )*
                    Self::Illegal(_) => {}
                }
            }

            pub const fn op(&self) -> Op {
                match self {
                    $( Self::$variant { .. } => Op::$constant, )*
                    Self::Illegal(op) => *op,
                }
            }

            #[cfg(test)]
            pub(crate) fn sample(op: Op, s: &mut $crate::sample::Sampler) -> Self {
                match op.0 {
                    $( $number => { let _ = &s; Self::$variant $( (<$args_type as $crate::Wire<$lt>>::sample(s)) )? } )*
                    _ => Self::Illegal(op),
                }
            }
        }

        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Results<$lt> {
            $( $(#[$meta])* $variant($result_type), )*
            Illegal(Status),
        }

        impl<$lt> Results<$lt> {
            pub fn decode(r: &mut Reader<$lt>) -> Result<Self, Error> {
                match r.u32()? {
                    $( $number => $crate::op::decode_outcome(r).map(Self::$variant), )*
                    ILLEGAL => Ok(Self::Illegal(Status(r.u32()?))),
                    value => Err(Error::Unknown { what: $what, value }),
                }
            }

            pub fn encode(&self, w: &mut Writer) {
                w.u32(self.op().0);
                match self {
                    $( Self::$variant(outcome) => $crate::op::encode_outcome(outcome, w), )*
                    Self::Illegal(status) => w.u32(status.0),
                }
            }

            pub const fn op(&self) -> Op {
                match self {
                    $( Self::$variant(_) => Op::$constant, )*
                    Self::Illegal(_) => Op(ILLEGAL),
                }
            }

            pub fn status(&self) -> Status {
                match self {
                    $( Self::$variant(outcome) => $crate::op::outcome_status(outcome), )*
                    Self::Illegal(status) => *status,
                }
            }

            pub fn failure(op: Op, status: Status) -> Self {
                match op.0 {
                    $( $number => Self::$variant(Err(status.into())), )*
                    _ => Self::Illegal(status),
                }
            }

            #[cfg(test)]
            pub(crate) fn sample(op: Op, s: &mut $crate::sample::Sampler) -> Self {
                match op.0 {
                    $( $number => Self::$variant($crate::op::sample_outcome(s)), )*
                    _ => Self::Illegal(Status::OP_ILLEGAL),
                }
            }
        }
    };
}

pub(crate) use {
    operations, wire_bits, wire_copy, wire_enum, wire_failure, wire_newtype, wire_struct,
    wire_union,
};
