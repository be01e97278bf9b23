//! Which of Flink's serializers wrote a value, as far as they are known here.

use std::fmt;
use std::sync::Arc;

/// A serializer whose form has no parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named as the Java type that it writes")]
pub enum Plain {
    Boolean,
    Byte,
    Short,
    Integer,
    Long,
    Float,
    Double,
    Character,
    String,
    BigInteger,
    BigDecimal,
    Void,
    VoidNamespace,
    Date,
    SqlDate,
    SqlTime,
    SqlTimestamp,
    Instant,
    LocalDate,
    LocalTime,
    LocalDateTime,
    TimeWindow,
    GlobalWindow,
    BooleanArray,
    ByteArray,
    ShortArray,
    IntArray,
    LongArray,
    FloatArray,
    DoubleArray,
    CharArray,
    StringArray,
}

/// The class that describes the serializer of this name in Flink's package of basic types.
macro_rules! base {
    ($name:literal) => {
        concat!("org.apache.flink.api.common.typeutils.base.", $name, "Serializer$", $name, "SerializerSnapshot")
    };
}

/// The same, of arrays.
macro_rules! array {
    ($name:literal) => {
        concat!("org.apache.flink.api.common.typeutils.base.array.", $name, "Serializer$", $name, "SerializerSnapshot")
    };
}

const VOID_NAMESPACE: &str = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot";
const TIME_WINDOW: &str =
    "org.apache.flink.streaming.api.windowing.windows.TimeWindow$Serializer$TimeWindowSerializerSnapshot";
const GLOBAL_WINDOW: &str =
    "org.apache.flink.streaming.api.windowing.windows.GlobalWindow$Serializer$GlobalWindowSerializerSnapshot";

/// Each with the class of its snapshot, its name for people, and the length that the serializer says of itself, `None` when it says
/// -1. That is not always what it writes: a void namespace and the windows say 0.
const PLAIN: [(Plain, &str, &str, Option<usize>); 32] = [
    (Plain::Boolean, base!("Boolean"), "Boolean", Some(1)),
    (Plain::Byte, base!("Byte"), "Byte", Some(1)),
    (Plain::Short, base!("Short"), "Short", Some(2)),
    (Plain::Integer, base!("Int"), "Integer", Some(4)),
    (Plain::Long, base!("Long"), "Long", Some(8)),
    (Plain::Float, base!("Float"), "Float", Some(4)),
    (Plain::Double, base!("Double"), "Double", Some(8)),
    (Plain::Character, base!("Char"), "Character", Some(2)),
    (Plain::String, base!("String"), "String", None),
    (Plain::BigInteger, base!("BigInt"), "BigInteger", None),
    (Plain::BigDecimal, base!("BigDec"), "BigDecimal", None),
    (Plain::Void, base!("Void"), "Void", Some(1)),
    (Plain::VoidNamespace, VOID_NAMESPACE, "VoidNamespace", Some(0)),
    (Plain::Date, base!("Date"), "Date", Some(8)),
    (Plain::SqlDate, base!("SqlDate"), "SqlDate", Some(8)),
    (Plain::SqlTime, base!("SqlTime"), "SqlTime", Some(8)),
    (Plain::SqlTimestamp, base!("SqlTimestamp"), "SqlTimestamp", Some(12)),
    (Plain::Instant, base!("Instant"), "Instant", Some(12)),
    (Plain::LocalDate, base!("LocalDate"), "LocalDate", Some(6)),
    (Plain::LocalTime, base!("LocalTime"), "LocalTime", Some(7)),
    (Plain::LocalDateTime, base!("LocalDateTime"), "LocalDateTime", Some(13)),
    (Plain::TimeWindow, TIME_WINDOW, "TimeWindow", Some(0)),
    (Plain::GlobalWindow, GLOBAL_WINDOW, "GlobalWindow", Some(0)),
    (Plain::BooleanArray, array!("BooleanPrimitiveArray"), "boolean[]", None),
    (Plain::ByteArray, array!("BytePrimitiveArray"), "byte[]", None),
    (Plain::ShortArray, array!("ShortPrimitiveArray"), "short[]", None),
    (Plain::IntArray, array!("IntPrimitiveArray"), "int[]", None),
    (Plain::LongArray, array!("LongPrimitiveArray"), "long[]", None),
    (Plain::FloatArray, array!("FloatPrimitiveArray"), "float[]", None),
    (Plain::DoubleArray, array!("DoublePrimitiveArray"), "double[]", None),
    (Plain::CharArray, array!("CharPrimitiveArray"), "char[]", None),
    (Plain::StringArray, array!("StringArray"), "String[]", None),
];

impl Plain {
    /// By the class of its snapshot.
    pub(super) fn of_class(class: &str) -> Option<Self> {
        PLAIN.iter().find(|(_, snapshot, ..)| *snapshot == class).map(|(plain, ..)| *plain)
    }

    fn row(self) -> Option<&'static (Self, &'static str, &'static str, Option<usize>)> {
        PLAIN.iter().find(|(plain, ..)| *plain == self)
    }
}

/// A serializer, with those of its parts. Each writes at least one byte for a value, which bounds what is read by the bytes there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serializer {
    /// One without parameters.
    Plain(Plain),
    /// A list, with that of its elements.
    List(Box<Self>),
    /// An array of objects, any of which may be null.
    Array(Box<Self>),
    /// A map, with those of its keys and values.
    Map(Box<Self>, Box<Self>),
    /// Either of two.
    Either(Box<Self>, Box<Self>),
    /// Fields by position, at least one.
    Tuple(Vec<Self>),
    /// Fields by position that may be null; with the row's kind in front since Flink 1.11.
    Row {
        /// Of each field, at least one.
        fields: Vec<Self>,
        /// Whether the kind is written.
        with_kind: bool,
    },
    /// The fields of a class of the job's.
    Pojo {
        /// Its name.
        class: Arc<str>,
        /// Name and serializer of each field.
        fields: Vec<(Arc<str>, Self)>,
    },
    /// A constant of an enum.
    Enum {
        /// The enum's class.
        class: Arc<str>,
        /// The constants' names, by what is written.
        constants: Vec<Arc<str>>,
    },
    /// A value that may be null.
    Nullable {
        /// That of the value.
        value: Box<Self>,
        /// Bytes that follow for null, so that all have one length.
        padding: usize,
    },
    /// A value with the time of its last use.
    Ttl(Box<Self>),
    /// A timer: its time, its key and its namespace.
    Timer {
        /// That of the key.
        key: Box<Self>,
        /// That of the namespace.
        namespace: Box<Self>,
    },
    /// One that is not known, inside one that says where it ends.
    Unknown(Arc<str>),
}

impl Serializer {
    /// What people call it, such as `Map<String, Long>`.
    #[must_use]
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// The length that Flink's serializer says of itself: `None` when it is variable. Asked of keys and namespaces alone.
    pub(super) fn fixed(&self) -> Option<usize> {
        match self {
            Self::Plain(plain) => plain.row().and_then(|(_, _, _, fixed)| *fixed),
            // Flink counts a field of length 0 as variable here.
            Self::Tuple(fields) => {
                fields.iter().map(|field| field.fixed().filter(|length| *length > 0)).sum::<Option<usize>>()
            }
            Self::Enum { .. } => Some(4),
            Self::Nullable { padding, .. } => (*padding > 0).then(|| padding.saturating_add(1)),
            _ => None,
        }
    }
}

impl fmt::Display for Serializer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name of the job's may hold anything.
        let simple = |class: &str| class.rsplit(['.', '$']).next().unwrap_or_default().escape_debug().to_string();
        let fields = |fields: &[Self]| fields.iter().map(Self::name).collect::<Vec<_>>().join(", ");
        match self {
            Self::Plain(plain) => f.write_str(plain.row().map_or("", |(_, _, name, _)| name)),
            Self::List(element) => write!(f, "List<{element}>"),
            Self::Array(element) => write!(f, "{element}[]"),
            Self::Map(key, value) => write!(f, "Map<{key}, {value}>"),
            Self::Either(left, right) => write!(f, "Either<{left}, {right}>"),
            Self::Tuple(parts) => write!(f, "Tuple<{}>", fields(parts)),
            Self::Row { fields: parts, .. } => write!(f, "Row<{}>", fields(parts)),
            Self::Pojo { class, fields } => {
                let fields: Vec<_> =
                    fields.iter().map(|(name, field)| format!("{}: {field}", name.escape_debug())).collect();
                write!(f, "{}{{{}}}", simple(class), fields.join(", "))
            }
            Self::Enum { class, .. } | Self::Unknown(class) => f.write_str(&simple(class)),
            Self::Nullable { value, .. } => write!(f, "Nullable<{value}>"),
            Self::Ttl(value) => write!(f, "TTL<{value}>"),
            Self::Timer { key, namespace } => write!(f, "Timer<{key}, {namespace}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plain_serializer_is_in_the_table() {
        for (index, (plain, class, name, _)) in PLAIN.iter().enumerate() {
            assert_eq!(Plain::of_class(class), Some(*plain));
            assert_eq!(PLAIN.iter().position(|(other, ..)| other == plain), Some(index), "{name}");
            assert_eq!(Serializer::Plain(*plain).name(), *name);
        }
    }

    #[test]
    fn names_are_for_people() {
        let long = || Box::new(Serializer::Plain(Plain::Long));
        let string = || Box::new(Serializer::Plain(Plain::String));
        let map = Serializer::Map(string(), Box::new(Serializer::Ttl(long())));
        assert_eq!(map.name(), "Map<String, TTL<Long>>");
        let class = "com.acme.Orders$Point".into();
        let pojo = Serializer::Pojo { class, fields: vec![("x".into(), *long()), ("y".into(), *string())] };
        assert_eq!(Serializer::List(Box::new(pojo)).name(), "List<Point{x: Long, y: String}>");
    }

    #[test]
    fn lengths_are_those_that_flink_says() {
        let plain = |plain| Serializer::Plain(plain);
        assert_eq!(Serializer::Tuple(vec![plain(Plain::Long), plain(Plain::Integer)]).fixed(), Some(12));
        assert_eq!(Serializer::Tuple(vec![plain(Plain::Long), plain(Plain::String)]).fixed(), None);
        assert_eq!(Serializer::Tuple(vec![plain(Plain::TimeWindow)]).fixed(), None);
        assert_eq!(plain(Plain::VoidNamespace).fixed(), Some(0));
    }
}
