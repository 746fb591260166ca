#include "hooks/unpack/extract.hpp"

#include <cstdlib>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/unique_fd.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

/// A directory in memory, in which the one to extract into is the only name.
struct Place {
  std::string path = "/dev/shm/situla-fuzz-XXXXXX";
  Place() {
    if (mkdtemp(path.data()) == nullptr || mkdir((path + "/root").c_str(), 0700) != 0) std::abort();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { (void)remove_tree(path); }
};

}  // namespace

/// A whole image, written out as files.
void situla::fuzz(std::string_view bytes) {
  const auto image = sealed_memory("image", bytes);
  if (!image) return;
  const Place place;
  const UniqueFd root(open((place.path + "/root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  NullLog log;
  (void)extract_image(image->get(), root.get(), {.log = &log, .threads = bytes.size() % 2 + 1});
  const auto names = list_directory(place.path);
  if (!names || names->size() != 1 || names->front() != "root") std::abort();
}
