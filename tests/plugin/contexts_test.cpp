// The plugin in the programs of Slurm that run no tasks: every context, loaded twice, with good and bad options.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/plugin/faults.hpp"
#include "tests/plugin/node.hpp"
#include "tests/plugin/step.hpp"
#include "tests/support/skip.hpp"

using namespace situla::test;

namespace {

/// The callbacks of each context in Slurm's order, options apart.
struct Order {
  spank_context_t context;
  std::vector<const char*> before_options, after_options;
};
const Order kOrders[] = {
    {S_CTX_LOCAL, {"init"}, {"init_post_opt", "local_user_init", "exit"}},
    {S_CTX_ALLOCATOR, {"init"}, {"init_post_opt", "exit"}},
    {S_CTX_SLURMD, {"init"}, {"slurmd_exit"}},
    {S_CTX_JOB_SCRIPT, {}, {"job_prolog"}},
    {S_CTX_JOB_SCRIPT, {}, {"job_epilog"}},
};

bool takes_options(spank_context_t context) {
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

/// A value that is right for the option.
const char* sample(const Option& option) {
  if (!option.has_argument) return nullptr;
  if (option.name == "container-image") return "registry.test/debian:12";
  if (option.name == "container-mounts") return "/data:/data:ro,tmpfs:/scratch";
  if (option.name == "container-workdir") return "/srv";
  if (option.name == "container-name") return "mine:auto";
  if (option.name == "container-save") return "./saved.sqsh";
  if (option.name == "container-unshare") return "net,ipc";
  if (option.name == "container-resolve") return "3600";
  if (option.name == "container-devices") return "amd.com/gpu=0,amd.com/gpu=1";
  return "ONE,TWO";
}

/// Everything of a context, in a program that goes on after every error.
void replay(const Order& order, const std::vector<std::pair<std::string, std::string>>& options) {
  const Balance balance;
  Job job = container_step().job;
  {
    SlurmHost host(order.context, &job);
    for (const char* name : order.before_options) (void)host.call(name);
    for (const auto& [name, value] : options) (void)host.set_option(name, value.c_str());
    for (const char* name : order.after_options) (void)host.call(name);
  }
  balance.check();
}

int status_of(spank_context_t context, const std::string& option, const char* value) {
  clear_log();
  Job job;
  SlurmHost host(context, &job);
  REQUIRE(host.call("init") == 0);
  const int status = host.set_option(option, value);
  (void)host.call("exit");
  return status;
}

}  // namespace

TEST_CASE("every context is loaded, run and unloaded twice") {
  SITULA_NODE(Broker::real);
  for (const Order& order : kOrders) {
    for (int load = 0; load < 2; ++load) {
      INFO("context " << order.context << ", load " << load);
      const Balance balance;
      Job job = container_step().job;
      {
        SlurmHost host(order.context, &job);
        for (const char* name : order.before_options) CHECK(host.call(name) == 0);
        CHECK(host.options().empty() == !takes_options(order.context));
        if (takes_options(order.context)) CHECK(host.set_option("container-image", "./image.sqsh") == 0);
        for (const char* name : order.after_options) CHECK(host.call(name) == 0);
      }
      balance.check();
      // slurmd says what is wrong with its node, which here is whatever machine this is.
      if (order.context == S_CTX_SLURMD)
        CHECK_THAT(log_text(), Catch::Contains("situla: "));
      else
        CHECK(log_text().find("error: ") == std::string::npos);
    }
  }
  check_leaks();
}

TEST_CASE("every option is taken twice with the same value, because Slurm calls back twice") {
  for (const spank_context_t context : {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE}) {
    Job job;
    SlurmHost probe(context, &job);
    REQUIRE(probe.call("init") == 0);
    const std::vector<Option> options = probe.options();
    REQUIRE(options.size() >= 16);
    for (const Option& option : options) {
      INFO("context " << context << ", option " << option.name);
      // Anew for each: some exclude each other.
      (void)probe.call("exit");
      clear_log();
      REQUIRE(probe.call("init") == 0);
      const int first = probe.set_option(option, sample(option));
      CHECK(probe.set_option(option, sample(option)) == first);
      if (log_text().find("not supported yet") == std::string::npos) CHECK(first == 0);
    }
    (void)probe.call("exit");
  }
  check_leaks();
}

TEST_CASE("bad values of options are errors with a message") {
  const std::pair<const char*, const char*> bad[] = {
      {"container-image", ""},
      {"container-image", nullptr},
      {"container-mounts", ""},
      {"container-mounts", "data"},
      {"container-mounts", nullptr},
      {"container-mounts", "/a:/b:RO"},
      {"container-workdir", ""},
      {"container-name", "../x"},
      {"container-name", ""},
      {"container-name", "a:b"},
      {"container-save", ""},
      {"container-env", "1A"},
      {"container-env", "A=B"},
      {"container-env", ""},
      {"container-unshare", "moon"},
      {"container-unshare", ""},
      {"container-devices", "gpu"},
      {"container-devices", ""},
      {"container-resolve", "sometimes"},
      {"environment", ""},
      {"environment", "a\nb"},
      {"environment", nullptr},
  };
  for (const spank_context_t context : {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE})
    for (const auto& [name, value] : bad) {
      INFO("--" << name << "=" << (value == nullptr ? "(null)" : value));
      CHECK(status_of(context, name, value) < 0);
      CHECK(log_text().find("error: situla: --" + std::string(name)) != std::string::npos);
    }
  check_leaks();
}

TEST_CASE("an environment that cannot be read is an error of the command") {
  // With the program that reads it or, where that is not installed, without.
  for (const spank_context_t context : {S_CTX_LOCAL, S_CTX_ALLOCATOR}) {
    clear_log();
    const Balance balance;
    Job job;
    {
      SlurmHost host(context, &job);
      REQUIRE(host.call("init") == 0);
      CHECK(host.set_option("environment", "nothing of that name") == 0);
      CHECK(host.call("init_post_opt") < 0);
      (void)host.call("exit");
    }
    balance.check();
    CHECK(log_text().find("error: situla: --environment") != std::string::npos);
  }
  check_leaks();
}

TEST_CASE("strange values of options do no harm") {
  const std::string strange[] = {std::string(100000, 'x'),
                                 std::string(5000, ','),
                                 std::string(5000, ':'),
                                 "\xff\xfe\n\x1b[0m",
                                 "/a:/b:" + std::string(5000, '+'),
                                 "%s%s%n",
                                 "$HOME:${X:$("};
  Job job;
  SlurmHost host(S_CTX_LOCAL, &job);
  REQUIRE(host.call("init") == 0);
  for (const Option& option : host.options())
    for (const std::string& value : strange) (void)host.set_option(option, value.c_str());
  (void)host.call("init_post_opt");
  (void)host.call("exit");
  check_leaks();
}

TEST_CASE("a mistake in plugstack.conf is an error in every context with options") {
  for (const spank_context_t context : {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE}) {
    clear_log();
    Job job;
    SlurmHost host(context, &job, {"no_such_key=1"});
    CHECK(host.call("init") < 0);
    CHECK(log_text().find("no_such_key") != std::string::npos);
    (void)host.call("exit");
  }
  check_leaks();
}

TEST_CASE("a mistake in plugstack.conf is said by slurmd, which starts all the same") {
  clear_log();
  Job job;
  SlurmHost host(S_CTX_SLURMD, &job, {"contaner_scope=job"});
  CHECK(host.call("init") == 0);
  CHECK_THAT(log_text(), Catch::Contains("error: situla: plugstack.conf: unknown key 'contaner_scope'"));
  CHECK_THAT(log_text(), Catch::Contains("did you mean \"container_scope\"?"));
  (void)host.call("slurmd_exit");
  check_leaks();
}

TEST_CASE("sbatch_support=0 leaves sbatch and salloc without options, and srun with all") {
  for (const spank_context_t context : {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE}) {
    Job job;
    SlurmHost host(context, &job, {"sbatch_support=0"});
    CHECK(host.call("init") == 0);
    CHECK(host.options().empty() == (context == S_CTX_ALLOCATOR));
    if (context == S_CTX_ALLOCATOR) CHECK(host.call("init_post_opt") == 0);
    (void)host.call("exit");
  }
  check_leaks();
}

TEST_CASE("callbacks without an init before them do nothing") {
  for (const spank_context_t context : {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_SLURMD, S_CTX_REMOTE}) {
    const Balance balance;
    Job job;
    {
      SlurmHost host(context, &job);
      for (const char* name : {"init_post_opt", "local_user_init", "user_init", "task_exit", "exit", "exit"})
        CHECK(host.call(name) == 0);
    }
    balance.check();
  }
}

TEST_CASE("memory that runs out at any step is an error in every context without tasks") {
  SITULA_NODE(Broker::deserter);
  for (const Order& order : kOrders) {
    const bool options = takes_options(order.context);
    const long steps = for_every_fault(FaultKind::allocation, [&](long n) {
      INFO("context " << order.context << ", allocation " << n);
      replay(order, options ? container_step().options : decltype(StepSetup::options){});
      if (fault_fired()) CHECK_THAT(log_text(), Catch::Contains("std::bad_alloc"));
    });
    // Where this is 0 faults do not reach the plugin at all.
    if (options) CHECK(steps > 20);
  }
  check_leaks();
}

TEST_CASE("a refusal of Slurm at any step is an error in every context without tasks") {
  SITULA_NODE(Broker::deserter);
  for (const Order& order : kOrders) {
    const bool options = takes_options(order.context);
    const long steps = for_every_fault(FaultKind::slurm, [&](long n) {
      INFO("context " << order.context << ", call " << n);
      replay(order, options ? container_step().options : decltype(StepSetup::options){});
      if (fault_fired()) CHECK_THAT(log_text(), Catch::Contains("error: situla: "));
    });
    if (options) CHECK(steps >= 16);  // one for each option
  }
  check_leaks();
}
