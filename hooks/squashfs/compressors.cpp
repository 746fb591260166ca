// Part of the adapter of libsquashfs: includes sqfs/*.h.
#include <sqfs/compressor.h>

#include "hooks/squashfs/io.hpp"
#include "hooks/squashfs/squash_options.hpp"

namespace situla {

bool can_write(SquashOptions::Compressor compressor) {
  sqfs_compressor_config_t config;
  sqfs_compressor_t* created = nullptr;
  if (sqfs_compressor_config_init(&config, compressor_id(compressor), 131072, 0) != 0) return false;
  if (sqfs_compressor_create(&config, &created) != 0) return false;
  sqfs_destroy(created);
  return true;
}

}  // namespace situla
