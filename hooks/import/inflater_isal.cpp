// The only file that includes isa-l.
#include <algorithm>

#include <isa-l/igzip_lib.h>

#include "hooks/import/inflater.hpp"

namespace situla {

struct Inflater::State {
  inflate_state stream;
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  begin_member();
}

Inflater::~Inflater() = default;

void Inflater::begin_member() {
  isal_inflate_init(&state_->stream);
  state_->stream.crc_flag = ISAL_GZIP;
}

Result<Inflater::Step> Inflater::inflate(std::string_view input, char* output, size_t capacity) {
  constexpr size_t kMost = size_t{1} << 30U;
  const size_t offered = std::min(input.size(), kMost);
  const size_t room = std::min(capacity, kMost);
  inflate_state& stream = state_->stream;
  // isal's input pointer lacks a const; the bytes are only read.
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(input.data()));
  stream.avail_in = static_cast<uint32_t>(offered);
  stream.next_out = reinterpret_cast<uint8_t*>(output);
  stream.avail_out = static_cast<uint32_t>(room);
  const int code = isal_inflate(&stream);
  if (code == ISAL_INCORRECT_CHECKSUM) return fail(damaged_layer("inflate: the gzip checksum is wrong"));
  if (code < 0) return fail(damaged_layer("inflate: invalid gzip data"));
  return Step{offered - stream.avail_in, room - stream.avail_out, stream.block_state == ISAL_BLOCK_FINISH};
}

}  // namespace situla
