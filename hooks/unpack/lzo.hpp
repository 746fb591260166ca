// What do blocks say that LZO compressed? enroot's default compressor, which libsquashfs leaves out for its license.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace situla {

/// Decodes one LZO1X stream (version 0) into at most `capacity` bytes; the size it had, nullopt when the stream is
/// damaged or does not fit. Format: kernel documentation, staging/lzo.rst.
std::optional<size_t> lzo_decode(const uint8_t* input, size_t size, uint8_t* output, size_t capacity);

}  // namespace situla
