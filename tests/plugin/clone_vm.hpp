// What does a callback do to a process whose memory it shares, but whose descriptors it only has copies of?
#pragma once

#include <functional>
#include <string>

namespace situla::test {

/// Runs the body in a child made by clone(CLONE_VM | SIGCHLD), in a mount namespace of its own where that is allowed,
/// and waits. Returns how the child ended if it did not end well, else "".
std::string run_in_clone(const std::function<void()>& body);

}  // namespace situla::test
