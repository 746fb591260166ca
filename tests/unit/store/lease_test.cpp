// Is a lease held by one at a time, free again when its holder is gone, and not waited for in vain?
#include "hooks/turn/lease.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace situla;
namespace fs = std::filesystem;

namespace {

using State = LeaseRecord::State;
const auto kSilent = [](const LeaseRecord&) {};
const auto kNotCancelled = [] { return false; };

LeaseRecord of_job(const char* job) {
  LeaseRecord record;
  record.uid = 1000;
  record.job = job;
  return record;
}

LeaseRecord elsewhere(const char* owner) {
  LeaseRecord record = of_job("7.0");
  record.owner = owner;
  record.node = "other-node";
  record.boot = "0000";
  return record;
}

/// Of who is not expected to get on. Whoever is gets more time than a busy machine keeps a thread from running.
Lease::Options quick_lease() {
  Lease::Options options;
  options.poll = options.rarely = std::chrono::milliseconds(10);
  options.patience = std::chrono::milliseconds(200);
  return options;
}

Lease::Options patient() {
  Lease::Options options = quick_lease();
  options.patience = std::chrono::seconds(20);
  return options;
}

}  // namespace

TEST_CASE("free, held, done, released") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  {
    const auto first = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
    REQUIRE((first && first->lease));
    std::string holder;
    int asked = 0;
    const auto second = Lease::acquire(
        path, of_job("8.0"), {}, [&](const LeaseRecord& record) { holder = record.job; }, [&] { return ++asked > 1; });
    REQUIRE(second);
    CHECK(second->outcome == Lease::Outcome::done);
    CHECK(holder == "7.0");
  }
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("a dead holder on this node holds nothing, and is swept up") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  const auto die_with_it = [&] {
    const pid_t child = fork();
    if (child == 0) {
      const auto lease = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
      _exit(lease ? 0 : 1);  // no destructor: as SIGKILL
    }
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(fs::exists(path));
  };
  die_with_it();
  {
    const auto lease = Lease::acquire(path, of_job("8.0"), {}, kSilent, kNotCancelled);
    CHECK((lease && lease->outcome == Lease::Outcome::held));
    CHECK(sweep_dead_leases(directory.path()));
    CHECK_FALSE(sweep_dead_leases(directory.path(), "8.0"));  // whoever has it is still there
    CHECK(sweep_dead_leases(directory.path(), "9.0"));
    CHECK(fs::exists(path));
  }
  die_with_it();
  CHECK(sweep_dead_leases(directory.path(), "7.0"));
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("a holder elsewhere whose heart has stopped is taken over, by the file system's clock") {
  const test::TempDir directory;
  LeaseRecord other = elsewhere("0123");
  other.state = State::finishing;
  const std::string path = directory.write("l", other.text());
  Lease::Options options = quick_lease();
  options.longest = std::chrono::milliseconds(300);
  const auto before = Lease::acquire(path, of_job("8.0"), options, kSilent, kNotCancelled);
  REQUIRE(before);
  CHECK((before->outcome == Lease::Outcome::held && before->overtook));
  directory.write("m", elsewhere("4567").text());
  fs::last_write_time(directory / "m", fs::file_time_type::clock::now() - std::chrono::minutes(5));
  const auto acquired = Lease::acquire(directory / "m", of_job("8.0"), options, kSilent, kNotCancelled);
  REQUIRE(acquired);
  CHECK((acquired->outcome == Lease::Outcome::held && !acquired->overtook));
}

TEST_CASE("of those who find a holder dead one takes his place, and he is not dead because his disk is slow") {
  const test::TempDir directory;
  const std::string path = directory.write("l", elsewhere("0123").text());
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(5));
  // Another node has decided to succeed him, and this one still sees the old file.
  directory.write("l.0123.next", "");
  Lease::Options options = quick_lease();
  const auto late = Lease::acquire(path, of_job("8.0"), options, kSilent, kNotCancelled);
  REQUIRE(late);
  CHECK((late->outcome == Lease::Outcome::held && late->overtook));
  CHECK(fs::exists(directory / "l.0123.1.next"));
  directory.write("l", elsewhere("0123").text());
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(5));
  fs::remove(directory / "l.0123.next");
  const auto holder = Lease::acquire(path, of_job("8.0"), options, kSilent, kNotCancelled);
  REQUIRE((holder && holder->lease));
  CHECK(fs::exists(directory / "l.0123.next"));  // for whoever sees the old one later
  // Nobody reports anything, and the heart beats.
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  CHECK(fs::file_time_type::clock::now() - fs::last_write_time(path) < std::chrono::minutes(1));
  sweep_dead_leases(directory.path());
  CHECK(fs::exists(directory / "l.0123.next"));
  fs::last_write_time(directory / "l.0123.next", fs::file_time_type::clock::now() - std::chrono::hours(2));
  sweep_dead_leases(directory.path());
  CHECK_FALSE(fs::exists(directory / "l.0123.next"));
  CHECK(fs::exists(path));
}

TEST_CASE("one of those who wait takes the place of who is slow, and the others wait for that one") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  auto holder = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
  REQUIRE((holder && holder->lease));
  constexpr int kWaiting = 4;
  std::atomic<int> overtook = 0, done = 0;
  std::atomic<bool> published = false;
  Lease::Options options = quick_lease();
  options.patience = std::chrono::milliseconds(3000);
  const auto go_on_for_longer_than_they_wait = [&](Lease& lease) {
    const auto began = std::chrono::steady_clock::now();
    const auto gone_on = [&] { return std::chrono::steady_clock::now() - began; };
    for (uint64_t step = 0; gone_on() < std::chrono::minutes(1) && done < kWaiting - 1; ++step) {
      lease.report(State::fetching, step << 20U);
      published = gone_on() > options.patience + std::chrono::seconds(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const auto wait = [&] {
    while (true) {
      auto acquired = Lease::acquire(path, of_job("8.0"), options, kSilent, [&] { return published.load(); });
      if (!acquired) return;
      if (acquired->outcome == Lease::Outcome::held && !acquired->overtook) continue;  // between the two
      if (acquired->outcome == Lease::Outcome::done) ++done;
      if (acquired->overtook && ++overtook == 1) go_on_for_longer_than_they_wait(*acquired->lease);
      return;
    }
  };
  std::vector<std::thread> waiting;
  for (int i = 0; i < kWaiting; ++i) waiting.emplace_back(wait);
  for (std::thread& thread : waiting) thread.join();
  CHECK(overtook == 1);
  CHECK(done == kWaiting - 1);
}

TEST_CASE("who waits hears of the holder, of the next one, and how far they are") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  std::vector<std::string> heard;
  Lease::Options options = patient();
  options.say_again = std::chrono::milliseconds(100);
  auto holder = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
  REQUIRE((holder && holder->lease));
  holder->lease->report(State::fetching, 4711);
  int looks = 0;
  const auto waited = Lease::acquire(
      path, of_job("8.0"), options,
      [&](const LeaseRecord& record) { heard.push_back(record.job + " " + std::to_string(record.bytes)); },
      [&] { return ++looks == 60; });
  REQUIRE(waited);
  CHECK(heard.size() > 2);
  CHECK(heard.back() == "7.0 4711");
}

TEST_CASE("who gets on is waited for, who does not is not") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  const auto wait = [&](uint64_t each_time, State state, const Lease::Options& options) {
    auto holder = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
    REQUIRE((holder && holder->lease));
    uint64_t bytes = 0;
    int looks = 0;
    const auto acquired = Lease::acquire(path, of_job("8.0"), options, kSilent, [&] {
      holder->lease->report(state, bytes += each_time);
      return ++looks == 100;
    });
    REQUIRE(acquired);
    CHECK((acquired->outcome == Lease::Outcome::held) == acquired->overtook);
    return acquired->outcome;
  };
  Lease::Options options = quick_lease();
  options.patience = std::chrono::milliseconds(3000);
  options.poll = std::chrono::milliseconds(50);  // a hundred looks take longer than its patience
  CHECK(wait(uint64_t{1} << 20U, State::fetching, options) == Lease::Outcome::done);
  CHECK(wait(0, State::finishing, options) == Lease::Outcome::done);
  CHECK(wait(10, State::fetching, quick_lease()) == Lease::Outcome::held);
  CHECK(wait(0, State::queued, quick_lease()) == Lease::Outcome::held);
}

TEST_CASE("another user's import is waited for as long as that is worth it") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  LeaseRecord self = of_job("8.0");
  self.uid = 1001;
  Lease::Options options = patient();
  options.least_bytes = 1;  // each look finds progress
  options.poll = std::chrono::milliseconds(25);
  options.lag = std::chrono::milliseconds(2000);  // less than a hundred looks take, more than a busy disk
  options.worthwhile = 1'000'000;
  const auto wait = [&](const std::function<void(Lease&, int)>& report) {
    auto holder = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
    REQUIRE((holder && holder->lease));
    int looks = 0;
    const auto acquired = Lease::acquire(path, self, options, kSilent, [&] {
      report(*holder->lease, ++looks);
      return looks == 100;
    });
    REQUIRE(acquired);
    CHECK((acquired->outcome == Lease::Outcome::held) == acquired->overtook);
    return acquired->outcome;
  };
  // A look every 25 ms or more: some hundred bytes in one are 4 kB/s.
  CHECK(wait([](Lease& holder, int look) {
          holder.report(State::fetching, 1'000'000'000ULL * static_cast<unsigned>(look));
        }) == Lease::Outcome::done);
  CHECK(wait([](Lease& holder, int look) { holder.report(State::fetching, 100ULL * static_cast<unsigned>(look)); }) ==
        Lease::Outcome::held);
  // Who was quick first and drips then.
  CHECK(wait([](Lease& holder, int look) {
          holder.report(State::fetching, 1'000'000'000ULL + static_cast<unsigned>(look));
        }) == Lease::Outcome::held);
  CHECK(wait([](Lease& holder, int) { holder.report(State::finishing, 0); }) == Lease::Outcome::held);
  CHECK(wait([](Lease& holder, int) { holder.report(State::storing, 0); }) == Lease::Outcome::done);
  self.uid = 1000;
  CHECK(wait([](Lease& holder, int look) { holder.report(State::fetching, 100ULL * static_cast<unsigned>(look)); }) ==
        Lease::Outcome::done);
}

// before: all of them went on without a lease
TEST_CASE("of those who have waited enough for another user one imports, and their others wait for that one") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  auto holder = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
  REQUIRE((holder && holder->lease));
  constexpr int kWaiting = 6;
  std::atomic<int> overtook = 0, done = 0;
  std::atomic<bool> published = false, ended = false;
  Lease::Options options = patient();
  options.longest = std::chrono::milliseconds(300);  // whatever the holder says
  std::thread drips([&] {
    for (uint64_t step = 1; !ended; ++step) {
      holder->lease->report(State::fetching, step << 30U);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::vector<std::thread> waiting;
  for (int i = 0; i < kWaiting; ++i)
    waiting.emplace_back([&] {
      LeaseRecord self = of_job("8.0");
      self.uid = 1001;
      auto acquired = Lease::acquire(path, self, options, kSilent, [&] { return published.load(); });
      if (!acquired) return;
      if (acquired->outcome == Lease::Outcome::done) ++done;
      if (!acquired->overtook || ++overtook > 1) return;
      std::this_thread::sleep_for(std::chrono::seconds(2));  // longer than they would wait for the other user
      published = true;
      while (done < kWaiting - 1 && overtook == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  for (std::thread& thread : waiting) thread.join();
  ended = true;
  drips.join();
  CHECK(overtook == 1);
  CHECK(done == kWaiting - 1);
  CHECK(fs::exists(path));  // nobody has taken the first one's place
}

TEST_CASE("an own import that goes on is waited for, however long it takes; one that only says so is not") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  auto holder = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
  REQUIRE((holder && holder->lease));
  Lease::Options options = patient();
  options.longest = std::chrono::milliseconds(1000);
  uint64_t bytes = 0;
  const auto began = std::chrono::steady_clock::now();
  const auto goes_on = Lease::acquire(path, of_job("8.0"), options, kSilent, [&] {
    holder->lease->report(State::storing, ++bytes);
    return std::chrono::steady_clock::now() - began > std::chrono::seconds(3);
  });
  REQUIRE(goes_on);
  CHECK(goes_on->outcome == Lease::Outcome::done);
  const auto hangs = Lease::acquire(path, of_job("8.0"), options, kSilent, kNotCancelled);
  REQUIRE(hangs);
  CHECK((hangs->outcome == Lease::Outcome::held && hangs->overtook));
}

TEST_CASE("who waits writes nothing beside the lease, and stops at once") {
  const test::TempDir directory;
  const std::string path = directory / "l";
  const auto holder = Lease::acquire(path, of_job("7.0"), {}, kSilent, kNotCancelled);
  REQUIRE((holder && holder->lease));
  Lease::Options options = patient();
  options.rarely = std::chrono::minutes(10);
  int looks = 0, asked = 0;
  fs::file_time_type changed;
  const auto waited = Lease::acquire(
      path, of_job("8.0"), options, kSilent,
      [&] {
        if (++looks == 2) changed = fs::last_write_time(directory.path());  // the first one asks whether locks hold
        return false;
      },
      [&] { return ++asked == 100; });
  REQUIRE(waited);
  CHECK(waited->outcome == Lease::Outcome::done);
  CHECK(looks < 50);  // ever more rarely
  CHECK(fs::last_write_time(directory.path()) == changed);
}

TEST_CASE("records are read strictly") {
  LeaseRecord record = of_job("7.0");
  record.owner = "0123";
  record.node = "node1";
  record.boot = "b";
  record.bytes = 12;
  const auto read = LeaseRecord::parse(record.text());
  REQUIRE(read);
  CHECK(
      (read->owner == "0123" && read->node == "node1" && read->uid == 1000 && read->job == "7.0" && read->bytes == 12));
  for (const char* text :
       {"", "2 a b c 1 d queued 1", "1 a b c x d queued 1", "1 a b c 1 d asleep 1", "1 a b c 1 d queued"})
    CHECK_FALSE(LeaseRecord::parse(text));
}
