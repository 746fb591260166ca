#include "hooks/squashfs/squash_options.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "common/base/text.hpp"

namespace situla {
namespace {

using Compressor = SquashOptions::Compressor;

struct Range {
  std::string_view name;
  Compressor compressor;
  uint32_t lowest, highest;
};
/// In the order of the enum.
constexpr std::array<Range, SquashOptions::kCompressors> kCompressors = {{
    {"gzip", Compressor::gzip, 1, 9},
    {"lzo", Compressor::lzo, 1, 9},
    {"lz4", Compressor::lz4, 1, 12},
    {"xz", Compressor::xz, 0, 9},
    {"zstd", Compressor::zstd, 1, 22},
}};

/// Words that change nothing here: we always do so, or it is about mksquashfs' own output.
constexpr std::array<std::string_view, 10> kSilent = {"-all-root",   "-noappend",    "-no-progress", "-progress",
                                                      "-quiet",      "-no-recovery", "-exports",     "-xattrs",
                                                      "-duplicates", "-reproducible"};
/// Words with a value that change nothing here.
constexpr std::array<std::string_view, 4> kSilentPairs = {"-mem", "-read-queue", "-write-queue", "-fragment-queue"};

template <typename List>
bool has(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

Error bad(std::string_view word, std::string_view value) {
  return Error(ErrorKind::usage,
               "ENROOT_SQUASH_OPTIONS: " + std::string(word) + " " + printable(value) + ": not a valid value")
      .with_code(ErrorCode::enroot_config);
}

class Parser {
 public:
  Parser(std::string_view words, LogSink& log) : words_(split_words(words)), log_(log) {}

  Result<SquashOptions> run() {
    while (next_ < words_.size()) TRY(option(words_[next_++]));
    const Range& range = kCompressors.at(static_cast<size_t>(options_.compressor));
    if (given_level_ && (*given_level_ < range.lowest || *given_level_ > range.highest))
      return fail(bad("-Xcompression-level", std::to_string(*given_level_))
                      .with_code(ErrorCode::enroot_config)
                      .with_hint(std::string(range.name) + " has the levels " + std::to_string(range.lowest) + " to " +
                                 std::to_string(range.highest)));
    if (given_level_)
      options_.level = given_level_;
    else if (options_.compressor != Compressor::zstd || given_compressor_)
      options_.level = options_.compressor == Compressor::zstd ? std::optional<uint32_t>(1) : std::nullopt;
    return options_;
  }

 private:
  Result<std::string_view> value(std::string_view word) {
    if (next_ == words_.size())
      return fail(Error(ErrorKind::usage, "ENROOT_SQUASH_OPTIONS: " + std::string(word) + " needs a value")
                      .with_code(ErrorCode::enroot_config));
    return words_[next_++];
  }

  Result<void> option(std::string_view word) {
    for (const auto& [name, flag, setting] : std::array<std::tuple<std::string_view, bool*, bool>, 8>{{
             {"-noI", &options_.store_inodes, true},
             {"-noId", &options_.store_inodes, true},
             {"-noD", &options_.store_data, true},
             {"-noF", &options_.store_fragments, true},
             {"-noX", &options_.store_xattrs, true},
             {"-no-fragments", &options_.fragments, false},
             {"-no-duplicates", &options_.deduplicate, false},
             {"-Xhc", &options_.lz4_hc, true},
         }}) {
      if (word != name) continue;
      *flag = setting;
      return {};
    }
    if (word == "-comp") return compressor();
    if (word == "-b") return block_size();
    if (word == "-Xcompression-level") return level();
    if (word == "-processors") {
      TRY_ASSIGN(const std::string_view text, value(word));
      options_.workers = static_cast<uint32_t>(std::min<uint64_t>(parse_unsigned(text).value_or(0), 256));
      return {};
    }
    if (has(kSilentPairs, word)) TRY(value(word));
    if (has(kSilent, word) || has(kSilentPairs, word)) return {};
    log_.warning("ENROOT_SQUASH_OPTIONS: ignoring " + printable(word));
    return {};
  }

  Result<void> compressor() {
    TRY_ASSIGN(const std::string_view name, value("-comp"));
    for (const Range& range : kCompressors) {
      if (range.name != name) continue;
      options_.compressor = range.compressor;
      given_compressor_ = true;
      return {};
    }
    return fail(bad("-comp", name).with_code(ErrorCode::enroot_config).with_hint("use zstd, lz4, lzo, gzip or xz"));
  }

  Result<void> block_size() {
    TRY_ASSIGN(const std::string_view text, value("-b"));
    const auto bytes = parse_size(text);
    const bool good = bytes && *bytes >= 4096 && *bytes <= 1048576 && (*bytes & (*bytes - 1)) == 0;
    if (!good)
      return fail(bad("-b", text).with_code(ErrorCode::enroot_config).with_hint("a power of two from 4K to 1M"));
    options_.block_bytes = static_cast<uint32_t>(*bytes);
    return {};
  }

  Result<void> level() {
    TRY_ASSIGN(const std::string_view text, value("-Xcompression-level"));
    const auto number = parse_unsigned(text);
    if (!number || *number > 1000) return fail(bad("-Xcompression-level", text));
    given_level_ = static_cast<uint32_t>(*number);
    return {};
  }

  std::vector<std::string_view> words_;
  LogSink& log_;
  size_t next_ = 0;
  SquashOptions options_;
  bool given_compressor_ = false;
  std::optional<uint32_t> given_level_;
};

}  // namespace

std::string_view name_of(SquashOptions::Compressor compressor) {
  return kCompressors.at(static_cast<size_t>(compressor)).name;
}

Result<SquashOptions> SquashOptions::parse(std::string_view words, LogSink& log) {
  return Parser(words, log).run();
}

}  // namespace situla
