//! Durable local files: publish, link, list, lock, extended attributes. The only home of `unsafe`.
