//! The lists: every struct with its fields, every message, every payload. What is missing here does not compile, or
//! fails in `roundtrip.rs`.

use telecl_wire::request::Message;
use telecl_wire::{DecodeError, decode, encode, handshake, info, region, reply, request, status};

use super::{Draw, Make};

/// One message or payload, and what tests do with it.
pub(crate) struct MessageFacts {
    /// The enum it is in: `Handshake`, `Request` or `FromWorker`; of a payload, the module.
    pub(crate) set: &'static str,
    pub(crate) name: &'static str,
    /// 0 for payloads, which have none.
    pub(crate) number: u16,
    pub(crate) fields: &'static [&'static str],
    /// The bytes of a drawn value.
    pub(crate) encode: fn(&Draw<'_>) -> Vec<u8>,
    /// Reads bytes, and forgets what they mean.
    pub(crate) decode: fn(&[u8]) -> Result<(), DecodeError>,
    /// Draws a value and describes how it came back, if not as it was.
    pub(crate) round_trip: fn(&Draw<'_>) -> Result<(), String>,
}

trait Fields<'a> {
    const FIELDS: &'static [&'static str];
}

macro_rules! make {
    ($($module:ident::$name:ident $(<$life:lifetime>)? { $($field:ident),* })*) => {$(
        impl<'a> Make<'a> for $module::$name $(<$life>)? {
            fn make(_draw: &Draw<'a>) -> Self {
                Self { $($field: _draw.any()),* }
            }
        }

        impl<'a> Fields<'a> for $module::$name $(<$life>)? {
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];
        }
    )*};
}

macro_rules! make_enums {
    ($($module:ident::$name:ident),*) => {$(
        impl<'a> Make<'a> for $module::$name {
            fn make(draw: &Draw<'a>) -> Self {
                let place = u64::make(draw) % Self::ALL.len() as u64;
                Self::ALL[place as usize]
            }
        }
    )*};
}

macro_rules! messages {
    ($($module:ident::$set:ident { $($name:ident),* $(,)? })*) => {
        /// Every message.
        pub(crate) const MESSAGES: &[MessageFacts] = &[$($(MessageFacts {
            set: stringify!($set),
            name: stringify!($name),
            number: $module::$name::OPCODE,
            fields: <$module::$name as Fields>::FIELDS,
            encode: |draw| encode(&draw.any::<$module::$name>()),
            decode: |body| $module::$set::decode($module::$name::OPCODE, body).map(drop),
            round_trip: |draw| {
                let value: $module::$name = draw.any();
                let body = encode(&value);
                let back = $module::$set::decode($module::$name::OPCODE, &body).map_err(|error| error.to_string())?;
                if back.name() != stringify!($name) {
                    return Err(format!("came back as {}", back.name()));
                }
                let sent = $module::$set::$name(value);
                if back == sent { Ok(()) } else { Err(format!("{sent:?} came back as {back:?}")) }
            },
        },)*)*];
    };
}

macro_rules! payloads {
    ($($module:ident::$name:ident,)*) => {
        /// Every struct that travels as a payload, or as a part of one.
        pub(crate) const PAYLOADS: &[MessageFacts] = &[$(MessageFacts {
            set: stringify!($module),
            name: stringify!($name),
            number: 0,
            fields: <$module::$name as Fields>::FIELDS,
            encode: |draw| encode(&draw.any::<$module::$name>()),
            decode: |body| decode::<$module::$name>(body).map(drop),
            round_trip: |draw| {
                let sent: $module::$name = draw.any();
                let bytes = encode(&sent);
                let back: $module::$name = decode(&bytes).map_err(|error| error.to_string())?;
                if back == sent { Ok(()) } else { Err(format!("{sent:?} came back as {back:?}")) }
            },
        },)*];
    };
}

make! {
    handshake::Credential<'a> { kind, token, nonce }
    handshake::Challenge { nonce, proof }
    handshake::Response { proof }
    handshake::Hello<'a> { magic, protocol, version, program, pid, compression, credential }
    handshake::Welcome<'a> { session, secret, version, node, node_address, socket, instance, boot_id, seen_at, took_ns, compression, heartbeat_ms, grace_ms, tenant, limited, by_load, loads, memory, platforms }
    handshake::DeviceLoad { device, sessions, most }
    handshake::DeviceMemory { device, most, shared }
    handshake::Refused<'a> { reason, protocol }
    handshake::ShareMemory {}
    handshake::Join { magic, protocol, session, secret, stream }
    handshake::Joined { stream }
    handshake::Lasting { heartbeat_ms, grace_ms }
    handshake::Resume { magic, protocol, session, secret, stream, received }
    handshake::Resumed { received }
    handshake::NotResumed<'a> { reason, again }
    status::Inspect<'a> { magic, protocol, credential }
    status::EndSession<'a> { magic, protocol, session, credential }
    status::SessionEnded { session }
    status::Drain { magic, protocol, mode, grace_ms }
    status::DrainProgress { sessions, left_ms, draining, done }
    status::Status<'a> { version, node, socket, instance, boot_id, tenant, operator, draining, uptime_ns, devices, tenants, sessions, left_out }
    status::DeviceStatus<'a> { id, name, platform, memory, used, promised, sessions, busy_ns, sensors }
    status::Sensors { celsius, milliwatts, core_mhz, memory_mhz, busy_percent, memory_used }
    status::TenantStatus<'a> { name, sessions, refused, counts, devices }
    status::SessionStatus<'a> { id, tenant, user, pod, peer, program, pid, stage, age_ns, counts, devices }
    status::Counts { bytes_in, bytes_out, commands, failures, builds, cache_hits }
    status::DeviceUse { device, memory, peak_memory, busy_ns, waited_ns }
    handshake::Ping { number }
    handshake::Pong { number }
    info::Info<'a> { param, status, value }
    info::Device<'a> { id, info }
    info::Platform<'a> { index, info, devices }
    info::Inventory<'a> { platforms }
    region::Region { origin, size }
    request::Stage { id }
    request::Release { kind, id }
    request::Query<'a> { call, target, object, device, index, param, input }
    request::Check { call, kind, id }
    request::CreateContext<'a> { id, platform, devices }
    request::CreateQueue<'a> { id, context, device, properties }
    request::CreateBuffer<'a> { id, context, flags, size, staged, properties }
    request::CreateSubBuffer { id, parent, flags, origin, size }
    request::CreateImage<'a> { id, context, flags, format, desc, staged, properties }
    request::ImageDesc { kind, width, height, depth, array_size, row_pitch, slice_pitch, mip_levels, samples, parent }
    request::CreatePipe { id, context, flags, packet_size, max_packets }
    request::CreateSampler<'a> { id, context, normalized, addressing, filter, properties }
    request::CreateUserEvent { id, context }
    request::SetUserEventStatus { event, status }
    request::WatchEvent { event, status }
    request::CreateSubDevices<'a> { call, device, properties, first_id, room }
    request::ImageFormats { call, context, flags, kind }
    request::DeviceTimers { call, device }
    request::SetDefaultDeviceQueue { call, context, device, queue }
    request::CreateProgramWithSource { id, context, staged }
    request::CreateProgramWithIl { id, context, staged }
    request::CreateProgramWithBinaries<'a> { call, id, context, devices, lengths, staged }
    request::CreateProgramWithBuiltInKernels<'a> { call, id, context, devices, names }
    request::SetSpecializationConstant<'a> { call, program, constant, value }
    request::StoreFile { hash, staged }
    request::MakeTree<'a> { tree, files }
    request::TreeFile<'a> { path, hash }
    request::Build<'a> { call, program, devices, options }
    request::Compile<'a> { call, program, devices, options, headers }
    request::EmbeddedHeader<'a> { program, name }
    request::Link<'a> { call, id, context, devices, options, inputs }
    request::ProgramBinaries { call, program }
    request::CreateKernel<'a> { id, program, name }
    request::CloneKernel { id, source }
    request::SetArgs<'a> { kernel, args }
    request::Arg<'a> { index, form, size, object, value }
    request::Command<'a> { queue, event, seen, waits }
    request::RunKernel<'a> { command, kernel, args, dimensions, offset, global, local }
    request::ReadBuffer<'a> { command, buffer, offset, size }
    request::ReadRect<'a> { command, buffer, origin, region, row_pitch, slice_pitch }
    request::ReadImage<'a> { command, image, origin, region }
    request::WriteBuffer<'a> { command, buffer, offset, last }
    request::WriteRect<'a> { command, buffer, origin, region, row_pitch, slice_pitch, last }
    request::WriteImage<'a> { command, image, origin, region, last }
    request::CopyBuffer<'a> { command, from, to, from_offset, to_offset, size }
    request::CopyRect<'a> { command, from, to, from_origin, to_origin, region, from_row_pitch, from_slice_pitch, to_row_pitch, to_slice_pitch }
    request::CopyImage<'a> { command, from, to, from_origin, to_origin, region }
    request::CopyImageToBuffer<'a> { command, from, to, origin, region, to_offset }
    request::CopyBufferToImage<'a> { command, from, to, from_offset, origin, region }
    request::FillBuffer<'a> { command, buffer, pattern, offset, size }
    request::FillImage<'a> { command, image, color, origin, region }
    request::Migrate<'a> { command, objects, flags }
    request::Marker<'a> { command }
    request::Barrier<'a> { command }
    request::Finish { call, queue }
    reply::Reply { call, status }
    reply::ReplyPart { call }
    reply::Completed { event, status, profile }
    reply::StatusReached { event, status }
    reply::Data { event, region }
    reply::Failed<'a> { opcode, status, context, queue, object, message }
    reply::ContextNotice<'a> { context, message, private_info }
    reply::Output {}
    reply::Closing<'a> { reason, policy }
    reply::BuildReport<'a> { devices, kernels, trees }
    reply::TreeDirectory<'a> { tree, directory }
    reply::DeviceBuild<'a> { device, status, binary_type, log, global_variables }
    reply::KernelReport<'a> { name, attributes, args, devices }
    reply::ArgReport<'a> { kind, size, info_status, address_qualifier, access_qualifier, type_qualifier, type_name, name }
    reply::KernelOnDevice { device, work_group_size, compile_work_group_size, preferred_multiple, local_mem_size, private_mem_size }
    reply::BinaryStatuses { statuses }
    reply::Binaries<'a> { binaries }
    reply::SubDevices<'a> { devices }
    reply::ImageFormats { formats }
    reply::Format { order, data_type }
    reply::Timers { device_ns, host_ns }
}

make_enums! { handshake::Compression, handshake::CredentialKind, request::Kind, request::Target, request::ArgForm, reply::ArgKind, status::Stage, status::DrainMode }

messages! {
    handshake::Handshake {
        Hello, Welcome, Refused, Ping, Pong, ShareMemory, Join, Joined, Inspect, Status, EndSession, SessionEnded,
        Challenge, Response, Drain, DrainProgress, Lasting, Resume, Resumed, NotResumed,
    }
    request::Request {
        Stage, Release, Query, CreateContext, CreateQueue, CreateBuffer, CreateSubBuffer, CreateImage, CreatePipe, CreateSampler, CreateUserEvent, SetUserEventStatus, CreateSubDevices, ImageFormats, DeviceTimers, SetDefaultDeviceQueue, Check, WatchEvent, CreateProgramWithSource, CreateProgramWithIl, CreateProgramWithBinaries, CreateProgramWithBuiltInKernels, SetSpecializationConstant, StoreFile, MakeTree, Build, Compile, Link, ProgramBinaries, CreateKernel, CloneKernel, SetArgs, RunKernel, ReadBuffer, ReadRect, ReadImage, WriteBuffer, WriteRect, WriteImage, CopyBuffer, CopyRect, CopyImage, CopyImageToBuffer, CopyBufferToImage, FillBuffer, FillImage, Migrate, Marker, Barrier, Finish,
    }
    reply::FromWorker {
        Reply, ReplyPart, Completed, StatusReached, Data, Failed, ContextNotice, Output, Closing,
    }
}

payloads! {
    handshake::DeviceLoad,
    handshake::DeviceMemory,
    info::Info,
    info::Device,
    info::Platform,
    info::Inventory,
    reply::BuildReport,
    reply::TreeDirectory,
    reply::DeviceBuild,
    reply::KernelReport,
    reply::ArgReport,
    reply::KernelOnDevice,
    reply::BinaryStatuses,
    reply::Binaries,
    reply::SubDevices,
    reply::ImageFormats,
    reply::Format,
    reply::Timers,
}
