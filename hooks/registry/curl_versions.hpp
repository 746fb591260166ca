// What differs between the versions of libcurl that Situla is built with, 7.61 (RHEL 8) to the newest? All of it, and
// it behaves the same with each: README.md beside this file has the list.
//
// SITULA_LIBCURL_VERSION, lower than the real one, compiles what an old libcurl would get; tests/packages/build.bats
// does.
#pragma once

#include <chrono>
#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include <curl/curl.h>

#include "common/base/unique_fd.hpp"

#ifndef SITULA_LIBCURL_VERSION
#define SITULA_LIBCURL_VERSION LIBCURL_VERSION_NUM
#endif
static_assert(SITULA_LIBCURL_VERSION >= 0x073d00, "Situla needs libcurl 7.61 or newer");

namespace situla {

enum class Protocols { http, https, both };

/// For the transfer and for every redirect. False: not set, so the transfer must not be made.
[[nodiscard]] inline bool limit_protocols(CURL* easy, Protocols allowed) {
#if SITULA_LIBCURL_VERSION >= 0x075500  // 7.85, which deprecates the other form
  const char* list = allowed == Protocols::http ? "http" : allowed == Protocols::https ? "https" : "http,https";
  return curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, list) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, list) == CURLE_OK;
#else
  const auto bits = static_cast<long>((allowed != Protocols::https ? CURLPROTO_HTTP : 0) |
                                      (allowed != Protocols::http ? CURLPROTO_HTTPS : 0));
  return curl_easy_setopt(easy, CURLOPT_PROTOCOLS, bits) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS, bits) == CURLE_OK;
#endif
}

/// The bundle of certificates that libcurl reads by itself; nullptr where it does not say.
inline const char* built_in_bundle() {
#if SITULA_LIBCURL_VERSION >= 0x074600  // 7.70
  const curl_version_info_data* info = curl_version_info(CURLVERSION_NOW);
  if (info->age >= CURLVERSION_SEVENTH) return info->cainfo;
#endif
  return nullptr;
}

/// 7.61 has two codes where there is one since 7.62: 51 for a wrong name, 60 for an unknown issuer.
inline bool certificate_refused(CURLcode code) {
  constexpr int kWrongName = 51, kUnknownIssuer = 60;
  return code == kWrongName || code == kUnknownIssuer;
}

/// Waiting that another thread can end. curl_multi_poll() and curl_multi_wakeup() came with 7.66 and 7.68; waiting for
/// a descriptor of our own beside libcurl's is the same, and one way for all versions.
class Bell {
 public:
  [[nodiscard]] bool ready() const { return bool(event_); }
  void ring() const {
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof one);
  }
  CURLMcode wait(CURLM* multi, std::chrono::milliseconds time) const {
    curl_waitfd entry{event_.get(), CURL_WAIT_POLLIN, 0};
    const CURLMcode code = curl_multi_wait(multi, &entry, 1, static_cast<int>(time.count()), nullptr);
    uint64_t rung = 0;
    if (entry.revents != 0) (void)!read(event_.get(), &rung, sizeof rung);
    return code;
  }

 private:
  UniqueFd event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace situla
