#include "hooks/containers/container_identity.hpp"

#include <array>
#include <cerrno>
#include <tuple>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kBytes = 16;
constexpr size_t kMostImageBytes = 4096;

Result<std::string> new_identity() {
  std::array<uint8_t, kBytes> bytes{};
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (count < 0 && errno != EINTR) return fail_errno(errno, "get random bytes");
    if (count > 0) done += static_cast<size_t>(count);
  }
  return to_hex(bytes.data(), bytes.size());
}

/// The identity, and of who was made of an image that is known, a line feed and the image.
Result<void> write_as(int directory_fd, const std::string& name, std::string_view image) {
  TRY_ASSIGN(std::string text, new_identity());
  TRY_ASSIGN(const UniqueFd file, open_file_at(directory_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0400));
  if (!image.empty()) text += '\n' + printable(image).substr(0, kMostImageBytes);
  return write_all(file.get(), text);
}

struct IdentityFile {
  std::string identity, image;
  struct timespec made {};
};

std::optional<IdentityFile> read_identity(int directory_fd) {
  constexpr size_t kMostBytes = 2 * kBytes + 1 + kMostImageBytes;
  const auto file = open_file_at(directory_fd, std::string(kIdentityFile), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  if (!file || fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto text = read_all(file->get(), kMostBytes);
  if (!text) return std::nullopt;
  IdentityFile read{.identity = *text, .image = "", .made = status.st_mtim};
  if (const auto parts = cut(*text, '\n')) {
    read.identity = parts->first;
    read.image = parts->second;
    if (read.image.empty() || read.image != printable(read.image)) return std::nullopt;
  }
  if (!is_container_identity(read.identity)) return std::nullopt;
  return read;
}

}  // namespace

bool is_container_identity(std::string_view text) {
  return text.size() == 2 * kBytes && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<void> write_identity(int directory_fd, std::string_view image) {
  // Of an image that was made of a container by other means than `export`.
  TRY(remove_tree_at(directory_fd, std::string(kIdentityFile)));
  return write_as(directory_fd, std::string(kIdentityFile), image);
}

std::string identity_of(int directory_fd) {
  auto read = read_identity(directory_fd);
  return read ? std::move(read->identity) : std::string();
}

std::optional<ContainerOrigin> origin_of(int directory_fd) {
  auto read = read_identity(directory_fd);
  if (!read || read->image.empty()) return std::nullopt;
  return ContainerOrigin{std::move(read->image), std::chrono::system_clock::from_time_t(read->made.tv_sec)};
}

std::string ensure_identity(int directory_fd) {
  if (std::string known = identity_of(directory_fd); !known.empty()) return known;
  // It appears whole, and only if there is none.
  const std::string whole = random_name(std::string(kIdentityFile) + ".");
  if (write_as(directory_fd, whole, ""))
    std::ignore = linkat(directory_fd, whole.c_str(), directory_fd, std::string(kIdentityFile).c_str(), 0);
  (void)unlinkat(directory_fd, whole.c_str(), 0);
  return identity_of(directory_fd);
}

}  // namespace situla
