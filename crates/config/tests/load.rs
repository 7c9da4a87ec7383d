//! Whole configurations, right and wrong, as a driver or a service would meet them. No test touches
//! the real environment or a real configuration file.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use telecl_config::{
    Audit, Compression, Confine, CredentialFiles, DriverConfig, Environment, KEYS, ServeConfig, ServiceCredentialFiles,
    StateDir, StreamCount, Terms, WorkerMemory, WorkerUsers,
};

/// A directory of its own with the places where files are looked for, and variables to look them up by.
struct Place {
    root: PathBuf,
    variables: HashMap<String, OsString>,
}

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("telecl-config-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).unwrap();
        Place { root, variables: HashMap::new() }
    }

    fn set(mut self, name: &str, value: impl Into<OsString>) -> Place {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// Writes a file below the directory and gives its path.
    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn environment(&self) -> Environment<'_> {
        Environment::new(|name| self.variables.get(name).cloned()).with_system_file(self.root.join("etc/telecl.toml"))
    }

    fn driver(&self) -> Result<DriverConfig, String> {
        DriverConfig::load_from(&self.environment()).map_err(|error| error.to_string())
    }

    fn serve(&self) -> Result<ServeConfig, String> {
        ServeConfig::load_from(&self.environment()).map_err(|error| error.to_string())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).unwrap();
    }
}

/// The error for a file with this text, without the file's name, which it must begin with.
fn file_error(text: &str) -> String {
    let place = Place::new();
    let path = place.file("etc/telecl.toml", text);
    let message = place.driver().unwrap_err();
    assert_eq!(message, place.serve().unwrap_err(), "a file is wrong for everybody");
    assert!(!message.contains('\n'), "{message}");
    let rest = message.strip_prefix(&format!("{}, line ", path.display()));
    rest.unwrap_or_else(|| panic!("{message}")).to_owned()
}

fn services(config: &DriverConfig) -> Vec<String> {
    config.services.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_found_is_inert() {
    let place = Place::new();
    let config = place.driver().unwrap();
    assert_eq!(config, DriverConfig::default());
    assert!(config.is_inert() && config.source.is_none());
    assert_eq!(place.serve().unwrap(), ServeConfig::default());
    assert_eq!(place.serve().unwrap().listen[0].to_string(), "127.0.0.1:7701");
}

#[test]
fn a_file_sets_every_key() {
    let place = Place::new();
    let path = place.file(
        "etc/telecl.toml",
        r#"
        # What the driver of this node uses.
        services = ["node7", "[::1]:80", "unix:/run/telecl.sock"]
        connect_timeout = "500ms"
        strict = true
        compression = "off"
        debug = true

        [serve]
        listen = ["127.0.0.1:0", "unix:/run/telecl.sock"]
        platforms = ["NVIDIA"]
        devices = ["H200", "A100"]
        handshake_timeout = "1m"
        warm_workers = 3
        cache_dir = "/srv/telecl"
        cache_size = "10GiB"
        compression = "always"
        "#,
    );
    let driver = place.driver().unwrap();
    assert_eq!(services(&driver), ["node7:7701", "[::1]:80", "unix:/run/telecl.sock"]);
    assert_eq!((driver.connect_timeout, driver.strict, driver.debug), (Duration::from_millis(500), true, true));
    assert_eq!(driver.compression, Compression::Off);
    assert_eq!(driver.source.file.as_deref(), Some(path.as_path()));
    let serve = place.serve().unwrap();
    assert_eq!(serve.listen.len(), 2);
    assert_eq!((serve.platforms, serve.devices), (vec!["NVIDIA".to_owned()], vec!["H200".into(), "A100".into()]));
    assert_eq!(serve.handshake_timeout, Duration::from_secs(60));
    assert_eq!((serve.warm_workers, serve.cache_size), (3, 10 << 30));
    assert_eq!(serve.cache_dir.as_deref(), Some(Path::new("/srv/telecl")));
    assert_eq!(serve.compression, Compression::Always);
}

#[test]
fn programs_are_kept_in_the_user_s_cache_unless_told_otherwise() {
    let cache = |place: Place| place.serve().unwrap().cache_dir;
    let home = || Place::new().set("HOME", "/home/me");
    assert_eq!(cache(home()), Some("/home/me/.cache/telecl".into()));
    assert_eq!(cache(home().set("XDG_CACHE_HOME", "/cache")), Some("/cache/telecl".into()));
    assert_eq!(cache(home().set("XDG_CACHE_HOME", "relative")), Some("/home/me/.cache/telecl".into()));
    assert_eq!(cache(Place::new()), None);
    for off in ["", "none"] {
        assert_eq!(cache(home().set("TELECL_CACHE_DIR", off)), None);
    }
    assert_eq!(cache(home().set("TELECL_CACHE_DIR", "/srv")), Some("/srv".into()));
}

#[test]
fn the_environment_beats_the_file_key_by_key() {
    let place = Place::new().set("TELECL_SERVICES", "node8, node9:9").set("TELECL_STRICT", "1");
    place.file("etc/telecl.toml", "services = [\"node7\"]\nconnect_timeout = \"3s\"\nstrict = false");
    let config = place.driver().unwrap();
    assert_eq!(services(&config), ["node8:7701", "node9:9"]);
    assert_eq!((config.connect_timeout, config.strict), (Duration::from_secs(3), true));
    assert_eq!(config.source.variables, ["TELECL_SERVICES", "TELECL_STRICT"]);
}

#[test]
fn every_key_has_a_variable() {
    let place = Place::new()
        .set("TELECL_SERVICES", "unix:/run/a.sock")
        .set("TELECL_CONNECT_TIMEOUT", "1m")
        .set("TELECL_STRICT", "true")
        .set("TELECL_PLAIN_NAMES", "1")
        .set("TELECL_SHARED_MEMORY", "0")
        .set("TELECL_COMPRESSION", "always")
        .set("TELECL_STREAMS", "8")
        .set("TELECL_HEARTBEAT", "off")
        .set("TELECL_GRACE", "5s")
        .set("TELECL_CA", "/etc/telecl/ca.pem")
        .set("TELECL_CERTIFICATE", "/home/a/own.pem")
        .set("TELECL_KEY", "/home/a/own.key")
        .set("TELECL_TOKEN", "/home/a/token")
        .set("TELECL_SECRET", "/home/a/secret")
        .set("TELECL_INSECURE", "1")
        .set("TELECL_DEBUG", "1")
        .set("TELECL_LISTEN", "0.0.0.0:9")
        .set("TELECL_LOCAL_SOCKET", "false")
        .set("TELECL_PLATFORMS", "Portable Computing Language,Intel")
        .set("TELECL_DEVICES", "cpu")
        .set("TELECL_HANDSHAKE_TIMEOUT", "7s")
        .set("TELECL_WARM_WORKERS", "0")
        .set("TELECL_CACHE_DIR", "/cache")
        .set("TELECL_CACHE_SIZE", "1MiB")
        .set("TELECL_POLICY", "/etc/telecl/policy.toml")
        .set("TELECL_METRICS", "127.0.0.1:9701")
        .set("TELECL_ACCOUNTING", "/var/log/telecl.jsonl")
        .set("TELECL_SERVE_COMPRESSION", "off")
        .set("TELECL_SERVE_HEARTBEAT", "3s")
        .set("TELECL_SERVE_GRACE", "0s")
        .set("TELECL_CONFINE", "require")
        .set("TELECL_WORKER_UIDS", "5-7")
        .set("TELECL_WORKER_MEMORY", "1GiB")
        .set("TELECL_WORKER_PATHS", "/opt/vendor")
        .set("TELECL_STATE_DIR", "/var/lib/telecl")
        .set("TELECL_ORPHAN_GRACE", "0s")
        .set("TELECL_DRAIN_GRACE", "2m")
        .set("TELECL_SERVE_CERTIFICATE", "/etc/telecl/service.pem")
        .set("TELECL_SERVE_KEY", "/etc/telecl/service.key")
        .set("TELECL_CLIENT_CA", "/etc/telecl/clients.pem")
        .set("TELECL_TOKEN_KEYS", "/etc/telecl/token.pub")
        .set("TELECL_TOKEN_REVIEW", "/run/telecl-agent/review.sock")
        .set("TELECL_NODE_ADDRESS", "10.0.0.7")
        .set("TELECL_NODE_NAME", "node7")
        .set("TELECL_CONTAINER", "main")
        .set("TELECL_PROFILE", "small")
        .set("TELECL_REVOKED", "/etc/telecl/revoked")
        .set("TELECL_SERVE_SECRET", "/etc/telecl/secret")
        .set("TELECL_SECRET_TENANT", "team-red")
        .set("TELECL_REQUIRE_CREDENTIALS", "0")
        .set("TELECL_SERVE_INSECURE", "1")
        .set("TELECL_AUDIT", "stderr");
    let driver = place.driver().unwrap();
    assert_eq!((driver.connect_timeout, driver.strict), (Duration::from_secs(60), true));
    assert_eq!((driver.plain_names, driver.shared_memory, driver.debug), (true, false, true));
    assert_eq!(driver.streams, StreamCount::Exactly(8));
    let serve = place.serve().unwrap();
    assert_eq!((driver.compression, serve.compression), (Compression::Always, Compression::Off));
    let seconds = Duration::from_secs;
    assert_eq!(driver.terms, Terms { heartbeat: None, grace: seconds(5) });
    assert_eq!(serve.terms, Terms { heartbeat: Some(seconds(3)), grace: Duration::ZERO });
    assert_eq!((serve.listen[0].to_string().as_str(), serve.local_socket), ("0.0.0.0:9", false));
    assert_eq!(serve.platforms, ["Portable Computing Language", "Intel"]);
    assert_eq!((serve.devices, serve.handshake_timeout), (vec!["cpu".to_owned()], Duration::from_secs(7)));
    assert_eq!((serve.warm_workers, serve.cache_dir, serve.cache_size), (0, Some("/cache".into()), 1 << 20));
    assert_eq!(serve.policy, Some("/etc/telecl/policy.toml".into()));
    assert_eq!(serve.metrics.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:9701"));
    assert_eq!(serve.accounting, Some("/var/log/telecl.jsonl".into()));
    assert_eq!((serve.confine, serve.worker_uids), (Some(Confine::Require), WorkerUsers::Ids(5..=7)));
    assert_eq!((serve.worker_memory, serve.worker_paths), (WorkerMemory::Bytes(1 << 30), vec!["/opt/vendor".into()]));
    assert_eq!(serve.state_dir, StateDir::At("/var/lib/telecl".into()));
    assert_eq!((serve.orphan_grace, serve.drain_grace), (Duration::ZERO, Duration::from_secs(120)));
    let path = |path: &str| Some(path.into());
    let own = CredentialFiles {
        ca: path("/etc/telecl/ca.pem"),
        certificate: path("/home/a/own.pem"),
        key: path("/home/a/own.key"),
        token: path("/home/a/token"),
        secret: path("/home/a/secret"),
        insecure: true,
        container: Some("main".to_owned()),
        profile: Some("small".to_owned()),
    };
    assert_eq!(driver.node_address.as_deref(), Some("10.0.0.7"));
    assert_eq!((serve.node_name.as_deref(), serve.node_address.as_deref()), (Some("node7"), Some("10.0.0.7")));
    assert_eq!(driver.credentials, own);
    let service = ServiceCredentialFiles {
        certificate: path("/etc/telecl/service.pem"),
        key: path("/etc/telecl/service.key"),
        client_ca: path("/etc/telecl/clients.pem"),
        token_keys: path("/etc/telecl/token.pub"),
        revoked: path("/etc/telecl/revoked"),
        token_review: path("/run/telecl-agent/review.sock"),
        secret: path("/etc/telecl/secret"),
        secret_tenant: Some("team-red".to_owned()),
        require: Some(false),
        insecure: true,
    };
    assert_eq!((serve.credentials, serve.audit), (service, Some(Audit::Stderr)));
    assert_eq!(driver.source.variables, KEYS.iter().map(|key| key.variable).collect::<Vec<_>>());
}

#[test]
fn a_credential_that_stands_where_its_file_should_is_not_repeated() {
    let message = Place::new().set("TELECL_TOKEN", "telecl1.abc.def").driver().unwrap_err();
    assert!(message.contains("absolute path of a file") && !message.contains("abc"), "{message}");
    let place = Place::new();
    place.file("etc/telecl.toml", "[serve]\naudit = \"/var/log/telecl/audit.jsonl\"");
    assert_eq!(place.serve().unwrap().audit, Some(Audit::File("/var/log/telecl/audit.jsonl".into())));
    let message = Place::new().set("TELECL_AUDIT", "nowhere").serve().unwrap_err();
    assert!(message.contains("neither an absolute path nor"), "{message}");
}

#[test]
fn streams_are_a_few_or_as_many_as_pay() {
    for (text, streams) in
        [("\"auto\"", StreamCount::Auto), ("0", StreamCount::Exactly(0)), ("3", StreamCount::Exactly(3))]
    {
        let place = Place::new();
        place.file("etc/telecl.toml", format!("streams = {text}"));
        assert_eq!(place.driver().unwrap().streams, streams);
    }
    assert_eq!(Place::new().driver().unwrap().streams, StreamCount::Auto);
    for wrong in ["9", "-1", "many", "1.5"] {
        let message = Place::new().set("TELECL_STREAMS", wrong).driver().unwrap_err();
        assert!(message.contains("neither \"auto\" nor a whole number from 0 to 8"), "{message}");
    }
}

#[test]
fn an_empty_list_in_a_variable_is_a_list_and_other_empty_variables_are_none() {
    let place = Place::new().set("TELECL_SERVICES", "").set("TELECL_STRICT", "").set("TELECL_LISTEN", " ");
    place.file("etc/telecl.toml", "services = [\"node7\"]\nstrict = true");
    let config = place.driver().unwrap();
    assert!(config.is_inert(), "TELECL_SERVICES= switches the driver off");
    assert!(config.strict);
    assert_eq!(place.serve().unwrap().listen, ServeConfig::default().listen);
}

#[test]
fn the_first_file_that_exists_is_the_only_one() {
    let place = Place::new();
    let root = place.root.clone();
    let place = place
        .set("TELECL_SESSION_DIR", root.join("session"))
        .set("TELECL_CONFIG", root.join("given.toml"))
        .set("XDG_CONFIG_HOME", root.join("xdg"))
        .set("HOME", root.join("home"));
    let order = ["session/telecl.toml", "given.toml", "xdg/telecl/telecl.toml", "etc/telecl.toml"];
    for name in order {
        place.file(name, format!("services = [\"{}\"]", name.split(['/', '.']).next().unwrap()));
    }
    place.file("home/.config/telecl/telecl.toml", "services = [\"home\"]");
    let first = |place: &Place| services(&place.driver().unwrap())[0].clone();

    assert_eq!(first(&place), "session:7701");
    fs::remove_file(root.join(order[0])).unwrap();
    assert_eq!(first(&place), "given:7701");
    let place = place.set("TELECL_CONFIG", "");
    assert_eq!(first(&place), "xdg:7701");
    fs::remove_file(root.join(order[2])).unwrap();
    assert_eq!(first(&place), "etc:7701", "XDG_CONFIG_HOME takes the place of ~/.config");
    let place = place.set("XDG_CONFIG_HOME", "relative/path");
    assert_eq!(first(&place), "home:7701", "a relative XDG_CONFIG_HOME does not count");
}

#[test]
fn keys_are_not_mixed_from_two_files() {
    let place = Place::new();
    let root = place.root.clone();
    let place = place.set("XDG_CONFIG_HOME", root.join("xdg"));
    place.file("xdg/telecl/telecl.toml", "strict = true");
    place.file("etc/telecl.toml", "services = [\"node7\"]");
    let config = place.driver().unwrap();
    assert!(config.strict && config.is_inert());
}

#[test]
fn a_file_given_on_the_command_line_beats_the_others() {
    let place = Place::new();
    let root = place.root.clone();
    let place = place.set("TELECL_CONFIG", root.join("other.toml"));
    let given = place.file("given.toml", "services = [\"node7\"]");
    let config = DriverConfig::load_from(&place.environment().with_file(&given)).unwrap();
    assert_eq!(config.source.file, Some(given));
    let error = DriverConfig::load_from(&place.environment().with_file("/nowhere.toml")).unwrap_err();
    assert_eq!(error.to_string(), "--config names /nowhere.toml, which does not exist");
}

#[test]
fn inside_a_service_the_driver_is_inert_whatever_the_rest_says() {
    let place = Place::new().set("TELECL_INSIDE_SERVICE", "").set("TELECL_SERVICES", "::::");
    place.file("etc/telecl.toml", "nonsense");
    assert_eq!(place.driver(), Ok(DriverConfig::default()));
}

#[test]
fn unknown_keys_name_the_line_and_the_nearest_key() {
    for (text, expected) in [
        ("# first line\nservice = []", "2: unknown key \"service\" (did you mean \"services\"?)"),
        ("connect-timeout = \"2s\"", "1: unknown key \"connect-timeout\" (did you mean \"connect_timeout\"?)"),
        ("colour = 1", "1: unknown key \"colour\""),
        ("listen = []", "1: unknown key \"listen\" (listen belongs to the table [serve])"),
        (
            "[serve]\nstrict = true",
            "2: unknown key \"serve.strict\" (strict stands at the top of the file, before any table)",
        ),
        ("[serve]\n\nlistn = []", "3: unknown key \"serve.listn\" (did you mean \"listen\"?)"),
        ("serve.divices = []", "1: unknown key \"serve.divices\" (did you mean \"devices\"?)"),
        ("[server]\nlisten = []", "1: unknown key \"server\" (did you mean \"serve\"?)"),
        ("zeta = 1\nalpha = 1", "1: unknown key \"zeta\""),
        ("\"\" = 1", "1: unknown key \"\""),
    ] {
        assert_eq!(file_error(text), expected, "{text}");
    }
}

#[test]
fn wrong_values_name_the_line_the_key_and_what_was_expected() {
    for (text, expected) in [
        ("services = \"node7\"", "1: services: is a text; expected a list of texts such as"),
        ("services = [\n  \"node7\",\n  7,\n]", "1: services: holds a number; expected a list of texts"),
        ("services = [\"node7:port\"]", "1: services: address \"node7:port\" has a port that is not a number"),
        ("services = [\"\"]", "1: services: address is empty"),
        ("services = [\"::1\"]", "1: services: address \"::1\" needs brackets"),
        ("services = [\"unix:relative\"]", "1: services: address \"unix:relative\" needs an absolute path"),
        ("services = [\"node7:0\"]", "1: services: address \"node7:0\" has port 0"),
        ("connect_timeout = 2", "1: connect_timeout: is a number without a unit; write a text such as"),
        ("connect_timeout = 2.5", "1: connect_timeout: is a number without a unit"),
        ("connect_timeout = \"2 parsecs\"", "1: connect_timeout: \"2 parsecs\" is not a duration"),
        ("connect_timeout = \"0s\"", "1: connect_timeout: \"0s\" is no time at all"),
        ("connect_timeout = true", "1: connect_timeout: is true or false; expected a duration"),
        ("connect_timeout = 2026-01-01", "1: connect_timeout: is a date; expected a duration"),
        ("strict = \"true\"", "1: strict: is a text; expected true or false, without quotes"),
        ("strict = 1", "1: strict: is a number; expected true or false"),
        ("debug = []", "1: debug: is a list; expected true or false"),
        ("[debug]\nx = 1", "1: debug: is a table; expected true or false"),
        ("serve = true", "1: serve: is true or false; expected a table: [serve]"),
        ("[[serve]]\nlisten = []", "1: serve: is a list; expected a table"),
        ("[serve]\nlisten = []", "2: serve.listen: needs at least one address"),
        ("[serve]\nlisten = [\":7701\"]", "2: serve.listen: address \":7701\" has no host"),
        ("[serve]\ndevices = [\"\"]", "2: serve.devices: has an empty name in its list"),
        ("[serve]\nplatforms = \"NVIDIA\"", "2: serve.platforms: is a text; expected a list"),
        ("[serve]\nhandshake_timeout = 5", "2: serve.handshake_timeout: is a number without a unit"),
    ] {
        let message = file_error(text);
        assert!(message.starts_with(expected), "{text}\n  {message}");
    }
}

#[test]
fn bad_toml_names_the_line() {
    for (text, line) in [
        ("services = [", 1),
        ("\n\nservices", 3),
        ("services = []\nservices = []", 2),
        ("strict = yes", 1),
        ("[serve", 1),
        ("[serve]\n[serve]", 2),
        ("services = [\"node7]\n", 1),
    ] {
        let message = file_error(text);
        assert!(message.starts_with(&format!("{line}: not valid TOML: ")), "{text}\n  {message}");
    }
}

#[test]
fn a_file_that_is_not_text_is_refused() {
    let place = Place::new();
    place.file("etc/telecl.toml", b"strict = true\n\xff\xfe");
    let message = place.driver().unwrap_err();
    assert!(message.ends_with("line 2: not valid TOML: the text is not UTF-8"), "{message}");
}

#[test]
fn an_empty_file_is_a_configuration_of_defaults() {
    let place = Place::new();
    let path = place.file("etc/telecl.toml", "");
    let config = place.driver().unwrap();
    assert!(config.is_inert());
    assert_eq!(config.source.file, Some(path));
}

#[test]
fn a_directory_in_place_of_a_file_is_refused() {
    let place = Place::new();
    fs::create_dir_all(place.root.join("etc/telecl.toml")).unwrap();
    let message = place.driver().unwrap_err();
    assert!(message.ends_with("etc/telecl.toml is a directory, not a configuration file"), "{message}");
}

#[test]
fn a_pipe_does_not_make_programs_wait() {
    let place = Place::new();
    let path = place.root.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let place = place.set("TELECL_CONFIG", &path);
    assert!(place.driver().unwrap_err().ends_with("is a pipe, socket or disk, not a configuration file"));
}

#[test]
fn endless_files_are_not_read_to_their_end() {
    let place = Place::new().set("TELECL_CONFIG", "/dev/zero");
    assert_eq!(place.driver().unwrap_err(), "/dev/zero is larger than 1048576 bytes");
    let place = place.set("TELECL_CONFIG", "/dev/null");
    assert!(place.driver().unwrap().is_inert());
}

#[test]
fn the_file_in_telecl_config_must_exist() {
    let place = Place::new().set("TELECL_CONFIG", "/nowhere/telecl.toml");
    place.file("etc/telecl.toml", "");
    let message = place.driver().unwrap_err();
    assert_eq!(message, "TELECL_CONFIG names /nowhere/telecl.toml, which does not exist");
}

#[test]
fn a_session_directory_without_a_file_is_passed_over() {
    let place = Place::new().set("TELECL_SESSION_DIR", "/nowhere");
    place.file("etc/telecl.toml", "services = [\"node7\"]");
    assert_eq!(services(&place.driver().unwrap()), ["node7:7701"]);
}

#[test]
fn a_file_that_may_not_be_read_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let path = place.file("etc/telecl.toml", "");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        return; // The superuser may read everything; there is nothing to test.
    }
    let message = place.driver().unwrap_err();
    assert!(message.starts_with(&format!("cannot read {}: Permission denied", path.display())), "{message}");
}

#[test]
fn a_wrong_variable_names_itself() {
    for (variable, value, part) in [
        ("TELECL_SERVICES", "node7,node8:port", "address \"node8:port\""),
        ("TELECL_SERVICES", "node7,", "address is empty"),
        ("TELECL_CONNECT_TIMEOUT", "2", "\"2\" is not a duration"),
        ("TELECL_STRICT", "yes", "\"yes\" is neither true (or 1) nor false (or 0)"),
        ("TELECL_DEBUG", "on", "\"on\" is neither"),
        ("TELECL_LISTEN", ":7701", "no host"),
        ("TELECL_DEVICES", "a,,b", "empty name"),
        ("TELECL_HANDSHAKE_TIMEOUT", "soon", "not a duration"),
        ("TELECL_WARM_WORKERS", "many", "not a whole number"),
        ("TELECL_CACHE_DIR", "here", "neither an absolute path"),
        ("TELECL_CACHE_SIZE", "1", "not a size"),
        ("TELECL_COMPRESSION", "on", "\"on\" is none of auto, off and always"),
        ("TELECL_SERVE_COMPRESSION", "1", "none of auto, off and always"),
    ] {
        let message = Place::new().set(variable, value).driver().unwrap_err();
        assert!(message.starts_with(&format!("{variable}: ")) && message.contains(part), "{message}");
    }
    let message = Place::new().set("TELECL_SERVICES", OsString::from_vec(vec![0xff])).driver().unwrap_err();
    assert_eq!(message, "TELECL_SERVICES: is not UTF-8");
}

#[test]
fn the_documentation_names_every_key_and_variable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    for key in KEYS {
        assert!(text.contains(&format!("| `{}` |", key.name)), "key {}", key.name);
    }
    for variable in telecl_config::variables() {
        assert!(text.contains(&format!("`{variable}`")), "variable {variable}");
    }
}
