// Does Slurm's PMI2 work for a program that speaks it by itself, through libpmi2? Each rank publishes its host and,
// after the fence, reads the next one's: "rank 0 of 4 on node1, next on node1".
#include <cstdio>
#include <string>

#include <unistd.h>

#include <slurm/pmi2.h>

namespace {

int fail(const char* what, int status) {
  std::printf("%s: PMI2 error %d\n", what, status);
  return 1;
}

}  // namespace

int main() {
  int spawned = 0, size = 0, rank = 0, application = 0, length = 0;
  if (const int status = PMI2_Init(&spawned, &size, &rank, &application); status != PMI2_SUCCESS)
    return fail("init", status);
  char host[256] = "", job[256] = "", value[PMI2_MAX_VALLEN] = "";
  gethostname(host, sizeof host - 1);
  if (const int status = PMI2_Job_GetId(job, sizeof job); status != PMI2_SUCCESS) return fail("job id", status);
  if (const int status = PMI2_KVS_Put(("host" + std::to_string(rank)).c_str(), host); status != PMI2_SUCCESS)
    return fail("put", status);
  if (const int status = PMI2_KVS_Fence(); status != PMI2_SUCCESS) return fail("fence", status);
  const std::string next = "host" + std::to_string((rank + 1) % size);
  if (const int status = PMI2_KVS_Get(job, PMI2_ID_NULL, next.c_str(), value, sizeof value, &length);
      status != PMI2_SUCCESS)
    return fail("get", status);
  std::printf("rank %d of %d on %s, next on %s\n", rank, size, host, value);
  return PMI2_Finalize() == PMI2_SUCCESS ? 0 : 1;
}
