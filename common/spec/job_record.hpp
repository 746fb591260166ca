// What does a job's record in Slurm (Comment, AdminComment) say of an image? One word for each, with fixed characters,
// whatever the image is called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace situla {

/// What slurmctld takes (job_mgr.c), in bytes; a longer one it refuses.
constexpr size_t kMostJobComment = 1024;

struct ImageRecord {
  std::string image;   ///< as typed: foreign bytes
  std::string digest;  ///< of its manifest, "sha256:..."; empty: none is known
  uint64_t bytes = 0;  ///< of its file; 0: not known
  std::string source;  ///< where it came from: "registry", "store", ...
};

/// "situla: docker://ubuntu:24.04 sha256:... 28.7MiB registry;". Letters, digits and "._-/:@#+~" stay as they are in an
/// image's name and all other bytes become %XX, so that no name holds a blank, a quote, '=' or ';'; one of more than
/// 256 bytes is cut, and ends in "...".
std::string job_record_word(const ImageRecord& record);

/// Whether it is such a word; for a program that is given one.
bool is_job_record_word(std::string_view text);

/// Whether a comment has a word of the same image with the same digest, wherever the image came from.
bool says_image(std::string_view comment, std::string_view word);

/// The comment, as it was, with the word behind. An error when it would be longer than kMostJobComment, or if Slurm
/// would take it for something to be added ("+=").
Result<std::string> add_image(std::string_view comment, std::string_view word);

/// As scontrol(1) wants it: "123", "123_4" of an array, "123+1" of a heterogeneous job.
bool is_job_number(std::string_view text);

}  // namespace situla
