#include "hooks/request/request.hpp"

#include "common/protocol/contract.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/builder/broker_line.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/builder/modes.hpp"
#include "hooks/request/registries_conf.hpp"

namespace situla {
namespace {

Result<void> collect_and_write(int output, Programs programs, const std::string& image, LogSink& log) {
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  // Only the site's own settings may have needed a shell until here.
  if (programs == Programs::forbidden) TRY(forbid_new_processes());
  // The rules that the importer will follow; logins for a mirror of the user's own would only be carried in vain.
  TRY_ASSIGN(ImportRequest request, make_import_request(image.empty() ? data.spec.exact_image() : image, config,
                                                        credentials_environment(data), RuleFiles::of_node(), log));
  request.progress = data.spec.progress;
  request.resolve = data.spec.resolve;
  TRY_ASSIGN(const std::string bytes, request.serialize());
  return write_all(output, bytes);
}

}  // namespace

int write_import_request(Programs programs, const std::string& image) {
  const KeepSecrets secrets;
  BrokerLog log;
  // Closed last: the end of its input makes the importer fail, and our message, which says why, has to be there before.
  const UniqueFd output(builder_fd::kOutput);
  const auto written = collect_and_write(output.get(), programs, image, log);
  // The store program is gone, which says more than that it does not read.
  if (!written && written.error().errnum() == EPIPE) return 0;
  return written ? 0 : tell_failure(written.error());
}

}  // namespace situla
