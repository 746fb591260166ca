#include <catch2/catch.hpp>

#include "common/base/text.hpp"

using namespace situla;

TEST_CASE("split keeps empty pieces, split_nonempty drops them") {
  CHECK(split("a,,b", ',') == std::vector<std::string_view>{"a", "", "b"});
  CHECK(split("", ',') == std::vector<std::string_view>{""});
  CHECK(split(",", ',') == std::vector<std::string_view>{"", ""});
  CHECK(split_nonempty(",a,,b,", ',') == std::vector<std::string_view>{"a", "b"});
  CHECK(split_nonempty("", ',').empty());
}

TEST_CASE("split_words and trim take any run of blanks") {
  CHECK(split_words(" a\t b\n\nc ") == std::vector<std::string_view>{"a", "b", "c"});
  CHECK(split_words(" \t ").empty());
  CHECK(trim(" \t a b \r\n") == "a b");
  CHECK(trim("   ").empty());
}

TEST_CASE("cut splits at the first separator only") {
  REQUIRE(cut("KEY=a=b", '='));
  CHECK(cut("KEY=a=b", '=')->first == "KEY");
  CHECK(cut("KEY=a=b", '=')->second == "a=b");
  CHECK_FALSE(cut("KEY", '='));
}

TEST_CASE("join and to_lower") {
  CHECK(join({"a", "b", "a"}, ", ") == "a, b, a");
  CHECK(join({}, ",").empty());
  CHECK(join({"", ""}, "-") == "-");
  CHECK(to_lower("AbZ-ÄÖ") == "abz-ÄÖ");
}

TEST_CASE("parse_unsigned takes whole decimal numbers only") {
  CHECK(parse_unsigned("0") == 0U);
  CHECK(parse_unsigned("18446744073709551615") == UINT64_MAX);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1x", "0x10", "18446744073709551616"}) {
    INFO(text);
    CHECK_FALSE(parse_unsigned(text));
  }
}

TEST_CASE("parse_size understands binary units") {
  struct Case {
    const char* text;
    uint64_t bytes;
  };
  for (const Case& c : {Case{"0", 0}, Case{"1048576", 1048576}, Case{"512k", 524288}, Case{"64M", 64U << 20U},
                        Case{"64MiB", 64U << 20U}, Case{"2GiB", uint64_t{2} << 30U}, Case{"2 gb", uint64_t{2} << 30U},
                        Case{"1T", uint64_t{1} << 40U}, Case{"7B", 7}}) {
    INFO(c.text);
    REQUIRE(parse_size(c.text));
    CHECK(*parse_size(c.text) == c.bytes);
  }
  for (const char* text :
       {"", "M", "1.5G", "-1", "1 2", "1Mi", "1P", "64MiBs", "99999999999999999999", "18446744073709551615k"}) {
    INFO(text);
    REQUIRE_FALSE(parse_size(text));
    CHECK(parse_size(text).error().kind() == ErrorKind::usage);
    CHECK_FALSE(parse_size(text).error().hint().empty());
  }
}

TEST_CASE("format_size is for people") {
  CHECK(format_size(0) == "0 B");
  CHECK(format_size(1023) == "1023 B");
  CHECK(format_size(1536) == "1.5 KiB");
  CHECK(format_size(uint64_t{3} << 40U) == "3.0 TiB");
}

TEST_CASE("shell_quote gives one word that a shell reads back as the text") {
  CHECK(shell_quote("plain-word_1.0/x:y") == "plain-word_1.0/x:y");
  CHECK(shell_quote("") == "''");
  CHECK(shell_quote("two words") == "'two words'");
  CHECK(shell_quote("it's") == R"('it'\''s')");
  CHECK(shell_quote("$(id)") == "'$(id)'");
  CHECK(shell_quote("~root") == "'~root'");
}

TEST_CASE("printable lets no control character and no broken UTF-8 through") {
  CHECK(printable("plain Ünïcödé ✓ 🦊") == "plain Ünïcödé ✓ 🦊");
  CHECK(printable("a\x1b[31mb\nc\x7f") == "a\\x1b[31mb\\x0ac\\x7f");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");                    // C1 control sequence introducer
  CHECK(printable("\xff") == "\\xff");                             // never valid
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // overlong '/'
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // surrogate
  CHECK(printable("\xe2\x9c") == "\\xe2\\x9c");                    // cut short
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}

TEST_CASE("the word that was meant is the nearest one, and none when all are far") {
  constexpr std::array<std::string_view, 4> kKnown = {"mount", "store_path", "import_timeout", "build_timeout"};
  CHECK(closest("muont", kKnown) == "mount");
  CHECK(closest("Mount", kKnown) == "mount");
  CHECK(closest("mounts", kKnown) == "mount");
  CHECK(closest("store-path", kKnown) == "store_path");
  CHECK(closest("storepath", kKnown) == "store_path");
  CHECK(closest("import_timout", kKnown) == "import_timeout");
  CHECK(closest("bild_timeout", kKnown) == "build_timeout");
  CHECK_FALSE(closest("colour", kKnown));
  CHECK_FALSE(closest("x", kKnown));
  CHECK_FALSE(closest("", kKnown));
  CHECK_FALSE(closest(std::string(100000, 'm'), kKnown));
  CHECK_FALSE(closest("mount", {}));
  CHECK(suggestion("muont", kKnown, "known keys") ==
        "did you mean \"mount\"? known keys: mount, store_path, import_timeout, build_timeout");
  CHECK(suggestion("colour", kKnown, "known keys") == "known keys: mount, store_path, import_timeout, build_timeout");
}

TEST_CASE("text in columns") {
  CHECK(flush_left("ab", 4) == "ab  ");
  CHECK(flush_right("ab", 4) == "  ab");
  CHECK(flush_left("abcde", 4) == "abcde");
  CHECK(flush_right("abcde", 4) == "abcde");
  CHECK(flush_left("", 0).empty());
}

TEST_CASE("to_hex") {
  const uint8_t bytes[] = {0x00, 0x0f, 0xa5, 0xff};
  CHECK(to_hex(bytes, sizeof bytes) == "000fa5ff");
  CHECK(to_hex(bytes, 0).empty());
}
