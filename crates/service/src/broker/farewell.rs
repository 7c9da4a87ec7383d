//! The last words to a driver that gets no worker.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use telecl_net::{Stream, Terms};
use telecl_wire::reply::Closing;
use tracing::debug;

/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells a driver, which has sent its first request, why nothing comes of it. With `policy`, because somebody wants it
/// so. Takes the connection over as a worker would: the driver may listen in shared memory by now.
pub(crate) fn close(stream: Stream, reason: &str, policy: bool) {
    let deadline = Instant::now() + PATIENCE;
    let said = || -> Result<(), telecl_net::ReceiveError> {
        // Whoever sends half a frame is not waited for.
        stream.set_receive_timeout(Some(PATIENCE))?;
        stream.set_send_timeout(Some(PATIENCE))?;
        let (mut sender, _receiver) = telecl_net::accept(stream.try_clone()?, Terms::default())?;
        sender.hurry(PATIENCE)?;
        sender.send(&Closing { reason, policy }, &[])?;
        Ok(())
    };
    if let Err(error) = said() {
        // The driver may have left meanwhile.
        return debug!(%error, "a driver could not be told why its session ends");
    }
    // A socket that is closed with something unread in it resets the connection, and what was just said may be lost.
    let _ = shutdown(&stream, Shutdown::Write);
    let mut unread = vec![0; 16 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let ready = poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&left));
        if !ready.is_ok_and(|count| count > 0) {
            return;
        }
        match recv(&stream, &mut *unread, RecvFlags::DONTWAIT) {
            Ok((_, n)) if n > 0 => {}
            _ => return,
        }
    }
}
