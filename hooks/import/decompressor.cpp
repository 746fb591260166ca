// The only file that includes zstd.h for reading.
#include "hooks/import/decompressor.hpp"

#include <algorithm>
#include <cstring>

#include <zstd.h>
#include <zstd_errors.h>

#include "hooks/import/inflater.hpp"

namespace situla {

Error damaged_layer(const std::string& how) {
  return Error(ErrorKind::corrupt, how)
      .with_code(ErrorCode::image_damaged)
      .with_hint("the layer was not written correctly: push the image again");
}

namespace {

/// libzstd takes windows of up to 128 MiB unless told otherwise, as zstd(1) does: it is memory that must be there.
Error zstd_error(size_t code) {
  if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge)
    return Error(ErrorKind::unsupported, "decompress zstd: it needs a window of more than 128 MiB")
        .with_code(ErrorCode::image_unsupported)
        .with_hint("compress the layer with a smaller window (zstd --long=27 at most) and push the image again");
  return damaged_layer(std::string("decompress zstd: ") + ZSTD_getErrorName(code));
}

class Plain final : public Decompressor {
 public:
  Result<size_t> run(std::string_view& input, char* output, size_t capacity) override {
    const size_t size = std::min(input.size(), capacity);
    std::memcpy(output, input.data(), size);
    input.remove_prefix(size);
    return size;
  }
  Result<void> finish() override { return {}; }
};

/// RFC 1952: a file is a series of members. What follows the last one (zero padding, say) is ignored, as gzip(1) does.
class Gzip final : public Decompressor {
 public:
  Result<size_t> run(std::string_view& input, char* output, size_t capacity) override {
    size_t produced = 0;
    while (produced < capacity && (!input.empty() || pending_output_)) {
      if (between_ && !next_member(input)) break;
      const size_t room = capacity - produced;
      TRY_ASSIGN(const Inflater::Step step, inflater_.inflate(input, output + produced, room));
      input.remove_prefix(step.taken);
      produced += step.produced;
      between_ = step.ended;
      pending_output_ = !between_ && step.produced == room;
    }
    return produced;
  }

  Result<void> finish() override {
    if (between_) return {};
    return fail(damaged_layer("inflate: the gzip stream ends in the middle"));
  }

 private:
  bool next_member(std::string_view& input) {
    if (trailing_ || input.front() != '\x1f') {
      trailing_ = true;
      input = {};
      return false;
    }
    inflater_.begin_member();
    between_ = false;
    return true;
  }

  Inflater inflater_;
  bool between_ = false;         ///< a member has ended
  bool trailing_ = false;        ///< past the last member
  bool pending_output_ = false;  ///< the output was full: there may be more without new input
};

class Zstd final : public Decompressor {
 public:
  explicit Zstd(ZSTD_DCtx* context) : context_(context) {}

  [[nodiscard]] uint64_t memory() const override { return ZSTD_sizeof_DCtx(context_.get()); }

  Result<size_t> run(std::string_view& input, char* output, size_t capacity) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{output, capacity, 0};
    while (out.pos < out.size && (in.pos < in.size || pending_output_)) {
      const size_t code = ZSTD_decompressStream(context_.get(), &out, &in);
      if (ZSTD_isError(code) != 0U) return fail(zstd_error(code));
      open_ = code != 0;
      pending_output_ = out.pos == out.size && open_;
    }
    input.remove_prefix(in.pos);
    return out.pos;
  }

  Result<void> finish() override {
    if (!open_) return {};
    return fail(damaged_layer("decompress zstd: the stream ends in the middle"));
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  bool open_ = false;  ///< in the middle of a frame
  bool pending_output_ = false;
};

bool is_zstd(std::string_view first) {
  if (first.size() < 4) return false;
  if (first.substr(0, 4) == "\x28\xb5\x2f\xfd") return true;
  // A skippable frame, as zstd:chunked and pzstd put in front.
  return (static_cast<unsigned char>(first[0]) & 0xF0U) == 0x50U && first.substr(1, 3) == "\x2a\x4d\x18";
}

}  // namespace

Result<std::unique_ptr<Decompressor>> make_decompressor(std::string_view first) {
  if (first.starts_with("\x1f\x8b")) return std::make_unique<Gzip>();
  if (is_zstd(first)) {
    ZSTD_DCtx* context = ZSTD_createDCtx();
    if (context == nullptr)
      return fail(Error(ErrorKind::no_space, "decompress zstd: out of memory").with_code(ErrorCode::memory));
    return std::make_unique<Zstd>(context);
  }
  return std::make_unique<Plain>();
}

}  // namespace situla
