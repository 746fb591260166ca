// Which ids do the user namespaces of a step have? RootOperation::write_id_maps.
#pragma once

#include <optional>

#include "common/sys/mount/id_maps.hpp"
#include "common/sys/mount/subordinate_ids.hpp"

namespace situla {

/// nullopt: the user has none; the log says so where the reason is a mistake of the site's.
std::optional<IdRange> range_of(const Identity& user, const IdRangeRule& rule);
/// Of a container.
IdMaps container_maps(const Identity& user, bool remap_root, const std::optional<IdRange>& range);
/// Of a helper that reads or removes the user's files, whoever of his range owns them. His own ids keep their numbers.
/// nullopt: without a range he owns all of them.
std::optional<IdMaps> helper_maps(const Identity& user, const IdRangeRule& rule);

}  // namespace situla
