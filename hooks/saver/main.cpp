#include "common/sys/process/process.hpp"
#include "hooks/saver/saver.hpp"

int main() {
  situla::take_program_name();
  return situla::save_container();
}
