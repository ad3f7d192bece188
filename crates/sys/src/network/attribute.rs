//! Settings of the devices of a pair that can be written and read back.

use std::io;
use std::path::PathBuf;

use super::{Offload, PairEnd};
use crate::ethtool;
use crate::kernel_file;

/// A setting of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `on` or `off`.
    Offload(Offload),
    /// A file of `/sys/class/net/DEVICE`.
    File(&'static str),
}

impl Attribute {
    /// Its location, for lists.
    pub fn place(self) -> String {
        match self {
            Attribute::Offload(offload) => format!("the feature {} of both devices (ethtool)", word(offload)),
            Attribute::File(file) => format!("/sys/class/net/DEVICE/{file} of both devices"),
        }
    }
}

fn word(offload: Offload) -> &'static str {
    match offload {
        Offload::Tso => "tso",
        Offload::Gso => "gso",
        Offload::Gro => "gro",
    }
}

impl PairEnd {
    /// The name of `attribute` on this device, for messages and records.
    pub fn called(&self, attribute: Attribute) -> String {
        let device = self.side.device();
        match attribute {
            Attribute::Offload(offload) => format!("{} of {device} ({})", word(offload), self.side.name()),
            Attribute::File(_) => format!("{} ({})", self.path(attribute).display(), self.side.name()),
        }
    }

    fn path(&self, attribute: Attribute) -> PathBuf {
        let file = if let Attribute::File(file) = attribute { file } else { "" };
        PathBuf::from("/sys/class/net").join(self.side.device()).join(file)
    }

    /// The current value of `attribute`.
    ///
    /// # Errors
    /// The kernel does not have it.
    pub fn read(&self, attribute: Attribute) -> io::Result<String> {
        let device = self.side.device();
        self.visit(|| match attribute {
            Attribute::Offload(offload) => Ok(if ethtool::is_on(device, offload)? { "on" } else { "off" }.to_owned()),
            Attribute::File(_) => Ok(kernel_file::read(&self.path(attribute))?.trim().to_owned()),
        })?
    }

    /// Sets it. The caller must read it back to see whether the kernel accepted it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn write(&self, attribute: Attribute, text: &str) -> io::Result<()> {
        let device = self.side.device();
        self.visit(|| match attribute {
            Attribute::Offload(offload) => ethtool::set(device, offload, text == "on"),
            Attribute::File(_) => kernel_file::write(&self.path(attribute), text),
        })?
    }
}
