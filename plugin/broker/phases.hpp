// In which phases is a step's container, and what does each of them own? What a phase owns ends with it.
//
//   Waiting --------> Building --------> Ready       without an import
//   Importing -> Waiting -> Building -> Ready        from a registry; a user's image, when a task has asked
//   Building -> Importing -> Building -> Ready       a container with a name that has to be made
//                                                    (and once for each image that is mounted in a container)
//   Importing -> Fetched                             --container-prefetch
//   Waiting, Importing, Building -> Failed
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "plugin/broker/children.hpp"
#include "plugin/broker/image.hpp"
#include "plugin/broker/image_import.hpp"
#include "plugin/broker/node/running.hpp"
#include "plugin/broker/save.hpp"

namespace situla {

/// A container that the builder looks for among those that run.
struct Wanted {
  std::optional<RunningKey> name;  ///< none: that of a step
  UniqueFd directory;              ///< of one with a name
  std::string ignored;             ///< what the user should read if it runs
};

/// A builder that is at work.
struct Build {
  Builder builder;
  StepImage image;
  UniqueFd for_tasks, for_others;         ///< memory files for the environments: of this step's tasks, of other steps'
  UniqueFd saved;                         ///< parcel for what --container-save exports; none: nothing is saved
  UniqueFd user_namespace;                ///< of the container, from the moment the builder has made it
  std::optional<IdRange> range;           ///< that it has
  std::string given;                      ///< name of the store's image that the builder was given to copy; empty: none
  std::optional<OtherImageWanted> other;  ///< is being fetched, to be mounted in the container
  uint32_t others_asked = 0;
  bool copied_asked = false;       ///< RootOperation::keep_container_image
  std::vector<ImageInUse> others;  ///< that are mounted there
  Wanted wanted;
};

using Deadline = std::chrono::steady_clock::time_point;

namespace phase {

/// For the first task that asks.
struct Waiting {
  std::optional<StepImage> image;  ///< that was imported meanwhile
};

struct Importing {
  ImageImport import;
  Deadline deadline;
  std::optional<Build> build{};  ///< that wants the image: its builder waits
  UniqueFd mapping{};            ///< make_mapping_namespace(), made while the importer works
};

struct Building {
  Build build;
  Deadline deadline;
};

struct Ready {
  StepContainer container;
  UniqueFd for_others;  ///< the environment for tasks of other steps
  Builder builder{};
  UniqueFd user_namespace{};       ///< none: the container ran already, and is not ours to end
  std::optional<IdRange> range{};  ///< that it has
  std::optional<ImageInUse> image{};
  std::vector<ImageInUse> others{};             ///< mounted in the container
  std::optional<RunningContainer> published{};  ///< other steps may join here
  std::optional<ContainerSave> save{};
  std::vector<UniqueFd> tasks{};  ///< pidfds of those that have got it
  uint32_t granted = 0;
  bool shared = false;  ///< other steps have joined
};

/// The image is on the node, and that was all.
struct Fetched {
  Prefetched answer;
};

struct Failed {
  Error error;
  bool told = false;  ///< one task of the node has said it
};

}  // namespace phase

using Phase =
    std::variant<phase::Waiting, phase::Importing, phase::Building, phase::Ready, phase::Fetched, phase::Failed>;

}  // namespace situla
