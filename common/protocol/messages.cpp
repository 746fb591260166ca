#include "common/protocol/messages.hpp"

#include <type_traits>

#include "common/base/codec.hpp"

namespace situla {
namespace {

// Changes with every change of a message: the plugin and the programs it starts may be upgraded while a job runs.
constexpr uint32_t kVersion = 0x53490006;
constexpr size_t kMaxTextBytes = 12288;
constexpr uint32_t kMaxGroups = 65536;
constexpr uint32_t kMaxNamespaces = 16;

std::string_view cut_text(std::string_view text) {
  return text.substr(0, kMaxTextBytes);
}

void put_token(Encoder& out, const StepToken& token) {
  for (const uint8_t byte : token) out.u8(byte);
}
StepToken get_token(Decoder& in) {
  StepToken token{};
  for (uint8_t& byte : token) byte = in.u8();
  return token;
}

void put_isolation(Encoder& out, const Isolation& isolation) {
  for (const bool flag : {isolation.ipc, isolation.uts, isolation.net, isolation.pid}) out.u8(flag ? 1 : 0);
}
Isolation get_isolation(Decoder& in) {
  Isolation isolation;
  for (bool* flag : {&isolation.ipc, &isolation.uts, &isolation.net, &isolation.pid}) *flag = in.u8() != 0;
  return isolation;
}

Joined get_joined(Decoder& in) {
  Joined m;
  m.workdir = in.text();
  m.isolation = get_isolation(in);
  return m;
}

struct Put {
  Encoder& out;
  void operator()(const Join& m) const {
    put_token(out, m.token);
    out.text(cut_text(m.directory));
  }
  void operator()(const Joined& m) const {
    out.text(cut_text(m.workdir));
    put_isolation(out, m.isolation);
  }
  void operator()(const Note& m) const {
    out.u8(static_cast<uint8_t>(m.level));
    out.text(cut_text(m.text));
  }
  void operator()(const Failure& m) const {
    out.text(to_string(m.kind));
    out.text(cut_text(m.text));
    out.text(cut_text(m.hint));
  }
  void operator()(const ImportDone& m) const {
    for (const uint8_t byte : m.digest.bytes()) out.u8(byte);
    out.text(cut_text(m.store_name));
    out.u8(m.stored ? 1 : 0);
  }
  void operator()(const MapsWanted& m) const { out.u8(m.remap_root ? 1 : 0); }
  void operator()(const Ready& m) const {
    out.text(cut_text(m.workdir));
    out.text(cut_text(m.scratch_path));
    out.text(cut_text(m.root));
    put_isolation(out, m.isolation);
    out.u8(m.stays ? 1 : 0);
    out.u32(m.directory);
    out.text(cut_text(m.identity));
  }
  void operator()(const Finished& m) const { out.text(cut_text(m.summary)); }
  void operator()(const Draw& m) const { out.text(cut_text(m.bytes)); }
  void operator()(const RunningWanted& m) const {
    out.text(cut_text(m.ignored));
    out.text(cut_text(m.identity));
    out.u32(m.directory);
    out.u32(m.job);
    out.u32(m.step);
  }
  void operator()(const Saving& m) const { out.text(cut_text(m.cgroups)); }
  void operator()(const ScratchPlace& m) const { out.text(cut_text(m.path)); }
  void operator()(const Found& m) const {
    (*this)(m.container);
    out.u32(static_cast<uint32_t>(m.namespaces.size()));
    for (const uint32_t number : m.namespaces) out.u32(number);
  }
  template <typename Empty>
  void operator()(const Empty&) const {
    static_assert(std::is_empty_v<Empty>);
  }
};

LogLevel level_of(uint8_t value) {
  return value <= 3 ? static_cast<LogLevel>(value) : LogLevel::info;
}

Ready get_ready(Decoder& in) {
  Ready m;
  m.workdir = in.text();
  m.scratch_path = in.text();
  m.root = in.text();
  m.isolation = get_isolation(in);
  m.stays = in.u8() != 0;
  m.directory = in.u32();
  m.identity = in.text();
  return m;
}

Found get_found(Decoder& in) {
  Found m{get_joined(in), {}};
  const uint32_t count = in.u32();
  for (uint32_t i = 0; i < count && count <= kMaxNamespaces && in.ok(); ++i) m.namespaces.push_back(in.u32());
  return m;
}

RunningWanted get_running_wanted(Decoder& in) {
  RunningWanted m;
  m.ignored = in.text();
  m.identity = in.text();
  m.directory = in.u32();
  m.job = in.u32();
  m.step = in.u32();
  return m;
}

Message get(uint32_t index, Decoder& in) {
  switch (index) {
    case 0: {
      Join m;
      m.token = get_token(in);
      m.directory = in.text();
      return m;
    }
    case 1:
      return get_joined(in);
    case 2: {
      Note m;
      m.level = level_of(in.u8());
      m.text = in.text();
      return m;
    }
    case 3: {
      Failure m;
      m.kind = error_kind_from_string(in.text());
      m.text = in.text();
      m.hint = in.text();
      return m;
    }
    case 4: {
      std::array<uint8_t, Digest::kBytes> bytes{};
      for (uint8_t& byte : bytes) byte = in.u8();
      ImportDone m{Digest(bytes), std::string(in.text())};
      m.stored = in.u8() != 0;
      return m;
    }
    case 5:
      return MapsWanted{in.u8() != 0};
    case 6:
      return MapsWritten{};
    case 7:
      return get_ready(in);
    case 8:
      return Finish{};
    case 9:
      return Finished{std::string(in.text())};
    case 10:
      return Draw{std::string(in.text())};
    case 11:
      return get_running_wanted(in);
    case 12:
      return NotRunning{};
    case 13:
      return get_found(in);
    case 14:
      return ImageWanted{};
    case 15:
      return ImageReady{};
    case 16:
      return Saving{std::string(in.text())};
    case 17:
      return ScratchPlace{std::string(in.text())};
    case 18:
      return StepPrepared{};
    case 19:
      return TaskEnded{};
    default:
      return Alive{};
  }
}

}  // namespace

std::string encode(const Message& message) {
  Encoder out;
  out.u32(kVersion);
  out.u32(static_cast<uint32_t>(message.index()));
  std::visit(Put{out}, message);
  return out.take();
}

Result<Message> decode(std::string_view bytes) {
  Decoder in(bytes);
  const uint32_t version = in.u32();
  const uint32_t index = in.u32();
  if (!in.ok() || version != kVersion || index >= std::variant_size_v<Message>)
    return fail(Error(ErrorKind::corrupt, "message of an unknown kind or version")
                    .with_hint("the plugin and the programs under libexec must come from the same release"));
  Message message = get(index, in);
  if (!in.finished()) return fail(ErrorKind::corrupt, "message of a wrong length");
  return message;
}

std::string encode_step_request(const StepRequest& request) {
  Encoder out;
  out.u32(kVersion);
  out.u32(request.job_id);
  out.u32(request.step_id);
  out.u32(request.uid);
  out.u32(request.gid);
  out.u32(static_cast<uint32_t>(request.groups.size()));
  for (const uint32_t group : request.groups) out.u32(group);
  for (const uint32_t count : {request.local_tasks, request.all_tasks}) out.u32(count);
  out.u8(static_cast<uint8_t>(request.origin));
  for (const bool flag : {request.named, request.job_scope, request.save, request.use_squashfuse}) out.u8(flag ? 1 : 0);
  for (const std::string* text : {&request.importer, &request.importer_runtime}) out.text(*text);
  put_token(out, request.token);
  out.text(request.image);
  out.text(request.spec);
  return out.take();
}

Result<StepRequest> decode_step_request(std::string_view bytes) {
  Decoder in(bytes);
  StepRequest request;
  if (in.u32() != kVersion) return fail(ErrorKind::corrupt, "step request of another release");
  request.job_id = in.u32();
  request.step_id = in.u32();
  request.uid = in.u32();
  request.gid = in.u32();
  const uint32_t groups = in.u32();
  for (uint32_t i = 0; i < groups && groups <= kMaxGroups && in.ok(); ++i) request.groups.push_back(in.u32());
  for (uint32_t* count : {&request.local_tasks, &request.all_tasks}) *count = in.u32();
  const uint8_t origin = in.u8();
  request.origin = static_cast<ImageOrigin>(origin);
  for (bool* flag : {&request.named, &request.job_scope, &request.save, &request.use_squashfuse}) *flag = in.u8() != 0;
  for (std::string* text : {&request.importer, &request.importer_runtime}) *text = in.text();
  request.token = get_token(in);
  request.image = in.text();
  request.spec = in.text();
  if (!in.finished() || origin > static_cast<uint8_t>(ImageOrigin::user))
    return fail(ErrorKind::corrupt, "step request of a wrong length or kind");
  return request;
}

}  // namespace situla
