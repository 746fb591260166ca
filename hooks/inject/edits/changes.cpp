#include "hooks/inject/edits/changes.hpp"

#include <algorithm>

namespace situla {

void Changes::show(const ContainerEdits& edits) {
  if (!shown_) return;
  // A step counts messages, and each has a limit.
  constexpr size_t kPiece = 8192;
  const std::string text = describe(edits);
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.size() <= kPiece ? rest.size() : std::min(rest.find('\n', kPiece), rest.size() - 1) + 1;
    log_.debug(rest.substr(0, end - 1));
    rest.remove_prefix(end);
  }
}

Result<void> Changes::make(ContainerEdits edits) {
  if (!dry_run_) return make_always(std::move(edits));
  plan_.push_back(std::move(edits));
  return {};
}

Result<void> Changes::make_always(ContainerEdits edits) {
  show(edits);
  LibraryCacheEdit own = edits.libraries;
  if (!own.empty()) {
    append(libraries_, own);
    edits.libraries = libraries_;
  }
  TRY(apply(edits, target_, log_));
  edits.libraries = std::move(own);
  if (dry_run_) plan_.push_back(std::move(edits));
  return {};
}

void Changes::note_script(const std::string& path) {
  if (!shown_ && !dry_run_) return;
  ContainerEdits script;
  script.programs.push_back({path, {}, {}, {}, ""});
  show(script);
  if (dry_run_) plan_.push_back(std::move(script));
}

}  // namespace situla
