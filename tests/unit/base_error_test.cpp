#include <memory>
#include <stdexcept>

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/result.hpp"
#include "common/base/scope_exit.hpp"
#include "common/base/thrown.hpp"
#include "common/base/unique_fd.hpp"

using namespace situla;

namespace {

Result<int> open_missing() {
  return fail_errno(ENOENT, "open /x");
}

Result<int> middle(bool good) {
  if (!good) TRY_CONTEXT("reading the list", open_missing());
  return 7;
}

Result<std::unique_ptr<int>> outer(bool good) {
  TRY_ASSIGN(const int value, middle(good));
  return std::make_unique<int>(value);
}

}  // namespace

TEST_CASE("an error reads outside in, and keeps where it came from") {
  const auto result = outer(false);
  REQUIRE_FALSE(result);
  CHECK(result.error().message() == "reading the list: open /x: No such file or directory");
  CHECK(result.error().kind() == ErrorKind::not_found);
  CHECK(result.error().errnum() == ENOENT);
}

TEST_CASE("TRY_ASSIGN moves a move-only value through") {
  auto result = outer(true);
  REQUIRE(result);
  CHECK(**result == 7);
}

TEST_CASE("the innermost hint wins, and is printed once, after the message") {
  Error error(ErrorKind::usage, "option x");
  CHECK(error.text() == "option x [wrong-input]");
  error.with_hint("deep").with_context("outer").with_hint("shallow");
  CHECK(error.hint() == "deep");
  CHECK(error.text() == "outer: option x [wrong-input]\nhint: deep");
}

TEST_CASE("the kind follows from errno") {
  struct Case {
    int errnum;
    ErrorKind kind;
  };
  for (const Case& c :
       {Case{ENOENT, ErrorKind::not_found}, Case{EEXIST, ErrorKind::exists}, Case{EACCES, ErrorKind::denied},
        Case{EPERM, ErrorKind::denied}, Case{ENOSPC, ErrorKind::no_space}, Case{EDQUOT, ErrorKind::no_space},
        Case{ENOSYS, ErrorKind::unsupported}, Case{ECONNREFUSED, ErrorKind::network}, Case{EINTR, ErrorKind::cancelled},
        Case{EIO, ErrorKind::failure}}) {
    INFO(c.errnum);
    CHECK(Error::from_errno(c.errnum, "x").kind() == c.kind);
  }
}

TEST_CASE("a machine that cannot answer has not said no") {
  for (const int errnum : {EMFILE, ENFILE, ENOMEM, ENOSPC, EDQUOT, EIO, ESTALE, EINTR}) {
    INFO(errnum);
    CHECK(Error::from_errno(errnum, "open x").with_context("more").inconclusive());
  }
  for (const int errnum : {ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, EINVAL, ENOSYS})
    CHECK_FALSE(Error::from_errno(errnum, "open x").inconclusive());
  CHECK_FALSE(Error(ErrorKind::not_found, "no x").inconclusive());
}

TEST_CASE("what the C++ library throws is an error") {
  const auto thrown = [](const auto& exception) {
    return with_thrown_errors([&]() -> Result<int> { throw exception; });
  };
  CHECK(thrown(std::bad_alloc()).error().message() == "allocate memory: Cannot allocate memory");
  const std::system_error no_thread(EAGAIN, std::generic_category());
  CHECK(thrown(no_thread).error().message() == "start a thread: Resource temporarily unavailable");
  CHECK(thrown(std::runtime_error("a library's words")).error().message() == "a library's words");
  CHECK(with_thrown_errors([]() -> Result<int> { return 7; }).value() == 7);
}

TEST_CASE("every kind survives the way through a protocol") {
  for (int i = 0; i <= static_cast<int>(ErrorKind::cancelled); ++i) {
    const auto kind = static_cast<ErrorKind>(i);
    INFO(to_string(kind));
    CHECK(error_kind_from_string(to_string(kind)) == kind);
  }
  CHECK(error_kind_from_string("no such kind") == ErrorKind::failure);
}

TEST_CASE("UniqueFd closes once and leaves errno alone") {
  int number = -1;
  {
    UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    REQUIRE(fd);
    UniqueFd moved = std::move(fd);
    CHECK_FALSE(fd);  // NOLINT(bugprone-use-after-move): that a moved-from owner is empty is what is tested
    number = moved.get();
    errno = E2BIG;
  }
  CHECK(errno == E2BIG);
  CHECK(fcntl(number, F_GETFD) == -1);

  UniqueFd kept(open("/dev/null", O_RDONLY | O_CLOEXEC));
  number = kept.release();
  CHECK_FALSE(kept);
  CHECK(fcntl(number, F_GETFD) != -1);
  UniqueFd again(number);
  again.reset();
  CHECK(fcntl(number, F_GETFD) == -1);
}

TEST_CASE("ScopeExit runs unless dismissed") {
  int runs = 0;
  {
    const ScopeExit count([&] { ++runs; });
  }
  CHECK(runs == 1);
  {
    ScopeExit count([&] { ++runs; });
    count.dismiss();
  }
  CHECK(runs == 1);
}
