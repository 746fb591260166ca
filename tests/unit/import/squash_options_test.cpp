// Are the words of mksquashfs understood that sites use?
#include "hooks/squashfs/squash_options.hpp"

#include <catch2/catch.hpp>

#include "tests/support/memory_log.hpp"

using namespace situla;

TEST_CASE("ENROOT_SQUASH_OPTIONS") {
  test::MemoryLog log;
  const auto none = SquashOptions::parse("", log).value();
  CHECK(none.compressor == SquashOptions::Compressor::zstd);
  CHECK(none.level == 1U);
  const auto site = SquashOptions::parse("-noI -noD -noF -noX -no-duplicates", log).value();
  CHECK((site.store_inodes && site.store_data && site.store_fragments && site.store_xattrs && !site.deduplicate));
  const auto zstd = SquashOptions::parse("-comp zstd -Xcompression-level 3 -b 1M -processors 4", log).value();
  CHECK(zstd.level == 3U);
  CHECK(zstd.block_bytes == 1048576);
  CHECK(zstd.workers == 4);
  CHECK(SquashOptions::parse("-comp lzo", log).value().level == std::nullopt);
  CHECK(SquashOptions::parse("-comp zstd", log).value().level == 1U);
  CHECK(log.text().empty());
  CHECK(SquashOptions::parse("-all-root -mem 1G -frobnicate", log));
  CHECK(log.text() == "ENROOT_SQUASH_OPTIONS: ignoring -frobnicate\n");
  for (const char* words :
       {"-comp brotli", "-b 3000", "-b", "-Xcompression-level 99", "-comp lzo -Xcompression-level 10"}) {
    INFO(words);
    CHECK_FALSE(SquashOptions::parse(words, log));
  }
}
