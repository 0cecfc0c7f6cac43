//! A box's display, as a relay needs it: how to reach it and how to sign in.

use async_trait::async_trait;
use secrecy::SecretString;

use crate::{error::Result, kind::DisplayAbility, route::Route};

/// How a relay signs in to a display. Viewers never see it.
#[derive(Debug)]
pub enum SignIn {
    /// No authentication.
    None,
    /// VNC authentication with this password.
    VncPassword(SecretString),
    /// A user and a password.
    User {
        /// The user's name.
        name: String,
        /// The user's password.
        password: SecretString,
    },
}

/// One display of one box.
#[async_trait]
pub trait Display: Send + Sync {
    /// Its ID, its protocol and whether it can be resized.
    fn ability(&self) -> DisplayAbility;

    /// A route for one connection, and how to sign in on it.
    ///
    /// - *Errors*: `Gone` or `Unavailable`.
    async fn open(&self) -> Result<(Route, SignIn)>;
}
