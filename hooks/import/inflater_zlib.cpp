// For AArch64, where ISA-L up to 2.31 at the least takes the end of a block for the end of the stream when the output
// fills up just there, and then finds the checksum wrong (github.com/intel/isa-l issue 316). The unit tests compile it
// everywhere.
#include <algorithm>
#include <new>

#include <zlib.h>

#include "hooks/import/inflater.hpp"

namespace situla {

struct Inflater::State {
  z_stream stream{};
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  constexpr int kGzip = 16;
  if (inflateInit2(&state_->stream, MAX_WBITS + kGzip) != Z_OK) throw std::bad_alloc();
}

Inflater::~Inflater() {
  (void)inflateEnd(&state_->stream);
}

void Inflater::begin_member() {
  (void)inflateReset(&state_->stream);
}

Result<Inflater::Step> Inflater::inflate(std::string_view input, char* output, size_t capacity) {
  constexpr size_t kMost = size_t{1} << 30U;
  const size_t offered = std::min(input.size(), kMost);
  const size_t room = std::min(capacity, kMost);
  z_stream& stream = state_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
  stream.avail_in = static_cast<uInt>(offered);
  stream.next_out = reinterpret_cast<Bytef*>(output);
  stream.avail_out = static_cast<uInt>(room);
  const int code = ::inflate(&stream, Z_NO_FLUSH);
  if (code == Z_MEM_ERROR)
    return fail(Error(ErrorKind::no_space, "inflate: out of memory").with_code(ErrorCode::memory));
  // Z_BUF_ERROR: nothing to do without more input, or more room.
  if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END) {
    const std::string_view why = stream.msg == nullptr ? "" : stream.msg;
    const bool sums = why == "incorrect data check" || why == "incorrect length check";
    return fail(damaged_layer(sums ? "inflate: the gzip checksum is wrong" : "inflate: invalid gzip data"));
  }
  return Step{offered - stream.avail_in, room - stream.avail_out, code == Z_STREAM_END};
}

}  // namespace situla
