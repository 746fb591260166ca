// What a service user says who says what is not so: `forge_voucher STEP UID QUESTION AGE MANIFEST NAME CONTENT BYTES`
// prints a voucher (hooks/courier/voucher.hpp), signed as whoever runs this. AGE: of the registry's answer, seconds.
#include <cstdlib>
#include <ctime>
#include <iostream>

#include "hooks/courier/voucher.hpp"

int main(int argc, char** argv) {
  using situla::Digest;
  if (argc != 9) return 2;
  situla::Voucher voucher;
  voucher.step = argv[1];
  voucher.uid = std::strtoul(argv[2], nullptr, 10);
  voucher.question = argv[3];
  voucher.answered = static_cast<uint64_t>(std::time(nullptr) - std::strtol(argv[4], nullptr, 10));
  const auto manifest = Digest::parse(argv[5]), content = Digest::parse(argv[7]);
  if (!manifest || !content) return 2;
  voucher.image = {*manifest, *manifest};
  voucher.name = argv[6];
  voucher.content = *content;
  voucher.bytes = std::strtoull(argv[8], nullptr, 10);
  const auto credential = sign(voucher);
  if (!credential) std::cerr << credential.error().text() << '\n';
  if (credential) std::cout << *credential;
  return credential ? 0 : 1;
}
