// How does an image of another node's store become one of this store? Its user brings the file, which he may still
// change: it is copied, and the copy is looked at. And how does this store speak for one of its own?
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/result.hpp"
#include "hooks/courier/voucher.hpp"
#include "hooks/squashfs/output_file.hpp"
#include "hooks/store/image_store.hpp"

namespace situla {

/// `to`, empty until now, becomes the file, sealed, and is what the voucher says: ErrorKind::denied when it is
/// something else. Copied, also where the file system could share blocks: what is looked at is what was written, and
/// lies in the page cache for who mounts it, where shared blocks would have to be written out and read again. go_on:
/// asked now and then, with the bytes so far; no: ErrorKind::cancelled.
Result<void> copy_vouched(int from, OutputFile& to, const Voucher& voucher, const std::function<bool(uint64_t)>& go_on);

/// `begun` with what the store knows of that image, whose file is open; its SHA-256 is kept. go_on: asked now and then;
/// no: ErrorKind::cancelled.
Result<Voucher> vouch_for(const ImageStore& store, const std::string& name, int file, Voucher begun,
                          const std::function<bool()>& go_on);

/// For `situla verify`, after an import, while the step runs already and no longer than the broker's end of that
/// connection is open: with the processor time that nobody wants. This process has no other work from then on.
Result<void> note_content(const std::string& store, const std::string& name, int broker);

}  // namespace situla
