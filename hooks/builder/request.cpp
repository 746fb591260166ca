#include "hooks/builder/request.hpp"

#include "common/sys/file.hpp"
#include "hooks/builder/broker_log.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/import/request.hpp"
#include "plugin/broker/contract.hpp"

namespace situla {
namespace {

Result<void> collect_and_write(LogSink& log) {
  const UniqueFd output(builder_fd::kOutput);
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  // The whole environment of the user: XDG_* and HOME say where the credentials are.
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  // Preparation has no PATH of the user's; commands and helpers that know passwords are found by it.
  Environment environment = data.host;
  if (const auto path = data.job.get("PATH")) environment.set("PATH", *path);
  TRY_ASSIGN(const ImportRequest request, make_import_request(data.spec.image, config, environment, log));
  TRY_ASSIGN(const std::string bytes, request.serialize());
  return write_all(output.get(), bytes);
}

}  // namespace

int write_import_request() {
  BrokerLog log;
  const auto written = collect_and_write(log);
  return written ? 0 : tell_failure(written.error());
}

}  // namespace situla
