#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "common/base/error.hpp"
#include "common/base/result.hpp"
#include "common/base/text.hpp"

using namespace situla;

TEST_CASE("each code has one name, and each name its code") {
  std::set<std::string_view> names;
  for (int i = 1; i <= static_cast<int>(last_of(ErrorCode{})); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    const std::string_view name = to_string(code);
    CAPTURE(name);
    CHECK(error_code_from_string(name) == code);
    CHECK(names.insert(name).second);
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string_view::npos);
  }
  CHECK(to_string(ErrorCode::none).empty());
  CHECK(error_code_from_string("no-such-code") == ErrorCode::none);
}

TEST_CASE("an error without a code of its own has that of its errno or its kind") {
  CHECK(Error(ErrorKind::usage, "x").code() == ErrorCode::wrong_input);
  CHECK(Error(ErrorKind::cancelled, "x").code() == ErrorCode::cancelled);
  CHECK(Error(ErrorKind::unreachable, "x").code() == ErrorCode::network);
  CHECK(Error::from_errno(EACCES, "x").code() == ErrorCode::denied);
  CHECK(Error::from_errno(EDQUOT, "x").code() == ErrorCode::disk_full);
  CHECK(Error::from_errno(ENOMEM, "x").code() == ErrorCode::memory);
  CHECK(Error::from_errno(EMFILE, "x").code() == ErrorCode::open_files);
}

TEST_CASE("the innermost code wins, and stands at the end of the line") {
  Error error(ErrorKind::denied, "pull x");
  CHECK(error.line() == "pull x [denied]");
  error.with_code(ErrorCode::registry_login).with_context("import").with_code(ErrorCode::helper).with_hint("log in");
  CHECK(error.line() == "import: pull x [registry-login]");
  CHECK(error.text() == "import: pull x [registry-login]\nhint: log in");
  CHECK(error.message() == "import: pull x");
}

TEST_CASE("an error in other words keeps what it is") {
  const Error error =
      Error::from_errno(ENOSPC, "write /x").with_hint("make room").in_words("write the image: there is no room");
  CHECK(error.text() == "write the image: there is no room [disk-full]\nhint: make room");
  CHECK(error.errnum() == ENOSPC);
  CHECK(error.kind() == ErrorKind::no_space);
}

TEST_CASE("an error comes back from another process as it went") {
  const Error error = Error(ErrorKind::denied, "pull x").with_hint("log in").with_code(ErrorCode::registry_login);
  const Error back = SentError::of(error).error();
  CHECK(back.text() == error.text());
  CHECK(back.kind() == error.kind());
  // One without a code still takes that of a layer above.
  CHECK(SentError::of(Error(ErrorKind::failure, "x")).error().with_code(ErrorCode::hook).code() == ErrorCode::hook);
}
