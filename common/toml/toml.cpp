// toml++ itself: compiled here, once, and declared only for those that read files with it.
#define TOML_IMPLEMENTATION
#include "common/toml/toml.hpp"
