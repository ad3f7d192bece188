//! What can be set of the devices of a pair, and read back.

use std::io;
use std::path::PathBuf;

use super::{Offload, PairEnd};
use crate::ethtool;
use crate::kernel_file;

/// Something that can be set of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `on` or `off`.
    Offload(Offload),
    /// A file of `/sys/class/net/DEVICE`.
    File(&'static str),
}

impl Attribute {
    /// Where it is, for lists.
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
    /// What `attribute` is called here, for messages and records.
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

    /// What `attribute` is.
    ///
    /// # Errors
    /// The kernel has none such.
    pub fn read(&self, attribute: Attribute) -> io::Result<String> {
        let device = self.side.device();
        self.visit(|| match attribute {
            Attribute::Offload(offload) => Ok(if ethtool::is_on(device, offload)? { "on" } else { "off" }.to_owned()),
            Attribute::File(_) => Ok(kernel_file::read(&self.path(attribute))?.trim().to_owned()),
        })?
    }

    /// Sets it. Whether the kernel took it is to be read back.
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
