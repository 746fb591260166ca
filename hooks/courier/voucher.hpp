// Is this file the image that another node's store has? Only if that node's service user says so: MUNGE tells who
// speaks (munge(7)), SHA-256 whether this is the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "common/sys/process/run_program.hpp"

namespace situla {

/// What the service user of the node that has an image says of it, for one user's one step.
struct Voucher {
  std::string step;       ///< "123.0"
  uint64_t uid = 0;       ///< whom the registry lets have the image
  std::string question;   ///< what the registry was asked: repository, name, platform, login
  NamedManifest image;    ///< what the name meant to it
  uint64_t answered = 0;  ///< when it said so, seconds since the epoch
  std::string name;       ///< of the image in that node's store, ImageKey::name()
  Digest content;         ///< SHA-256 of the file
  uint64_t bytes = 0;     ///< of the file
  // As of StoreRecord.
  std::string architecture;
  uint64_t fetched_bytes = 0;

  static auto fields(auto& it) {
    return std::tie(it.step, it.uid, it.question, it.image, it.answered, it.name, it.content, it.bytes, it.architecture,
                    it.fetched_bytes);
  }
};

/// A credential that only the same user can decode, for some minutes.
Result<std::string> sign(const Voucher& voucher);
/// ErrorKind::denied unless this very user has signed it on a node with the same MUNGE key, for this step and uid.
Result<Voucher> check_signed(std::string_view credential, const std::string& step, uid_t uid);
/// The same of what unmunge(1) has printed: `--keys=STATUS,UID --numeric`.
Result<Voucher> check_decoded(const ProgramRun& unmunge, const std::string& step, uid_t uid);

}  // namespace situla
