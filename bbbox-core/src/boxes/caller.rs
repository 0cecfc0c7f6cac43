//! Who asks: what they may see, and how people read of them.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::{
    error::Result,
    id::{RequestId, ThreadId},
    record::BoxRecord,
};

/// Who asks for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Caller {
    /// The person it works for: sees and may do everything.
    #[default]
    Person,
    /// A command or a program of that person's.
    Command,
    /// An agent in a thread: sees its own thread's boxes only.
    Thread(ThreadId),
}

impl Caller {
    /// The caller in the words of the box log.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Person => "by you".to_owned(),
            Self::Command => "by a bbbox command".to_owned(),
            Self::Thread(thread) => format!("by the agent in {thread}"),
        }
    }

    /// A caller's own ID for a request, so that it meets no other caller's.
    pub(crate) fn scoped(&self, request: RequestId) -> Result<RequestId> {
        match self {
            Self::Person | Self::Command => Ok(request),
            Self::Thread(thread) => {
                let thread = hex::encode(digest(&SHA256, thread.as_str().as_bytes()));
                RequestId::parse(format!("thread:{:.16}/{request}", thread))
            }
        }
    }

    /// Whether `record` is a box for this caller to see and use.
    #[must_use]
    pub fn may_see(&self, record: &BoxRecord) -> bool {
        match self {
            Self::Person | Self::Command => true,
            Self::Thread(thread) => record.thread.as_ref() == Some(thread),
        }
    }
}
