#include "hooks/containers/extract_tree.hpp"

#include <cerrno>

#include <sys/stat.h>

#include "common/sys/directory.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla {
namespace {

/// What a failed attempt has left.
Result<void> empty_directory(int directory_fd) {
  const std::string what = "the new tree";
  if (fchmod(directory_fd, 0700) != 0) return fail_errno(errno, "set the mode of " + what);
  TRY_ASSIGN(const std::vector<std::string> names, list_directory(directory_fd, what));
  for (const std::string& name : names) TRY(remove_whole_tree_at(directory_fd, name));
  return {};
}

/// What the next attempt would meet again.
bool is_final(const Error& error) {
  return error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::no_space;
}

}  // namespace

Result<bool> extract_tree(int image_fd, int target_directory_fd, ExtractOptions options, const RunAsRoot& as_root) {
  const auto extract = [&] { return extract_image(image_fd, target_directory_fd, options); };
  if (options.owners) {
    TRY_ASSIGN(const ImageInfo info, read_image_info(image_fd));
    options.owners = info.names_owners;
  }
  if (options.owners) {
    const auto extracted = as_root(extract);
    if (extracted) return true;
    if (is_final(extracted.error())) return fail(extracted.error());
    if (options.log != nullptr)
      options.log->warning("all files of the image become yours, for the owners that it names cannot be had: " +
                           extracted.error().message());
    TRY(empty_directory(target_directory_fd));
    options.owners = false;
  }
  TRY(extract());
  return false;
}

}  // namespace situla
