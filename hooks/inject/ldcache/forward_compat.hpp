// Are the newer CUDA driver libraries that an image brings ("forward compatibility") to be used on this host?
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

/// Where NVIDIA's packages put them.
constexpr std::string_view kCudaCompatDirectory = "/usr/local/cuda/compat";

/// The directory without links, inside the root, which becomes a LibraryCacheEdit::preferred; nullopt: the driver's own
/// libraries are to be used. driver_version is the host's ("550.54.14"), cuda_version what it supports ("12.4"); both
/// may be empty where they are unknown. An error says what is wrong with the image; its container works without.
Result<std::optional<std::string>> forward_compat_directory(const RootDir& root, std::string_view directory,
                                                            std::string_view driver_version,
                                                            std::string_view cuda_version);

}  // namespace situla
