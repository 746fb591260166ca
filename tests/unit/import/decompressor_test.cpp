// Are gzip (several members), zstd (several frames) and plain streams read, and damaged ones refused?
#include "hooks/import/decompressor.hpp"

#include <string>

#include <zlib.h>
#include <zstd.h>

#include <catch2/catch.hpp>

using namespace situla;

namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(compressBound(text.size()) + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

Result<std::string> unpack(const std::string& bytes, size_t step, size_t capacity) {
  TRY_ASSIGN(const auto decompressor, make_decompressor(std::string_view(bytes).substr(0, 4)));
  std::string out;
  std::string buffer(capacity, '\0');
  for (size_t at = 0; at < bytes.size(); at += step) {
    std::string_view input = std::string_view(bytes).substr(at, step);
    while (true) {
      TRY_ASSIGN(const size_t size, decompressor->run(input, buffer.data(), capacity));
      out.append(buffer, 0, size);
      if (size < capacity && input.empty()) break;
    }
  }
  TRY(decompressor->finish());
  return out;
}

std::string sample() {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += std::to_string(i * 7919 % 10007) + (i % 5 == 0 ? "\n" : " ");
  return text;
}

}  // namespace

TEST_CASE("streams of every kind, in pieces of every size") {
  const std::string text = sample();
  const std::string half = text.substr(0, text.size() / 2);
  const std::string rest = text.substr(text.size() / 2);
  const std::string skippable("\x50\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
  for (const std::string& bytes :
       {text, gzip(text), gzip(half) + gzip(rest), gzip(half) + gzip("") + gzip(rest),
        gzip(text) + std::string(1024, '\0'), zstd(text), zstd(half) + zstd(rest), skippable + zstd(text)}) {
    for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}, bytes.size()})
      for (const size_t capacity : {size_t{3}, size_t{5000}, size_t{1} << 20U}) {
        if (step == 1 && capacity == 3) continue;  // slow, and covered by its neighbors
        const auto result = unpack(bytes, step, capacity);
        REQUIRE(result);
        REQUIRE(*result == text);
      }
  }
}

TEST_CASE("the output may fill up at the end of any block") {
  // Blocks of a few letters that end in one, as where pigz joins its pieces (github.com/intel/isa-l issue 316).
  std::string text;
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_HUFFMAN_ONLY) == Z_OK);
  std::string bytes(1U << 16U, '\0');
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  for (int i = 0; i < 40; ++i) {
    std::string piece(static_cast<size_t>(1 + i % 7), static_cast<char>('a' + i % 3));
    text += piece;
    stream.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_in = static_cast<uInt>(piece.size());
    REQUIRE(deflate(&stream, i == 39 ? Z_FINISH : i % 2 == 0 ? Z_BLOCK : Z_PARTIAL_FLUSH) >= Z_OK);
  }
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  for (size_t capacity = 1; capacity <= text.size() + 1; ++capacity)
    for (const size_t step : {size_t{1}, bytes.size()}) {
      CAPTURE(capacity, step);
      const auto result = unpack(bytes, step, capacity);
      REQUIRE(result);
      REQUIRE(*result == text);
    }
}

TEST_CASE("zstd windows: 128 MiB are read, more is refused for what it is") {
  const std::string text = sample();
  for (const int window : {27, 28}) {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window);
    ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
    std::string bytes(ZSTD_compressBound(text.size()) + 100, '\0');
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    // Without ZSTD_e_end at once: the size of the content must not be known, or the window would be that.
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue);
    REQUIRE(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end) == 0);
    ZSTD_freeCCtx(context);
    bytes.resize(out.pos);
    const auto result = unpack(bytes, 4096, 1U << 20U);
    REQUIRE(result.has_value() == (window == 27));
    if (result) {
      CHECK(*result == text);
      continue;
    }
    CHECK(result.error().kind() == ErrorKind::unsupported);
    CHECK(result.error().code() == ErrorCode::image_unsupported);
    CHECK(result.error().message() == "decompress zstd: it needs a window of more than 128 MiB");
  }
}

TEST_CASE("damaged streams are corrupt") {
  const std::string text = sample();
  for (std::string bytes : {gzip(text), zstd(text)}) {
    const auto cut = unpack(bytes.substr(0, bytes.size() - 5), 4096, 4096);
    REQUIRE_FALSE(cut);
    CHECK(cut.error().kind() == ErrorKind::corrupt);
    CHECK(cut.error().code() == ErrorCode::image_damaged);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
    bytes[bytes.size() / 2 + 1] = static_cast<char>(bytes[bytes.size() / 2 + 1] ^ 0x55);
    if (bytes[0] == '\x1f') CHECK_FALSE(unpack(bytes, 4096, 4096));
  }
  // Its checksum, and its length.
  for (const size_t back : {size_t{8}, size_t{4}}) {
    std::string bytes = gzip(text);
    bytes[bytes.size() - back] = static_cast<char>(bytes[bytes.size() - back] ^ 1);
    CHECK(unpack(bytes, 4096, 4096).error().message() == "inflate: the gzip checksum is wrong");
  }
}
