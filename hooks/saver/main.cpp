#include "hooks/saver/saver.hpp"

int main() {
  return situla::save_container();
}
