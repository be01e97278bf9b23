//! The protocol of a checkpoint's life: pure state machines and a thin driver.
