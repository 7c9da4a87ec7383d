//! Who is at the other end of a connection, and so whose session it is.

use std::{fmt, fs};

use telecl_net::Stream;
use telecl_policy::{Policy, Tenant};
use tracing::warn;

use crate::process::peer_user;

/// Where user names are looked up. Other name services, such as LDAP, are not asked: that takes foreign code in this
/// process, and may take any time.
const PASSWD: &str = "/etc/passwd";

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) name: Option<String>,
}

impl User {
    /// Root, and whoever runs the service, see all sessions, and may end them.
    pub(crate) fn is_operator(&self) -> bool {
        self.id == 0 || self.id == rustix::process::geteuid().as_raw()
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.id),
        }
    }
}

/// Whoever has connected. On a Unix socket the kernel knows the user; over TCP nobody does.
pub(crate) fn user_of(stream: &Stream) -> Option<User> {
    if !stream.is_unix() {
        return None;
    }
    match peer_user(stream) {
        Ok(id) => Some(User { id, name: fs::read(PASSWD).ok().and_then(|passwd| user_name(&passwd, id)) }),
        Err(error) => {
            warn!(%error, "cannot find out who has connected to the Unix socket");
            None
        }
    }
}

/// The tenant of a user, or of somebody who is not known.
pub(crate) fn tenant_of(user: Option<&User>, policy: &Policy) -> Tenant {
    user.map_or_else(Tenant::anonymous, |user| policy.tenant_of_user(user.id, user.name.as_deref()))
}

/// The first name that a passwd file has for a user.
fn user_name(passwd: &[u8], uid: u32) -> Option<String> {
    passwd.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        // Lines that begin with these are for a name service that is no longer in use.
        if name.is_empty() || name.starts_with(b"+") || name.starts_with(b"-") {
            return None;
        }
        let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
        (number == uid).then(|| String::from_utf8(name.to_vec()).ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn names_come_from_the_passwd_file() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n# a comment\n+::0:0:::\nbroken:x\n:x:7::\nalice:x:1000:1000::/:/bin/sh\nagain:x:1000:1:::\nodd:x:-3:1::\n\xff\xfe:x:9:9:::";
        assert_eq!(user_name(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("alice"));
        for nobody in [1, 3, 7, 9, u32::MAX] {
            assert_eq!(user_name(passwd, nobody), None, "{nobody}");
        }
        assert_eq!(user_name(b"", 0), None);
    }

    #[test]
    fn the_peer_of_a_unix_socket_is_a_user() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let path = std::path::Path::new("policy.toml");
        let policy = Policy::parse(path, &format!("[users]\n{uid} = \"me\"\n")).unwrap();
        let user = user_of(&Stream::from_fd(ours.into())).unwrap();
        assert!(user.id == uid && user.is_operator());
        assert_eq!(tenant_of(Some(&user), &policy).as_str(), "me");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(user_of(&Stream::from_fd(tcp.into())), None);
        assert_eq!(tenant_of(None, &policy), Tenant::anonymous());
    }
}
