#include "hooks/unpack/extract.hpp"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/unique_fd.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/socket.hpp"
#include "tests/fuzz/place.hpp"
#include "tests/fuzz/target.hpp"

/// A whole image, written out as files: all of them in the directory that was named.
void situla::fuzz(std::string_view bytes) {
  const auto image = sealed_memory("image", bytes);
  if (!image) return;
  const Place place;
  if (mkdir((place / "root").c_str(), 0700) != 0) std::abort();
  const UniqueFd root(open((place / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  NullLog log;
  (void)extract_image(image->get(), root.get(), {.log = &log, .threads = bytes.size() % 2 + 1});
  const auto names = list_directory(place.path());
  if (!names || names->size() != 1 || names->front() != "root") std::abort();
}
