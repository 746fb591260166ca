// What does a tree look like, and how do containers change theirs? For tests that compare two ways to see the same
// tree.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace situla::test {

/// By path: kind, mode, time, links, size and a hash of the content, target, attributes. Links are counted among the
/// listed names, because overlay shows those of the layer.
using Listing = std::map<std::string, std::string>;
Listing list_tree(const std::string& root);
/// The same, as COMPAT.md 5 wants it in an image: nothing in /dev, no mount points of enroot's, directories u+rwX.
Listing list_for_image(const std::string& root);
/// "" when equal, else the first differences.
std::string differences(const Listing& expected, const Listing& found);

/// Random files, directories, links, attributes and holes in a directory that exists.
void make_random_tree(const std::string& root, std::mt19937& random, int count);
/// What containers do: changes in place, removals, replacements by another kind, renames, links, modes, attributes.
void change_randomly(const std::string& root, std::mt19937& random, int count);

/// Runs a program in the shell; its output in an error.
Result<void> shell(const std::string& command);

}  // namespace situla::test
