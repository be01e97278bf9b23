//! Snapshots of serializers, as Flink writes them beside each state: a class name, a version, and what that class writes, without its
//! length. So only known classes in known versions can be read past; at any other one reading stops.

use std::sync::Arc;

use super::serializer::{Plain, Serializer};
use crate::flink::FlinkError;
use crate::flink::wire::{Cursor, gather};
use crate::limits;

/// In front of what a composite snapshot writes of itself, and of its parts.
const COMPOSITE_MAGIC: i32 = 911_108;
/// In front of the parts of a composite snapshot.
const PARTS_MAGIC: i32 = 1_333_245;
/// In front of a map whose entries have their lengths.
const FRAMED_MAGIC: i64 = 0x04f2_c69a_3d70;

/// The version of a row's own part since its values begin with their kind.
const ROW_WITH_KIND: i32 = 3;

const ENUM: &str = "org.apache.flink.api.common.typeutils.base.EnumSerializer$EnumSerializerSnapshot";
const POJO: &str = "org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot";
const TTL_AWARE: &str = "org.apache.flink.runtime.state.ttl.TtlAwareSerializerSnapshot";

/// A serializer as a backend describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The class that wrote the description.
    pub class: String,
    /// The version of its form.
    pub version: i32,
    /// What it describes.
    pub serializer: Serializer,
}

/// Why a snapshot was not read.
#[derive(Debug)]
pub(super) enum Stop {
    /// It is broken.
    Error(FlinkError),
    /// Its class, or the class in this version, is not known: where it ends is not known either.
    Unknown(String),
}

impl From<FlinkError> for Stop {
    fn from(e: FlinkError) -> Self {
        Self::Error(e)
    }
}

/// The composites, whose snapshots differ in what they write before their parts.
#[derive(Clone, Copy)]
enum Composite {
    List,
    Map,
    Array,
    Either,
    Tuple,
    Row,
    Nullable,
    Ttl,
    Timer,
}

/// Each with the versions of its own part that are known. A list of version 2 has a mask of nulls before its elements.
const COMPOSITES: [(&str, Composite, &[i32]); 9] = [
    ("org.apache.flink.api.common.typeutils.base.ListSerializerSnapshot", Composite::List, &[1]),
    ("org.apache.flink.api.common.typeutils.base.MapSerializerSnapshot", Composite::Map, &[1]),
    ("org.apache.flink.api.common.typeutils.base.GenericArraySerializerSnapshot", Composite::Array, &[1]),
    ("org.apache.flink.api.java.typeutils.runtime.JavaEitherSerializerSnapshot", Composite::Either, &[1]),
    ("org.apache.flink.api.java.typeutils.runtime.TupleSerializerSnapshot", Composite::Tuple, &[2]),
    ("org.apache.flink.api.java.typeutils.runtime.RowSerializer$RowSerializerSnapshot", Composite::Row, &[2, 3]),
    (
        "org.apache.flink.api.java.typeutils.runtime.NullableSerializer$NullableSerializerSnapshot",
        Composite::Nullable,
        &[2],
    ),
    ("org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot", Composite::Ttl, &[2]),
    ("org.apache.flink.streaming.api.operators.TimerSerializerSnapshot", Composite::Timer, &[2]),
];

/// Reads one, `depth` levels inside others.
pub(super) fn read(input: &mut Cursor<'_>, depth: usize) -> Result<Snapshot, Stop> {
    let (what, at) = (input.what(), input.at());
    if depth >= limits::FLINK_TYPE_NESTING {
        let (count, most) = (depth as u64 + 1, limits::FLINK_TYPE_NESTING as u64);
        return Err(FlinkError::Limit { what, at, of: "serializers inside each other", count, most }.into());
    }
    let class = input.utf()?;
    let version = input.i32()?;
    let unknown = || Stop::Unknown(format!("{class}, version {version}"));
    let serializer = if let Some(plain) = Plain::of_class(&class) {
        match version {
            3 => {}
            // Until Flink 1.8 with the name of the serializer's class.
            2 => drop(input.utf()?),
            _ => return Err(unknown()),
        }
        Serializer::Plain(plain)
    } else if let Some((_, composite, known)) = COMPOSITES.iter().find(|(name, ..)| *name == class) {
        if version != 3 {
            return Err(unknown());
        }
        expect(input, COMPOSITE_MAGIC)?;
        let own = input.i32()?;
        if !known.contains(&own) {
            return Err(Stop::Unknown(format!("{class}, version {version}.{own}")));
        }
        composite_of(input, *composite, own, depth)?.ok_or_else(unknown)?
    } else {
        match (&*class, version) {
            (ENUM, 3) => enum_of(input)?,
            (POJO, 2) => pojo_of(input, depth)?,
            // Writes what the serializer inside writes.
            (TTL_AWARE, 1) => {
                input.u8()?;
                read(input, depth + 1)?.serializer
            }
            _ => return Err(unknown()),
        }
    };
    Ok(Snapshot { class, version, serializer })
}

fn expect(input: &mut Cursor<'_>, magic: i32) -> Result<(), FlinkError> {
    let here = input.clone();
    let found = input.i32()?;
    if found == magic { Ok(()) } else { Err(here.damaged(format!("{magic} should be here, {found} is"))) }
}

/// `None` when it has other parts than are known.
fn composite_of(
    input: &mut Cursor<'_>,
    composite: Composite,
    own: i32,
    depth: usize,
) -> Result<Option<Serializer>, Stop> {
    let mut padding = 0;
    match composite {
        Composite::Tuple | Composite::Array => drop(input.utf()?),
        Composite::Nullable => {
            let here = input.clone();
            padding = usize::try_from(input.i32()?).map_err(|_| here.damaged("the padding is negative"))?;
        }
        _ => {}
    }
    let parts = parts(input, depth)?;
    Ok(match composite {
        Composite::List => one(parts).map(Serializer::List),
        Composite::Array => one(parts).map(Serializer::Array),
        Composite::Map => two(parts).map(|[key, value]| Serializer::Map(key, value)),
        Composite::Either => two(parts).map(|[left, right]| Serializer::Either(left, right)),
        Composite::Nullable => one(parts).map(|value| Serializer::Nullable { value, padding }),
        Composite::Ttl => match two(parts) {
            Some([time, value]) if *time == Serializer::Plain(Plain::Long) => Some(Serializer::Ttl(value)),
            _ => None,
        },
        Composite::Timer => two(parts).map(|[key, namespace]| Serializer::Timer { key, namespace }),
        // One without fields would write no byte for a value.
        Composite::Tuple => (!parts.is_empty()).then_some(Serializer::Tuple(parts)),
        Composite::Row => {
            (!parts.is_empty()).then_some(Serializer::Row { fields: parts, with_kind: own >= ROW_WITH_KIND })
        }
    })
}

fn one(parts: Vec<Serializer>) -> Option<Box<Serializer>> {
    <[Serializer; 1]>::try_from(parts).ok().map(|[part]| Box::new(part))
}

fn two(parts: Vec<Serializer>) -> Option<[Box<Serializer>; 2]> {
    <[Serializer; 2]>::try_from(parts).ok().map(|parts| parts.map(Box::new))
}

fn parts(input: &mut Cursor<'_>, depth: usize) -> Result<Vec<Serializer>, Stop> {
    expect(input, PARTS_MAGIC)?;
    expect(input, 1)?;
    // A class name's length and a version.
    let count = input.count("serializers", limits::FLINK_FIELDS, 6)?;
    gather(count, || Ok(read(input, depth + 1)?.serializer))
}

fn enum_of(input: &mut Cursor<'_>) -> Result<Serializer, Stop> {
    let class = input.utf()?.into();
    let count = input.count("constants", limits::FLINK_FIELDS, 2)?;
    let constants = gather(count, || name(input))?;
    Ok(Serializer::Enum { class, constants })
}

fn name(input: &mut Cursor<'_>) -> Result<Arc<str>, FlinkError> {
    let (what, at) = (input.what(), input.at());
    let name = input.utf()?;
    if name.len() > limits::FLINK_FIELD_NAME {
        let (count, most) = (name.len() as u64, limits::FLINK_FIELD_NAME as u64);
        return Err(FlinkError::Limit { what, at, of: "bytes of a name", count, most });
    }
    Ok(name.into())
}

/// Its fields, then two maps of subclasses, whose values are not read here.
fn pojo_of(input: &mut Cursor<'_>, depth: usize) -> Result<Serializer, Stop> {
    let class = input.utf()?.into();
    let fields = framed(input)?.into_iter().map(|(name, frame)| Ok((name, field(frame, depth)?)));
    let fields = fields.collect::<Result<_, Stop>>()?;
    framed(input)?;
    framed(input)?;
    Ok(Serializer::Pojo { class, fields })
}

/// A field's serializer has a length: an unknown one ends there.
fn field(frame: Option<Cursor<'_>>, depth: usize) -> Result<Serializer, Stop> {
    let Some(mut frame) = frame else { return Ok(Serializer::Unknown("".into())) };
    match read(&mut frame, depth + 1) {
        Ok(snapshot) if frame.left() == 0 => Ok(snapshot.serializer),
        Ok(snapshot) => Ok(Serializer::Unknown(snapshot.class.into())),
        Err(Stop::Unknown(class)) => Ok(Serializer::Unknown(class.split(',').next().unwrap_or_default().into())),
        Err(error) => Err(error),
    }
}

/// A name, and what is written of its value.
type Entry<'a> = (Arc<str>, Option<Cursor<'a>>);

fn framed<'a>(input: &mut Cursor<'a>) -> Result<Vec<Entry<'a>>, FlinkError> {
    let here = input.clone();
    let found = input.i64()?;
    if found != FRAMED_MAGIC {
        return Err(here.damaged(format!("{FRAMED_MAGIC} should be here, {found} is")));
    }
    // A name's length and two flags.
    let count = input.count("fields", limits::FLINK_FIELDS, 4)?;
    gather(count, || {
        let name = name(input)?;
        // The key, such as the class that declares the field.
        if input.u8()? != 0 {
            input.bytes("bytes of a field")?;
        }
        let value = match input.u8()? {
            0 => None,
            _ => Some(Cursor::new(input.what(), input.bytes("bytes of a serializer")?)),
        };
        Ok((name, value))
    })
}
