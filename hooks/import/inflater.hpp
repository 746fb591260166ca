// One member of a gzip file (RFC 1952), by ISA-L, or by zlib on AArch64: see inflater_zlib.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/result.hpp"

namespace situla {

/// Of a layer that is not what its format says.
Error damaged_layer(const std::string& how);

class Inflater {
 public:
  Inflater();
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void begin_member();

  struct Step {
    size_t taken = 0, produced = 0;  ///< bytes
    bool ended = false;              ///< the member, its checksum and length included, which were right
  };
  /// With output filled there may be more without new input. ErrorKind::corrupt: no gzip, or a wrong checksum.
  Result<Step> inflate(std::string_view input, char* output, size_t capacity);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace situla
