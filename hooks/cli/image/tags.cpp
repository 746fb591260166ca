// tags: what a repository of a registry has.
#include <algorithm>
#include <cstring>
#include <ostream>

#include "common/spec/json.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/import/import.hpp"

namespace situla::cli {
namespace {

struct TagsOptions {
  std::string image;
  bool json = false;
};

Result<int> tags(const Context& context, const TagsOptions& options) {
  const KeepSecrets secrets;
  const ImageArguments image{"", options.image};
  TRY(image.check_name("tags", "write the image as import takes it: [docker://][USER@][REGISTRY#]IMAGE"));
  TRY_ASSIGN(const ImportRequest request, image.request(context));
  TRY_ASSIGN(std::vector<std::string> found, list_tags(request));
  // Numbers in them count as such, so that the newest release is the last line before those with words.
  std::sort(found.begin(), found.end(),
            [](const std::string& a, const std::string& b) { return strverscmp(a.c_str(), b.c_str()) < 0; });
  if (options.json) {
    context.streams.out << to_text(Json(found));
    return 0;
  }
  for (const std::string& tag : found) context.streams.out << tag << '\n';
  return 0;
}

}  // namespace

void add_tags(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "tags", "List the tags that an image has", tags);
  command.option("URI", options.image, "[docker://][USER@][REGISTRY#]IMAGE; a tag or digest behind it is not looked at")
      .value("")
      .required();
  command.flag("--json", options.json, "Print them as a JSON list");
}

}  // namespace situla::cli
