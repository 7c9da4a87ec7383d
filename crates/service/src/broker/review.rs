//! Tokens of Kubernetes' service accounts: somebody else, at a Unix socket, knows whether one is good, and whose it is.
//!
//! A question is a line of JSON and so is its answer, and then the connection is closed. It is asked by the thread of the
//! connection that shows the token, so nobody else waits for it. What the token says of itself is not looked at here.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use telecl_policy::Tenant;
use tracing::warn;

use super::peer::Refusal;

/// How long an answer may take: the reviewer asks the API server, and has its own patience for that.
const PATIENCE: Duration = Duration::from_secs(4);

/// No answer is longer.
const LONGEST: u64 = 64 << 10;

/// Words that a driver says beside its token are no longer than names in Kubernetes.
const LONGEST_NAME: usize = 253;

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pod {
    /// The pod that the token is bound to.
    pub(crate) name: String,
    pub(crate) uid: String,
    /// As the driver says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<String>,
}

impl Pod {
    /// `pod`, or `pod/container`.
    pub(crate) fn path(&self) -> String {
        match &self.container {
            Some(container) => format!("{}/{container}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Who somebody is by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reviewed {
    pub(crate) tenant: Tenant,
    /// `system:serviceaccount:NAMESPACE:NAME`.
    pub(crate) subject: String,
    /// Tokens that were not made for a pod have none.
    pub(crate) pod: Option<Pod>,
}

#[derive(Debug, Serialize)]
struct Question<'a> {
    token: &'a str,
    profile: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Known(Known),
    Refused { refused: String, message: String },
}

#[derive(Debug, Deserialize)]
struct Known {
    namespace: String,
    service_account: String,
    #[serde(default)]
    pod: Option<String>,
    #[serde(default)]
    pod_uid: Option<String>,
    /// The profile that holds, if the one that was wished for is known.
    #[serde(default)]
    profile: Option<String>,
}

/// What a driver shows: a token, and words beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Presented<'a> {
    pub(crate) token: &'a str,
    container: Option<&'a str>,
    profile: Option<&'a str>,
}

impl<'a> Presented<'a> {
    /// Takes apart `TOKEN container=NAME profile=NAME`. Words that are no names are left out.
    pub(crate) fn parse(shown: &'a str) -> Presented<'a> {
        let mut words = shown.split(' ');
        let mut presented = Presented { token: words.next().unwrap_or_default(), ..Presented::default() };
        for word in words {
            match word.split_once('=') {
                Some(("container", name)) if is_name(name) => presented.container = Some(name),
                Some(("profile", name)) if is_name(name) => presented.profile = Some(name),
                _ => {}
            }
        }
        presented
    }
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(plain)
}

/// Asks whose token it is.
pub(crate) fn review(socket: &Path, shown: &Presented<'_>, deadline: Instant) -> Result<Reviewed, Refusal> {
    let deadline = deadline.min(Instant::now() + PATIENCE);
    let answer = ask(socket, shown, deadline).map_err(|error| {
        warn!(socket = %socket.display(), %error, "cannot have a Kubernetes token reviewed");
        let text = "nobody could check your Kubernetes token: the service's agent does not answer; try again, and tell \
             whoever runs the cluster if it stays so (telecl-kube agent)";
        Refusal { code: "kube_reviewer_unreachable", text: text.to_owned() }
    })?;
    match answer {
        Answer::Refused { refused, message } => Err(Refusal { code: code(&refused), text: message }),
        Answer::Known(known) => known.accept(shown).map_err(|reason| {
            warn!(socket = %socket.display(), reason, "the reviewer of Kubernetes tokens answers nonsense");
            let text = format!("your Kubernetes token was checked, but its owner cannot be a tenant: {reason}");
            Refusal { code: "kube_token_invalid", text }
        }),
    }
}

impl Known {
    fn accept(self, shown: &Presented<'_>) -> Result<Reviewed, String> {
        let Known { namespace, service_account, pod, pod_uid, profile } = self;
        if !is_name(&namespace) || !is_name(&service_account) {
            return Err("its namespace or its service account has no name".to_owned());
        }
        // What nobody has asked for, nobody gets.
        let profile = profile.filter(|profile| shown.profile == Some(profile.as_str()));
        let tenant = Tenant::of_service_account(&namespace, &service_account, profile.as_deref());
        let tenant = tenant.map_err(|error| error.to_string())?;
        let container = shown.container.map(str::to_owned);
        let pod = pod.filter(|name| is_name(name)).zip(pod_uid.filter(|uid| is_name(uid)));
        let pod = pod.map(|(name, uid)| Pod { name, uid, container });
        Ok(Reviewed { tenant, subject: format!("system:serviceaccount:{namespace}:{service_account}"), pod })
    }
}

/// For the audit: one of a few, whatever the reviewer says.
fn code(refused: &str) -> &'static str {
    match refused {
        "expired" => "kube_token_expired",
        "audience" => "kube_token_audience",
        "gone" => "kube_token_pod_gone",
        "locality" => "kube_token_locality",
        "unreachable" => "kube_reviewer_unreachable",
        _ => "kube_token_invalid",
    }
}

fn ask(socket: &Path, shown: &Presented<'_>, deadline: Instant) -> io::Result<Answer> {
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(left()))?;
    let mut question = serde_json::to_vec(&Question { token: shown.token, profile: shown.profile })?;
    question.push(b'\n');
    stream.write_all(&question)?;
    stream.set_read_timeout(Some(left()))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use super::*;

    /// A socket where one question gets this answer; what was asked comes back.
    fn answering(answer: &'static str) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<String>) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("review.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(peer.try_clone().unwrap()).read_line(&mut line).unwrap();
            peer.write_all(answer.as_bytes()).unwrap();
            line
        });
        (place, path, asked)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn a_good_token_makes_a_tenant_with_its_pod() {
        let (_place, path, asked) = answering(
            "{\"namespace\":\"team-a\",\"service_account\":\"default\",\"pod\":\"train-0\",\"pod_uid\":\"77-ab\",\"profile\":\"small\"}\n",
        );
        let shown = Presented::parse("eyJ9.eyJ9.c2ln container=main profile=small x=y");
        let found = review(&path, &shown, soon()).unwrap();
        assert_eq!(found.tenant.as_str(), "team-a/default@small");
        assert_eq!(found.subject, "system:serviceaccount:team-a:default");
        assert_eq!(found.pod.unwrap().path(), "train-0/main");
        assert_eq!(asked.join().unwrap(), "{\"token\":\"eyJ9.eyJ9.c2ln\",\"profile\":\"small\"}\n");
    }

    #[test]
    fn words_that_are_no_names_are_left_out() {
        let shown = Presented::parse("t container=a/b profile=");
        assert_eq!(shown, Presented { token: "t", container: None, profile: None });
        // A profile that the driver has not asked for is not believed.
        let (_place, path, asked) =
            answering("{\"namespace\":\"a\",\"service_account\":\"b\",\"profile\":\"large\",\"pod\":\"p\"}\n");
        let found = review(&path, &shown, soon()).unwrap();
        assert_eq!((found.tenant.as_str(), found.pod), ("a/b", None));
        asked.join().unwrap();
    }

    #[test]
    fn every_refusal_has_its_own_reason() {
        for (answer, expected) in [
            ("{\"refused\":\"expired\",\"message\":\"too old\"}\n", "kube_token_expired"),
            ("{\"refused\":\"audience\",\"message\":\"for others\"}\n", "kube_token_audience"),
            ("{\"refused\":\"gone\",\"message\":\"its pod is gone\"}\n", "kube_token_pod_gone"),
            ("{\"refused\":\"locality\",\"message\":\"other node\"}\n", "kube_token_locality"),
            ("{\"refused\":\"unreachable\",\"message\":\"no API server\"}\n", "kube_reviewer_unreachable"),
            ("{\"refused\":\"<script>\",\"message\":\"no\"}\n", "kube_token_invalid"),
            ("{\"namespace\":\"a b\",\"service_account\":\"c\"}\n", "kube_token_invalid"),
            ("nonsense\n", "kube_reviewer_unreachable"),
            ("", "kube_reviewer_unreachable"),
        ] {
            let (_place, path, asked) = answering(answer);
            let refusal = review(&path, &Presented::parse("t"), soon()).unwrap_err();
            assert_eq!(refusal.code, expected, "{answer}");
            assert!(!refusal.text.is_empty());
            asked.join().unwrap();
        }
        let nobody = review(Path::new("/nonexistent/review.sock"), &Presented::parse("t"), soon()).unwrap_err();
        assert_eq!(nobody.code, "kube_reviewer_unreachable");
    }

    #[test]
    fn a_reviewer_that_does_not_answer_is_not_waited_for_longer_than_allowed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("review.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let began = Instant::now();
        let refusal = review(&path, &Presented::parse("t"), Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert_eq!(refusal.code, "kube_reviewer_unreachable");
        assert!(began.elapsed() < Duration::from_secs(3));
    }
}
