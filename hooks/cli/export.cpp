// export: a container becomes a squashfs file.
#include "hooks/export/export.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/containers/named_container.hpp"
#include "hooks/progress/progress_renderer.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla::cli {
namespace {

struct ExportCommand {
  std::string output, name;
  bool force = false;
};

ExportOptions export_options(const Context& context, const ExportCommand& options) {
  ExportOptions chosen = ExportOptions::of(context.config);
  chosen.path = followed(options.output.empty() ? options.name + ".sqsh" : options.output);
  chosen.replace = options.force || context.config.flag("ENROOT_FORCE_OVERRIDE");
  if (const auto epoch = parse_unsigned(context.invocation.environment.get_or("SOURCE_DATE_EPOCH", "")))
    chosen.all_time = static_cast<uint32_t>(std::min<uint64_t>(*epoch, UINT32_MAX));
  return chosen;
}

Result<int> export_named(const Context& context, const ExportCommand& options) {
  remove_parts_when_interrupted();
  TRY_ASSIGN(const NamedContainer container, find_meant_container(context, options.name));
  const ExportOptions chosen = export_options(context, options);
  // As whom its directory can be opened in any case: root in it may have given it to others.
  TRY(become_root_of(container, context.log));
  TRY_ASSIGN(const ExportSource source, ExportSource::open(container));
  context.log.info("Creating squashfs filesystem...");
  const std::unique_ptr<Progress> progress = make_progress(context.streams.terminal, context.log);
  TRY(export_container(source, chosen, *progress, context.log));
  return 0;
}

}  // namespace

void add_export(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "export", "Convert a container to a squashfs file", export_named);
  command.option("-o,--output", options.output, "Name of the file (default: NAME.sqsh)").value("FILE");
  command.flag("-f,--force", options.force, "Replace an existing file");
  command.option("NAME", options.name, "Name of the container, as list prints it").value("").required();
}

}  // namespace situla::cli
