//! Flink's tuples: the fields one after the other.

use super::{KeySerializer, Serializer, SerializerDescriptor, StateError};

/// `Tuple2`: two serializers, for a pair.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuple2<A, B>(pub A, pub B);

/// `Tuple3`: three serializers, for a triple.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuple3<A, B, C>(pub A, pub B, pub C);

impl<A: Serializer, B: Serializer> Serializer for Tuple2<A, B> {
    type Item = (A::Item, B::Item);

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::of_fields("tuple", vec![self.0.descriptor(), self.1.descriptor()])
    }

    fn fixed_length(&self) -> Option<usize> {
        self.0.fixed_length()?.checked_add(self.1.fixed_length()?)
    }

    fn write(&self, item: &Self::Item, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        self.0.write(&item.0, bytes)?;
        self.1.write(&item.1, bytes)
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<Self::Item, StateError> {
        Ok((self.0.read(bytes)?, self.1.read(bytes)?))
    }
}

impl<A: KeySerializer, B: KeySerializer> KeySerializer for Tuple2<A, B> {
    fn hash(&self, item: &Self::Item) -> i32 {
        next(self.0.hash(&item.0), self.1.hash(&item.1))
    }
}

impl<A: Serializer, B: Serializer, C: Serializer> Serializer for Tuple3<A, B, C> {
    type Item = (A::Item, B::Item, C::Item);

    fn descriptor(&self) -> SerializerDescriptor {
        SerializerDescriptor::of_fields("tuple", vec![self.0.descriptor(), self.1.descriptor(), self.2.descriptor()])
    }

    fn fixed_length(&self) -> Option<usize> {
        let two = self.0.fixed_length()?.checked_add(self.1.fixed_length()?)?;
        two.checked_add(self.2.fixed_length()?)
    }

    fn write(&self, item: &Self::Item, bytes: &mut Vec<u8>) -> Result<(), StateError> {
        self.0.write(&item.0, bytes)?;
        self.1.write(&item.1, bytes)?;
        self.2.write(&item.2, bytes)
    }

    fn read(&self, bytes: &mut &[u8]) -> Result<Self::Item, StateError> {
        Ok((self.0.read(bytes)?, self.1.read(bytes)?, self.2.read(bytes)?))
    }
}

impl<A: KeySerializer, B: KeySerializer, C: KeySerializer> KeySerializer for Tuple3<A, B, C> {
    fn hash(&self, item: &Self::Item) -> i32 {
        next(next(self.0.hash(&item.0), self.1.hash(&item.1)), self.2.hash(&item.2))
    }
}

/// The first field's hash code, and 31 times what there is plus the next one's.
fn next(hash: i32, field: i32) -> i32 {
    hash.wrapping_mul(31).wrapping_add(field)
}
