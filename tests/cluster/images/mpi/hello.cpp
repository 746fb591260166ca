// Do the ranks of an MPI program find each other, and which ways between them work? One line per rank; 1 when a message
// was wrong.
//
//   rank 2 of 4 on node2, 0 of 2 here, uid 60801: sum 6, ring ok, window ok, peer's memory readable, 2 shared segments
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <mpi.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

struct Place {
  int rank = 0, size = 0;
};

Place place_in(MPI_Comm group) {
  Place place;
  MPI_Comm_rank(group, &place.rank);
  MPI_Comm_size(group, &place.size);
  return place;
}

/// A message around all ranks, of a size for which libraries leave their small buffers.
bool ring_works(const Place& place) {
  constexpr int kCount = 1 << 18;
  std::vector<int> mine(kCount), received(kCount);
  std::iota(mine.begin(), mine.end(), place.rank);
  const int next = (place.rank + 1) % place.size, before = (place.rank + place.size - 1) % place.size;
  MPI_Sendrecv(mine.data(), kCount, MPI_INT, next, 0, received.data(), kCount, MPI_INT, before, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  std::iota(mine.begin(), mine.end(), before);
  return mine == received;
}

/// Memory that all ranks of a node have in common: each writes its own word, each reads all of them.
bool window_works(MPI_Comm node, const Place& place) {
  MPI_Win window = MPI_WIN_NULL;
  int* own = nullptr;
  MPI_Win_allocate_shared(sizeof *own, sizeof *own, MPI_INFO_NULL, node, &own, &window);
  MPI_Win_fence(0, window);
  *own = 100 + place.rank;
  MPI_Win_fence(0, window);
  bool right = true;
  for (int rank = 0; rank < place.size; ++rank) {
    MPI_Aint size = 0;
    int unit = 0, *theirs = nullptr;
    MPI_Win_shared_query(window, rank, &size, &unit, &theirs);
    right = right && *theirs == 100 + rank;
  }
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);
  return right;
}

/// What libraries call CMA: the next rank of the node, read without its help.
std::string read_neighbour(MPI_Comm node, const Place& place) {
  const int secret = 1000 + place.rank;
  const long mine[2] = {getpid(), reinterpret_cast<long>(&secret)};
  std::vector<long> all(2 * static_cast<size_t>(place.size));
  MPI_Allgather(mine, 2, MPI_LONG, all.data(), 2, MPI_LONG, node);
  const auto next = static_cast<size_t>((place.rank + 1) % place.size);
  int copy = 0;
  const iovec here{&copy, sizeof copy}, there{reinterpret_cast<void*>(all[2 * next + 1]), sizeof copy};
  const ssize_t size = process_vm_readv(static_cast<pid_t>(all[2 * next]), &here, 1, &there, 1, 0);
  const std::string error = size == sizeof copy ? "" : strerror(errno);
  MPI_Barrier(node);
  if (!error.empty()) return "not readable: " + error;
  return copy == 1000 + static_cast<int>(next) ? "readable" : "wrong";
}

/// Segments of Open MPI's vader and of UCX, own and neighbours'.
size_t shared_segments() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> names;
  for (std::string line; std::getline(maps, line);)
    for (const char* mark : {"vader_segment", "ucx_shm"})
      if (const size_t found = line.find(mark); found != std::string::npos) names.insert(line.substr(found));
  return names.size();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const Place world = place_in(MPI_COMM_WORLD);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  const Place here = place_in(node);

  int sum = 0;
  MPI_Allreduce(&world.rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const bool ring = ring_works(world), window = window_works(node, here);
  const std::string memory = read_neighbour(node, here);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  std::printf(
      "rank %d of %d on %s, %d of %d here, uid %u: sum %d, ring %s, window %s, peer's memory %s, %zu shared segments\n",
      world.rank, world.size, host, here.rank, here.size, geteuid(), sum, ring ? "ok" : "WRONG",
      window ? "ok" : "WRONG", memory.c_str(), shared_segments());
  std::fflush(stdout);
  MPI_Comm_free(&node);
  MPI_Finalize();
  return ring && window ? 0 : 1;
}
