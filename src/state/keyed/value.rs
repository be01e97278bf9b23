//! One value per key and namespace: as it is, folded by a function, or an accumulator.

use std::fmt;
use std::sync::Arc;

use super::handle::Handle;
use crate::state::error::StateError;
use crate::state::serializer::Serializer;

/// A value of the current key.
#[derive(Clone)]
pub struct ValueState<N, V> {
    pub(super) handle: Handle<N>,
    pub(super) value: V,
}

impl<N: Serializer, V: Serializer> ValueState<N, V> {
    /// The value, where there is one.
    ///
    /// # Errors
    /// When no key is set, the value is damaged, or RocksDB cannot read.
    pub fn get(&self, namespace: &N::Item) -> Result<Option<V::Item>, StateError> {
        self.handle.item(&self.handle.row(namespace)?, &[], &self.value)
    }

    /// Sets the value.
    ///
    /// # Errors
    /// When no key is set, the value cannot be written, or RocksDB cannot write.
    pub fn set(&self, namespace: &N::Item, item: &V::Item) -> Result<(), StateError> {
        let value = self.handle.value(Vec::new(), &self.value, item)?;
        self.handle.put(self.handle.row(namespace)?, value)
    }

    /// Removes the value.
    ///
    /// # Errors
    /// When no key is set, or RocksDB cannot write.
    pub fn clear(&self, namespace: &N::Item) -> Result<(), StateError> {
        self.handle.delete(self.handle.row(namespace)?)
    }
}

/// Folds a further value into the one that is there.
pub(super) type Reduce<T> = Arc<dyn Fn(&T, &T) -> T + Send + Sync>;

/// A value of the current key that all further ones are folded into.
#[derive(Clone)]
pub struct ReducingState<N, V: Serializer> {
    pub(super) state: ValueState<N, V>,
    pub(super) reduce: Reduce<V::Item>,
}

impl<N: Serializer, V: Serializer> ReducingState<N, V> {
    /// Folds an item in; the first is taken as it is.
    ///
    /// # Errors
    /// As [`ValueState::get`] and [`ValueState::set`].
    pub fn add(&self, namespace: &N::Item, item: &V::Item) -> Result<(), StateError> {
        match self.state.get(namespace)? {
            Some(before) => self.state.set(namespace, &(self.reduce)(&before, item)),
            None => self.state.set(namespace, item),
        }
    }

    /// The value, where there is one.
    ///
    /// # Errors
    /// As [`ValueState::get`].
    pub fn get(&self, namespace: &N::Item) -> Result<Option<V::Item>, StateError> {
        self.state.get(namespace)
    }

    /// Removes the value.
    ///
    /// # Errors
    /// As [`ValueState::clear`].
    pub fn clear(&self, namespace: &N::Item) -> Result<(), StateError> {
        self.state.clear(namespace)
    }
}

/// How values are folded into an accumulator of another type.
pub trait Aggregate: Send + Sync + 'static {
    /// What is folded in.
    type Input;
    /// What is stored.
    type Accumulator;
    /// What comes out.
    type Output;

    /// An accumulator that nothing was folded into.
    fn create(&self) -> Self::Accumulator;
    /// Folds an input in.
    fn add(&self, accumulator: &mut Self::Accumulator, input: &Self::Input);
    /// What an accumulator amounts to.
    fn result(&self, accumulator: &Self::Accumulator) -> Self::Output;
}

/// An accumulator of the current key.
pub struct AggregatingState<N, V, A> {
    pub(super) state: ValueState<N, V>,
    pub(super) function: Arc<A>,
}

impl<N: Serializer, V: Serializer, A: Aggregate<Accumulator = V::Item>> AggregatingState<N, V, A> {
    /// Folds an input in.
    ///
    /// # Errors
    /// As [`ValueState::get`] and [`ValueState::set`].
    pub fn add(&self, namespace: &N::Item, input: &A::Input) -> Result<(), StateError> {
        let mut accumulator = self.state.get(namespace)?.unwrap_or_else(|| self.function.create());
        self.function.add(&mut accumulator, input);
        self.state.set(namespace, &accumulator)
    }

    /// The result, where something was folded in.
    ///
    /// # Errors
    /// As [`ValueState::get`].
    pub fn get(&self, namespace: &N::Item) -> Result<Option<A::Output>, StateError> {
        Ok(self.state.get(namespace)?.map(|accumulator| self.function.result(&accumulator)))
    }

    /// Removes the accumulator.
    ///
    /// # Errors
    /// As [`ValueState::clear`].
    pub fn clear(&self, namespace: &N::Item) -> Result<(), StateError> {
        self.state.clear(namespace)
    }
}

impl<N: Clone, V: Clone, A> Clone for AggregatingState<N, V, A> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), function: Arc::clone(&self.function) }
    }
}

impl<N, V> fmt::Debug for ValueState<N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueState").field(&self.handle).finish()
    }
}

impl<N, V: Serializer> fmt::Debug for ReducingState<N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReducingState").field(&self.state).finish()
    }
}

impl<N, V, A> fmt::Debug for AggregatingState<N, V, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AggregatingState").field(&self.state).finish()
    }
}
