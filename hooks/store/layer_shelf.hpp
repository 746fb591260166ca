// Which layers does the store know of, for one user?
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/store/image_store.hpp"

namespace situla {

/// `<store>/layers/<uid>/<registry>/<origin>/<64 hex>.<kind>@<name of the image that holds the content>`. An importer
/// wrote what is in such a file, and here it is only bytes. What importers say is believed for the user they worked for
/// and nobody else; the image is named by the store itself, so that no index can name somebody else's.
class LayerShelf {
 public:
  /// registry, origin: origin_key() of the registry alone, and of the repository in it. Layers of other registries are
  /// not looked at.
  LayerShelf(const ImageStore& store, uid_t uid, const std::string& registry, std::string origin);

  struct Found {
    UniqueFd index, donor;      ///< for reading
    std::string image;          ///< the donor's name
    bool other_origin = false;  ///< its blocks, or some of them, come from one
  };
  /// Indexes of the same origin first. One whose image is gone is removed.
  std::optional<Found> find(const Digest& layer, const std::string& kind);
  /// A file without a name.
  [[nodiscard]] Result<OutputFile> create() const;
  /// Names the index; others of this layer and origin go. The file is sealed. trim_indexes() comes after the last one.
  void put(OutputFile& index, const Digest& layer, const std::string& kind, const std::string& image);
  /// Of all indexes of a user.
  static uint64_t bytes_of(const ImageStore& store, uid_t uid);

 private:
  struct Place {
    std::string origin, image;
  };
  void list();
  /// An image that has blocks of another origin gives them on.
  [[nodiscard]] bool is_foreign(const Place& place) const;

  const ImageStore& store_;
  std::string directory_, origin_;  ///< directory_: of the user and registry
  bool listed_ = false;
  std::multimap<std::string, Place> places_;  ///< by "<64 hex>.<kind>"
};

/// Indexes of the layers of an image that is being written: they are kept when it is.
class NewIndexes {
 public:
  explicit NewIndexes(LayerShelf& shelf) : shelf_(shelf) {}
  /// Its file, to be written to; -1: it is not kept.
  int begin(const Digest& layer, const std::string& kind);
  /// Nobody writes to them any more; the image has its name.
  void keep(const std::string& image);
  /// That have been written until now.
  [[nodiscard]] uint64_t bytes() const;

 private:
  struct Index {
    Digest layer;
    std::string kind;
    OutputFile file;
  };
  LayerShelf& shelf_;
  std::deque<Index> indexes_;
};

/// What FindLayer and PutLayer may name as `kind`.
bool is_layer_kind(const std::string& kind);

}  // namespace situla
