#include "tests/plugin/faults.hpp"

#include <cstdlib>
#include <new>

#include <sys/mman.h>

namespace situla::test {
namespace {

// Plain globals: operator new is called before any constructor and in forked children.
bool g_inside = false;
long g_live = 0;
long g_until_allocation = 0;  // 0: none fails
long g_until_slurm = 0;

/// Shared with forked tasks, so that the host knows of a fault that fired in one of them.
bool& fired() {
  static bool* const flag =
      static_cast<bool*>(mmap(nullptr, sizeof(bool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *flag;
}

bool step_fails(long& until) {
  if (!g_inside || until == 0 || --until > 0) return false;
  fired() = true;
  return true;
}

void* allocate(std::size_t size) noexcept {
  if (step_fails(g_until_allocation)) return nullptr;
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block != nullptr && g_inside) ++g_live;
  return block;
}

void* allocate_or_throw(std::size_t size) {
  void* const block = allocate(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void release(void* block) noexcept {
  if (block != nullptr && g_inside) --g_live;
  std::free(block);
}

}  // namespace

void arm_fault(FaultKind kind, long n) {
  g_until_allocation = kind == FaultKind::allocation ? n : 0;
  g_until_slurm = kind == FaultKind::slurm ? n : 0;
  fired() = false;
}

void disarm_fault() {
  g_until_allocation = g_until_slurm = 0;
  fired() = false;
}

bool fault_fired() {
  return fired();
}

bool slurm_step_fails() {
  return step_fails(g_until_slurm);
}

long live_blocks() {
  return g_live;
}

InsidePlugin::InsidePlugin() {
  g_inside = true;
}

InsidePlugin::~InsidePlugin() {
  g_inside = false;
}

OutsidePlugin::OutsidePlugin() : before_(g_inside) {
  g_inside = false;
}

OutsidePlugin::~OutsidePlugin() {
  g_inside = before_;
}

}  // namespace situla::test

// In the executable, so that the plugin's and libstdc++'s calls come here, and not to the sanitizer's own.
#define EXPORT __attribute__((visibility("default")))
using situla::test::allocate;
using situla::test::allocate_or_throw;
using situla::test::release;

EXPORT void* operator new(std::size_t size) {
  return allocate_or_throw(size);
}
EXPORT void* operator new[](std::size_t size) {
  return allocate_or_throw(size);
}
EXPORT void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
EXPORT void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
EXPORT void operator delete(void* block) noexcept {
  release(block);
}
EXPORT void operator delete[](void* block) noexcept {
  release(block);
}
EXPORT void operator delete(void* block, std::size_t) noexcept {
  release(block);
}
EXPORT void operator delete[](void* block, std::size_t) noexcept {
  release(block);
}
EXPORT void operator delete(void* block, const std::nothrow_t&) noexcept {
  release(block);
}
EXPORT void operator delete[](void* block, const std::nothrow_t&) noexcept {
  release(block);
}
