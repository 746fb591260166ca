// What does a new network namespace need before programs can use it?
#pragma once

#include "common/base/result.hpp"

namespace situla {

/// Brings the loopback interface of the current network namespace up; it has 127.0.0.1 and ::1 then.
Result<void> bring_loopback_up();

}  // namespace situla
