//! Whether an object that Java serialized is all there. Nothing is taken from it.
//!
//! Without it a `_metadata` that was cut off in its last bytes would pass for a whole one, and Flink would refuse it. A stream that has
//! something unknown here is taken as it is: what a later Flink puts into its properties is not this reader's business.

use crate::flink::FlinkError;
use crate::flink::wire::Cursor;
use crate::limits;

const MAGIC: i32 = -0x5312_FFFB; // 0xACED_0005
const NULL: u8 = 0x70;
const REFERENCE: u8 = 0x71;
const CLASS: u8 = 0x72;
const OBJECT: u8 = 0x73;
const STRING: u8 = 0x74;
const BLOCK: u8 = 0x77;
const END_BLOCK: u8 = 0x78;
const ENUM: u8 = 0x7E;
/// The number of the first thing that a stream can refer to.
const FIRST: i32 = 0x7E_0000;

/// A class whose objects write something behind their fields.
const WRITES: u8 = 1;
const SERIALIZABLE: u8 = 2;

#[derive(Debug)]
enum Stop {
    /// It ends too early, or is none.
    Damaged(FlinkError),
    /// Something that is not known here.
    Unknown,
}

impl From<FlinkError> for Stop {
    fn from(error: FlinkError) -> Self {
        Self::Damaged(error)
    }
}

#[derive(Debug, Clone)]
struct Class {
    flags: u8,
    /// The type of each field, as Java letters it.
    fields: Vec<u8>,
    parent: Option<usize>,
}

#[derive(Debug)]
struct Walk<'a> {
    input: Cursor<'a>,
    /// What the stream can refer to; None is no class.
    known: Vec<Option<Class>>,
}

/// Fails if the object is cut off, or none starts here.
pub(super) fn complete(input: Cursor<'_>) -> Result<(), FlinkError> {
    let mut walk = Walk { input, known: Vec::new() };
    if walk.input.i32()? != MAGIC {
        return Err(walk.input.damaged("the checkpoint's properties should be here, as Java writes an object"));
    }
    match walk.content(0) {
        Ok(()) | Err(Stop::Unknown) => Ok(()),
        Err(Stop::Damaged(error)) => Err(error),
    }
}

impl Walk<'_> {
    fn content(&mut self, depth: usize) -> Result<(), Stop> {
        if depth > limits::FLINK_JAVA_NESTING {
            return Err(Stop::Unknown);
        }
        match self.input.u8()? {
            NULL => {}
            REFERENCE => {
                self.reference()?;
            }
            OBJECT => {
                let class = self.class(depth)?;
                self.known.push(None);
                self.fields(class, depth)?;
            }
            ENUM => {
                self.class(depth)?;
                self.known.push(None);
                self.content(depth + 1)?;
            }
            STRING => {
                self.known.push(None);
                self.text()?;
            }
            BLOCK => {
                let length = self.input.u8()?;
                self.input.take(length.into())?;
            }
            _ => return Err(Stop::Unknown),
        }
        Ok(())
    }

    fn text(&mut self) -> Result<(), Stop> {
        let length = self.input.u16()?;
        self.input.take(length.into())?;
        Ok(())
    }

    fn reference(&mut self) -> Result<usize, Stop> {
        let number = self.input.i32()?.checked_sub(FIRST).and_then(|number| usize::try_from(number).ok());
        number.filter(|number| *number < self.known.len()).ok_or(Stop::Unknown)
    }

    /// Which of the known things the class is.
    fn class(&mut self, depth: usize) -> Result<Option<usize>, Stop> {
        if depth > limits::FLINK_JAVA_NESTING {
            return Err(Stop::Unknown);
        }
        match self.input.u8()? {
            NULL => return Ok(None),
            REFERENCE => return self.reference().map(Some),
            CLASS => {}
            _ => return Err(Stop::Unknown),
        }
        self.text()?;
        self.input.i64()?;
        let number = self.known.len();
        self.known.push(None);
        let flags = self.input.u8()?;
        let count = self.input.u16()?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let kind = self.input.u8()?;
            self.text()?;
            if matches!(kind, b'L' | b'[') {
                self.content(depth + 1)?;
            }
            fields.push(kind);
        }
        self.block_end(depth)?;
        let parent = self.class(depth + 1)?;
        if let Some(known) = self.known.get_mut(number) {
            *known = Some(Class { flags, fields, parent });
        }
        Ok(Some(number))
    }

    fn block_end(&mut self, depth: usize) -> Result<(), Stop> {
        while self.input.clone().u8()? != END_BLOCK {
            self.content(depth + 1)?;
        }
        self.input.u8()?;
        Ok(())
    }

    /// The values of an object, those of its class's parents first.
    fn fields(&mut self, class: Option<usize>, depth: usize) -> Result<(), Stop> {
        let Some(number) = class else { return Ok(()) };
        if depth > limits::FLINK_JAVA_NESTING {
            return Err(Stop::Unknown);
        }
        let Some(Some(class)) = self.known.get(number).cloned() else { return Err(Stop::Unknown) };
        self.fields(class.parent, depth + 1)?;
        if class.flags & SERIALIZABLE == 0 {
            return Err(Stop::Unknown);
        }
        for kind in class.fields {
            match kind {
                b'B' | b'Z' => self.input.take(1).map(drop)?,
                b'C' | b'S' => self.input.take(2).map(drop)?,
                b'F' | b'I' => self.input.take(4).map(drop)?,
                b'D' | b'J' => self.input.take(8).map(drop)?,
                b'L' | b'[' => self.content(depth + 1)?,
                _ => return Err(Stop::Unknown),
            }
        }
        if class.flags & WRITES != 0 { self.block_end(depth) } else { Ok(()) }
    }
}
