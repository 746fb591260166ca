#include "hooks/unpack/lzo.hpp"

#include <cstring>

namespace situla {
namespace {

constexpr unsigned kLongRun = 4;  // state after four or more literals

/// One stream. Every read and copy is checked; the first that does not fit makes ok() false.
class LzoDecoder {
 public:
  LzoDecoder(const uint8_t* input, size_t size, uint8_t* output, size_t capacity)
      : input_(input), input_end_(input + size), output_(output), begin_(output), output_end_(output + capacity) {}

  std::optional<size_t> run() {
    first_byte();
    while (ok_ && !done_) instruction(byte());
    // Bytes after the end mark would belong to nobody.
    if (!ok_ || input_ != input_end_) return std::nullopt;
    return static_cast<size_t>(output_ - begin_);
  }

 private:
  unsigned byte() {
    if (input_ == input_end_) {
      ok_ = false;
      return 0;
    }
    return *input_++;
  }

  /// A length whose bits are all zero goes on in the following bytes.
  size_t length(unsigned bits, unsigned mask) {
    if ((bits & mask) != 0) return bits & mask;
    size_t result = mask;
    unsigned next = 0;
    while (ok_ && (next = byte()) == 0) result += 255;
    return result + next;
  }

  void literals(size_t count) {
    if (count > static_cast<size_t>(input_end_ - input_) || count > static_cast<size_t>(output_end_ - output_)) {
      ok_ = false;
      return;
    }
    std::memcpy(output_, input_, count);
    input_ += count;
    output_ += count;
  }

  void match(size_t distance, size_t count, unsigned state) {
    if (!ok_ || distance > static_cast<size_t>(output_ - begin_) ||
        count > static_cast<size_t>(output_end_ - output_)) {
      ok_ = false;
      return;
    }
    // Source and target may overlap: that is how a run of one byte is written.
    const uint8_t* source = output_ - distance;
    if (distance >= count) {
      std::memcpy(output_, source, count);
      output_ += count;
    } else {
      while (count-- > 0) *output_++ = *source++;
    }
    state_ = state;
    literals(state);
  }

  void first_byte() {
    if (input_ == input_end_ || *input_ < 18) return;
    const unsigned count = byte() - 17;
    literals(count);
    state_ = count < kLongRun ? count : kLongRun;
  }

  void instruction(unsigned code) {
    if (code >= 64) {
      const size_t count = code >= 128 ? 5 + ((code >> 5U) & 3U) : 3 + ((code >> 5U) & 1U);
      const size_t distance = (size_t{byte()} << 3U) + ((code >> 2U) & 7U) + 1;
      match(distance, count, code & 3U);
    } else if (code >= 32) {
      const size_t count = 2 + length(code, 31);
      const unsigned pair = two_bytes();
      match((pair >> 2U) + 1, count, pair & 3U);
    } else if (code >= 16) {
      const size_t count = 2 + length(code, 7);
      const unsigned pair = two_bytes();
      const size_t distance = 16384 + ((code & 8U) << 11U) + (pair >> 2U);
      if (distance == 16384)
        done_ = true;
      else
        match(distance, count, pair & 3U);
    } else if (state_ == 0) {
      literals(3 + length(code, 15));
      state_ = kLongRun;
    } else {
      const bool after_long_run = state_ == kLongRun;
      const size_t distance = (size_t{byte()} << 2U) + (code >> 2U) + (after_long_run ? 2049 : 1);
      match(distance, after_long_run ? 3 : 2, code & 3U);
    }
  }

  unsigned two_bytes() {
    const unsigned low = byte();
    return low | (byte() << 8U);
  }

  const uint8_t* input_;
  const uint8_t* input_end_;
  uint8_t* output_;
  uint8_t* begin_;
  uint8_t* output_end_;
  unsigned state_ = 0;
  bool ok_ = true;
  bool done_ = false;
};

}  // namespace

std::optional<size_t> lzo_decode(const uint8_t* input, size_t size, uint8_t* output, size_t capacity) {
  return LzoDecoder(input, size, output, capacity).run();
}

}  // namespace situla
