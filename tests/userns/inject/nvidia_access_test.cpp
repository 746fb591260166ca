// Who may use a GPU, as a container's builder sees it: a user who is root in a namespace of his own, and nowhere else?
#include <catch2/catch.hpp>

#include "hooks/inject/nvidia/selection.hpp"
#include "tests/support/as_user.hpp"

using namespace situla;
using namespace situla::nvidia;
using namespace situla::test;

namespace {

/// Files of the machine whose modes are known stand in for nodes: /etc/passwd is 0644 root, as nodes of nvidia-caps are
/// 0444; /etc/shadow is 0640 root, as a GPU is whose group the user is not in; /dev/null is everybody's.
Result<void> look() {
  TRY_ASSIGN(const RootDir host, RootDir::open("/"));
  const DeviceAccess access = kernel_access(host);
  EXPECT(access({"/dev/null", {}}, NodeUse::gpu));
  EXPECT(access({"/dev/null", {}}, NodeUse::capability));
  EXPECT(access({"/etc/passwd", {}}, NodeUse::capability));
  EXPECT(!access({"/etc/passwd", {}}, NodeUse::gpu));
  EXPECT(!access({"/etc/shadow", {}}, NodeUse::gpu));
  EXPECT(!access({"/etc/shadow", {}}, NodeUse::capability));
  EXPECT(!access({"/dev/no-such-gpu", {}}, NodeUse::capability));
  return {};
}

}  // namespace

TEST_CASE("a user may use the GPUs whose nodes he may open; capability nodes are only read") {
  CHECK(as_user(look).empty());
}

TEST_CASE("root of a user namespace may use no more than the user") {
  CHECK(in_user_namespace(look, true).empty());
  CHECK(in_user_namespace(look, false).empty());
}
