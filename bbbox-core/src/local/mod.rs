//! The reference backend: boxes as processes on this machine (Linux only).
//!
//! It is for trying bb-box and for testing it, **not for code that you do not trust**. What a box gets depends on
//! what the machine grants, is recorded when the box is made, and is never less later:
//!
//! | | with namespaces | with none |
//! |---|---|---|
//! | processes | its own; PID 1 takes orphans, and a stop ends all | this machine's; a stop ends those whose environment names the box |
//! | files | `/usr`, `/etc`, `/opt` of this machine, read-only; a home; all else in memory, private, gone when it stops | this machine's, as the user that bb-box runs as |
//! | home | `/home/box`, kept until release | a folder, kept until release |
//! | user | root: without dangerous capabilities where bb-box is root, else only over the box itself | the user that bb-box runs as |
//! | devices | `null`, `zero`, `full`, `random`, `urandom`, `tty`, its own `pts` | this machine's |
//! | network | this machine's, its loopback and abstract sockets too | this machine's |
//! | size | recorded and counted, **never enforced** | the same |
//!
//! Namespaces come from util-linux (`unshare`, `nsenter`, `setpriv`): as root, or else with user namespaces. Where
//! root makes them, a box can still read what root can below `/etc` and `/usr`.
//!
//! `kill 1` in a box with namespaces shuts it down. A guest is a folder below [`LocalConfig::dir`], and it runs
//! while its *keeper*, its first process, is alive. Installs may share the folder.

mod backend;
mod client;
mod config;
mod folder;
mod map;
mod transport;

pub use backend::Local;
pub use config::{Isolation, LocalConfig};
