// Why can this test not run here? The reason is printed where tests/run finds it and counts it.
#pragma once

#include <iostream>

/// Ends the test case. SITULA_FORBID_SKIPS=1 makes tests/run count it as a failure.
#define SITULA_SKIP(reason)                         \
  do {                                              \
    std::cout << "SKIP: " << (reason) << std::endl; \
    SUCCEED("skipped");                             \
    return;                                         \
  } while (false)
