//! The one test binary beyond the unit tests: the house's rules, stored formats, real mounts and real servers.

mod layers;
