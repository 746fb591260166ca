#include "hooks/store/messages.hpp"

#include <algorithm>

#include "common/base/codec.hpp"

namespace situla::store_line {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kMaxText = 1024;

struct Writer {
  Encoder& out;
  void put(const Digest& digest) const { out.text(digest.hex()); }
  void put(const std::string& text) const { out.text(std::string_view(text).substr(0, kMaxText)); }
  void put(uint64_t number) const { out.u64(number); }
  void put(bool flag) const { out.u8(flag ? 1 : 0); }
};

struct Reader {
  Decoder& in;
  bool ok = true;
  void put(Digest& digest) {
    const auto parsed = Digest::parse_hex(in.text());
    if (parsed) digest = *parsed;
    ok = ok && parsed.has_value();
  }
  void put(std::string& text) {
    text = in.text();
    ok = ok && text.size() <= kMaxText;
  }
  void put(uint64_t& number) { number = in.u64(); }
  void put(bool& flag) {
    const uint8_t byte = in.u8();
    flag = byte == 1;
    ok = ok && byte <= 1;
  }
};

// One list of fields for both directions.
template <typename A>
void fields(A& a, auto& m, Work*) {
  a.put(m.variant);
}
template <typename A>
void fields(A&, auto&, Have*) {}
template <typename A>
void fields(A&, auto&, NoLayer*) {}
template <typename A>
void fields(A&, auto&, WriteIndex*) {}
template <typename A>
void fields(A& a, auto& m, WriteImage*) {
  a.put(m.where);
}
template <typename A>
void fields(A& a, auto& m, Layer*) {
  a.put(m.donor);
}
template <typename A>
void fields(A& a, auto& m, Resolved*) {
  a.put(m.manifest);
}
template <typename A>
void fields(A& a, auto& m, FindLayer*) {
  a.put(m.layer);
  a.put(m.kind);
}
template <typename A>
void fields(A& a, auto& m, PutLayer*) {
  a.put(m.layer);
  a.put(m.kind);
}
template <typename A>
void fields(A& a, auto& m, Progressed*) {
  a.put(m.bytes);
  a.put(m.finishing);
}
template <typename A>
void fields(A& a, auto& m, Built*) {
  a.put(m.fetched_bytes);
  a.put(m.architecture);
}

template <size_t I = 0>
Result<Message> read_alternative(size_t index, Decoder& in) {
  if constexpr (I == std::variant_size_v<Message>) {
    return fail(ErrorKind::corrupt, "a message between importer and store that is not known");
  } else {
    if (index != I) return read_alternative<I + 1>(index, in);
    using Alternative = std::variant_alternative_t<I, Message>;
    Alternative message;
    Reader reader{in};
    fields(reader, message, static_cast<Alternative*>(nullptr));
    if (!reader.ok || !in.finished()) return fail(ErrorKind::corrupt, "a damaged message between importer and store");
    return message;
  }
}

}  // namespace

std::string encode(const Message& message) {
  Encoder out;
  out.u32(kVersion);
  out.u8(static_cast<uint8_t>(message.index()));
  std::visit(
      [&](const auto& m) {
        const Writer writer{out};
        fields(writer, m, static_cast<std::remove_cvref_t<decltype(m)>*>(nullptr));
      },
      message);
  return out.take();
}

Result<Message> decode(std::string_view bytes) {
  Decoder in(bytes);
  if (bytes.size() > kMaxBytes || in.u32() != kVersion)
    return fail(ErrorKind::corrupt, "importer and store are not of one release");
  const uint8_t index = in.u8();
  return read_alternative(index, in);
}

}  // namespace situla::store_line
