#include <cerrno>

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/node_store.hpp"
#include "hooks/progress/progress_renderer.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla::cli {

void ImageArguments::declare(const Command& command, const std::string& name, const std::string& meaning) {
  command.option("-a,--arch", architecture, "Architecture of the image (default: this machine's)").value("ARCH");
  command.option(name, image, meaning).value("").required();
}

Result<void> ImageArguments::check_name(const std::string& command, const std::string& hint) const {
  if (image_kind(image) != ImageKind::path) return {};
  return fail(Error(ErrorKind::usage, command + " " + printable(image) + ": not the name of an image")
                  .with_code(ErrorCode::image_name)
                  .with_hint(hint));
}

Result<ImportRequest> ImageArguments::request(const Context& context) const {
  const Environment& environment = context.invocation.environment;
  return make_import_request(image, context.config, environment, RuleFiles::of_user(environment), context.log,
                             architecture);
}

Result<UnnamedImage> fetch_image(const Context& context, const ImageArguments& image, const std::string& directory) {
  const KeepSecrets secrets;
  remove_parts_when_interrupted();
  TRY_ASSIGN(const ImportRequest request, image.request(context));
  const std::unique_ptr<Progress> progress = make_progress(context.streams.terminal, context.log);
  NodeStore store(context);
  return import_to_unnamed_file(request, directory, user_layer_cache(context.config), *progress, context.log, &store);
}

namespace {

Result<UniqueFd> fetch_named(const Context& context, const std::string& image) {
  ImageArguments wanted;
  wanted.image = image;
  TRY_ASSIGN(UnnamedImage fetched, fetch_image(context, wanted, context.config.temp_path()));
  return std::move(fetched.file);
}

/// StartCommand::fetched. files: what has to stay open.
Result<std::vector<std::string>> fetch_mounted(const Context& context, const std::vector<WantedImage>& images,
                                               std::vector<UniqueFd>& files) {
  std::vector<std::string> words;
  for (const WantedImage& image : images) {
    auto file = fetch_named(context, image.reference);
    if (!file && !image.optional()) return fail(file.error());
    if (!file) image.say_missing(file.error().text(), context.log);
    words.insert(words.end(),
                 {kFetchedOption, image.reference + "=" + (file ? std::to_string(file->get()) : std::string())});
    if (file) files.push_back(std::move(*file));
  }
  return words;
}

/// The arguments of the same start with what was fetched.
Result<std::vector<std::string>> arguments_with(const Context& context, const WantedFetch& wanted,
                                                std::vector<UniqueFd>& files) {
  const auto& words = context.invocation.arguments;
  std::vector<std::string> arguments = {context.invocation.program, wanted.image.empty() ? words.front() : "start"};
  TRY_ASSIGN(const std::vector<std::string> fetched, fetch_mounted(context, wanted.mounted, files));
  arguments.insert(arguments.end(), fetched.begin(), fetched.end());
  if (wanted.image.empty()) {
    arguments.insert(arguments.end(), words.begin() + 1, words.end());
    return arguments;
  }
  TRY_ASSIGN(UniqueFd image, fetch_named(context, wanted.image));
  arguments.insert(arguments.end(), words.begin() + 1, words.end() - static_cast<ptrdiff_t>(context.words.size()));
  arguments.push_back(fd_path(image.get()));
  arguments.insert(arguments.end(), context.words.begin() + 1, context.words.end());
  files.push_back(std::move(image));
  return arguments;
}

}  // namespace

Error start_fetched(const Context& context, const WantedFetch& wanted) {
  std::vector<UniqueFd> files;
  const auto arguments = arguments_with(context, wanted, files);
  if (!arguments) return arguments.error();
  for (const UniqueFd& file : files)
    if (fcntl(file.get(), F_SETFD, 0) != 0) return Error::from_errno(errno, "hand over the image");
  // In a process of its own, which has no threads: what has talked to a registry may have had some.
  return exec_program("/proc/self/exe", *arguments);
}

}  // namespace situla::cli
