#include "hooks/store/adoption.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/registry/sha256.hpp"

namespace situla {

Result<void> copy_vouched(int from, OutputFile& to, const Voucher& voucher,
                          const std::function<bool(uint64_t)>& go_on) {
  constexpr size_t kPiece = size_t{256} << 10U;  // stays in the processor's cache from one copy to the other
  constexpr uint64_t kStretch = uint64_t{16} << 20U;
  struct stat status {};
  if (fstat(from, &status) != 0) return fail_errno(errno, "look at the file");
  if (static_cast<uint64_t>(status.st_size) != voucher.bytes)
    return fail(ErrorKind::denied,
                "it has " + std::to_string(status.st_size) + " bytes instead of " + std::to_string(voucher.bytes));
  std::string piece(kPiece, '\0');
  Sha256 hash;
  for (uint64_t done = 0, stretch = 0; done < voucher.bytes;) {
    if (done == stretch && !go_on(done)) return fail(ErrorKind::cancelled, "");
    const size_t wanted = std::min<uint64_t>({kPiece, voucher.bytes - done, stretch + kStretch - done});
    const ssize_t count = pread(from, piece.data(), wanted, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read the file");
    if (count == 0) return fail(ErrorKind::denied, "it has become shorter");
    const auto bytes = std::string_view(piece).substr(0, static_cast<size_t>(count));
    hash.update(bytes);
    TRY_CONTEXT("write the image into the store", write_all(to.fd(), bytes));
    done += bytes.size();
    if (done < stretch + kStretch) continue;
    begin_to_write_out(to.fd(), stretch, kStretch);
    stretch = done;
  }
  TRY(to.seal());
  const Digest content = hash.finish();
  if (content != voucher.content)
    return fail(ErrorKind::denied, "its SHA-256 is " + content.text() + ", and not " + voucher.content.text());
  return check_superblock(to.fd());
}

Result<Voucher> vouch_for(const ImageStore& store, const std::string& name, int file, Voucher begun,
                          const std::function<bool()>& go_on) {
  struct stat status {};
  if (fstat(file, &status) != 0) return fail_errno(errno, "look at the image");
  const StoreRecord record = store.record(name);
  begun.name = name;
  begun.bytes = static_cast<uint64_t>(status.st_size);
  begun.architecture = record.architecture;
  begun.fetched_bytes = record.fetched_bytes;
  if (const auto known = store.content(name)) {
    begun.content = *known;
    return begun;
  }
  TRY_ASSIGN(const auto content, hash_content(file, go_on));
  if (!content) return fail(ErrorKind::cancelled, "");
  begun.content = *content;
  (void)store.note_content_of(file, name, begun.content);
  return begun;
}

Result<void> note_content(const std::string& store, const std::string& name, int broker) {
  TRY(run_when_idle());
  TRY_ASSIGN(const ImageStore images, ImageStore::open(store));
  const auto file = images.find_named(name);
  if (!file || images.content(name)) return {};
  TRY_ASSIGN(const auto content, hash_content(file->get(), [broker] { return !has_hung_up(broker); }));
  return content ? images.note_content_of(file->get(), name, *content) : Result<void>();
}

}  // namespace situla
