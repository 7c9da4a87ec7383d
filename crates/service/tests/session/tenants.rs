//! What a policy does to sessions: who they are, what they see, whether there is room, when they end.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use telecl_net::{FrameReceiver, FrameSender};
use telecl_sys::*;
use telecl_wire::handshake::{Handshake, Refused, Welcome};
use telecl_wire::request::{
    Check, CreateContext, CreateQueue, CreateSubDevices, CreateUserEvent, DeviceTimers, Kind, Message, Query,
    SetUserEventStatus, Target, WriteBuffer,
};
use telecl_wire::{Ids, WireId};

use crate::broker::until;
use crate::client::{Broker, Client, Command_, Link, choose, hello};

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_session_is_that_of_its_user", a_session_is_that_of_its_user),
    ("a_device_that_is_not_granted_is_not_there", a_device_that_is_not_granted_is_not_there),
    ("a_tenant_without_devices_is_refused_with_a_reason", a_tenant_without_devices_is_refused_with_a_reason),
    ("a_greeting_takes_no_room", a_greeting_takes_no_room),
    ("a_session_too_many_is_told_why_over_every_link", a_session_too_many_is_told_why_over_every_link),
    ("a_session_waits_for_its_turn", a_session_waits_for_its_turn),
    ("a_device_takes_so_many_sessions", a_device_takes_so_many_sessions),
    ("parts_of_a_device_count_as_the_device", parts_of_a_device_count_as_the_device),
    ("a_session_waits_for_a_device", a_session_waits_for_a_device),
    ("another_policy_is_for_new_sessions_and_a_wrong_one_for_none", another_policy_is_for_new_sessions),
    ("a_session_that_does_nothing_is_ended", a_session_that_does_nothing_is_ended),
    ("a_wrong_policy_is_no_start", a_wrong_policy_is_no_start),
];

fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

fn devices(welcome: &Welcome<'_>) -> Vec<(u32, u64)> {
    let all = welcome.platforms.iter().flat_map(|p| p.devices.iter().map(|device| (p.index, device.id)));
    all.collect()
}

fn context_with(client: &mut Client, platform: u32, device: u64) -> (u64, i32) {
    let id = client.id();
    client.send(&CreateContext { id, platform, devices: Ids(&[WireId::new(device)]) });
    (id, client.status_of(Kind::Context, id))
}

/// What a driver is answered that says hello.
fn refusal(broker: &Broker) -> String {
    let stream = broker.connect();
    let mut sender = FrameSender::new(stream.try_clone().unwrap());
    let mut receiver = FrameReceiver::new(stream);
    sender.send(&hello(), &[]).unwrap();
    let frame = receiver.next_frame().unwrap().unwrap();
    let Handshake::Refused(Refused { reason, .. }) = Handshake::decode(frame.opcode, frame.body).unwrap() else {
        panic!("message {} instead of a refusal", frame.opcode)
    };
    reason.to_owned()
}

/// Sends a request, and takes what comes to the end of the connection: the reason.
fn turned_away(mut client: Client) -> String {
    let (call, id) = (client.id(), client.id());
    client.send(&Check { call, kind: Kind::Context, id });
    while client.receive() {}
    assert!(client.arrived.by_policy, "{:?}", client.arrived);
    client.arrived.closing.unwrap()
}

fn kill(worker: u32) {
    kill_process(Pid::from_raw(i32::try_from(worker).unwrap()).unwrap(), Signal::KILL).unwrap();
}

fn a_session_is_that_of_its_user() {
    let broker = Broker::start_with_policy(&format!("[users]\n{} = \"team-red\"\n", user()));
    let client = broker.client();
    assert_eq!((client.welcome().tenant, client.welcome().limited), ("team-red", false));
    until("the log says so", || broker.log().contains("tenant=team-red"));
    let plain = Broker::start();
    assert_eq!(plain.client().welcome().tenant, "anonymous");
    let local = Broker::start_at_socket();
    let tenant = local.client().welcome().tenant.to_owned();
    assert!(tenant.starts_with("user:") || tenant.starts_with("uid:"), "{tenant}");
}

fn a_device_that_is_not_granted_is_not_there() {
    let all = Broker::start_with_two_devices("");
    let offered = devices(&all.client().welcome());
    let [(platform, first), .., (_, hidden)] = offered[..] else {
        return println!("skipped: there is one device only, so none can be hidden");
    };
    let broker = Broker::start_with_two_devices(&format!("[defaults]\ndevices = [\"number:{first}\"]\n"));
    let mut client = broker.client();
    assert_eq!(devices(&client.welcome()), [(platform, first)]);
    // A driver that asks all the same.
    assert_eq!(context_with(&mut client, platform, hidden).1, CL_INVALID_DEVICE);
    let (mine, status) = context_with(&mut client, platform, first);
    assert_eq!(status, CL_SUCCESS);
    let both = client.id();
    let ids = [WireId::new(first), WireId::new(hidden)];
    client.send(&CreateContext { id: both, platform, devices: Ids(&ids) });
    assert_eq!(client.status_of(Kind::Context, both), CL_INVALID_DEVICE);
    let (call, first_id) = (client.id(), client.id());
    let properties = [CL_DEVICE_PARTITION_EQUALLY as u64, 1, 0].map(WireId::new);
    client.send(&CreateSubDevices { call, device: hidden, first_id, room: 8, properties: Ids(&properties) });
    assert_eq!(client.reply(call).0, CL_INVALID_DEVICE);
    let call = client.id();
    let (target, param) = (Target::Device, CL_DEVICE_NAME);
    client.send(&Query { call, target, object: hidden, device: 0, index: 0, param, input: &[] });
    assert_eq!(client.reply(call), (CL_INVALID_DEVICE, vec![]));
    let call = client.id();
    client.send(&DeviceTimers { call, device: hidden });
    assert_eq!(client.reply(call).0, CL_INVALID_DEVICE);
    let queue = client.id();
    let request = CreateQueue { id: queue, context: mine, device: hidden, properties: Ids(&[]) };
    client.send(&request);
    assert_eq!(client.status_of(Kind::Queue, queue), CL_INVALID_DEVICE);
    assert_eq!(client.status_of(Kind::Device, hidden), CL_INVALID_DEVICE);
}

fn a_tenant_without_devices_is_refused_with_a_reason() {
    let broker = Broker::start_with_policy(&format!(
        "[users]\n{} = \"guest\"\n[[tenant]]\nmatch = \"guest\"\ndevices = []\n",
        user()
    ));
    let reason = refusal(&broker);
    for part in ["tenant guest may use no device", "[[tenant]] \"guest\", line 5"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let log = broker.log();
    assert!(log.contains("session refused") && log.contains("tenant=guest"), "{log}");
    broker.change_policy("");
    assert!(!broker.client().welcome().platforms.is_empty());
}

fn a_greeting_takes_no_room() {
    let broker = Broker::start_with_policy("[service]\nsessions_per_device = 1\n[defaults]\nsessions = 1\n");
    let greeted: Vec<Client> = (0..5).map(|_| broker.client()).collect();
    assert!(greeted.iter().all(|client| client.welcome().limited));
    let mut client = broker.client();
    client.context_and_queue(0);
    assert_eq!(broker.workers().len(), 1);
}

fn a_session_too_many_is_told_why_over_every_link() {
    for link in [Link::Tcp, Link::SharedMemory] {
        choose(link);
        let broker = Broker::start_with_policy(&format!("[users]\n{} = \"red\"\n[defaults]\nsessions = 1\n", user()));
        let mut first = broker.client();
        first.context_and_queue(0);
        for _ in 0..3 {
            let reason = turned_away(broker.client());
            for part in ["tenant red", "at once: 1", "sessions, policy: [defaults], line 4", "try again later"] {
                assert!(reason.contains(part), "{link:?}: {part}: {reason}");
            }
        }
        assert_eq!(broker.workers().len(), 1, "a refusal costs no worker");
        // However it ends, there is room after it.
        kill(broker.workers()[0]);
        while first.receive() {}
        until("the worker to end", || broker.log().contains("worker was killed"));
        let mut second = broker.client();
        second.context_and_queue(0);
        drop(second);
        until("the worker to end", || broker.workers().is_empty());
        until("the session to be closed", || broker.log().matches("driver closed the connection").count() == 1);
        broker.client().context_and_queue(0);
    }
    choose(Link::Tcp);
}

fn a_session_waits_for_its_turn() {
    let broker = Broker::start_with_policy("[service]\nadmission_wait = \"20 s\"\n[defaults]\nsessions = 1\n");
    let mut first = broker.client();
    first.context_and_queue(0);
    let mut second = broker.client();
    let (call, id) = (second.id(), second.id());
    second.send(&Check { call, kind: Kind::Context, id });
    until("it waits", || broker.log().contains("waits for room"));
    // One that leaves while it waits does not take the place.
    let mut third = broker.client();
    let (other, id) = (third.id(), third.id());
    third.send(&Check { call: other, kind: Kind::Context, id });
    drop(third);
    until("it has left", || broker.log().contains("while it waited for room"));
    assert!(second.is_quiet());
    drop(first);
    assert_eq!(second.reply(call).0, CL_INVALID_CONTEXT);
    drop(second);
    // Those who wait in vain wait no longer than that.
    until("the worker to end", || broker.workers().is_empty());
    broker.change_policy("[service]\nadmission_wait = \"1200 ms\"\n[defaults]\nsessions = 1\n");
    let mut again = broker.client();
    again.context_and_queue(0);
    let begin = Instant::now();
    let reason = turned_away(broker.client());
    assert!(begin.elapsed() >= Duration::from_millis(1200), "{:?}", begin.elapsed());
    assert!(reason.contains("none ended within 1.2s"), "{reason}");
}

fn a_device_takes_so_many_sessions() {
    let broker = Broker::start_with_two_devices("[service]\nsessions_per_device = 1\n");
    let mut first = broker.client();
    first.context_and_queue(0);
    // The same session may have as many contexts as it likes.
    first.context_and_queue(0);
    let (offered, worker) = (devices(&first.welcome()), broker.workers()[0]);
    let mut second = broker.client();
    let (platform, device) = offered[0];
    let (id, status) = context_with(&mut second, platform, device);
    assert_eq!(status, CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(second.arrived.failed, [(CreateContext::OPCODE, CL_DEVICE_NOT_AVAILABLE, id)]);
    let reason = second.arrived.messages.pop().unwrap();
    for part in [&format!("device {device} ("), "at once: 1", "sessions_per_device, policy: [service], line 2"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    // The session goes on: with another device, and with this one when there is room.
    if let Some((platform, other)) = offered.get(1) {
        assert_eq!(context_with(&mut second, *platform, *other).1, CL_SUCCESS);
    }
    kill(worker);
    until("there is room", || context_with(&mut second, platform, device).1 == CL_SUCCESS);
}

fn parts_of_a_device_count_as_the_device() {
    let broker = Broker::start_with_policy("[service]\nsessions_per_device = 1\n");
    let mut first = broker.client();
    let divisible = devices(&first.welcome()).into_iter().find_map(|(platform, device)| {
        let (call, first_id) = (first.id(), first.id() + 100);
        let properties = [CL_DEVICE_PARTITION_EQUALLY as u64, 1, 0].map(WireId::new);
        let request = CreateSubDevices { call, device, first_id, room: 64, properties: Ids(&properties) };
        first.send(&request);
        (first.reply(call).0 == CL_SUCCESS).then_some((platform, device, first_id))
    });
    let Some((platform, device, part)) = divisible else {
        return println!("skipped: no device can be divided");
    };
    let id = first.id();
    first.send(&CreateContext { id, platform, devices: Ids(&[WireId::new(part)]) });
    assert_eq!(first.status_of(Kind::Context, id), CL_SUCCESS);
    assert_eq!(context_with(&mut broker.client(), platform, device).1, CL_DEVICE_NOT_AVAILABLE);
}

fn a_session_waits_for_a_device() {
    let broker = Broker::start_with_policy("[service]\nsessions_per_device = 1\nadmission_wait = \"20 s\"\n");
    let mut first = broker.client();
    first.context_and_queue(0);
    let (platform, device) = devices(&first.welcome())[0];
    let mut second = broker.client();
    let (id, call) = (second.id(), second.id());
    second.send(&CreateContext { id, platform, devices: Ids(&[WireId::new(device)]) });
    second.send(&Check { call, kind: Kind::Context, id });
    until("it waits", || broker.log().contains("waits for room on a device"));
    assert!(second.is_quiet());
    // A policy that is more generous makes room.
    broker.change_policy("[service]\nsessions_per_device = 2\n");
    assert_eq!(second.reply(call).0, CL_SUCCESS);
    drop(first);
}

fn another_policy_is_for_new_sessions() {
    let broker = Broker::start_with_policy("[defaults]\nsessions = 2\n");
    let mut running: Vec<Client> = (0..2).map(|_| broker.client()).collect();
    let queues: Vec<u64> = running.iter_mut().map(|client| client.context_and_queue(0).1).collect();
    broker.change_policy("[defaults]\nsessions = 1\ndevices = [\"no such device\"]\n");
    assert!(refusal(&broker).contains("may use no device"));
    // A wrong one changes nothing, and says what is wrong.
    broker.change_policy("[defaults]\nsessions = 0\nsesions = 3\n");
    let log = broker.log();
    assert!(log.contains("stays in force") && log.contains("line 3: unknown key"), "{log}");
    assert!(refusal(&broker).contains("may use no device"));
    broker.change_policy("[defaults]\nsessions = 1\n");
    assert!(turned_away(broker.client()).contains("at once: 1"));
    for (client, queue) in running.iter_mut().zip(queues) {
        client.finish(queue);
    }
}

fn a_session_that_does_nothing_is_ended() {
    let broker = Broker::start_with_policy("[defaults]\nlongest_idle = \"500 ms\"\n");
    let greeted = broker.client();
    let mut client = broker.client();
    let (context, queue) = client.context_and_queue(0);
    // Who sends something stays.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1200) {
        client.finish(queue);
        std::thread::sleep(Duration::from_millis(50));
    }
    // A command that waits is something, too.
    let buffer = client.buffer(context, 4, b"old!");
    let (gate, write) = (client.id(), client.id());
    client.send(&CreateUserEvent { id: gate, context });
    let waits = [WireId::new(gate)];
    let waiting = Command_ { queue, event: write, seen: true, waits: Ids(&waits) };
    client.send_with(&WriteBuffer { command: waiting, buffer, offset: 0, last: true }, b"new!");
    std::thread::sleep(Duration::from_millis(1200));
    client.send(&SetUserEventStatus { event: gate, status: CL_COMPLETE });
    assert_eq!(client.completed(write).status, CL_COMPLETE);
    let begin = Instant::now();
    while client.receive() {}
    assert!(begin.elapsed() >= Duration::from_millis(400), "{:?}", begin.elapsed());
    let reason = client.arrived.closing.unwrap();
    assert!(client.arrived.by_policy && reason.contains("nothing for 500ms") && reason.contains("longest_idle"));
    until("the log says so", || broker.log().contains("longer than its policy allows"));
    // A session without a worker holds nothing, and stays.
    let mut greeted = greeted;
    greeted.context_and_queue(0);
}

fn a_wrong_policy_is_no_start() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("policy.toml");
    let serve = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["serve", "127.0.0.1:0"]).env("TELECL_TEST_POLICY", &path).output().unwrap()
    };
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let missing = serve();
    assert!(!missing.status.success() && said(&missing).contains("policy.toml"), "{}", said(&missing));
    std::fs::write(&path, "[defaults]\nwieght = 3\n[[tenant]]\nweight = 0\n").unwrap();
    let wrong = serve();
    assert!(!wrong.status.success() && wrong.stdout.is_empty());
    for part in ["line 2: unknown key \"defaults.wieght\"", "line 4: tenant.weight"] {
        assert!(said(&wrong).contains(part), "{part}: {}", said(&wrong));
    }
}
