//! Local files by digest: link in, fetch, verify.
