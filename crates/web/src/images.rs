//! The images that a guest's server starts from: its programs. Its documents are made in the guest.

use anyhow::Result;

use bigiron_archive::Store;
use bigiron_model::refusal::Refusal;
use bigiron_service::guest_tree;
use bigiron_workload::{ImageContext, Images, limits};

use crate::server::TrialServer;
use crate::settings::{Settings, WebServer};

/// The images for a trial with `settings`; makes missing ones.
///
/// # Errors
/// The server is unavailable or does not answer, or this machine allows too few open files.
pub fn of(settings: &Settings, cx: &ImageContext<'_>) -> Result<Images> {
    let mut images = Images::default();
    if cx.filesystem.is_none() {
        // Refused here, before the first trial; in a guest, root may raise it.
        limits::allow_files(settings.files())?;
    }
    let Some(recipe) = settings.server.recipe() else {
        if let WebServer::Url(url) = &settings.server {
            // Refused here if it does not answer: every trial would fail.
            TrialServer::existing(url, settings).map_err(|error| Refusal::new(format!("{error:#}")))?;
            images.foundation.insert("server".to_owned(), url.to_string());
        }
        return Ok(images);
    };
    let store = Store::open()?;
    let root = guest_tree::find(&store, recipe, &settings.series, cx, &mut images)?;
    if cx.filesystem.is_some() {
        images.images.push(guest_tree::image(&store, recipe, &root, cx)?);
    }
    Ok(images)
}
