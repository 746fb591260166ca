#include "hooks/importer/importer.hpp"

int main(int argc, char** argv) {
  return situla::run_importer({argv, argv + argc}, 0, 3);
}
